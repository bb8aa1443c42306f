"""What one client of the HTTP server may cost, how it is refused, and what its connections share.

Knows limits and the bytes of refusals; must not know sockets, parsers or what the application does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from airlock.edge.asgi import App, Responder

__all__ = ["REFUSALS", "Answering", "Direct", "FrontLimits", "FrontState", "Line", "Peer", "Refused"]

Line = tuple[bytes, bytes]


class Peer(Protocol):
    """The other side of a request's connection."""

    def peer(self) -> str:
        """Return its address without a port, "" when it has none or is gone."""
        ...


Answering = Callable[[list[Line], bytes, Peer], Coroutine[Any, Any, tuple[int, bytes] | Responder]]

_CROWDED_EVERY_S = 60.0


class FrontLimits(msgspec.Struct, frozen=True):
    """The limits of the front, in bytes and seconds.

    `max_head_bytes` counts request line and headers. `head_s` runs from a head's first byte to its last, and
    from the connection to the first byte of all; `body_s` from the end of the head to the end of the body.
    """

    max_headers: int = 100
    max_head_bytes: int = 65536
    max_target_bytes: int = 8192
    max_connections: int = 1024
    head_s: float = 10.0
    body_s: float = 30.0
    keep_alive_s: float = 75.0
    drain_s: float = 75.0


class Refused(Exception):
    """Raised in a parser callback to stop the parse. `status` is a key of `REFUSALS`."""

    def __init__(self, status: int) -> None:
        self.status = status


def _refusal(status: int, reason: str, words: str) -> bytes:
    head = f"HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\n"
    return f"{head}content-length: {len(words)}\r\nconnection: close\r\n\r\n{words}".encode("ascii")


# SECURITY: whole answers made in advance: no byte of a request can come back in one. 0: no answer is owed.
REFUSALS = {
    0: b"",
    400: _refusal(400, "Bad Request", "The request is not well-formed."),
    408: _refusal(408, "Request Timeout", "The request took too long to arrive."),
    414: _refusal(414, "URI Too Long", "The request target is too long."),
    431: _refusal(431, "Request Header Fields Too Large", "The request head is too large."),
    503: _refusal(503, "Service Unavailable", "Too many requests wait on this connection."),
    505: _refusal(505, "HTTP Version Not Supported", "Only HTTP/1.1 and HTTP/1.0 are served."),
}


class Direct(msgspec.Struct, frozen=True):
    """A route that needs no ASGI: POSTs to exactly `target` whose declared body is at most `max_body_bytes`.

    `answer` takes the header lines, the whole body and whose they are, and gives a status and a JSON body, or what
    writes any other answer. It never raises for anything a client does; it is cancelled when the client leaves.
    `also` is the header line that an answer of some status carries. Every other request, to the same target too,
    goes to the ASGI application.
    """

    target: bytes
    max_body_bytes: int
    answer: Answering
    also: Mapping[int, Line] = {}


class FrontState:
    """What the connections of one server share; every connection is made from this object."""

    def __init__(
        self, app: App, limits: FrontLimits, say: Callable[[str], None], direct: Direct | None = None
    ) -> None:
        self.app = app
        self.limits = limits
        self.direct = direct
        self.connections: set[Any] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.stopping = False  # no connection is taken any more
        self._say = say
        self._quiet_until = -math.inf

    def crowded(self, now: float) -> None:
        """Say that a connection found no room, at most once a minute. `now` is monotonic, in seconds."""
        if now >= self._quiet_until:
            self._quiet_until = now + _CROWDED_EVERY_S
            self._say(f"all {self.limits.max_connections} connections are taken; closing new ones")
