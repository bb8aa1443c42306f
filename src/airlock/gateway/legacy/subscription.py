"""The notifications of one session: one `subscriptions/listen` inside, told to the client unasked.

Knows how that listen is replaced, resumed and ended (mcp.md 12, 20a); who may hear what is decided inside.
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
MOST_URIS: Final = 256

_ACK_S: Final = 30.0
_FIRST_RETRY_S: Final = 5.0
_LAST_RETRY_S: Final = 300.0
_MOST_RETRIES: Final = 6
_GOOD_AFTER_S: Final = 60.0
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_URIS: Final = "resourceSubscriptions"
_CHANGE_OF: Final = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}

Listen = Callable[[Request, Principal, Trace], Awaitable[Answer]]


class Listener(msgspec.Struct):
    """What a subscription is handed: the governed entry of a listen, the ports, and where its task is kept."""

    listen: Listen
    gate: Gate
    tasks: Tasks
    ack_s: float = _ACK_S
    retry_s: float = _FIRST_RETRY_S


class _Feed:
    """One listen while it is open."""

    __slots__ = ("_acknowledged", "_began", "_session", "honoured", "task")

    def __init__(
        self,
        with_: Listener,
        session: Session,
        principal: Principal,
        uris: list[str],
        ended: Callable[[_Feed], None],
    ) -> None:
        self._session = session
        loop = asyncio.get_running_loop()
        self._acknowledged: asyncio.Future[None] = loop.create_future()
        self._began = loop.time()
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

    def lasted(self) -> bool:
        """Whether it has been open for long enough to count as good."""
        return asyncio.get_running_loop().time() - self._began >= _GOOD_AFTER_S

    def close(self) -> None:
        """End it."""
        self.task.cancel()

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

    __slots__ = (
        "_feed",
        "_lock",
        "_principal",
        "_retries",
        "_session",
        "_timer",
        "_unheard_since",
        "_uris",
        "_with",
    )

    def __init__(self, with_: Listener, session: Session, principal: Principal) -> None:
        self._with, self._session, self._principal = with_, session, principal
        self._uris: list[str] = []
        self._feed: _Feed | None = None
        self._lock = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._retries = 0
        self._unheard_since: float | None = None

    def follow(self, principal: Principal) -> None:
        """Hear of the changes that the server announced, for a client that listens now."""
        self._principal = principal
        self._retries = 0
        self._unheard_since = None
        if self._feed is None and (self._session.kinds or self._uris):
            self._feed = self._begin(self._uris)

    async def subscribe(self, uri: str, principal: Principal) -> bool:
        """Hear of the resource `uri` too; False when that is not granted."""
        async with self._lock:
            self._principal = principal
            if uri in self._uris and self._feed is not None:
                return True
            if len(self._uris) >= MOST_URIS:
                return False
            wanted = [known for known in self._uris if known != uri] + [uri]
            return await self._replaced(wanted, uri)

    async def unsubscribe(self, uri: str, principal: Principal) -> None:
        """Hear of the resource `uri` no more."""
        async with self._lock:
            self._principal = principal
            if uri not in self._uris:
                return
            wanted = [known for known in self._uris if known != uri]
            if wanted or self._session.listening is not None:
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
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
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
        self._uris, self._retries = wanted, 0
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
        """A listen ended by itself: it is opened again, less and less often, where there was one."""
        if feed is not self._feed:
            return
        self._feed = None
        if feed.lasted():
            self._retries = 0
        if feed.honoured is None and self._retries == 0:
            return  # it was refused
        if self._session.ended or self._retries >= _MOST_RETRIES:
            return
        delay = min(self._with.retry_s * 2**self._retries, _LAST_RETRY_S)
        self._retries += 1
        self._timer = asyncio.get_running_loop().call_later(delay, self._again)

    def _again(self) -> None:
        self._timer = None
        if self._feed is not None or self._session.ended:
            return
        self._feed = self._begin(self._uris)
        # SPEC: mcp.md 12: nothing is repeated after a gap, so everything may have changed.
        for kind in self._session.kinds:
            self._say({"method": _CHANGE_OF[kind]})
        for uri in self._uris:
            self._say({"method": "notifications/resources/updated", "params": {"uri": uri}})

    def _say(self, message: dict[str, object]) -> None:
        self._session.standalone.add(body.encode({"jsonrpc": "2.0", **message}))
