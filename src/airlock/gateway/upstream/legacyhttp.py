"""The streamable HTTP of 2025-03-26 to 2025-11-25, client side: one session with one server.

Knows POST, GET and DELETE, sessions, event streams and how they are resumed; does not know methods, or who asked.
SPEC: mcp.md 5 (duties of a client), 18.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import sse
from airlock.core.wire.sse import Events
from airlock.core.wire.strict import StrictError
from airlock.edge.httpc import HttpClient, Stream, header_line
from airlock.edge.httpstream import EVENT_STREAM
from airlock.gateway import body
from airlock.gateway.upstream.legacywire import (
    IDENTITY,
    LISTENING,
    POSTED,
    Exchanges,
    check_stream,
    drained,
    failed,
    messages,
    next_events,
    parsed,
)
from airlock.gateway.upstream.line import SESSION_GONE, Incoming, Line, Lost

__all__ = ["HttpDialer"]

_JSON: Final = "application/json"
# SPEC: mcp.md 18: the header exists from 2025-06-18 on.
_NAMED_VERSIONS: Final = frozenset({"2025-06-18", "2025-11-25"})
# SECURITY: the id becomes a header of every later request. SPEC: mcp.md 18: visible ASCII.
_SESSION: Final = re.compile(rb"[\x21-\x7e]{1,512}")
_EVENT_ID: Final = re.compile(r"[\x20-\x7e]+")

# LIMIT: a server that answers in one JSON object sends its head with it; whoever waits has a deadline of his own.
_HEAD_S: Final = 3600.0
_BRIEF_S: Final = 60.0
# LIMIT: after its response a stream has this long to end, so that its connection can be used again.
_TAIL_S: Final = 0.25
_BYE_S: Final = 2.0
# SECURITY: a server that cuts its streams for ever would be asked for ever: resumptions in a row without a message.
_MOST_RESUMES: Final = 10
_RESUME_S: Final = 1.0
_SOONEST_S: Final = 0.1
_LATEST_S: Final = 30.0
_FIRST_BACK_OFF_S: Final = 1.0


class HttpDialer:
    """Opens sessions at one MCP endpoint. `fixed_headers` are lines that go with every request."""

    __slots__ = ("_client", "_fixed", "offers_get")

    def __init__(self, client: HttpClient, fixed_headers: bytes) -> None:
        self._client = client
        self._fixed = fixed_headers
        self.offers_get = True
        """False once the server said 405 to a GET: no session of it has a stream of its own."""

    async def dial(self, incoming: Incoming, lost: Lost) -> Line:
        """Return a new line; nothing is sent before its first request."""
        return _HttpLine(self, self._client, self._fixed, incoming, lost)


class _HttpLine:
    """One session. INVARIANT: `_listener` is the task of the GET stream, the only one of a line's own."""

    tells_streams = True
    alive = True

    def __init__(
        self, dialer: HttpDialer, client: HttpClient, fixed: bytes, incoming: Incoming, lost: Lost
    ) -> None:
        self._dialer = dialer
        self._client = client
        self._fixed = fixed
        self._incoming = incoming
        self._lost = lost
        self._session = b""
        self._version = b""
        self._gone = self._closed = False
        self._exchanges = Exchanges()
        self._listener: asyncio.Task[None] | None = None

    def opened(self, version: str) -> None:
        if version in _NAMED_VERSIONS:
            self._version = header_line(b"mcp-protocol-version", version.encode("ascii"))
        if self._dialer.offers_get and self._listener is None and not self._closed:
            self._listener = asyncio.get_running_loop().create_task(self._listen())

    async def request(self, message: dict[str, object]) -> None:
        await self._run(self._exchange(message))

    async def post(self, message: dict[str, object]) -> None:
        await self._run(self._hand_over(message))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._exchanges.end()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.wait([self._listener])
        if self._session and not self._gone:
            try:
                async with asyncio.timeout(_BYE_S):
                    await drained(await self._client.open(b"DELETE", self._lines(IDENTITY), head_s=_BYE_S))
            except (UpstreamError, TimeoutError):
                pass  # The session is not used again, whatever its server says.

    async def _run(self, exchange: Coroutine[object, object, None]) -> None:
        if self._gone:
            exchange.close()
            raise failed(SESSION_GONE, reached=False)
        await self._exchanges.run(exchange)

    # One POST and what comes on its stream

    async def _exchange(self, message: dict[str, object]) -> None:
        during = message["id"]
        lines = self._lines(POSTED)
        stream = await self._client.open(b"POST", lines, body.encode(message), head_s=_HEAD_S)
        reader = Events(self._client.limits.max_event_bytes)
        try:
            if message["method"] == "initialize" and stream.status == 200:
                self._session = _session_line(stream)
            if stream.status != 200 or stream.content_type != EVENT_STREAM:
                await self._plain(stream, during)
                return
            answered, _ = await self._events(stream, reader, during)
        except UpstreamError as error:
            if error.kind is not UpstreamFailure.UNREACHABLE or not _resumable(reader):
                raise
            answered = False
        finally:
            stream.close()
        if not answered:
            await self._resume(reader, during)

    async def _plain(self, stream: Stream, during: object) -> None:
        """Deliver an answer that is no event stream; raise when it holds no response."""
        status = stream.status
        self._check_session(status, reached=False)
        if status == 202 or 300 <= status < 400 or status in (401, 403) or stream.content_type != _JSON:
            problem = f"HTTP {status}" if status != 200 else "neither JSON nor an event stream"
            raise failed(problem, status=status)
        try:
            found = parsed(await stream.whole())
        except StrictError as error:
            if status != 200:
                raise failed(f"HTTP {status}", status=status) from None
            raise failed(f"not a JSON-RPC message: {error}", status=status) from None
        if len(found) == 1 and _is_about_post(found[0], status):
            if status == 400 and _misses_session(found[0]):
                self._check_session(404, reached=False)
            # SPEC: mcp.md 5: an error that names no request answers the only one that was posted.
            self._incoming({"jsonrpc": "2.0", "id": during, "error": found[0]["error"]}, during)
            return
        if status != 200:
            raise failed(f"HTTP {status}", status=status)
        for each in found:
            self._incoming(each, during)
        if not any(sse.answers(each, during) for each in found):
            raise failed("no response to this request", status=status)

    async def _events(self, stream: Stream, reader: Events, during: object) -> tuple[bool, bool]:
        """Deliver events up to the response or the end: whether it came, and whether anything did."""
        answered = heard = False
        while not answered and (found := await next_events(stream, reader)) is not None:
            for message in messages(found):
                heard = True
                self._incoming(message, during)
                answered = answered or sse.answers(message, during)
        if answered:
            try:
                async with asyncio.timeout(_TAIL_S):
                    await stream.read()
            except (UpstreamError, TimeoutError):
                pass  # What breaks after the response breaks nothing.
        return answered, heard

    async def _resume(self, reader: Events, during: object) -> None:
        """Ask for the rest of a stream that ended early, as its server invited us to. SPEC: mcp.md 1, 18."""
        fruitless = 0
        while _resumable(reader) and fruitless < _MOST_RESUMES:
            await asyncio.sleep(_pause(reader))
            fruitless += 1
            answered = heard = False
            stream: Stream | None = None
            try:
                stream = await self._get(reader)
                self._check_session(stream.status)
                if stream.status < 500:
                    check_stream(stream)
                    reader = _continued(reader, self._client.limits.max_event_bytes)
                    answered, heard = await self._events(stream, reader, during)
            except UpstreamError as error:
                if self._gone or error.kind is not UpstreamFailure.UNREACHABLE:
                    raise
            finally:
                if stream is not None:
                    stream.close()
            if answered:
                return
            fruitless = 0 if heard else fruitless
        raise failed("the event stream ended without a response", status=200)

    # What belongs to no request

    async def _hand_over(self, message: dict[str, object]) -> None:
        stream = await self._client.open(b"POST", self._lines(POSTED), body.encode(message), head_s=_BRIEF_S)
        status = stream.status
        await drained(stream)
        self._check_session(status, reached=False)
        if status not in (200, 202, 204):
            raise failed(f"HTTP {status}", status=status)

    async def _listen(self) -> None:
        """Keep the GET stream open as long as the server offers one."""
        reader = Events(self._client.limits.max_event_bytes)
        back_off = _FIRST_BACK_OFF_S
        while not self._gone:
            stream: Stream | None = None
            try:
                stream = await self._get(reader)
                if stream.status == 405:
                    self._dialer.offers_get = False
                if stream.status < 500:
                    check_stream(stream)
                    reader = _continued(reader, self._client.limits.max_event_bytes)
                    while (found := await next_events(stream, reader)) is not None:
                        for message in messages(found):
                            back_off = _FIRST_BACK_OFF_S
                            self._incoming(message, None)
            except UpstreamError as error:
                if error.kind is UpstreamFailure.BAD_REPLY:
                    return
            finally:
                if stream is not None:
                    stream.close()
            await asyncio.sleep(max(back_off, _pause(reader)))
            back_off = min(2 * back_off, _LATEST_S)

    # Common to all

    def _lines(self, more: bytes) -> bytes:
        return self._fixed + more + self._session + self._version

    async def _get(self, reader: Events) -> Stream:
        lines = self._lines(LISTENING)
        if reader.last_id is not None and _resumable(reader):
            lines += header_line(b"last-event-id", reader.last_id.encode("ascii"))
        return await self._client.open(b"GET", lines, head_s=_BRIEF_S)

    def _check_session(self, status: int, *, reached: bool = True) -> None:
        """SPEC: mcp.md 18: 404 to a session id says that the session is over."""
        if status == 404 and self._session:
            if not self._gone and not self._closed:
                self._gone = True
                self._lost(SESSION_GONE)
            raise failed(SESSION_GONE, kind=UpstreamFailure.UNREACHABLE, reached=reached, status=status)


