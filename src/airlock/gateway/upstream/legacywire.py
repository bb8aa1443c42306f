"""What both HTTP transports of the legacy era do alike: exchanges that end with their line, events, failures.

Knows answers as bytes and as events; does not know sessions, or which transport asks. SPEC: mcp.md 5, 18.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire.sse import Event, Events, EventTooLarge
from airlock.core.wire.strict import StrictError
from airlock.edge.httpc import Stream
from airlock.edge.httpstream import EVENT_STREAM
from airlock.gateway import body

__all__ = [
    "IDENTITY",
    "LISTENING",
    "POSTED",
    "Exchanges",
    "check_stream",
    "drained",
    "failed",
    "messages",
    "next_events",
    "parsed",
]

IDENTITY: Final = b"accept-encoding: identity\r\n"
"""The header line that asks for an answer as it is."""
POSTED: Final = (
    b"content-type: application/json\r\naccept: application/json, text/event-stream\r\n" + IDENTITY
)
"""Header lines of a POST."""
LISTENING: Final = b"accept: text/event-stream\r\n" + IDENTITY
"""Header lines of a GET."""
_CLOSED: Final = "the line is closed"
_MOST_DRAINED: Final = 64 * 1024


class Exchanges:
    """The exchanges under way on one line, which end with it."""

    __slots__ = ("_ended", "_scopes")

    def __init__(self) -> None:
        self._ended = False
        self._scopes: set[asyncio.Timeout] = set()

    async def run(self, exchange: Coroutine[object, object, None]) -> None:
        """Run one. Raises `UpstreamError` when they are ended before it is over."""
        if self._ended:
            exchange.close()
            raise failed(_CLOSED, reached=False)
        try:
            async with asyncio.timeout(None) as scope:
                self._scopes.add(scope)
                try:
                    await exchange
                finally:
                    self._scopes.discard(scope)
        except TimeoutError:
            raise failed(_CLOSED) from None

    def end(self) -> None:
        """End them all, and let no other begin."""
        self._ended = True
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            scope.reschedule(now)


def parsed(data: bytes) -> list[dict[str, object]]:
    """Return the messages of a JSON text: an object, or an array of them. Raises `StrictError`.

    SECURITY: equal keys are refused: what one reader judges must be what another one runs.
    """
    value = body.decode_answer(data, exact=True)
    entries = value if isinstance(value, list) else [value]
    return [entry for entry in entries if isinstance(entry, dict)]


async def next_events(stream: Stream, reader: Events) -> list[Event] | None:
    """Return the events that the next piece of an event stream completes; None at its end.

    Raises `UpstreamError` as the stream does, and TOO_LARGE for an event over the reader's limit.
    """
    chunk = await stream.read()
    if not chunk:
        return None
    try:
        return reader.take(chunk)
    except EventTooLarge:
        raise failed("event too large", kind=UpstreamFailure.TOO_LARGE, status=stream.status) from None


def messages(events: list[Event]) -> list[dict[str, object]]:
    """Return the messages in some events. What is no strict JSON is no message."""
    found: list[dict[str, object]] = []
    for event in events:
        # An event without data is there for its id: the stream can be resumed from here.
        if event.name == "message" and event.data:
            try:
                found += parsed(event.data)
            except StrictError:
                continue
    return found


async def drained(stream: Stream) -> None:
    """Read a short body that says nothing, and close: the connection can be used again."""
    try:
        if stream.content_type != EVENT_STREAM:
            await stream.whole(_MOST_DRAINED)
    except UpstreamError:
        pass  # The status was read, and it is all that is asked for.
    finally:
        stream.close()


def failed(
    cause: str,
    *,
    kind: UpstreamFailure | None = None,
    reached: bool = True,
    status: int | None = None,
) -> UpstreamError:
    """Return a failure: a bad reply when a status was read, else unreachable, unless `kind` says more."""
    if kind is None:
        kind = UpstreamFailure.UNREACHABLE if status is None else UpstreamFailure.BAD_REPLY
    return UpstreamError(kind, cause, reached=reached, status=status)


def check_stream(stream: Stream) -> None:
    """Raise `UpstreamError` unless the answer to a GET is an event stream."""
    if stream.status != 200 or stream.content_type != EVENT_STREAM:
        raise failed(f"HTTP {stream.status} instead of an event stream", status=stream.status)
