"""Trace context by hand: continue the caller's trace or start one, and name our own span in it.

Knows the W3C `traceparent` form; does not know exporters. SPEC: gateway.md 3.2, 14 (parent, T33).
"""

from __future__ import annotations

import re

import msgspec

from airlock.core.ports import Ids

__all__ = ["Trace", "begin"]

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")


class Trace(msgspec.Struct, frozen=True):
    """One span's place in a trace, and when it began.

    `parent_id` is None for the first span; `traceparent` names this one. `started` is in Unix seconds.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    traceparent: str
    state: str | None = None
    started: float = 0.0


def begin(traceparent: object, tracestate: object, ids: Ids, started: float = 0.0) -> Trace:
    """Continue `traceparent` when it is a valid string, else start a new trace. Never raises.

    LIMIT: a parent's flag that asks for no span is passed on and not obeyed: the agent cannot hide a call.
    """
    if isinstance(traceparent, str):
        match = _PARENT.fullmatch(traceparent.strip())
        if match is not None:
            version, trace_id, parent_id, flags, rest = match.groups()
            known = version == "00" and rest is None
            if (known or ("00" < version < "ff")) and trace_id.strip("0") and parent_id.strip("0"):
                state = tracestate if isinstance(tracestate, str) and _STATE.fullmatch(tracestate) else None
                span_id = ids.hex(8)
                return Trace(trace_id, span_id, parent_id, f"00-{trace_id}-{span_id}-{flags}", state, started)
    fresh = ids.hex(24)
    trace_id, span_id = fresh[:32], fresh[32:]
    return Trace(trace_id, span_id, None, f"00-{trace_id}-{span_id}-01", None, started)
