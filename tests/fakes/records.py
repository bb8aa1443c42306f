"""Audit records from flat fields."""

from __future__ import annotations

from typing import Any

from airlock.core.audit.record import Record, subject

_SHARED = ("call_id", "principal", "method", "tool", "args_json", "trace_id")


def record(**fields: Any) -> Record:
    """Make a record of fields named as in the line, `args_json` and `detail_json` as JSON text."""
    shared = {name: fields.pop(name) for name in _SHARED if name in fields}
    return Record(subject=subject(**shared), **fields)
