"""What one client of the HTTP server may cost, how it is refused, and uvicorn's settings for that.

Knows limits and the bytes of refusals; must not know connections, parsers or the application.
"""

from __future__ import annotations

import asyncio
import importlib.util
import math
from collections.abc import Callable

import msgspec
import uvicorn

from airlock.edge.asgi import App

__all__ = ["REFUSALS", "FrontConfig", "FrontLimits", "Refused"]

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


class FrontConfig(uvicorn.Config):
    """uvicorn's settings with our limits beside them; every connection is made from this object."""

    def __init__(
        self, app: App, protocol: type[asyncio.Protocol], limits: FrontLimits, say: Callable[[str], None]
    ) -> None:
        super().__init__(
            app,
            http=protocol,
            loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            log_level="critical",  # what goes wrong in the application, the application tells
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            workers=1,
            backlog=2048,
        )
        self.limits = limits
        self._say = say
        self._quiet_until = -math.inf

    def crowded(self, now: float) -> None:
        """Say that a connection found no room, at most once a minute. `now` is monotonic, in seconds."""
        if now >= self._quiet_until:
            self._quiet_until = now + _CROWDED_EVERY_S
            self._say(f"all {self.limits.max_connections} connections are taken; closing new ones")
