"""The header lines of one request, found by name, and which of them stand more than once.

Knows lines; does not know what any header means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

__all__ = ["Headers", "declared_length"]

_NONE: frozenset[bytes] = frozenset()


class Headers:
    """Lines as ASGI gives them, names in lower case. `first` holds each name's first value."""

    __slots__ = ("doubled", "first", "lines")

    def __init__(self, lines: Sequence[tuple[bytes, bytes]]) -> None:
        self.lines = lines
        self.first: dict[bytes, bytes] = dict(lines)
        self.doubled = _NONE
        if len(self.first) != len(lines):
            self.first = dict(reversed(lines))
            self.doubled = frozenset(
                name for name, count in Counter(name for name, _ in lines).items() if count > 1
            )


def declared_length(lines: Sequence[tuple[bytes, bytes]]) -> int | None:
    """Return the value of the first Content-Length, None when there is none that is a number."""
    value = next((value for name, value in lines if name == b"content-length"), b"")
    return int(value) if value.isdigit() and len(value) < 20 else None
