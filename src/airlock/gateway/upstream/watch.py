"""The subscriptions of one dialogue with a legacy server: who hears of which change, and what was subscribed there.

Knows kinds of changes, URIs and counts; does not know connections. SPEC: mcp.md 12, 20b, 25f.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Final, NoReturn, Protocol

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway import body
from airlock.gateway.upstream.port import Heard

__all__ = ["Watch"]

# SECURITY: one subscription must not be a thousand requests to the server.
MAX_URIS: Final = 256
"""LIMIT: resources that one subscription may name; the others are left out of the acknowledgement."""

MAX_LISTENERS: Final = 64
"""LIMIT: subscriptions on one dialogue."""

# SECURITY: what a server says before the acknowledgement must not fill the memory.
MAX_EARLY: Final = 1024
"""LIMIT: changes kept for one subscription until it is acknowledged."""

MAX_EARLY_BYTES: Final = 4 * 1024 * 1024
"""LIMIT: bytes of these, as JSON."""

_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
_UPDATED = "notifications/resources/updated"
_KINDS: Final = {
    "toolsListChanged": ("tools", "notifications/tools/list_changed"),
    "promptsListChanged": ("prompts", "notifications/prompts/list_changed"),
    "resourcesListChanged": ("resources", "notifications/resources/list_changed"),
}


class _Server(Protocol):
    """What a watch needs of its dialogue."""

    def declares(self, capability: str, feature: str) -> bool: ...

    def request(self, method: str, params: dict[str, object]) -> Awaitable[dict[str, object]]: ...

    def background(self, work: Coroutine[None, None, None]) -> object: ...

    def eased(self) -> None: ...


class Watch:
    """All subscriptions on one dialogue. A resource is subscribed to at the server while anybody listens to it."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._listeners: list[_Listener] = []
        self._counts: dict[str, int] = {}
        self._changing = asyncio.Lock()
        self._gone: str | None = None

    @property
    def busy(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    async def listen(self, wanted: dict[str, object], subscription_id: object, heard: Heard) -> NoReturn:
        """Tell `heard` of what is `wanted` (the `notifications` of `subscriptions/listen`), until cancelled.

        First the acknowledgement: what the server can tell at all. Raises UpstreamError when the dialogue is lost.
        """
        if self._gone is not None:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, self._gone, reached=False)
        if len(self._listeners) >= MAX_LISTENERS:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "too many subscriptions are open", reached=False)
        honoured: dict[str, object] = {
            kind: True
            for kind, (capability, _) in _KINDS.items()
            if wanted.get(kind) is True and self._server.declares(capability, "listChanged")
        }
        listener = _Listener(subscription_id, heard, {_KINDS[kind][1] for kind in honoured})
        self._listeners.append(listener)
        try:
            for uri in self._uris(wanted.get("resourceSubscriptions")):
                await self._subscribe(uri, listener)
            if listener.uris:
                honoured["resourceSubscriptions"] = list(listener.uris)
            listener.acknowledge(honoured)
            raise UpstreamError(UpstreamFailure.UNREACHABLE, await listener.ended, reached=True)
        finally:
            self._listeners.remove(listener)
            if listener.uris and self._gone is None:
                self._server.background(self._unsubscribe(listener.uris))
            self._server.eased()

    def notified(self, method: str, params: dict[str, object]) -> None:
        """Pass a change on to everybody who listens for it; anything else is nobody's."""
        for listener in self._listeners:
            if listener.wants(method, params.get("uri")):
                listener.hear(method, params)

    def lost(self, cause: str) -> None:
        """The dialogue is gone: every subscription ends."""
        self._gone = self._gone or cause
        for listener in self._listeners:
            if not listener.ended.done():
                listener.ended.set_result(cause)

    def _uris(self, wanted: object) -> list[str]:
        if not isinstance(wanted, list) or not self._server.declares("resources", "subscribe"):
            return []
        return list(dict.fromkeys(uri for uri in wanted if isinstance(uri, str)))[:MAX_URIS]

    async def _subscribe(self, uri: str, listener: _Listener) -> None:
        async with self._changing:
            if uri not in self._counts:
                response = await self._server.request("resources/subscribe", {"uri": uri})
                if "result" not in response:
                    return
            self._counts[uri] = self._counts.get(uri, 0) + 1
            listener.uris.append(uri)

    async def _unsubscribe(self, uris: list[str]) -> None:
        async with self._changing:
            for uri in uris:
                self._counts[uri] -= 1
                if self._counts[uri]:
                    continue
                del self._counts[uri]
                try:
                    await self._server.request("resources/unsubscribe", {"uri": uri})
                except UpstreamError:
                    return  # the dialogue is gone, and its subscriptions with it


class _Listener:
    """One subscription. What comes before its acknowledgement is kept, each change once."""

    def __init__(self, subscription_id: object, heard: Heard, methods: set[str]) -> None:
        self._id = subscription_id
        self._heard = heard
        self.methods = methods
        self.uris: list[str] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._early: dict[tuple[str, str], tuple[dict[str, object], int]] | None = {}
        self._early_bytes = 0

    def wants(self, method: str, uri: object) -> bool:
        if method != _UPDATED:
            return method in self.methods
        # SPEC: 2025-11-25, resources: what is updated may be a part of what was subscribed to.
        return isinstance(uri, str) and any(
            uri == own or uri.startswith(own.removesuffix("/") + "/") for own in self.uris
        )

    def hear(self, method: str, params: dict[str, object]) -> None:
        if self._early is None:
            self._say(method, params)
        elif len(self._early) < MAX_EARLY:
            key, size = (method, str(params.get("uri"))), len(body.encode(params))
            _, before = self._early.get(key, (None, 0))
            held = self._early_bytes - before + size
            if held <= MAX_EARLY_BYTES:
                self._early[key], self._early_bytes = (params, size), held

    def acknowledge(self, notifications: dict[str, object]) -> None:
        self._say("notifications/subscriptions/acknowledged", {"notifications": notifications})
        early, self._early = self._early or {}, None
        for (method, _), (params, _size) in early.items():
            self._say(method, params)

    def _say(self, method: str, params: dict[str, object]) -> None:
        meta = params.get("_meta")
        tagged = {**(meta if isinstance(meta, dict) else {}), _SUBSCRIPTION: self._id}
        self._heard.notify({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": tagged}})
