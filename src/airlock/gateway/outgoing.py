"""What goes upstream: header block and body of a call, a listing or a catalog page.

Knows what may pass and what is rebuilt; sends nothing itself. SPEC: gateway.md 3.1-3.4, 23.10.
"""

from __future__ import annotations

from airlock.core.approval import ticket
from airlock.core.grant import Grant
from airlock.core.principal import Principal
from airlock.edge.trace import Trace
from airlock.gateway import body, dryrun, meta
from airlock.gateway.modern.admission import Request
from airlock.gateway.modern.headers import forwarded
from airlock.gateway.upstream.port import Era, Outgoing

__all__ = ["catalog_page", "for_call", "passed_through"]


def for_call(
    grant: Grant,
    request: Request,
    principal: Principal,
    trace: Trace,
    *,
    mirror: str | None,
    strip_state: bool,
) -> Outgoing:
    """Build the forwarded call that `grant` allows.

    `mirror` is the `Mcp-Param-*` token of the tool's `dry_run`, if it has one. `strip_state` drops
    `requestState` and `inputResponses`, when they are ours or answer a question of ours.
    """
    params = dict(request.params)
    params["_meta"] = meta.for_upstream(request.meta, principal, trace)
    headers = forwarded(request.headers)
    if strip_state:
        params.pop("requestState", None)
        params.pop("inputResponses", None)
    if grant.dry_run is not None:
        params["arguments"] = dryrun.forced(request.arguments, value=grant.dry_run)
        if mirror is not None:
            headers = dryrun.mirrored(headers, mirror, value=grant.dry_run)
    return _outgoing(request.id, "tools/call", params, headers, trace, principal, request.era)


def passed_through(request: Request, principal: Principal, trace: Trace) -> Outgoing:
    """Build the forwarded form of any other request: as sent, with `_meta` rebuilt."""
    params = dict(request.params)
    params["_meta"] = meta.for_upstream(request.meta, principal, trace)
    if ticket.is_ours(params.get("requestState")):
        params.pop("requestState")
        params.pop("inputResponses", None)
    return _outgoing(
        request.id, request.method, params, forwarded(request.headers), trace, principal, request.era
    )


def catalog_page(
    request_id: str, version: str, principal: Principal, trace: Trace, cursor: str | None
) -> Outgoing:
    """Build the gateway's own `tools/list`, one page of it, with the caller's identity and no capabilities."""
    envelope: dict[str, object] = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params: dict[str, object] = {"_meta": meta.for_upstream(envelope, principal, trace)}
    if cursor is not None:
        params["cursor"] = cursor
    headers = (
        b"content-type: application/json\r\nmcp-method: tools/list\r\nmcp-protocol-version: "
        + version.encode("ascii")
        + b"\r\n"
    )
    return _outgoing(request_id, "tools/list", params, headers, trace, principal, Era.MODERN)


def _outgoing(
    request_id: object,
    method: str,
    params: dict[str, object],
    headers: bytes,
    trace: Trace,
    principal: Principal,
    era: Era,
) -> Outgoing:
    message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    lines = headers + b"traceparent: " + trace.traceparent.encode("ascii") + b"\r\n"
    # SECURITY: a caller's token goes no further than to who exchanges it; it is in neither lines nor body.
    return Outgoing(
        request_id, lines, body.encode(message), method, params, principal.name, era, principal.proof.token
    )
