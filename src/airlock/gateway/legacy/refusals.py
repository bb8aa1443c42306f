"""Refusing a message of a known principal: recorded without its arguments, answered as a JSON-RPC error.

Knows the form of the record (gateway.md 2, notes); does not know why anything is refused.
"""

from __future__ import annotations

from typing import Final

from airlock.core.decision import Verdict
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import protocol_rule
from airlock.core.text.cut import cut
from airlock.edge import recording
from airlock.gateway import boundary
from airlock.gateway.gate import Gate
from airlock.gateway.legacy.admission import Bad
from airlock.gateway.legacy.replies import Plain, refused

__all__ = ["refuse"]

_NAME_CHARS: Final = 128


def refuse(gate: Gate, principal: Principal, status: int, bad: Bad) -> Plain:
    """Record a refusal and answer it. What cannot be recorded is an internal error."""
    # SECURITY: names are cut and arguments left out, or whoever reaches the port fills the log.
    entry = recording.entry(gate.ids.hex(16), principal=values.name(principal.name), method=_name(bad.method))
    entry.verdict, entry.rule_id = Verdict.DENY, protocol_rule(bad.code)
    entry.detail_json = values.detail_json(bad.reason)
    try:
        gate.recorder.refusal(entry)
    except OSError as error:
        failed = boundary.unrecorded(gate, bad.id, error)
        return Plain(failed.status, failed.body)
    return refused(status, bad.code, bad.reason, bad.id)


def _name(text: str | None) -> str | None:
    """A client-chosen name for the log: scrubbed, then cut."""
    clean = values.name(text)
    return None if clean is None else cut(clean, _NAME_CHARS, "…[cut]")
