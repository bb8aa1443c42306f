"""Everything a server lists, read once for `diff` and `pin`: from the server itself, not through a gateway.

Knows paging and what a usable list is; what is done with the tools is `core.policy.diff`'s.
SPEC: gateway.md 16: the 2026-07-28 envelope, a principal, 10 seconds a page, at most 100 pages.
"""

from __future__ import annotations

import asyncio

import msgspec

from airlock.core.errors import UpstreamError
from airlock.core.policy.diff import Listed, listed
from airlock.core.ports import Ids
from airlock.core.principal import Principal, Source
from airlock.core.secret import Secret
from airlock.edge import trace
from airlock.edge.httpc import ClientLimits, HttpClient, header_line
from airlock.edge.httpurl import parse_upstream
from airlock.edge.ids import SystemIds
from airlock.gateway import outgoing
from airlock.gateway.catalog import CatalogUnavailable
from airlock.gateway.upstream.http import HttpUpstream

__all__ = ["MAX_PAGES", "MAX_TOOLS", "PAGE_S", "REVISION", "ask", "principal_line", "read"]

REVISION = "2026-07-28"
MAX_PAGES = 100
MAX_TOOLS = 10_000
PAGE_S = 10.0

_NOT_LET_IN = (401, 403)


def ask(url: str, principal: str, authorization: Secret | None) -> dict[str, Listed]:
    """Return all tools of the server at `url`, an address that `parse_upstream` takes, by name.

    Raises CatalogUnavailable when it does not answer like an MCP server, ValueError as `principal_line` does.
    Runs an event loop of its own.
    """

    async def whole() -> dict[str, Listed]:
        client = HttpClient(parse_upstream(url), ClientLimits(total_s=PAGE_S, connect_s=PAGE_S))
        upstream = HttpUpstream(client, authorization)
        try:
            return await read(upstream, principal, SystemIds())
        finally:
            await upstream.close()

    return asyncio.run(whole())


def principal_line(principal: str) -> bytes:
    """Return the header that names who asks. Raises ValueError for a name that cannot stand in one."""
    return header_line(b"x-airlock-principal", principal.encode())


async def read(upstream: HttpUpstream, principal: str, ids: Ids) -> dict[str, Listed]:
    """Follow the pages to the last one. Raises CatalogUnavailable for a page that is not a list of tools.

    A tool listed twice in the same words is one tool; in different words nobody knows which of them is meant.
    """
    tools: dict[str, Listed] = {}
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await _page(upstream, principal, ids, cursor)
        for name, tool in _tools(page):
            if tools.setdefault(name, tool) != tool:
                raise CatalogUnavailable(f"the server lists {name} twice, and differently")
        if len(tools) > MAX_TOOLS:
            raise CatalogUnavailable(f"the server lists more than {MAX_TOOLS} tools")
        following = page.get("nextCursor")
        if following is None:
            return tools
        if not isinstance(following, str):
            raise CatalogUnavailable("the server's nextCursor is not a string")
        cursor = following
    raise CatalogUnavailable(f"the server's tools/list has more than {MAX_PAGES} pages")


async def _page(upstream: HttpUpstream, principal: str, ids: Ids, cursor: str | None) -> dict[str, object]:
    who = Principal(principal, source=Source.HEADER)
    span = trace.begin(None, None, ids)
    request = outgoing.catalog_page("airlock-catalog-" + ids.hex(4), REVISION, who, span, cursor)
    request = msgspec.structs.replace(request, headers=request.headers + principal_line(principal))
    try:
        # INVARIANT: exact: of a key given twice, the gateway's reader and a model's may see different values.
        answer = await upstream.ask(request, exact=True)
    except UpstreamError as error:
        status = "" if error.status in (None, 200) else f"; {_status(error.status)}"
        raise CatalogUnavailable(f"the server cannot be asked: {error.kind}: {error.cause}{status}") from None
    if answer.result is None:
        refusal = answer.message.get("error")
        said = refusal.get("message") if isinstance(refusal, dict) else None
        words = f": {said}" if isinstance(said, str) else ""
        status = "" if answer.status == 200 else f"; {_status(answer.status)}"
        raise CatalogUnavailable(f"the server refused tools/list{words}{status}")
    if answer.status != 200:
        raise CatalogUnavailable(_status(answer.status))
    return answer.result


def _status(status: int | None) -> str:
    hint = ", is AIRLOCK_UPSTREAM_AUTH right?" if status in _NOT_LET_IN else ""
    return f"it answered with HTTP {status}{hint}"


def _tools(page: dict[str, object]) -> list[tuple[str, Listed]]:
    tools = page.get("tools")
    if not isinstance(tools, list):
        raise CatalogUnavailable("the server's tools/list has no list of tools")
    found: list[tuple[str, Listed]] = []
    for tool in tools:
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str) or not name:
            raise CatalogUnavailable("the server lists a tool without a name")
        found.append((name, listed(tool)))
    return found
