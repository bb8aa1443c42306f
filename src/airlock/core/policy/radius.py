"""Counting the objects that a call touches, from its arguments alone.

Knows lengths; does not know limits, windows or what was used before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from airlock.core.policy.model import ToolPolicy

__all__ = ["count"]


def count(tool: ToolPolicy, arguments: Mapping[str, object]) -> int | None:
    """Return how many objects a call of `tool` with `arguments` touches, 0 or more.

    None: the argument is a JSON list or object that cannot be decoded here (nesting or digits beyond this
    interpreter's limits), so nobody knows. SPEC: gateway.md 5.5.
    """
    if tool.count_arg is None:
        return 1
    value = arguments.get(tool.count_arg)
    if isinstance(value, str):
        # SECURITY: an upstream reads a list out of a string; counted as one object, it would pass any limit.
        text = value.strip()
        if not text.startswith(("[", "{")):
            return 1
        try:
            value = json.loads(text)
        except json.JSONDecodeError:
            return 1
        except (ValueError, RecursionError):
            return None
    return len(value) if isinstance(value, (list, dict)) else 1
