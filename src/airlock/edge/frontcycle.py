"""One request and its answer: uvicorn's cycle, with whole answers written in one piece.

Knows ASGI messages and the bytes of an answer; must not know parsing, limits or what is answered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

__all__ = ["FrontCycle"]

_SPECIAL = frozenset((b"connection", b"transfer-encoding"))


class FrontCycle(RequestResponseCycle):
    """Holds the head of an answer back until its body comes: most answers are one message of each."""

    _head: Any = None

    async def send(self, message: Any) -> None:
        """Take one ASGI message. Anything but a plain whole answer is uvicorn's own business."""
        head = self._head
        if head is None or message["type"] != "http.response.body":
            if not self.response_started and message["type"] == "http.response.start":
                self._head = message
            else:
                await super().send(message)
            return
        self._head = None
        body: bytes = message.get("body", b"")
        lines = (
            None
            if message.get("more_body") or self.scope["method"] == "HEAD"
            else _plain(head["headers"], body)
        )
        if lines is None:
            await super().send(head)
            await super().send(message)
            return
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        self.response_started = True
        self.waiting_for_100_continue = False
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        self.transport.write(b"".join((STATUS_LINE[head["status"]], *lines, end, body)))
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def _plain(headers: Iterable[tuple[bytes, bytes]], body: bytes) -> list[bytes] | None:
    """Return the header lines of an answer that says its length; None when there is more to it than that."""
    lines, sized = [], False
    for name, value in headers:
        line = b"%b: %b\r\n" % (name, value)
        # SECURITY: a line break in a header would begin another answer; uvicorn refuses such a one.
        if name in _SPECIAL or line.count(b"\n") != 1 or line.count(b"\r") != 1:
            return None
        sized = sized or (name == b"content-length" and value == b"%d" % len(body))
        lines.append(line)
    return lines if sized else None
