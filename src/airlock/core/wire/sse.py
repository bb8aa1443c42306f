"""Server-sent events in and out; and the one event of a stream that answers a request.

Knows the event stream format and what a JSON-RPC response looks like; does not know where bytes come from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from airlock.core.wire import jsonrpc, strict

__all__ = ["Event", "EventTooLarge", "Events", "answers", "event", "reduce"]

_BOM: Final = b"\xef\xbb\xbf"
_LINE_ENDS: Final = (b"\n", b"\r")
# LIMIT: a longer id is not kept, nor one with control characters: it is sent back in a header.
_MOST_ID: Final = 1024
# LIMIT: of `retry`, some 11 days in milliseconds.
_MOST_RETRY_DIGITS: Final = 9


class EventTooLarge(Exception):
    """An event holds more bytes than its reader may keep."""


class Event(NamedTuple):
    """One event. `name` is `message` unless the stream says otherwise.

    `id` is the last id that the stream gave, with this event or before it; None when there was none.
    """

    name: str
    data: bytes
    id: str | None


class Events:
    """Reads a stream in any chunking. Lines end with LF, CR or CRLF.

    `limit` bounds a line together with the data before it in its event, in bytes. `last_id` and `retry_ms` are
    what the stream said so far about how to resume it, None when it said nothing.
    """

    __slots__ = (
        "_data",
        "_first",
        "_limit",
        "_line",
        "_name",
        "_owed_lf",
        "last_id",
        "retry_ms",
    )

    def __init__(self, limit: int | None = None) -> None:
        # Bytearrays, not lists of pieces: small chunks must not weigh many times what they hold.
        self._line = bytearray()
        self._data: bytes | bytearray | None = None
        self._name = b""
        self._first = True
        self._owed_lf = False
        self._limit = limit
        self.last_id: str | None = None
        self.retry_ms: int | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of each event they complete, in order.

        Raises `EventTooLarge`; what the same bytes completed before the large event is lost with it.
        """
        return [event.data for event in self.take(chunk)]

    def take(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return each event they complete, in order. Raises like `feed`."""
        events: list[Event] = []
        if self._owed_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._owed_lf = False
        for piece in chunk.splitlines(keepends=True):
            if piece.endswith(_LINE_ENDS):
                if self._line:
                    piece = bytes(self._line) + piece
                    self._line.clear()
                line = piece.rstrip(b"\r\n")
                self._bound(len(line))
                self._read(line, events)
            else:
                self._line += piece
                self._bound(len(self._line))
        # A CR ends its line at once; when the chunk ended there, an LF may still belong to it.
        self._owed_lf = self._owed_lf or chunk.endswith(b"\r")
        return events

    def finish(self) -> list[bytes]:
        """End the stream: an event that no blank line ended is dropped, so the list is empty."""
        self._line.clear()
        self._data = None
        return []

    def _read(self, line: bytes, events: list[Event]) -> None:
        if self._first:
            line = line.removeprefix(_BOM)
            self._first = False
        if not line:
            if self._data is not None:
                name = self._name.decode("utf-8", "replace") if self._name else "message"
                events.append(Event(name, bytes(self._data), self.last_id))
            self._data = None
            self._name = b""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._add(value)
        elif field == b"event":
            self._name = value
        elif field == b"id":
            given = value.decode("utf-8", "replace")
            if len(value) <= _MOST_ID and given.isprintable():
                self.last_id = given or None
        elif field == b"retry" and value.isdigit() and len(value) <= _MOST_RETRY_DIGITS:
            self.retry_ms = int(value)

    def _add(self, value: bytes) -> None:
        if self._data is None:
            self._data = value
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += b"\n"
            self._data += value

    def _bound(self, line: int) -> None:
        # SECURITY: where a stream may go on for ever, an event or a comment in it would fill the memory.
        if self._limit is not None and line + len(self._data or b"") > self._limit:
            raise EventTooLarge


def event(data: bytes, *, name: str | None = "message", id: str | None = None) -> bytes:  # noqa: A002
    """Return one event as it goes on the wire. `data` is a JSON text or empty; `name` and `id` are our own."""
    # SECURITY: a line break in a text that is passed on as it came would end the event and begin another. In
    # JSON it is white space between two tokens, and so is what a reader makes of two data lines.
    if b"\n" in data or b"\r" in data:
        data = b"\ndata: ".join(data.splitlines())
    head = "" if id is None else f"id: {id}\n"
    if name is not None:
        head += f"event: {name}\n"
    return b"%bdata: %b\n\n" % (head.encode("utf-8"), data)


def reduce(
    data: bytes, request_id: object, parse: Callable[[bytes], object] = strict.parse
) -> dict[str, object] | None:
    """Return the response to `request_id` in a whole event stream, or None when there is none.

    SPEC: gateway.md 11.3: the last JSON object with either `result` or `error`, without `method`, whose id is the
    request's by type and value. `parse` raises `StrictError` for an event that is not the response.
    """
    reader = Events()
    events = reader.feed(data) + reader.finish()
    for each in reversed(events):
        try:
            message = parse(each)
        except strict.StrictError:
            continue
        if isinstance(message, dict) and answers(message, request_id):
            return message
    return None


def answers(message: dict[str, object], request_id: object) -> bool:
    """Tell whether a JSON-RPC message is the response to `request_id`."""
    # SECURITY: a notification, a request of the server or another call's response must not pass for ours.
    return (
        ("result" in message) != ("error" in message)
        and "method" not in message
        and "id" in message
        and jsonrpc.same_id(message["id"], request_id)
    )
