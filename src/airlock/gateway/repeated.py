"""Arguments that headers repeat, checked where no server behind does it: step 9 of admission for our own front.

Knows when a call is in doubt, and which tools cannot be called; how headers are compared is `modern.mirrors`'.
SPEC: mcp.md 5 (9), 6.
"""

from __future__ import annotations

import math

from airlock.core.principal import Principal
from airlock.core.rules import Rule, protocol_rule
from airlock.core.wire import jsonrpc
from airlock.edge.tasks import inside_task
from airlock.edge.trace import Trace
from airlock.gateway.catalog import Catalog, CatalogUnavailable
from airlock.gateway.eras import Era
from airlock.gateway.gate import Gate
from airlock.gateway.meta import ISOLATED
from airlock.gateway.modern import mirrors, paramheaders
from airlock.gateway.modern.admission import Refusal, Request
from airlock.gateway.upstream.http import HttpUpstream

__all__ = ["RECENT_S", "in_doubt", "refused", "sifted"]

RECENT_S = 5.0
"""How old the list may be by which a call is refused: a server that changed a tool is asked again first."""


def in_doubt(gate: Gate, request: Request) -> bool:
    """Tell whether `request` is a call whose headers have to be looked at: it has some, or may have to have some.

    LIMIT: of a tool that nobody has listed yet, nobody knows that headers are missing.
    """
    name = request.name
    return name is not None and (name in gate.catalog.annotated or mirrors.carried(request.headers))


async def refused(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Refusal | None:
    """Return why a call that is in doubt goes no further, None when it may.

    -32020 when a header and the body disagree; -32603 with status 502 when the upstream does not tell what it
    wants repeated. A server of the newer revision over HTTP looks for itself, and its answer is the client's.
    """
    name = request.name
    # SECURITY: a tool that this caller may not call is no different from one that is not there.
    if name is None or gate.snapshot.policy.tier(name, principal) is None or _looks_itself(gate, name):
        return None
    await inside_task()
    try:
        found = await _mismatch(gate, name, request, principal, trace)
    except CatalogUnavailable as error:
        # SECURITY: what cannot be checked does not pass: whoever stands before us may have gone by the header.
        reason = f"the Mcp-Param headers cannot be checked: {error.reason}"
        code, status, rule = jsonrpc.INTERNAL, 502, str(Rule.CATALOG_UNAVAILABLE)
    else:
        if found is None:
            return None
        reason, code = found, jsonrpc.HEADER_MISMATCH
        status, rule = jsonrpc.STATUS[code], protocol_rule(code)
    if _looks_itself(gate, name):  # which may not have been known before it was asked
        return None
    return Refusal(status, code, rule, reason, request.id, None, request.method, name)


def sifted(
    result: dict[str, object], catalog: Catalog, era: Era, own: dict[str, object] | None
) -> dict[str, object] | None:
    """Take out of a listing, in place, the tools that a client of `era` cannot use; note those that want headers.

    `own` is what is said of the listing already; returned with the number of tools that were taken out.
    SPEC: mcp.md 6: one annotation that is not valid makes a tool one that is not to be used over HTTP. The older
    revisions know no annotation.
    """
    tools = result.get("tools")
    if not isinstance(tools, list):
        return own
    kept: list[object] = []
    for tool in tools:
        wanted = paramheaders.mirrors(tool.get("inputSchema")) if isinstance(tool, dict) else ()
        if wanted and isinstance(name := tool.get("name"), str):
            catalog.note(name)
        if wanted is not None or era is Era.LEGACY:
            kept.append(tool)
    if len(kept) == len(tools):
        return own
    result["tools"] = kept
    before = (own or {}).get(ISOLATED)
    return {
        **(own or {}),
        ISOLATED: len(tools) - len(kept) + (before if isinstance(before, int) else 0),
    }


async def _mismatch(
    gate: Gate, name: str, request: Request, principal: Principal, trace: Trace
) -> str | None:
    for oldest_s in (math.inf, RECENT_S):
        wanted = await gate.catalog.repeated(name, request.version, principal, trace, oldest_s=oldest_s)
        found = mirrors.mismatch(request.headers, wanted, request.arguments)
        if found is None:
            return None
    return found


def _looks_itself(gate: Gate, name: str) -> bool:
    upstream = gate.upstream
    # Imported on use: the seed's door starts without them.
    from airlock.gateway.upstream.many import ManyUpstreams
    from airlock.gateway.upstream.negotiate import Negotiated

    if isinstance(upstream, Negotiated | ManyUpstreams):
        return upstream.compares_headers(name)
    return isinstance(upstream, HttpUpstream)
