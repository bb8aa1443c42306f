"""One connection of the HTTP server: its reads, its time-outs, its refusals and its end.

Knows bytes and clocks; must not know MCP, principals, policy, listening, signals or what a good head is.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httptools

from airlock.edge.frontcycle import DirectCycle
from airlock.edge.frontflow import Flow
from airlock.edge.fronthead import BLANK, BODY, HEAD, IDLE, HeadProtocol
from airlock.edge.frontlimits import REFUSALS, FrontState, Refused

__all__ = ["FrontProtocol"]

_LINGER_S = 2.0  # after an answer that closes while bytes still come: how long they are read and dropped,
_LINGER_BYTES = 16 << 20  # and how many, so that the client sees the answer
_FRAMING_PER_BYTE = 8  # bytes of chunk framing allowed for each body byte (a chunk of one byte needs five)


class _Parting(asyncio.Transport):
    """The transport of an answer whose request has not wholly arrived: to close it is to linger."""

    def __init__(self, front: FrontProtocol) -> None:
        super().__init__()
        self._front = front

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._front.transport.write(data)

    def is_closing(self) -> bool:
        return self._front.transport.is_closing()

    def close(self) -> None:
        self._front.linger()


class FrontProtocol(HeadProtocol):
    """One connection. Refusals keep the order: calls that came before a bad request are answered first.

    INVARIANT: once `_over` is set nothing is parsed any more.
    """

    def __init__(self, state: FrontState, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(state, loop)
        self._wire = 0  # bytes of the arriving body with its framing
        self._over = False
        self._farewell: bytes | None = None  # the refusal that waits for the calls before it
        self._dropped = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._deadline_for = (0, False)  # which message, and whether its body
        self._stalled: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._idle_since = 0.0

    # The transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a connection while there is room, else close it at once."""
        state = self.state
        self.transport = made = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self.flow = Flow(made)
        full = len(state.connections) >= self._limits.max_connections
        if full or state.stopping:
            self._room, self._over = -1, True
            if full:
                state.crowded(self.loop.time())
            made.close()
            return
        state.connections.add(self)
        self._expect_within(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the running call, forget the queued ones and every timer."""
        self._room, self._over = -1, True
        self.state.connections.discard(self)
        self._forget_deadline()
        for timer in (self._stalled, self._idle_timer):
            if timer is not None:
                timer.cancel()
        self.pipeline.clear()
        running = self._running
        for cycle in (running, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.gone()
        self.flow.resume_writing()
        self.parser = None  # it holds our methods, and we hold it: a cycle for every connection

    def data_received(self, data: bytes) -> None:
        """Parse what came. A whole request in one read costs one comparison and no timer."""
        if len(data) > self._room:
            self._in_pieces(data)
            return
        message, stage = self._message, self._stage
        self._first = True
        if stage == IDLE:
            self._stage = BLANK
        upgrade = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stop:
            upgrade = stop.args[0]
        except httptools.HttpParserError as fault:
            cause = fault.__context__
            self._refuse(cause.status if isinstance(cause, Refused) else 400)
        self._first = False  # a call that begins later begins in a task
        if upgrade:
            self.ignore_upgrade()
            if rest := data[upgrade:]:
                self.data_received(rest)
        if self._stage:
            self._unfinished(len(data), message, stage)
        elif self._deadline is not None and not self._over:
            self._forget_deadline()

    def _in_pieces(self, data: bytes) -> None:
        """Parse a read that is longer than the room left, so that the head limit holds to the byte."""
        view, at = memoryview(data), 0
        while at < len(view) and not self._over:
            piece = view[at : at + self._room]
            at += len(piece)
            self.data_received(piece)  # type: ignore[arg-type]  # the parser takes any buffer
        self._dropped += len(view) - at
        # SECURITY: a client that goes on sending after its refusal costs no memory and only so much time.
        if self._dropped > _LINGER_BYTES:
            self.transport.abort()

    def _unfinished(self, size: int, message: int, stage: int) -> None:
        """Charge and time a message that `size` bytes did not finish; the other two stood so before them."""
        if self._over:
            return
        limits, same, in_body = self._limits, message == self._message, self._stage == BODY
        if in_body:
            self._wire = self._wire + size if same and stage == BODY else self._body_bytes
            # SECURITY: llhttp reads chunk extensions and trailers of any length.
            if self._wire - self._body_bytes > limits.max_head_bytes + _FRAMING_PER_BYTE * self._body_bytes:
                self._refuse(400)
                return
            self._part()
        elif same or (stage < HEAD and message + 1 == self._message):
            # SECURITY: llhttp gathers a head, and skips blank lines before one, without end.
            # LIMIT: a head that began behind another message in one read is charged from the next read on,
            # so that one may grow to twice the limit.
            self._room -= size
            if self._room <= 0:
                self._refuse(431)
                return
        key = (self._message, in_body)
        if self._deadline is None or self._deadline_for != key:
            self._deadline_for = key
            self._expect_within(limits.body_s if in_body else limits.head_s)

    def _part(self) -> None:
        """See that an answer given before its request's body is whole ends the connection."""
        # SECURITY: kept alive after a 413 unread, the server would read and drop any length once declared.
        cycle = self.cycle
        assert cycle is not None
        if cycle.transport is self.transport and not cycle.response_started:
            self._newest_keeps = cycle.keep_alive
            cycle.keep_alive = False
            cycle.transport = _Parting(self)

    def shutdown(self) -> None:
        """Close if idle, else after the answer."""
        self._newest_keeps = False
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    # Time

    def _expect_within(self, seconds: float) -> None:
        self._forget_deadline()
        self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        """Refuse what has not arrived in time; a connection on which nothing began is just closed."""
        if self.flow.read_paused:  # we hold the bytes back, not the client
            self._expect_within(self._limits.body_s)
        else:
            self._refuse(0 if self._stage < HEAD else 408)

    def _rest(self) -> None:
        """Wait for the next request. One timer serves many waits: firing, it looks how long this one is."""
        self._idle_since = self.loop.time()
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_later(self._limits.keep_alive_s, self._rested)

    def _rested(self) -> None:
        self._idle_timer = None
        if self._stage != IDLE or (self._running is not None and not self._running.response_complete):
            return
        left = self._idle_since + self._limits.keep_alive_s - self.loop.time()
        if left <= 0:
            self._shut()
        else:
            self._idle_timer = self.loop.call_later(left, self._rested)

    def pause_writing(self) -> None:
        """Hold answers back; a client that takes nothing of them for long is gone."""
        self.flow.pause_writing()
        self._watch_writes()

    def resume_writing(self) -> None:
        """Go on writing."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self.transport.is_closing():
            self._watch_writes()
        self.flow.resume_writing()

    def _watch_writes(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent and self._stalled is None:
            self._stalled = self.loop.call_later(self._limits.keep_alive_s, self._stalling, unsent)

    def _stalling(self, before: int) -> None:
        # SECURITY: a client that asks and never reads would hold its connection and the answer for ever.
        # LIMIT: one that reads a byte now and then is not caught; the number of connections is bounded.
        self._stalled = None
        if self.transport.get_write_buffer_size() < before:
            self._watch_writes()
        else:
            self.transport.abort()

    # The ends of a connection

    def _refuse(self, status: int) -> None:
        """Parse no more; answer `status` after the calls that came before (0: then only close)."""
        if self._over:
            return
        self._room, self._over = -1, True
        self._forget_deadline()
        cycle = self.cycle
        if self._stage == BODY and cycle is not None:  # the refused request has its cycle already
            if not self.pipeline:
                cycle.gone()
                self._finish(b"" if cycle.response_started else REFUSALS[status])
                return
            self.pipeline.pop()
        if self._running is None or self._running.response_complete:
            self._finish(REFUSALS[status])
        else:
            self._farewell = REFUSALS[status]
            self.flow.pause_reading()

    def _finish(self, answer: bytes) -> None:
        if answer and not self.transport.is_closing():
            self.transport.write(answer)
            self.linger()
        else:
            self._shut()

    def linger(self) -> None:
        """Close our side, then read and drop a while: unread bytes would make the kernel drop the answer."""
        self._room, self._over = -1, True
        if self.transport.is_closing():
            return
        if self.cycle is not None:
            self.cycle.body = bytearray()
        try:
            self.transport.write_eof()
        except OSError:  # the client is gone
            self.transport.abort()
            return
        self.flow.resume_reading()
        self._forget_deadline()
        self._deadline = self.loop.call_later(_LINGER_S, self._shut)

    def _shut(self) -> None:
        """Close, and see to it that a client that reads nothing cannot hold the connection open."""
        self.transport.close()
        self._forget_deadline()
        self._watch_writes()

    def on_response_complete(self) -> None:
        """Go on with the next call, the waiting refusal, or the wait for more."""
        if self.transport.is_closing():
            self._shut()
            return
        if self.pipeline:
            cycle = self.pipeline.popleft()
            if type(cycle) is not DirectCycle or not cycle.more_body:
                self._start(cycle)
        elif self._farewell is not None:
            self._finish(self._farewell)
        if not self._over:
            self.flow.resume_reading()
            self._rest()
