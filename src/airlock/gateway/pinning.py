"""Pins at work: which tools of a listing are not what was pinned, and the record about each.

Knows a listing's tools and the pins; takes nothing out and writes nothing itself. SPEC: gateway.md 9.3, 9.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from airlock.core.decision import Verdict
from airlock.core.policy.pins import Pins
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.edge import recording
from airlock.edge.recording import Entry

__all__ = ["entry", "split"]

_Tool = dict[str, object]


def split(tools: Sequence[_Tool], pins: Pins) -> tuple[list[_Tool], list[str]]:
    """Return the tools that stay, in their order, and the name of each that is not what was pinned.

    `tools` are those that the caller may call. A name stands as often as it was dropped.
    """
    kept: list[_Tool] = []
    dropped: list[str] = []
    for tool in tools:
        if pins.changed(tool):
            dropped.append(str(tool["name"]))
        else:
            kept.append(tool)
    return kept, dropped


def entry(call_id: str, principal: str | None, tool: str, trace_id: str | None) -> Entry:
    """Make the entry of a refusal that says that `tool` was dropped; `principal` is already clean.

    It goes to `Recorder.refusal`, once for each name: a server may list one tool a thousand times.
    """
    made = recording.entry(
        call_id, principal=principal, method="tools/list", args_json="{}", trace_id=trace_id
    )
    made.verdict, made.rule_id = Verdict.DENY, Rule.CATALOG_PIN_MISMATCH
    made.detail_json = values.detail_json({"tool": tool})
    return made
