"""The upstream's tools as one caller sees them: fetched when a call needs them, kept as long as the upstream says.

Knows paging and caching; what `dry_run` means is `dryrun`'s, what headers repeat is `modern.paramheaders`'.
SPEC: gateway.md 9.4; mcp.md 5 (9).
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict

import msgspec

from airlock.core.errors import AirlockError, UpstreamError
from airlock.core.ports import Clock, Ids
from airlock.core.principal import Principal
from airlock.core.redact.patterns import scrub_text
from airlock.core.text.cut import cut
from airlock.core.text.safe import safe
from airlock.edge.trace import Trace
from airlock.gateway import dryrun, outgoing
from airlock.gateway.dryrun import DryRun
from airlock.gateway.meta import UNAVAILABLE
from airlock.gateway.modern.paramheaders import Mirror, mirrors
from airlock.gateway.upstream.port import Answer, MergedAnswer, Upstream

__all__ = ["Catalog", "CatalogUnavailable"]

MAX_PAGES = 10
MAX_KEPT = 512
REASON_CHARS = 300

FLOOR_S = 60.0
"""How long what headers repeat is kept at least, whatever the upstream says: calls must not wait for lists."""

FETCH_S = 10.0
"""How long a call waits for what headers repeat."""

MAX_ANNOTATED = 4096
"""LIMIT: names of tools that are known to want arguments repeated in headers."""

_ABSENT = DryRun(declared=False)
_Key = tuple[str, str, tuple[str, ...]]
_Repeated = dict[str, tuple[Mirror, ...]]


class CatalogUnavailable(AirlockError):
    """The upstream could not tell its tools. `reason` is scrubbed and cut."""

    def __init__(self, reason: str) -> None:
        # SECURITY: scrubbed before it is cut, or a cut would leave half a credential (T61).
        self.reason = cut(safe(scrub_text(reason)), REASON_CHARS, "…")
        super().__init__(self.reason)


class _Listed(msgspec.Struct, frozen=True):
    """What the upstream lists for one caller. `whole` False: what some of its servers have is missing."""

    tools: list[dict[str, object]]
    ttl_s: float
    whole: bool


class Catalog:
    """Answers whether a tool declares `dry_run`, and which arguments it wants repeated in headers.

    `annotated` names tools that want any repeated, as far as somebody has seen them listed.
    """

    __slots__ = ("_clock", "_fetching", "_ids", "_kept", "_repeated", "_upstream", "annotated")

    def __init__(self, upstream: Upstream, clock: Clock, ids: Ids) -> None:
        self._upstream = upstream
        self._clock = clock
        self._ids = ids
        # Each caller's tools by name, and until when they are good; of the second, when they came too. Monotonic.
        self._kept: OrderedDict[_Key, tuple[float, dict[str, DryRun]]] = OrderedDict()
        self._repeated: OrderedDict[_Key, tuple[float, float, _Repeated]] = OrderedDict()
        self._fetching: dict[_Key, asyncio.Task[_Repeated]] = {}
        self.annotated: set[str] = set()

    async def dry_run(self, tool: str, version: str, principal: Principal, trace: Trace) -> DryRun:
        """Look `tool` up for this caller. A tool that is not listed counts as having no `dry_run`.

        Raises CatalogUnavailable; nothing is guessed.
        """
        key = (version, principal.name, principal.groups)
        kept = self._kept.get(key)
        if kept is not None:
            if self._clock.monotonic() < kept[0]:
                self._kept.move_to_end(key)
                return kept[1].get(tool, _ABSENT)
            del self._kept[key]
        listed = await self._fetch(version, principal, trace)
        tools: dict[str, DryRun] = {}
        for entry in listed.tools:
            name, found = str(entry["name"]), dryrun.declared(entry)
            # SECURITY: listed twice, a tool has `dry_run` only if both say the same of it.
            tools[name] = found if tools.get(name, found) == found else _ABSENT
        if listed.ttl_s > 0:
            self._kept[key] = (self._clock.monotonic() + listed.ttl_s, tools)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return tools.get(tool, _ABSENT)

    async def repeated(
        self, tool: str, version: str, principal: Principal, trace: Trace, *, oldest_s: float = math.inf
    ) -> tuple[Mirror, ...]:
        """Return what `tool` wants repeated, for this caller; nothing for one that is not listed, or not well.

        `oldest_s`: how old what is known may be. Callers that ask at the same time share one look. Raises
        CatalogUnavailable.
        """
        key = (version, principal.name, principal.groups)
        now, kept = self._clock.monotonic(), self._repeated.get(key)
        if kept is not None and now < kept[0] and now - kept[1] <= oldest_s:
            self._repeated.move_to_end(key)
            return kept[2].get(tool, ())
        task = self._fetching.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look(key, version, principal, trace))
            self._fetching[key] = task
            task.add_done_callback(lambda done: self._looked(key, done))
        return (await asyncio.shield(task)).get(tool, ())

    def note(self, tool: str) -> None:
        """Remember that `tool` was listed with something that it wants repeated."""
        if len(self.annotated) < MAX_ANNOTATED:
            self.annotated.add(tool)

    async def _look(self, key: _Key, version: str, principal: Principal, trace: Trace) -> _Repeated:
        try:
            async with asyncio.timeout(FETCH_S):
                listed = await self._fetch(version, principal, trace)
        except TimeoutError:
            raise CatalogUnavailable("the upstream did not tell its tools in time") from None
        found: _Repeated = {}
        for entry in listed.tools:
            name, wanted = str(entry["name"]), mirrors(entry.get("inputSchema")) or ()
            # Listed twice and differently, nobody knows what it wants.
            found[name] = wanted if found.get(name, wanted) == wanted else ()
        found = {name: wanted for name, wanted in found.items() if wanted}
        for name in found:
            self.note(name)
        if listed.whole:
            now = self._clock.monotonic()
            self._repeated[key] = (now + max(listed.ttl_s, FLOOR_S), now, found)
            self._repeated.move_to_end(key)
            if len(self._repeated) > MAX_KEPT:
                self._repeated.popitem(last=False)
        return found

    def _looked(self, key: _Key, task: asyncio.Task[_Repeated]) -> None:
        del self._fetching[key]
        if not task.cancelled():
            task.exception()  # looked at, so that nothing complains when everybody who waited has left

    async def _fetch(self, version: str, principal: Principal, trace: Trace) -> _Listed:
        """Read every page; the shortest `ttlMs` of the pages counts."""
        tools: list[dict[str, object]] = []
        ttl_s: float | None = None
        whole = True
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            answer = await self._page(version, principal, trace, cursor)
            page = answer.result or {}
            whole = whole and not (isinstance(answer, MergedAnswer) and UNAVAILABLE in answer.own)
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise CatalogUnavailable("the upstream's tools/list has no list of tools")
            tools += [it for it in listed if isinstance(it, dict) and isinstance(it.get("name"), str)]
            page_ttl = _ttl_seconds(page.get("ttlMs"))
            ttl_s = page_ttl if ttl_s is None else min(ttl_s, page_ttl)
            following = page.get("nextCursor")
            if following is None:
                return _Listed(tools, ttl_s, whole)
            if not isinstance(following, str):
                raise CatalogUnavailable("the upstream's nextCursor is not a string")
            cursor = following
        raise CatalogUnavailable(f"the upstream's tools/list has more than {MAX_PAGES} pages")

    async def _page(self, version: str, principal: Principal, trace: Trace, cursor: str | None) -> Answer:
        request_id = "airlock-catalog-" + self._ids.hex(4)
        request = outgoing.catalog_page(request_id, version, principal, trace, cursor)
        try:
            answer = await self._upstream.ask(request, exact=True)
        except UpstreamError as error:
            raise CatalogUnavailable(f"{error.kind}: {error.cause}") from None
        if answer.status != 200:
            raise CatalogUnavailable(f"the upstream answered tools/list with HTTP {answer.status}")
        if answer.result is None:
            refusal = answer.message.get("error")
            said = refusal.get("message") if isinstance(refusal, dict) else None
            raise CatalogUnavailable(
                f"the upstream refused tools/list: {said}"
                if isinstance(said, str)
                else "no tools/list result"
            )
        return answer


def _ttl_seconds(value: object) -> float:
    """`ttlMs` in seconds; zero, missing, negative or not an integer means: do not keep."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return 0.0
    return min(value, 86_400_000) / 1000
