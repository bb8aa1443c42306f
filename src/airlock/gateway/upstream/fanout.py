"""One subscription of a client at several upstreams: one acknowledgement, their events as one stream.

Knows kinds of events, and what to do about an upstream that goes away; does not know who may hear what.
SPEC: mcp.md 12.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway import body
from airlock.gateway.upstream.member import Watched
from airlock.gateway.upstream.port import Answer, Heard, Outgoing
from airlock.gateway.upstream.routes import rebuilt

__all__ = ["FILTER", "KINDS", "MAX_WATCHED", "Fanout", "Sleep"]

KINDS: Final[Mapping[str, str]] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
"""What can be asked for, and the notification that it brings."""

FILTER: Final = "resourceSubscriptions"

MAX_WATCHED: Final = 256
"""LIMIT: addresses of one subscription; further ones are left out of the acknowledgement."""

_UPDATED = "notifications/resources/updated"
_ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
_TAG = "io.modelcontextprotocol/subscriptionId"
_FIRST_S = 1.0
_LONGEST_S = 30.0
# SECURITY: what upstreams say before the acknowledgement must not fill the memory.
# LIMIT: events that come before the acknowledgement went out, and their bytes as JSON; further ones are dropped.
_MAX_HELD = 1_000
_MAX_HELD_BYTES = 4 * 1024 * 1024

Sleep = Callable[[float], Awaitable[None]]


class Fanout:
    """Listens at every upstream for one client, until cancelled."""

    __slots__ = (
        "_begun",
        "_branches",
        "_heard",
        "_held",
        "_held_bytes",
        "_outgoing",
        "_sleep",
        "kinds",
        "uris",
    )

    def __init__(
        self,
        outgoing: Outgoing,
        heard: Heard,
        asked: Sequence[tuple[Watched, list[str]]],
        sleep: Sleep,
    ) -> None:
        """`asked` names each upstream with the addresses of the subscription that are its own."""
        self._outgoing = outgoing
        self._heard = heard
        self._sleep = sleep
        wanted = outgoing.params.get("notifications")
        wanted = wanted if isinstance(wanted, dict) else {}
        # INVARIANT: until the acknowledgement goes out, what was asked for; from then on, what it says.
        self.kinds = frozenset(kind for kind in KINDS if wanted.get(kind) is True)
        self.uris = frozenset(uri for _, uris in asked for uri in uris)
        self._begun = False
        self._held: list[tuple[_Branch, dict[str, object]]] = []
        self._held_bytes = 0
        self._branches = [_Branch(self, watched, uris) for watched, uris in asked if uris or self.kinds]

    async def run(self, closing: asyncio.Event) -> Answer:
        """Listen until cancelled. Returns the refusal of the first when all refuse.

        Raises UpstreamError when none could be reached, and when `closing` is set.
        """
        loop = asyncio.get_running_loop()
        tasks = {loop.create_task(self._follow(branch)) for branch in self._branches}
        end = loop.create_task(closing.wait())
        try:
            refusal = await self._first_words()
            if refusal is not None:
                return refusal
            self._begin()
            waiting = {*tasks, end}
            while not end.done():
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()  # a follower ends when it was refused; anything else is a bug, told here
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "client closed", reached=True)
        finally:
            for task in (*tasks, end):
                task.cancel()
            await asyncio.gather(*tasks, end, return_exceptions=True)

    def event(self, branch: _Branch, message: dict[str, object]) -> None:
        """Take an event of one upstream."""
        if self._begun:
            self._pass(branch, message)
        elif len(self._held) < _MAX_HELD:
            held = self._held_bytes + len(body.encode(message))
            if held <= _MAX_HELD_BYTES:
                self._held.append((branch, message))
                self._held_bytes = held

    def acknowledged(self, branch: _Branch) -> None:
        """One upstream listens; when the client was told so before, what it missed meanwhile may have changed."""
        branch.watched.answered()
        if self._begun:
            for kind, method in KINDS.items():
                if kind in branch.kinds:
                    self._pass(branch, {"method": method})
            for uri in branch.uris:
                self._pass(branch, {"method": _UPDATED, "params": {"uri": uri}})

    async def _first_words(self) -> Answer | None:
        """Wait until each upstream has acknowledged, refused or failed, and no longer than the slowest list may."""
        if not self._branches:
            return None
        patience = max(branch.watched.spec.limits.list_timeout_s for branch in self._branches)
        await asyncio.wait([branch.spoken for branch in self._branches], timeout=patience)
        if any(branch.ever for branch in self._branches):
            return None
        errors = [branch.error for branch in self._branches if branch.error is not None]
        refusals = [branch.refusal for branch in self._branches if branch.refusal is not None]
        if len(refusals) == len(self._branches):
            return refusals[0]
        raise (
            errors[0]
            if errors
            else UpstreamError(UpstreamFailure.UNREACHABLE, "no subscription in time", reached=True)
        )

    def _begin(self) -> None:
        """Send the acknowledgement, the union of those that came, and what was held back for it."""
        self.kinds = frozenset().union(*(branch.kinds for branch in self._branches))
        self.uris = frozenset().union(*(branch.uris for branch in self._branches))
        honoured: dict[str, object] = {kind: True for kind in KINDS if kind in self.kinds}
        if self.uris:
            honoured[FILTER] = [
                uri for branch in self._branches for uri in branch.asked if uri in branch.uris
            ]
        self._begun = True
        self._tell(_ACKNOWLEDGED, {"notifications": honoured})
        held, self._held = self._held, []
        for branch, message in held:
            self._pass(branch, message)

    def _pass(self, branch: _Branch, message: dict[str, object]) -> None:
        method, params = message.get("method"), message.get("params")
        params = params if isinstance(params, dict) else {}
        if method == _UPDATED:
            uri = params.get("uri")
            # SECURITY: an upstream speaks of its own resources only, and of what was asked for.
            if isinstance(uri, str) and any(_within(uri, own) for own in branch.uris & self.uris):
                self._tell(_UPDATED, params)
        elif any(method == KINDS[kind] for kind in self.kinds):
            assert isinstance(method, str)
            self._tell(method, params)

    def _tell(self, method: str, params: dict[str, object]) -> None:
        said = params.get("_meta")
        tagged = {**(said if isinstance(said, dict) else {}), _TAG: self._outgoing.id}
        self._heard.notify({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": tagged}})

    async def _follow(self, branch: _Branch) -> None:
        """Listen at one upstream, again and again, unless it refuses before it ever acknowledged."""
        pause = _FIRST_S
        params: dict[str, object] = {**self._outgoing.params, "notifications": branch.filter(self.kinds)}
        sent = rebuilt(self._outgoing, params)
        while True:
            branch.listening = False
            try:
                answer = await branch.watched.upstream.listen(sent, branch)
            except UpstreamError as error:
                branch.error = error
                # A stream that breaks after a while is a matter of course; one that cannot begin is not.
                if not branch.listening:
                    branch.watched.failed(error)
            else:
                if answer.result is None and not branch.ever:
                    branch.refusal = answer
                    branch.speak()
                    return
            if branch.listening:
                pause = _FIRST_S
            branch.speak()
            branch.listening = False
            await self._sleep(pause)
            pause = min(2 * pause, _LONGEST_S)


class _Branch:
    """One upstream's part: takes what it says, as `Heard`."""

    def __init__(self, fanout: Fanout, watched: Watched, asked: list[str]) -> None:
        self.watched = watched
        self.asked = asked
        self.kinds: frozenset[str] = frozenset()
        self.uris: frozenset[str] = frozenset()
        self.listening = False  # acknowledged, and not ended since
        self.ever = False
        self.error: UpstreamError | None = None
        self.refusal: Answer | None = None
        self.spoken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fanout = fanout

    def filter(self, kinds: frozenset[str]) -> dict[str, object]:
        """What is asked of this upstream."""
        wanted: dict[str, object] = {kind: True for kind in KINDS if kind in kinds}
        return {**wanted, FILTER: self.asked} if self.asked else wanted

    def notify(self, message: dict[str, object]) -> None:
        """Take one notification of this upstream."""
        if message.get("method") != _ACKNOWLEDGED:
            if self.listening:
                self._fanout.event(self, message)
            return
        if self.listening:
            return
        params = message.get("params")
        honoured = params.get("notifications") if isinstance(params, dict) else None
        honoured = honoured if isinstance(honoured, dict) else {}
        uris = honoured.get(FILTER)
        told = (
            frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset()
        )
        self.kinds = frozenset(kind for kind in KINDS if honoured.get(kind) is True) & self._fanout.kinds
        self.uris = told & frozenset(self.asked)
        self.listening = self.ever = True
        self._fanout.acknowledged(self)
        self.speak()

    def speak(self) -> None:
        """What this upstream says first was said."""
        if not self.spoken.done():
            self.spoken.set_result(None)


def _within(uri: str, asked: str) -> bool:
    """An upstream may tell of a part of what was asked for."""
    return uri == asked or uri.startswith(asked.removesuffix("/") + "/")
