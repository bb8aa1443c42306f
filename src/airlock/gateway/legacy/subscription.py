"""The notifications of one session: one `subscriptions/listen` inside, told to the client unasked.

Knows how that listen is begun, replaced and ended (mcp.md 12, 20a); who may hear what is decided inside, and a
server that goes away and comes back is the inside's too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from airlock.core.principal import Principal
from airlock.edge import trace as traces
from airlock.edge.trace import Trace
from airlock.gateway import body
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.legacy import downward, upward
from airlock.gateway.legacy.calls import Tasks
from airlock.gateway.legacy.sessions import Session
from airlock.gateway.modern.admission import Request

__all__ = ["MOST_URIS", "Listener", "Subscription"]

# LIMIT: of one session; the server behind has its own.
MOST_URIS: Final = 128

_ACK_S: Final = 30.0
_REPLACED: Final = "the session stopped hearing of this"
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_URIS: Final = "resourceSubscriptions"
Listen = Callable[[Request, Principal, Trace], Awaitable[Answer]]


class Listener(msgspec.Struct):
    """What a subscription is handed: the governed entry of a listen, the ports, and where its task is kept."""

    listen: Listen
    gate: Gate
    tasks: Tasks
    ack_s: float = _ACK_S


class _Feed:
    """One listen while it is open."""

    __slots__ = ("_acknowledged", "_session", "honoured", "task")

    def __init__(
        self,
        with_: Listener,
        session: Session,
        principal: Principal,
        uris: list[str],
        ended: Callable[[_Feed], None],
    ) -> None:
        self._session = session
        self._acknowledged: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.honoured: dict[str, object] | None = None
        gate = with_.gate
        request = upward.listen(session, f"airlock-{gate.ids.hex(8)}", session.kinds, uris, self)
        self.task = asyncio.ensure_future(
            with_.listen(request, principal, traces.begin(None, None, gate.ids, gate.clock.now()))
        )
        with_.tasks.add(self.task)
        self.task.add_done_callback(with_.tasks.discard)
        self.task.add_done_callback(lambda _: self._ended(ended))

    def notify(self, message: dict[str, object]) -> None:
        """Take the acknowledgement, and pass on everything else that a subscription brings."""
        if message.get("method") == _ACKNOWLEDGED:
            params = message.get("params")
            found = params.get("notifications") if isinstance(params, dict) else None
            self.honoured = found if isinstance(found, dict) else {}
            self._settle()
            return
        told = downward.announced(message)
        if told is not None:
            self._session.standalone.add(body.encode(told))

    async def acknowledged(self, seconds: float) -> list[object]:
        """Return the URIs that were honoured; none when the listen ended or nothing came in time."""
        await asyncio.wait({self._acknowledged}, timeout=seconds)
        uris = (self.honoured or {}).get(_URIS)
        return uris if isinstance(uris, list) else []

    def close(self) -> None:
        """End it."""
        self.task.cancel(_REPLACED)

    def _settle(self) -> None:
        if not self._acknowledged.done():
            self._acknowledged.set_result(None)

    def _ended(self, tell: Callable[[_Feed], None]) -> None:
        if not self.task.cancelled():
            self.task.exception()  # looked at, so that nothing complains that nobody did
        self._settle()
        tell(self)


class Subscription:
    """What one session hears of. Every change of it is a new listen, acknowledged before the old one ends."""

    __slots__ = ("_feed", "_lock", "_principal", "_session", "_unheard_since", "_uris", "_with")

    def __init__(self, with_: Listener, session: Session, principal: Principal) -> None:
        self._with, self._session, self._principal = with_, session, principal
        self._uris: list[str] = []
        self._feed: _Feed | None = None
        self._lock = asyncio.Lock()
        self._unheard_since: float | None = None

    def _ask_as(self, principal: Principal) -> None:
        # SECURITY: what was granted to other groups, or on another token, is asked for anew.
        known, self._principal = self._principal, principal
        if (known.groups, known.proof.until) != (principal.groups, principal.proof.until):
            self.close()

    def follow(self, principal: Principal) -> None:
        """Hear of the changes that the server announced, for a client that listens now."""
        self._ask_as(principal)
        self._unheard_since = None
        if self._feed is None and (self._session.kinds or self._uris):
            self._feed = self._begin(self._uris)

    async def subscribe(self, uri: str, principal: Principal) -> bool:
        """Hear of the resource `uri` too; False when that is not granted."""
        async with self._lock:
            self._ask_as(principal)
            if uri in self._uris and self._feed is not None:
                return True
            if len(self._uris) >= MOST_URIS:
                return False
            wanted = [known for known in self._uris if known != uri] + [uri]
            return await self._replaced(wanted, uri)

    async def unsubscribe(self, uri: str, principal: Principal) -> None:
        """Hear of the resource `uri` no more."""
        async with self._lock:
            self._ask_as(principal)
            if uri not in self._uris:
                return
            wanted = [known for known in self._uris if known != uri]
            if wanted or (self._session.kinds and self._session.listening is not None):
                await self._replaced(wanted, None)
            else:
                self._uris = wanted
                self.close()

    def rest(self, now: float, patience_s: float) -> None:
        """Stop hearing of changes when nobody has listened for `patience_s` and no resource is subscribed to."""
        if self._uris or self._session.listening is not None:
            self._unheard_since = None
        elif self._unheard_since is None:
            self._unheard_since = now
        elif now - self._unheard_since >= patience_s:
            self.close()

    def close(self) -> None:
        """Hear nothing more."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    async def _replaced(self, wanted: list[str], needed: str | None) -> bool:
        """Open a listen for `wanted` and let it take the place of the old one, unless `needed` is not honoured."""
        feed = self._begin(wanted)
        try:
            honoured = await feed.acknowledged(self._with.ack_s)
        except asyncio.CancelledError:
            feed.close()
            raise
        if (needed is not None and needed not in honoured) or self._session.ended:
            feed.close()
            return False
        self._uris = wanted
        if feed.honoured is None or feed.task.done():
            feed.close()  # the old one brings too much, which is better than nothing
            return True
        old, self._feed = self._feed, feed
        if old is not None:
            old.close()
        return True

    def _begin(self, uris: list[str]) -> _Feed:
        return _Feed(self._with, self._session, self._principal, list(uris), self._lost)

    def _lost(self, feed: _Feed) -> None:
        """A listen ended by itself, which is a refusal: the next GET or subscription tries anew."""
        if feed is self._feed:
            self._feed = None
