"""Audit records from flat fields."""

from __future__ import annotations

from typing import Any

from airlock.core.audit.record import Record, Subject, raw


def record(**fields: Any) -> Record:
    """Make a record of fields named as in the line, `args_json` and `detail_json` as JSON text."""
    about = Subject(
        fields.pop("call_id"),
        fields.pop("principal", None),
        fields.pop("method", None),
        fields.pop("tool", None),
        raw(fields.pop("args_json", "null")),
        fields.pop("trace_id", None),
    )
    return Record(subject=about, **fields)
