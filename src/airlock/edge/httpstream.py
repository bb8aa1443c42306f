"""Knows one answer that is read piece by piece while it arrives: its head, its body, how long it may be silent.

Must not know JSON, SSE, MCP, or where the connection leads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpanswer import Answer, ClientLimits, Reply

if TYPE_CHECKING:
    from airlock.edge.httpconn import Connection

__all__ = ["EVENT_STREAM", "Incoming", "Stream"]

EVENT_STREAM = "text/event-stream"

# LIMIT: what waits for a slow reader; above it the connection is not read, so that the sender has to wait. A
# transport hands over a quarter of a MiB at most at a time, which comes on top.
_MOST_UNREAD = 64 * 1024


class Stream:
    """An answer under way: `HttpClient.open` returned when its head was read. For one reader at a time.

    `status`, `content_type` (the lower-case media type without parameters, empty when absent) and `headers` (the
    first value of every header, by its lower-case name) are those of the final head. Whoever opened a stream
    closes it, whatever happens.
    """

    __slots__ = (
        "_buffer",
        "_closed",
        "_connection",
        "_done",
        "_idle_s",
        "_incoming",
        "_limits",
        "_loop",
        "_paused",
        "_waker",
        "content_type",
        "headers",
        "status",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ClientLimits,
        connection: Connection,
        idle_s: float | None,
    ) -> None:
        self.status = 0
        self.content_type = ""
        self.headers: Mapping[bytes, bytes] = {}
        self._loop = loop
        self._limits = limits
        self._connection = connection
        self._idle_s = math.inf if idle_s is None else idle_s
        self._incoming: Incoming | None = None
        self._buffer: bytes | bytearray = b""
        self._closed = self._paused = False
        self._waker: asyncio.Future[None] | None = None
        # INVARIANT: resolved exactly once, when nothing more can come: with a reply, or with what went wrong.
        self._done: asyncio.Future[Reply | UpstreamError] | None = None

    async def begin(self, now: float, request: bytes, head_s: float) -> None:
        """Send `request` and return when the head of its answer is read. Raises `UpstreamError`."""
        self._incoming = Incoming(self._limits, self)
        self._done = done = self._connection.begin_stream(now, request, self._incoming, head_s)
        done.add_done_callback(self._ended)
        while not self.status:
            if done.done():
                outcome = done.result()
                assert isinstance(outcome, UpstreamError)
                raise outcome
            await self._woken()

    async def read(self) -> bytes:
        """Return the next piece of the body as it arrives, b"" at its end.

        Raises `UpstreamError` when the answer is torn, too large or silent for too long, and after `close`. A
        reader that is cancelled here closes the connection.
        """
        done = self._done
        assert done is not None
        while not self._buffer:
            if self._closed:
                raise self._error(UpstreamFailure.UNREACHABLE, "stream closed")
            if done.done():
                outcome = done.result()
                if isinstance(outcome, UpstreamError):
                    raise outcome
                return b""
            await self._woken()
        piece, self._buffer = self._buffer, b""
        if self._paused and not done.done():
            self._paused = False
            self._connection.expect(self._loop.time() + self._idle_s)
            self._connection.resume()
        return bytes(piece)

    async def whole(self, limit: int | None = None) -> bytes:
        """Return the rest of the body, at most `limit` bytes of it (None: `max_body_bytes`).

        Raises like `read`, and for a body above the limit.
        """
        most = self._limits.max_body_bytes if limit is None else limit
        body = bytearray()
        while piece := await self.read():
            body += piece
            if len(body) > most:
                self.close()
                raise self._error(UpstreamFailure.TOO_LARGE, "answer too large")
        return bytes(body)

    def close(self) -> None:
        """End the reading, at any time and also twice: an unfinished answer closes its connection."""
        if self._closed or self._done is None:
            return
        self._closed = True
        self._buffer = b""
        self._connection.leave(self._done)
        if not self._done.done():
            self._done.set_result(self._error(UpstreamFailure.UNREACHABLE, "stream closed"))

    # What arrives, in the order of its bytes

    def head(self, status: int, content_type: str, headers: Mapping[bytes, bytes]) -> int | None:
        """Take the final head; return how many bytes the body may have, None for any number."""
        self.status = status
        self.content_type = content_type
        self.headers = headers
        endless = self._idle_s == math.inf and content_type == EVENT_STREAM
        if endless:
            self._connection.probe()
        self._wake()
        return None if endless else self._limits.max_body_bytes

    def piece(self, data: bytes) -> None:
        """Take a piece of the body."""
        # A bytearray, not a list of pieces: small chunks must not weigh many times what they hold.
        if not self._buffer:
            self._buffer = data
        else:
            if isinstance(self._buffer, bytes):
                self._buffer = bytearray(self._buffer)
            self._buffer += data
        self._wake()

    def more(self) -> None:
        """Bytes came, and the answer is not whole: wait for the next, or for the reader when it is behind."""
        if len(self._buffer) < _MOST_UNREAD:
            self._connection.expect(self._loop.time() + self._idle_s)
        elif not self._paused:
            # SECURITY: a sender that is faster than its reader would fill the memory.
            self._paused = True
            self._connection.expect(math.inf)
            self._connection.pause()

    def _ended(self, done: asyncio.Future[Reply | UpstreamError]) -> None:
        if self._incoming is not None:
            self._incoming.release()
            self._incoming = None
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done():
            self._waker.set_result(None)

    async def _woken(self) -> None:
        self._waker = self._loop.create_future()
        try:
            await self._waker
        except (asyncio.CancelledError, GeneratorExit):
            self.close()
            raise
        finally:
            self._waker = None

    def _error(self, kind: UpstreamFailure, cause: str) -> UpstreamError:
        return UpstreamError(kind, cause, reached=True, status=self.status or None)


class Incoming(Answer):
    """Reads an answer for a stream, which takes its body as it comes."""

    __slots__ = ("_headers", "_most", "_stream")

    def __init__(self, limits: ClientLimits, stream: Stream) -> None:
        super().__init__(limits)
        self._stream = stream
        self._headers: dict[bytes, bytes] = {}
        self._most: float = 0

    def feed(self, data: bytes) -> bool:
        """Read on; True when the answer is whole. Raises `UpstreamError` at the first thing wrong with it."""
        whole = super().feed(data)
        if not whole and self.status:
            self._stream.more()
        return whole

    # What the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if not self.status:
            self._headers.setdefault(name.lower(), value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.status:
            most = self._stream.head(self.status, self._content_type, self._headers)
            self._most = math.inf if most is None else most

    def on_body(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            self._stop(self._error_of(UpstreamFailure.TOO_LARGE, "answer too large"))
        self._stream.piece(data)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        if not self.status:
            self._headers = {}
