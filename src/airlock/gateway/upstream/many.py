"""Several MCP servers behind one endpoint: each request goes to the one it belongs to, each list comes from all.

Knows which method is routed by what; does not know what any of the servers speaks, or what policy says.
SPEC: issue 4, item 4; mcp.md 4, 9, 12, 26.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant
from airlock.core.ports import Clock
from airlock.core.wire import jsonrpc
from airlock.edge.httpanswer import Reply
from airlock.edge.tasks import inside_task
from airlock.gateway import body
from airlock.gateway.meta import ISOLATED, UNAVAILABLE
from airlock.gateway.upstream.fanout import FILTER, MAX_WATCHED, Fanout, Sleep
from airlock.gateway.upstream.gather import Gathering, Told
from airlock.gateway.upstream.member import Health, Member, Watched
from airlock.gateway.upstream.merge import (
    DISCOVER,
    LISTS,
    MAX_URI,
    Entries,
    discovered,
    joined,
    plain,
    usable,
)
from airlock.gateway.upstream.negotiate import Negotiated
from airlock.gateway.upstream.port import Answer, Heard, MergedAnswer, MergedReply, Outgoing
from airlock.gateway.upstream.routes import Names, Owners, rebuilt

__all__ = ["ISOLATED", "UNAVAILABLE", "Health", "ManyUpstreams", "Member", "MergedAnswer"]

MAX_LISTENS: Final = 1024
"""LIMIT: subscriptions at once."""

_REFRESH_S = 1.0
_MAX_CALLERS = 512  # LIMIT: callers whose last refresh is remembered
_RESOURCES = ("resources/list", "resources/templates/list")


class ManyUpstreams:
    """The port over several upstreams, in the order of the file.

    `say` takes one line whenever an upstream goes down or comes back. Belongs to one event loop.
    """

    def __init__(
        self,
        members: Mapping[str, Member],
        clock: Clock,
        say: Callable[[str], None],
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._of = {name: Watched(name, member, clock, say) for name, member in members.items()}
        self._clock = clock
        self._sleep = sleep
        self._names = Names({it.spec.prefix: name for name, it in self._of.items()})
        self._prefixes = frozenset(it.spec.prefix for it in self._of.values() if it.spec.prefix)
        self._gathering = Gathering(clock)
        self._owners = Owners(self._of)
        self._refreshes: OrderedDict[str, _Refresh] = OrderedDict()
        self._closing = asyncio.Event()
        self._listens = 0

    def begin(self) -> None:
        """Start to find out what each server speaks, before anybody waits for it."""
        for watched in self._of.values():
            if isinstance(watched.upstream, Negotiated):
                watched.upstream.begin()

    async def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Answer:
        """Send a tool call to the server that its name belongs to, which spends the grant."""
        routed = self._by_name(outgoing, "tool")
        if isinstance(routed, Answer):
            return routed
        watched, sent = routed
        with watched:
            return await watched.upstream.call(grant, sent, exact=exact, heard=heard)

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        """Send a read to the server it belongs to; a list or a description is a MergedAnswer of all."""
        if outgoing.method == DISCOVER or outgoing.method in LISTS:
            return await self._merged(outgoing, exact=exact)
        routed = await self._routed(outgoing)
        if isinstance(routed, Answer):
            return routed
        watched, sent = routed
        with watched:
            return await watched.upstream.ask(sent, exact=exact, heard=heard)

    async def send(self, outgoing: Outgoing) -> Reply:
        """As `ask`, the answer encoded: a MergedReply for a list or a description."""
        if outgoing.method == DISCOVER or outgoing.method in LISTS:
            answer = await self._merged(outgoing, exact=False)
            own = answer.own if isinstance(answer, MergedAnswer) else {}
            return MergedReply(answer.status, "application/json", body.encode(answer.message), own)
        routed = await self._routed(outgoing)
        if isinstance(routed, Answer):
            return Reply(routed.status, "application/json", body.encode(routed.message))
        watched, sent = routed
        with watched:
            return await watched.upstream.send(sent)

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        """Listen at every server that offers it; ends by cancellation only (or by `close`, as unreachable)."""
        if self._listens >= MAX_LISTENS:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "too many subscriptions", reached=False)
        self._listens += 1
        try:
            owned = await self._subscribed(outgoing)
            asked = [(watched, owned.get(name, [])) for name, watched in self._of.items()]
            return await Fanout(outgoing, heard, asked, self._sleep).run(self._closing)
        finally:
            self._listens -= 1

    def compares_headers(self, name: str) -> bool:
        """Tell whether the server that the tool `name` belongs to compares `Mcp-Param-*` headers with arguments."""
        found = self._names.find(name)
        if found is None:
            return False
        upstream = self._of[found[0]].upstream
        return isinstance(upstream, Negotiated) and upstream.compares_headers(found[1])

    def target(self, name: str | None) -> str:
        """Return the target of the server that `name` belongs to, "" when there is none."""
        found = self._names.find(name)
        return "" if found is None else self._of[found[0]].upstream.target(found[1])

    def abandon(self, state: object) -> None:
        """Tell every server: the state does not say whose it is."""
        for watched in self._of.values():
            watched.upstream.abandon(state)

    def health(self) -> list[Health]:
        """Return how each upstream is, in the order of the file."""
        return [watched.health() for watched in self._of.values()]

    async def close(self) -> None:
        """Close all at once; subscriptions end."""
        self._closing.set()
        for watched in self._of.values():
            watched.closed = True
        async with asyncio.TaskGroup() as group:
            for watched in self._of.values():
                group.create_task(_closed(watched))

    # Routing: a server and the request in its words, or the answer that there is none.

    async def _routed(self, outgoing: Outgoing) -> tuple[Watched, Outgoing] | Answer:
        await inside_task()
        if outgoing.method in ("prompts/get", "tools/call"):
            return self._by_name(outgoing, "prompt" if outgoing.method == "prompts/get" else "tool")
        if outgoing.method == "resources/read":
            return await self._by_uri(outgoing, outgoing.params.get("uri"))
        if outgoing.method == "completion/complete":
            return await self._by_ref(outgoing)
        return _refused(outgoing, "this method is not served", code=jsonrpc.METHOD_NOT_FOUND)

    def _by_name(self, outgoing: Outgoing, kind: str) -> tuple[Watched, Outgoing] | Answer:
        found = self._names.find(outgoing.params.get("name"))
        if found is None:
            return _refused(outgoing, f"unknown {kind}")
        upstream, own = found
        return self._of[upstream], rebuilt(outgoing, {**outgoing.params, "name": own}, name=own)

    async def _by_ref(self, outgoing: Outgoing) -> tuple[Watched, Outgoing] | Answer:
        ref = outgoing.params.get("ref")
        ref = ref if isinstance(ref, dict) else {}
        if ref.get("type") == "ref/resource":
            return await self._by_uri(outgoing, ref.get("uri"))
        found = self._names.find(ref.get("name")) if ref.get("type") == "ref/prompt" else None
        if found is None:
            return _refused(outgoing, "unknown reference")
        upstream, own = found
        return self._of[upstream], rebuilt(outgoing, {**outgoing.params, "ref": {**ref, "name": own}})

    async def _by_uri(self, outgoing: Outgoing, uri: object) -> tuple[Watched, Outgoing] | Answer:
        if not isinstance(uri, str):
            return _refused(outgoing, "the uri must be a string")
        owners = await self._owners_of(uri, outgoing) if plain(uri, MAX_URI) else []
        if len(owners) == 1:
            return self._of[owners[0]], outgoing
        several = "several upstreams have this resource: " + ", ".join(owners)
        return _refused(outgoing, several if owners else "unknown resource", {"uri": uri})

    async def _owners_of(self, uri: str, outgoing: Outgoing) -> list[str]:
        """Name who claims `uri`; when nobody does, ask everybody once what they have."""
        owners = self._owners.claim(uri, self._clock.monotonic())
        if owners:
            return owners
        refresh = self._refreshes.setdefault(outgoing.principal, _Refresh())
        self._refreshes.move_to_end(outgoing.principal)
        if len(self._refreshes) > _MAX_CALLERS:
            self._refreshes.popitem(last=False)
        came_at = self._clock.monotonic()
        async with refresh.lock:
            # SECURITY: a caller that reads what is not there must not make every server list all it has each time.
            if refresh.ended_at is None or came_at - refresh.ended_at >= _REFRESH_S:
                fresh = await self._listed(outgoing, uri)
                refresh.ended_at = self._clock.monotonic()
                return fresh
        return self._owners.claim(uri, self._clock.monotonic())

    async def _listed(self, outgoing: Outgoing, uri: str) -> list[str]:
        """List resources and templates of all, and name who claims `uri` now."""
        envelope: dict[str, object] = {"_meta": outgoing.params.get("_meta")}
        asked = [_unwatched(rebuilt(outgoing, envelope, method=method)) for method in _RESOURCES]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._gather(it, exact=False)) for it in asked]
        listed = {
            told.watched.name
            for told, entries in tasks[0].result()
            if entries is not None and uri in entries.of
        }
        # A list longer than what is remembered must still be found in.
        return self._owners.claim(uri, self._clock.monotonic(), listed)

    async def _subscribed(self, outgoing: Outgoing) -> dict[str, list[str]]:
        """Share out the addresses of a subscription; what has no single owner is left out."""
        wanted = outgoing.params.get("notifications")
        uris = wanted.get(FILTER) if isinstance(wanted, dict) else None
        owned: dict[str, list[str]] = {}
        plain_ones = [uri for uri in uris if isinstance(uri, str)] if isinstance(uris, list) else []
        for uri in list(dict.fromkeys(plain_ones))[:MAX_WATCHED]:
            owners = await self._owners_of(uri, outgoing) if plain(uri, MAX_URI) else []
            if len(owners) == 1:
                owned.setdefault(owners[0], []).append(uri)
        return owned

    # Lists and descriptions of all.

    async def _merged(self, outgoing: Outgoing, *, exact: bool) -> Answer:
        await inside_task()
        if outgoing.params.get("cursor") is not None:
            return _refused(outgoing, "this cursor is not one of ours")
        gathered = await self._gather(_unwatched(outgoing), exact=exact)
        errors = [told.error for told, _ in gathered if told.error is not None]
        if len(errors) == len(gathered) and not any(told.items is not None for told, _ in gathered):
            raise errors[0]
        if not any(told.known for told, _ in gathered):
            return _refused(outgoing, "no upstream has this method", code=jsonrpc.METHOD_NOT_FOUND)
        # What is missing may be there the next moment: such an answer is not to be kept.
        ttl = 0 if errors else min(told.ttl for told, _ in gathered if told.known)
        isolated = 0
        if outgoing.method == DISCOVER:
            parts = [
                (told.watched.name, it)
                for told, _ in gathered
                for it in told.items or []
                if isinstance(it, dict)
            ]
            result = discovered(parts, ttl)
        else:
            lists = [entries for _, entries in gathered if entries is not None]
            result, isolated = joined(outgoing.method, lists, ttl)
        own: dict[str, object] = {}
        if errors:
            own[UNAVAILABLE] = [told.watched.name for told, _ in gathered if told.error is not None]
        if isolated:
            own[ISOLATED] = isolated
        return MergedAnswer(200, jsonrpc.result(outgoing.id, result), result, own)

    async def _gather(self, outgoing: Outgoing, *, exact: bool) -> list[tuple[Told, Entries | None]]:
        """Ask all, and learn from a list of resources whose they are."""
        gathered: list[tuple[Told, Entries | None]] = []
        for told in await self._gathering.all(tuple(self._of.values()), outgoing, exact=exact):
            entries = None
            if told.items is not None and outgoing.method != DISCOVER:
                entries = usable(outgoing.method, told.items, told.watched.spec.prefix, self._prefixes)
                now = self._clock.monotonic()
                self._owners.learn(told.watched.name, outgoing.method, entries.of, now)
            gathered.append((told, entries))
        return gathered


class _Refresh:
    """When a caller's last look for a resource ended (monotonic); one look at a time."""

    __slots__ = ("ended_at", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.ended_at: float | None = None


async def _closed(watched: Watched) -> None:
    await watched.upstream.close()


def _unwatched(outgoing: Outgoing) -> Outgoing:
    """Without its progress token: several servers would use the one at the same time."""
    meta = outgoing.params.get("_meta")
    if not isinstance(meta, dict) or "progressToken" not in meta:
        return outgoing
    rest = {key: value for key, value in meta.items() if key != "progressToken"}
    return rebuilt(outgoing, {**outgoing.params, "_meta": rest})


def _refused(
    outgoing: Outgoing, message: str, data: object = None, code: int = jsonrpc.INVALID_PARAMS
) -> Answer:
    status = jsonrpc.STATUS[code]
    return Answer(status, jsonrpc.error(outgoing.id, code, message, data), None)
