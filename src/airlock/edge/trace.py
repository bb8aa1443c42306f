"""Trace context by hand: continue the caller's trace or start one, and name our own span in it.

Knows the W3C `traceparent` form; does not know exporters. SPEC: gateway.md 3.2, 14 (parent, T33).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from airlock.core.ports import Ids

__all__ = ["Trace", "begin"]

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_SAMPLED = "01"


class Trace(NamedTuple):
    """One span's place in a trace. `parent_id` is None for the first span of a trace."""

    trace_id: str
    span_id: str
    parent_id: str | None
    flags: str
    state: str | None

    @property
    def traceparent(self) -> str:
        """The value that names this span to whoever comes next."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def begin(traceparent: object, tracestate: object, ids: Ids) -> Trace:
    """Continue `traceparent` when it is a valid string, else start a new trace. Never raises."""
    if isinstance(traceparent, str):
        match = _PARENT.fullmatch(traceparent.strip())
        if match is not None:
            version, trace_id, parent_id, flags, rest = match.groups()
            known = version == "00" and rest is None
            if (known or ("00" < version < "ff")) and trace_id.strip("0") and parent_id.strip("0"):
                state = tracestate if isinstance(tracestate, str) and _STATE.fullmatch(tracestate) else None
                return Trace(trace_id, ids.hex(8), parent_id, flags, state)
    return Trace(ids.hex(16), ids.hex(8), None, _SAMPLED, None)
