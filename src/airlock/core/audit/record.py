"""One audit line: its seventeen fields and their order. The same record in every part of Airlock.

Knows fields; the chain (`core.audit.chain`) knows hashes, `core.redact` what may be written.
SPEC: gateway.md 12.1, architecture.md 7.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = ["FIELDS", "SENTENCES", "Phase", "Record", "Subject", "raw"]

FIELDS: tuple[str, ...] = (
    "ts", "phase", "call_id", "principal", "method", "tool", "args", "verdict", "rule_id", "tier", "dry_run",
    "latency_ms", "upstream_status", "trace_id", "detail", "prev", "hash",
)  # fmt: skip

SENTENCES: dict[str, str] = {
    "ts": "When the record was made: UTC, ISO 8601 with milliseconds and `+00:00`.",
    "phase": "`intent`, written before anything happens, or `outcome`, which says how it ended.",
    "call_id": "32 hex digits that the two records of one request share.",
    "principal": "Who asked; null when that was not established.",
    "method": "The JSON-RPC method; null when the request was refused before it was read.",
    "tool": "The tool of a `tools/call`, the URI or prompt of a read; null for other methods, or when not read.",
    "args": "The arguments as the client sent them; `{}` for a listing, null for a request refused at admission.",
    "verdict": "`allow`, `deny`, `confirm` or `error`; that of an outcome may differ from that of its intent.",
    "rule_id": "The rule that produced the verdict.",
    "tier": "`L0` to `L3`; null when no tier was looked up or none was found.",
    "dry_run": "The value of `dry_run` that was forced; null when it was left alone or nothing was sent.",
    "latency_ms": "Whole milliseconds until the outcome, 0 for a refusal; null in an intent.",
    "upstream_status": "The HTTP status of the upstream's answer; null when there was none.",
    "trace_id": "The request's W3C trace, 32 hex digits; null when it was refused before that was read.",
    "detail": "A reason or cause as text, or an object of what was noticed about the result; else null.",
    "prev": "The `hash` of the record before; 64 zeros where a chain begins.",
    "hash": "SHA-256, in hex digits, of the canonical JSON of this record without `hash`.",
}
"""Field to what it holds, in the order of `FIELDS`. The reference table is made from this."""


class Phase(StrEnum):
    """`intent` is on file before anything happens; `outcome` says how it ended."""

    INTENT = "intent"
    OUTCOME = "outcome"


class Subject(msgspec.Struct, frozen=True, gc=False):
    """What the two records of one action both say. `args` is canonical JSON text, made by `raw`."""

    call_id: str
    principal: str | None
    method: str | None
    tool: str | None
    args: msgspec.Raw
    trace_id: str | None


def raw(json_text: str) -> msgspec.Raw:
    """JSON text that goes into a line as it is."""
    return msgspec.Raw(json_text.encode("utf-8", "surrogatepass"))


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record before it is chained. Every text in it is already redacted and well formed.

    `ts` is UTC ISO 8601 with milliseconds and `+00:00`. `detail_json` is the canonical JSON text of that field,
    `null` when there is nothing.
    """

    ts: str
    phase: Phase
    subject: Subject
    verdict: str
    rule_id: str
    tier: str | None = None
    dry_run: bool | None = None
    latency_ms: int | None = None
    upstream_status: int | None = None
    detail_json: str = "null"
