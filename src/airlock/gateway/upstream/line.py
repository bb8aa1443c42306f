"""The wire below a legacy dialogue: one connection, or over HTTP one session, with a server that opens with
`initialize`.

Knows who hands over what; does not know methods, the handshake or a bridge. SPEC: mcp.md 18.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

__all__ = ["SESSION_GONE", "Dialer", "Incoming", "Line", "Lost"]

SESSION_GONE = "session gone"
"""The cause given to `lost` when an HTTP session was ended by its server (404): a new one may be opened."""

Incoming = Callable[[dict[str, object], "object | None"], None]
"""Takes each message of the server: (message, during).

`message` is one parsed JSON-RPC object; an array (2025-03-26) is split first. `during` is the id of our request
on whose own stream it came, the response to that request included; None when the transport cannot tell (stdio)
or when it came on a stream of its own (HTTP GET). Called in the order of arrival on the event loop; does not block
or raise.
"""

Lost = Callable[[str], None]
"""Told once, with the cause in our own words, when the connection or the session is gone. Not after `close`."""


class Line(Protocol):
    """One connection (HTTP: one session) with a legacy server.

    An implementation parses strictly: a message with duplicate keys, NaN or broken UTF-8 never arrives.
    """

    @property
    def tells_streams(self) -> bool:
        """True: `during` is reliable (HTTP), so a message without it belongs to no request."""
        ...

    @property
    def alive(self) -> bool:
        """False: it takes no more requests, though `lost` may come later (stdio: its output is read first)."""
        ...

    def opened(self, version: str) -> None:
        """The handshake is done at `version`. Called right before `notifications/initialized` is posted.

        HTTP sends `MCP-Protocol-Version` from now on (2025-06-18 and later), and opens its GET stream when that
        post was accepted.
        """
        ...

    async def request(self, message: dict[str, object]) -> None:
        """Send one request; what answers it arrives through `incoming`.

        Returns when nothing more can come for it on a stream of its own (HTTP: the stream of the POST ended; what
        came on it was delivered before), or once it is sent (stdio). Raises UpstreamError when it could not be sent
        or its stream broke; `reached` says whether the server may have taken it up: False for the 404 of a session
        that is gone (with `lost(SESSION_GONE)` before), for that request did not run. To cancel the awaiting task
        ends that stream and is no cancellation at the server. Has no deadline of its own.
        """
        ...

    async def post(self, message: dict[str, object]) -> None:
        """Send a notification, or a response to a request of the server. Raises UpstreamError."""
        ...

    async def close(self) -> None:
        """End the session or process and release everything; `request` under way fails as unreachable."""
        ...


class Dialer(Protocol):
    """Opens lines to one server."""

    async def dial(self, incoming: Incoming, lost: Lost) -> Line:
        """Return a new line: nothing is sent over HTTP yet, a process is started for stdio.

        Raises UpstreamError (UNREACHABLE, `reached=False`) when there can be none.
        """
        ...
