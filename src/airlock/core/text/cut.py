"""Cutting a text to a length, with a note that says so inside that length.

Knows lengths in characters; does not know secrets: whoever cuts has scrubbed before (gateway.md 12.2).
"""

from __future__ import annotations

__all__ = ["cut"]


def cut(text: str, limit: int, note: str) -> str:
    """Return `text` when it has at most `limit` characters, else its beginning and `note`, `limit` together.

    The note is whole whenever it fits; a note longer than `limit` is cut itself. `limit` is not negative.
    """
    if len(text) <= limit:
        return text
    kept = limit - len(note)
    return text[:kept] + note if kept >= 0 else note[:limit]
