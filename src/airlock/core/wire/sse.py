"""Server-sent events in, their data out; and the one event of a stream that answers a request.

Knows the event stream format and what a JSON-RPC response looks like; does not know where bytes come from.
"""

from __future__ import annotations

from collections.abc import Callable

from airlock.core.wire import jsonrpc, strict

__all__ = ["Events", "reduce"]

_BOM = b"\xef\xbb\xbf"
_LINE_ENDS = (b"\n", b"\r")


class Events:
    """Reads a stream in any chunking. Lines end with LF, CR or CRLF; only `data` fields are kept.

    LIMIT: it holds what an unfinished event has sent so far; the caller counts the bytes of the whole stream.
    """

    __slots__ = ("_data", "_first", "_line", "_owed_lf")

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._first = True
        self._owed_lf = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the data of each event they complete, in order."""
        if self._owed_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._owed_lf = False
        events: list[bytes] = []
        for piece in chunk.splitlines(keepends=True):
            self._line.append(piece)
            if piece.endswith(_LINE_ENDS):
                line = b"".join(self._line).rstrip(b"\r\n")
                self._line.clear()
                self._take(line, events)
        # A CR ends its line at once; when the chunk ended there, an LF may still belong to it.
        self._owed_lf = self._owed_lf or chunk.endswith(b"\r")
        return events

    def finish(self) -> list[bytes]:
        """End the stream: an event that no blank line ended is dropped, so the list is empty."""
        self._line.clear()
        self._data.clear()
        return []

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if self._first:
            line = line.removeprefix(_BOM)
            self._first = False
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))


def reduce(
    data: bytes, request_id: object, parse: Callable[[bytes], object] = strict.parse
) -> dict[str, object] | None:
    """Return the response to `request_id` in a whole event stream, or None when there is none.

    SPEC: gateway.md 11.3: the last JSON object with either `result` or `error`, without `method`, whose id is the
    request's by type and value. `parse` raises `StrictError` for an event that is not the response.
    """
    reader = Events()
    events = reader.feed(data) + reader.finish()
    for event in reversed(events):
        try:
            message = parse(event)
        except strict.StrictError:
            continue
        if isinstance(message, dict) and _answers(message, request_id):
            return message
    return None


def _answers(message: dict[str, object], request_id: object) -> bool:
    # SECURITY: a notification, a request of the server or another call's response must not pass for ours.
    return (
        ("result" in message) != ("error" in message)
        and "method" not in message
        and "id" in message
        and jsonrpc.same_id(message["id"], request_id)
    )
