"""The pass-through methods: `server/discover`, and `tools/list` cut down to what the caller may call.

SPEC: gateway.md 9, in its numbered steps. Neither touches the store.
"""

from __future__ import annotations

import asyncio

from airlock.core.decision import Verdict
from airlock.core.errors import UpstreamError
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge.recording import Open
from airlock.edge.trace import Trace
from airlock.gateway import body, boundary, meta, outgoing
from airlock.gateway.gate import Answer, Gate, Snapshot
from airlock.gateway.modern.admission import Request

__all__ = ["passed"]


async def passed(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
    """Forward `tools/list` or `server/discover` and answer it."""
    snapshot = gate.snapshot
    entry = recording.entry(
        gate.ids.hex(16),
        principal=values.name(principal.name),
        method=request.method,
        args_json="{}",
        trace_id=trace.trace_id,
    )
    entry.verdict, entry.rule_id = Verdict.ALLOW, Rule.PASSTHROUGH
    opened: Open | None = None
    try:
        # 1
        opened = gate.recorder.intent(entry)
        verdict, detail = Verdict.ALLOW, "null"
        rule: str = Rule.PASSTHROUGH
        status: int | None
        # 2
        try:
            answer = await gate.upstream.ask(outgoing.passed_through(request, principal, trace))
        except UpstreamError as error:
            # 3
            verdict, rule, status = Verdict.ERROR, error.kind, error.status
            detail = values.detail_json(error.cause)
            message = f"airlock: upstream failed ({error.kind}): {error.cause}"
            reply = Answer(502, body.encode(jsonrpc.error(request.id, jsonrpc.INTERNAL, message)))
        else:
            # 4-7
            status = answer.status
            if answer.result is not None:
                rules = _shape(answer.result, request.method, snapshot, principal)
                if rules:
                    detail = values.detail_json({"suspicious": rules})
            reply = Answer(answer.status, body.encode(answer.message))
        # 8
        opened.close(
            verdict=verdict,
            rule_id=rule,
            upstream_status=status,
            detail_json=detail,
        )
        return reply
    except Exception as error:  # noqa: BLE001 - the boundary: recorded as internal.error, fails closed
        return boundary.broke(gate, entry, opened, request.id, error)
    except asyncio.CancelledError as error:
        boundary.broke(gate, entry, opened, request.id, error)
        raise


def _shape(result: dict[str, object], method: str, snapshot: Snapshot, principal: Principal) -> list[str]:
    """Clean a result in place, cut a listing to the caller, and return the injection rules that fired."""
    own = meta.strip_holder(result) if "_meta" in result or method == "tools/list" else {}
    if method != "tools/list":
        return []
    # SECURITY: the list was cut for one principal; a shared cache must not serve it to another (T77).
    result["cacheScope"] = "private"
    tools = result.get("tools")
    own[meta.HIDDEN_TOOLS] = 0
    if not isinstance(tools, list):
        return []
    meta.strip_tools(tools)
    policy = snapshot.policy
    kept = [
        tool
        for tool in tools
        if isinstance(tool, dict)
        and isinstance(name := tool.get("name"), str)
        and policy.tier(name, principal) is not None
    ]
    result["tools"] = kept
    own[meta.HIDDEN_TOOLS] = len(tools) - len(kept)
    findings = snapshot.scanner.scan_tools(kept)
    if not findings:
        return []
    own[meta.SUSPICIOUS] = findings
    return sorted({str(finding["rule"]) for finding in findings})
