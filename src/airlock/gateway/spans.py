"""The span of one request: its name, attributes and status, from what the gateway knows when it ends.

Pure. What the client chose is scrubbed and cut here; arguments, results and exceptions never come near.
SPEC: gateway.md 14.
"""

from __future__ import annotations

from functools import lru_cache

from airlock.core.decision import Verdict
from airlock.core.redact import values
from airlock.core.text.cut import cut
from airlock.edge.spans import Span
from airlock.edge.trace import Trace

__all__ = ["of_call"]

TEXT_CHARS = 128

_Pairs = tuple[tuple[str, str | int], ...]

_CALL = "tools/call"
_EXECUTE = "execute_tool"
_MARK = "…[cut]"
_LONG_BITS = 416  # 126 digits; and Python refuses to write the longest numbers
_NOBODY: _Pairs = ()


def of_call(
    trace: Trace,
    *,
    ended: float,
    method: str,
    request_id: object,
    verdict: str,
    rule: str,
    tier: str | None = None,
    principal: str | None = None,
    tool: str | None = None,
    suspicious: int = 0,
) -> Span:
    """Make the span of an admitted request.

    `ended` is in Unix seconds, as `trace.started`. `verdict`, `rule` and `tier` are those of the outcome
    record, `suspicious` is the number of injection findings, `tool` the name that a `tools/call` gave.
    """
    if method == _CALL:
        name, about = _short_call(tool) if tool is not None and len(tool) <= TEXT_CHARS else _call(tool)
        about = (*about, ("gen_ai.tool.call.id", _id(request_id)))
    else:
        name, about = _other(method)
    who = _NOBODY
    if principal is not None:
        who = _short_name(principal) if len(principal) <= TEXT_CHARS else _name(principal)
    attributes = (
        *about,
        *who,
        ("airlock.verdict", verdict),
        ("airlock.rule_id", rule),
        ("airlock.tier", tier or ""),
    )
    if suspicious > 0:
        attributes = (*attributes, ("airlock.suspicious", suspicious))
    start_ns = int(trace.started * 1e9)
    end_ns = int(ended * 1e9)
    return Span(
        name,
        trace.trace_id,
        trace.span_id,
        trace.parent_id,
        start_ns,
        end_ns if end_ns > start_ns else start_ns,  # the machine's clock may have been set back
        attributes,
        rule if verdict == Verdict.ERROR else None,
    )


def _call(tool: str | None) -> tuple[str, _Pairs]:
    # SECURITY: scrubbed before it is cut, or half of a credential would leave the host (T35).
    called = values.name(tool) or ""
    return cut(f"{_EXECUTE} {called}", TEXT_CHARS, _MARK), (
        ("gen_ai.operation.name", _EXECUTE),
        ("rpc.method", _CALL),
        ("gen_ai.tool.name", cut(called, TEXT_CHARS, _MARK)),
    )


def _name(principal: str) -> _Pairs:
    return (("enduser.id", _shown(principal)),)


# The same few tools and people come again and again. Only short texts are kept, so what is kept stays small.
_short_call = lru_cache(1024)(_call)
_short_name = lru_cache(1024)(_name)


def _other(method: str) -> tuple[str, _Pairs]:
    name = _shown(method)
    return name, (("gen_ai.operation.name", name), ("rpc.method", name))


def _id(request_id: object) -> str:
    if isinstance(request_id, int):
        return str(request_id) if request_id.bit_length() <= _LONG_BITS else "(a long number)"
    return _shown(str(request_id))


def _shown(text: str) -> str:
    return cut(values.name(text) or "", TEXT_CHARS, _MARK)
