"""The upstream's tools as one caller sees them: fetched for gated calls, kept as long as the upstream says.

Knows paging and caching; what `dry_run` means is `dryrun`'s. SPEC: gateway.md 9.4.
"""

from __future__ import annotations

from collections import OrderedDict

from airlock.core.errors import AirlockError, UpstreamError
from airlock.core.ports import Clock, Ids
from airlock.core.principal import Principal
from airlock.core.redact.patterns import scrub_text
from airlock.core.text.cut import cut
from airlock.core.text.safe import safe
from airlock.edge.trace import Trace
from airlock.gateway import dryrun, outgoing
from airlock.gateway.dryrun import DryRun
from airlock.gateway.upstream.port import Upstream

__all__ = ["Catalog", "CatalogUnavailable"]

MAX_PAGES = 10
MAX_KEPT = 512
REASON_CHARS = 300

_ABSENT = DryRun(declared=False)
_Key = tuple[str, str, tuple[str, ...]]


class CatalogUnavailable(AirlockError):
    """The upstream could not tell its tools. `reason` is scrubbed and cut."""

    def __init__(self, reason: str) -> None:
        # SECURITY: scrubbed before it is cut, or a cut would leave half a credential (T61).
        self.reason = cut(safe(scrub_text(reason)), REASON_CHARS, "…")
        super().__init__(self.reason)


class Catalog:
    """Answers whether a tool declares `dry_run`."""

    __slots__ = ("_clock", "_ids", "_kept", "_upstream")

    def __init__(self, upstream: Upstream, clock: Clock, ids: Ids) -> None:
        self._upstream = upstream
        self._clock = clock
        self._ids = ids
        self._kept: OrderedDict[_Key, tuple[float, dict[str, DryRun]]] = OrderedDict()

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
        tools, ttl_s = await self._fetch(version, principal, trace)
        if ttl_s > 0:
            self._kept[key] = (self._clock.monotonic() + ttl_s, tools)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return tools.get(tool, _ABSENT)

    async def _fetch(
        self, version: str, principal: Principal, trace: Trace
    ) -> tuple[dict[str, DryRun], float]:
        """Read every page; the shortest `ttlMs` of the pages counts."""
        tools: dict[str, DryRun] = {}
        ttl_s: float | None = None
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self._page(version, principal, trace, cursor)
            listed = page.get("tools")
            if not isinstance(listed, list):
                raise CatalogUnavailable("the upstream's tools/list has no list of tools")
            for tool in listed:
                name = tool.get("name") if isinstance(tool, dict) else None
                if isinstance(name, str):
                    found = dryrun.declared(tool)
                    # SECURITY: listed twice, a tool has `dry_run` only if both say the same of it.
                    tools[name] = found if tools.get(name, found) == found else _ABSENT
            page_ttl = _ttl_seconds(page.get("ttlMs"))
            ttl_s = page_ttl if ttl_s is None else min(ttl_s, page_ttl)
            following = page.get("nextCursor")
            if following is None:
                return tools, ttl_s
            if not isinstance(following, str):
                raise CatalogUnavailable("the upstream's nextCursor is not a string")
            cursor = following
        raise CatalogUnavailable(f"the upstream's tools/list has more than {MAX_PAGES} pages")

    async def _page(
        self, version: str, principal: Principal, trace: Trace, cursor: str | None
    ) -> dict[str, object]:
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
        return answer.result


def _ttl_seconds(value: object) -> float:
    """`ttlMs` in seconds; zero, missing, negative or not an integer means: do not keep."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return 0.0
    return min(value, 86_400_000) / 1000
