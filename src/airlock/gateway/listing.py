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
from airlock.edge.recording import Entry, Open
from airlock.edge.trace import Trace
from airlock.gateway import advertised, body, boundary, meta, outgoing, pinning, repeated, tracing
from airlock.gateway.door import LEGACY_VERSIONS
from airlock.gateway.gate import Answer, Gate, Snapshot
from airlock.gateway.listings import Listing
from airlock.gateway.modern import mirrors
from airlock.gateway.modern.admission import REVISION, Request
from airlock.gateway.upstream import http
from airlock.gateway.upstream.port import MergedReply

__all__ = ["passed"]

_LIST = "tools/list"
_DISCOVER = "server/discover"
_SERVED = [REVISION, *LEGACY_VERSIONS]
_MOST_TTL_MS = 60_000


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
    suspicious = 0
    refused = "null"
    try:
        # 1
        opened = gate.recorder.intent(entry)
        sent = outgoing.passed_through(request, principal, trace)
        # 2
        try:
            reply = await gate.upstream.send(sent)
            # 4-7: what came before for this caller is not looked at again.
            merged = reply.own if isinstance(reply, MergedReply) else None
            raw = None
            if merged is None and reply.content_type == "application/json":
                raw = body.raw_result(reply.body, sent.id)
            known = snapshot.listings
            shaped = None if raw is None else known.find(request.method, principal, raw, request.era)
            answer = None
            if shaped is None:
                answer = http.read(reply, sent)
                if answer.result is None:
                    refused = _refused(answer.message, snapshot)
                else:
                    if snapshot.wide and request.method == _LIST and mirrors.annotates(reply.body):
                        merged = repeated.sifted(answer.result, gate.catalog, request.era, merged)
                    shaped = _shape(answer.result, request.method, snapshot, principal, merged)
                    if raw is not None:
                        known.keep(request.method, principal, raw, shaped, request.era)
        except UpstreamError as error:
            # 3
            opened.close(
                verdict=Verdict.ERROR,
                rule_id=error.kind,
                upstream_status=error.status,
                detail_json=values.detail_json(error.cause),
            )
            message = f"airlock: upstream failed ({error.kind}): {error.cause}"
            return Answer(502, body.encode(jsonrpc.error(request.id, jsonrpc.INTERNAL, message)))
        if shaped is not None:
            suspicious = shaped.suspicious
            for tool in dict.fromkeys(shaped.dropped):
                gate.recorder.refusal(
                    pinning.entry(gate.ids.hex(16), entry.subject.principal or "", tool, trace.trace_id)
                )
        # 8
        opened.close(
            upstream_status=reply.status, detail_json=refused if shaped is None else shaped.detail_json
        )
        if answer is not None:
            return Answer(answer.status, body.encode(answer.message))
        assert shaped is not None
        return Answer(reply.status, body.with_result(request.id, shaped.encoded))
    except Exception as error:  # noqa: BLE001 - the boundary: recorded as internal.error, fails closed
        return boundary.broke(gate, entry, opened, request.id, error)
    except asyncio.CancelledError:
        boundary.left(gate, entry, opened)
        raise
    finally:
        if gate.tracer is not None:
            _traced(gate, request, principal, trace, entry, suspicious)


def _refused(message: dict[str, object], snapshot: Snapshot) -> str:
    """Clean an error in place where hygiene is on; return the `detail` of the outcome."""
    if snapshot.hygiene is None:
        return "null"
    cleaner = snapshot.hygiene(snapshot.policy.hygiene)
    cleaner.error(message)
    return values.detail_json(cleaner.noted({}) or None)


def _describe(result: dict[str, object], snapshot: Snapshot) -> None:
    """Let a description say what is served here. SPEC: mcp.md 4, 9: no more than that, and soon again."""
    result["supportedVersions"] = _SERVED
    capabilities = result.get("capabilities")
    result["capabilities"] = (
        advertised.advertised(capabilities, snapshot.policy) if isinstance(capabilities, dict) else {}
    )
    ttl = result.get("ttlMs")
    result["ttlMs"] = (
        min(ttl, _MOST_TTL_MS) if isinstance(ttl, int) and not isinstance(ttl, bool) and ttl > 0 else 0
    )
    result["cacheScope"] = "private"


def _traced(
    gate: Gate,
    request: Request,
    principal: Principal,
    trace: Trace,
    entry: Entry,
    suspicious: int,
) -> None:
    assert gate.tracer is not None
    tracing.note(
        gate,
        gate.tracer,
        request,
        trace,
        entry.verdict,
        entry.rule_id,
        principal=principal.name,
        suspicious=suspicious,
    )


def _shape(
    result: dict[str, object],
    method: str,
    snapshot: Snapshot,
    principal: Principal,
    merged: dict[str, object] | None,
) -> Listing:
    """Clean a result in place and cut a listing to the caller. `merged`: what several upstreams say of it."""
    own = meta.strip_holder(result) if "_meta" in result or merged or method == _LIST else {}
    if merged:
        own.update(merged)
    if method == _DISCOVER and snapshot.wide:
        _describe(result, snapshot)
    cleaner = None if snapshot.hygiene is None else snapshot.hygiene(snapshot.policy.hygiene)
    if cleaner is not None and method == _DISCOVER:
        cleaner.described(result)
    dropped: list[str] = []
    findings: list[dict[str, object]] = []
    if method == _LIST:
        # SECURITY: the list was cut for one principal; a shared cache must not serve it to another (T77).
        result["cacheScope"] = "private"
        own[meta.HIDDEN_TOOLS] = 0
        tools = result.get("tools")
        if isinstance(tools, list):
            meta.strip_tools(tools)
            policy = snapshot.policy
            kept = [
                tool
                for tool in tools
                if isinstance(tool, dict)
                and isinstance(name := tool.get("name"), str)
                and policy.tier(name, principal) is not None
            ]
            own[meta.HIDDEN_TOOLS] = len(tools) - len(kept)
            # 6
            if snapshot.pins.of:
                kept, dropped = pinning.split(kept, snapshot.pins)
                if dropped:
                    own[meta.PIN_MISMATCH] = len(dropped)
            if cleaner is not None:
                kept = cleaner.tools(kept, policy)
            result["tools"] = kept
            # 7
            findings = snapshot.scanner.scan_tools(kept)
    noted: dict[str, object] = {}
    if cleaner is not None:
        noted = cleaner.noted(noted)
        findings = cleaner.findings("tool" if method == _LIST else "block", findings)
        if noted:
            own = meta.strip_holder(result) if "_meta" not in result else own
            cleaner.tell(own)
    if findings:
        own[meta.SUSPICIOUS] = findings
        noted = {**noted, "suspicious": sorted({str(finding["rule"]) for finding in findings})}
    detail = values.detail_json(noted) if noted else "null"
    return Listing(body.encode(result), detail, tuple(dropped), len(findings))
