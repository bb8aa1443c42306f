"""One audit line: its seventeen fields and their order. The same record in every part of Airlock.

Knows fields; the chain (`core.audit.chain`) knows hashes, `core.redact` what may be written.
SPEC: gateway.md 12.1, architecture.md 7.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["FIELDS", "Phase", "Record"]

FIELDS: tuple[str, ...] = (
    "ts", "phase", "call_id", "principal", "method", "tool", "args", "verdict", "rule_id", "tier", "dry_run",
    "latency_ms", "upstream_status", "trace_id", "detail", "prev", "hash",
)  # fmt: skip


class Phase(StrEnum):
    """`intent` is on file before anything happens; `outcome` says how it ended."""

    INTENT = "intent"
    OUTCOME = "outcome"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record before it is chained. Every text in it is already redacted and well formed.

    `ts` is UTC ISO 8601 with milliseconds and `+00:00`. `args_json` and `detail_json` are the canonical JSON
    text of those fields (`null` when there is nothing), so that a value shared by an intent and its outcome is
    encoded once.
    """

    ts: str
    phase: Phase
    call_id: str
    principal: str | None
    method: str | None
    tool: str | None
    args_json: str
    verdict: str
    rule_id: str
    tier: str | None = None
    dry_run: bool | None = None
    latency_ms: int | None = None
    upstream_status: int | None = None
    trace_id: str | None = None
    detail_json: str = "null"