def _session_line(stream: Stream) -> bytes:
    """Return the header of the session that an answer to `initialize` opens, empty when it opens none."""
    value = stream.headers.get(b"mcp-session-id")
    if value is None:
        return b""
    if _SESSION.fullmatch(value) is None:
        raise failed("the session id is not visible ASCII of at most 512 bytes", status=stream.status)
    return header_line(b"mcp-session-id", value)


def _is_about_post(message: dict[str, object], status: int) -> bool:
    """Tell whether a message is an error that answers whatever was posted, under no or another id."""
    return isinstance(message.get("error"), dict) and (status != 200 or message.get("id") is None)


def _misses_session(message: dict[str, object]) -> bool:
    """Tell whether a transport's own refusal is about the session.

    SPEC: mcp.md 8: the codes have no fixed meaning; many servers answer so to a session that they forgot.
    """
    error = message["error"]
    assert isinstance(error, dict)
    said = error.get("message")
    return (
        message.get("id") is None
        and error.get("code") in (-32000, -32001)
        and isinstance(said, str)
        and "session" in said.lower()
    )


def _resumable(reader: Events) -> bool:
    return reader.last_id is not None and _EVENT_ID.fullmatch(reader.last_id) is not None


def _continued(reader: Events, limit: int) -> Events:
    """Return a reader for the next connection of the same stream."""
    following = Events(limit)
    following.last_id, following.retry_ms = reader.last_id, reader.retry_ms
    return following


def _pause(reader: Events) -> float:
    """How long to wait before the stream is asked for again, as its server wishes, in seconds."""
    wished = _RESUME_S if reader.retry_ms is None else reader.retry_ms / 1000
    return min(max(wished, _SOONEST_S), _LATEST_S)
