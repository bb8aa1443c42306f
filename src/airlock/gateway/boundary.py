"""The last catch of a request: recorded as `internal.error`, answered without a word of the exception.

SPEC: gateway.md 6 (last paragraphs), 12.1.
"""

from __future__ import annotations

from airlock.core.decision import Verdict
from airlock.core.redact import values
from airlock.core.redact.patterns import scrub_text
from airlock.core.rules import Rule
from airlock.core.text.cut import cut
from airlock.core.wire import jsonrpc
from airlock.edge.recording import Entry, Open
from airlock.gateway import body
from airlock.gateway.gate import Answer, Gate

__all__ = ["BROKEN", "broke", "internal", "left", "told", "unrecorded"]

DETAIL_CHARS = 300
BROKEN = (Verdict.ERROR, Rule.INTERNAL_ERROR)
"""Verdict and rule of a request that failed inside the gateway."""


def told(error: BaseException) -> str:
    """An exception for the log and the audit: class and text, scrubbed before it is cut."""
    words, kind = str(error), type(error).__name__
    return cut(scrub_text(f"{kind}: {words}" if words else kind), DETAIL_CHARS, "…")


def broke(gate: Gate, entry: Entry, opened: Open | None, request_id: object, error: BaseException) -> Answer:
    """Close the books on a request that failed inside the gateway, and answer -32603."""
    said = told(error)
    gate.log.line(f"internal error: {said}")
    return _closed(gate, entry, opened, request_id, Rule.INTERNAL_ERROR, said)


def left(gate: Gate, entry: Entry, opened: Open | None) -> None:
    """Close the books on a request that was cancelled: its client left, took it back, or the gateway stops."""
    # SPEC: mcp.md 13: the upstream was told by the end of its stream; what it did by then nobody here knows.
    said = "cancelled before the answer"
    said += "; the effect is unknown" if opened is not None else "; nothing was sent"
    _closed(gate, entry, opened, None, Rule.CALL_CANCELLED, said)


def _closed(
    gate: Gate, entry: Entry, opened: Open | None, request_id: object, rule: Rule, said: str
) -> Answer:
    if opened is not None:
        if not opened.closed:
            opened.close(verdict=Verdict.ERROR, rule_id=rule, detail_json=values.detail_json(said))
        return internal(request_id)
    entry.verdict = Verdict.ERROR
    entry.rule_id = rule
    entry.detail_json = values.detail_json(said)
    try:
        gate.recorder.refusal(entry)
    except OSError as failure:
        return unrecorded(gate, request_id, failure)
    return internal(request_id)


def unrecorded(gate: Gate, request_id: object, failure: OSError) -> Answer:
    """The audit could not take a record: nothing goes on without it."""
    gate.log.line(f"the audit record could not be written: {failure.strerror or type(failure).__name__}")
    return internal(request_id)


def internal(request_id: object) -> Answer:
    """The answer that says nothing but that it failed."""
    return Answer(500, body.encode(jsonrpc.error(request_id, jsonrpc.INTERNAL, "airlock: internal error")))
