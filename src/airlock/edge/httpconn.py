"""Knows one connection to an upstream: a request out, one answer in, and whether it may be used again.

Must not know where it leads, or how an answer is read.
"""

from __future__ import annotations

import asyncio
import math
import select
import socket
from typing import Protocol, cast

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpanswer import Answer, ClientLimits, Reply

__all__ = ["Connection", "Pool"]

_READABLE = select.POLLIN | select.POLLPRI
# A peer that vanished without a word is noticed after about two minutes, where nothing else would notice it.
_PROBES = (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))


class Pool(Protocol):
    """What a connection needs of its owner."""

    limits: ClientLimits

    def keep(self, connection: Connection, now: float) -> None:
        """Take back a connection whose answer was read completely and cleanly."""
        ...

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is gone, kept or not."""
        ...


class Connection(asyncio.Protocol):
    """One connection, in use by at most one call. `transport` is None until it is connected.

    INVARIANT: `_waiter` is set exactly while a call runs, and is resolved with a value, never an exception,
    so that an answer nobody waits for any more leaves nothing to report.
    """

    __slots__ = (
        "_answer",
        "_connect_by",
        "_deadline",
        "_loop",
        "_poll",
        "_pool",
        "_reader",
        "_request",
        "_sent",
        "_timer",
        "_waiter",
        "connecting",
        "idle_since",
        "transport",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Pool) -> None:
        self._loop = loop
        self._pool = pool
        self._poll: select.poll | None = None
        self._answer: Answer | None = None
        self._reader: Answer | None = None
        self._waiter: asyncio.Future[Reply | UpstreamError] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connect_by = self._deadline = 0.0
        self._request = b""
        self._sent = False
        self.transport: asyncio.Transport | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.idle_since = 0.0

    def begin(self, now: float, request: bytes) -> asyncio.Future[Reply | UpstreamError]:
        """Start a call: send `request` now, or as soon as the connection stands."""
        limits = self._pool.limits
        self._waiter = waiter = self._loop.create_future()
        # One reader, and with it one parser, serves the calls of a connection one after the other.
        reader = self._reader
        if reader is None:
            self._reader = reader = Answer(limits)
        else:
            reader.renew()
        self._answer = reader
        if self.transport is not None:
            self._deadline = now + limits.total_s
            self._sent = True
            self.transport.write(request)
        else:
            self._connect_by = now + min(limits.connect_s, limits.total_s)
            self._deadline = now + limits.total_s
            self._request = request
        # One timer serves many calls: it stays when a call ends, and firing looks whose time is over.
        if self._timer is None:
            self._timer = self._loop.call_at(self._due(), self._expire)
        return waiter

    def begin_stream(
        self, now: float, request: bytes, answer: Answer, head_s: float
    ) -> asyncio.Future[Reply | UpstreamError]:
        """Start a call like `begin`, whose answer `answer` takes as it comes. It has `head_s` until `expect`."""
        self._waiter = waiter = self._loop.create_future()
        self._answer = answer
        if self.transport is not None:
            self._sent = True
            self.transport.write(request)
        else:
            self._connect_by = now + min(self._pool.limits.connect_s, head_s)
            self._request = request
        self.expect(now + head_s)
        return waiter

    def expect(self, deadline: float) -> None:
        """End the call under way at `deadline`, which `inf` never is, instead of when it was to end so far."""
        self._deadline = deadline
        due = self._due()
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
            self._timer = None
        if due < math.inf:
            self._timer = self._loop.call_at(due, self._expire)

    def pause(self) -> None:
        """Read no more until `resume`: the call under way cannot take more."""
        assert self.transport is not None
        self.transport.pause_reading()

    def resume(self) -> None:
        """Read on."""
        assert self.transport is not None
        self.transport.resume_reading()

    def probe(self) -> None:
        """Let the system find out whether the peer is still there, on a connection that may be silent for ever."""
        assert self.transport is not None
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _PROBES:
                if hasattr(socket, option):
                    sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def _due(self) -> float:
        """When the call under way has had its time."""
        return self._deadline if self.transport is not None else self._connect_by

    def leave(self, waiter: asyncio.Future[Reply | UpstreamError]) -> None:
        """End the wait. When the answer has not come, the connection cannot be used again."""
        if self._waiter is waiter:
            self._release()
            self.abort()

    def fail(self, error: str | UpstreamError) -> None:
        """Close, and end the call if one runs, with `error`; a cause alone means unreachable."""
        answer = self._answer
        waiter = self._release()
        self.abort()
        if waiter is not None and not waiter.done():
            if isinstance(error, str):
                status = (answer.status or None) if answer is not None else None
                error = UpstreamError(UpstreamFailure.UNREACHABLE, error, reached=self._sent, status=status)
            waiter.set_result(error)

    def abort(self) -> None:
        """Close without waiting for anything, and let go of all that a call left here."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._reader is not None:
            self._reader.release()
        self._request = b""
        if self.transport is not None:
            self.transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()

    def usable(self) -> bool:
        """Tell whether a kept connection still looks alive, by asking the socket without reading it."""
        # SPEC: performance.md trap 5: what the upstream closed while idle must not count as "may have run";
        # and whatever it sent while idle answers nothing we asked.
        # LIMIT: what arrives after the next request left is taken for its answer; only the id can tell.
        assert self.transport is not None
        return not self.transport.is_closing() and (self._poll is None or not self._poll.poll(0))

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the waiting request, unless nobody waits any more."""
        self.transport = made = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.connecting = None
        sock = made.get_extra_info("socket")
        if sock is not None:
            self._poll = select.poll()
            self._poll.register(sock.fileno(), _READABLE)
        request, self._request = self._request, b""
        if self._waiter is None or self._waiter.done():
            made.abort()
        else:
            self._sent = True
            made.write(request)

    def data_received(self, data: bytes) -> None:
        """Read on; the call ends when its answer is whole, or at the first thing wrong with it."""
        answer = self._answer
        if answer is None:
            # SECURITY: bytes nobody asked for would become the answer to the next call.
            self.abort()
            return
        try:
            whole = answer.feed(data)
        except UpstreamError as error:
            self.fail(error)
            return
        if whole:
            self._finish(answer)

    def eof_received(self) -> None:
        """End the answer if only the end of the connection can end it; else it is torn."""
        if self._answer is not None and self._answer.end():
            self._finish(self._answer)
        else:
            self.fail("torn answer")

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the pool; a call that still runs will get no answer."""
        self._pool.forget(self)
        self.fail("torn answer" if exc is None else type(exc).__name__)

    def _finish(self, answer: Answer) -> None:
        waiter = self._release()
        transport = self.transport
        assert waiter is not None
        assert transport is not None
        if answer is not self._reader:
            self._settle()
        waits = not waiter.done()
        # INVARIANT: a connection goes back only after one whole answer with nothing behind it, to a call that
        # still waits and whose request has left: otherwise the next call could read this one's leftovers.
        if answer.reusable and waits and not transport.get_write_buffer_size():
            self.idle_since = now = self._loop.time()
            self._pool.keep(self, now)
        else:
            transport.abort()
        if waits:
            waiter.set_result(answer.reply())

    def _settle(self) -> None:
        """Undo what a stream has changed, before the next call: it may be paused, or its timer too late."""
        self.resume()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _release(self) -> asyncio.Future[Reply | UpstreamError] | None:
        self._answer = None
        waiter, self._waiter = self._waiter, None
        return waiter

    def _expire(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        due = self._due()
        if self._loop.time() >= due:
            self.fail("TimeoutError")
        elif due < math.inf:
            self._timer = self._loop.call_at(due, self._expire)
