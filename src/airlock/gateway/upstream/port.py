"""The port of the back side: what a flow asks of the server or servers behind the gateway, whatever they speak.

Inside the gateway every request is one of revision 2026-07-28; an implementation translates it to what its server
speaks and its answer back. Knows shapes only.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

import msgspec

from airlock.core.grant import Grant
from airlock.core.secret import Secret
from airlock.edge.httpanswer import Reply
from airlock.gateway.eras import Era, Heard

__all__ = ["Answer", "Era", "Heard", "MergedAnswer", "MergedReply", "Outgoing", "Upstream"]


class Outgoing(msgspec.Struct, frozen=True):
    """One request to the upstream: its id, ready header lines, and encoded body; `params` is what `body` holds.

    `principal` is who asks, `era` the family that the asking client speaks. `params["_meta"]` is a whole modern
    envelope (protocol version, the client's capabilities), with the gateway's own keys in it. `subject` is the
    caller's token, only where it is exchanged, and for nothing but that.
    """

    id: object
    headers: bytes
    body: bytes
    method: str
    params: dict[str, object]
    principal: str
    era: Era = Era.MODERN
    subject: Secret | None = None


class Answer(msgspec.Struct, frozen=True):
    """A JSON-RPC response of the upstream: its HTTP status and the message, which holds `result` or `error`.

    `result` is the result object, None when the response is an error.
    """

    status: int
    message: dict[str, object]
    result: dict[str, object] | None


class MergedAnswer(Answer, frozen=True):
    """An answer put together from several upstreams. `own` goes into the result's `_meta`, as of a MergedReply."""

    own: dict[str, object] = msgspec.field(default_factory=dict)


class MergedReply(Reply, frozen=True, gc=False):
    """An answer put together from several upstreams. `own` goes into the result's `_meta` as it is."""

    own: dict[str, object] = msgspec.field(default_factory=dict)


class Upstream(Protocol):
    """One or several MCP servers. Every method raises `UpstreamError` when no answer came."""

    def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        """Send a tool call: the one place where a grant is spent (`grant.spend()` first, before any wait).

        `exact` refuses duplicate keys in the answer too, for answers that a decision depends on. To cancel the
        awaiting task is to cancel the call at the server.
        """
        ...

    def ask(
        self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None
    ) -> Awaitable[Answer]:
        """Send a request that changes nothing: a listing, a discovery, a read."""
        ...

    def send(self, outgoing: Outgoing) -> Awaitable[Reply]:
        """Send a request that changes nothing, and return its answer unread, for `upstream.http.read`."""
        ...

    def listen(self, outgoing: Outgoing, heard: Heard) -> Awaitable[Answer]:
        """Send `subscriptions/listen`; what it brings goes to `heard`, the acknowledgement first.

        Notifications carry `_meta` `io.modelcontextprotocol/subscriptionId` = `outgoing.id`. Returns the final
        answer when the server ends the stream in order; has no deadline.
        """
        ...

    def target(self, name: str | None) -> str:
        """Return which server a call of the tool `name` goes to, as a ticket binds it."""
        ...

    def abandon(self, state: object) -> None:
        """Forget a question of the server: nobody will answer the `requestState` that came with it."""
        ...

    async def close(self) -> None:
        """Release what is held. Calls under way fail as unreachable; later calls fail at once."""
        ...
