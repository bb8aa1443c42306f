"""The SDK clients of the compatibility table, their ways to open, and what each of them is watched doing.

It knows names and what a row must say; it must not start anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["AUTO", "ERAS", "FACTS", "LEGACY", "MODERN", "PYTHON", "TS1", "TS2", "WAYS", "governed"]

PYTHON: Final = "Python SDK"
TS1: Final = "TypeScript SDK 1"
TS2: Final = "TypeScript SDK 2"

LEGACY: Final = "legacy"
AUTO: Final = "auto"
MODERN: Final = "2026-07-28"

WAYS: Final = (
    (PYTHON, LEGACY), (PYTHON, AUTO), (PYTHON, MODERN), (TS1, LEGACY), (TS2, LEGACY), (TS2, AUTO), (TS2, MODERN),
)  # fmt: skip
"""Client -> how it opens, in the SDK's own words: `initialize`, whichever works, or nothing but this revision."""

ERAS: Final = ("dual", "legacy", "modern")
"""What the server speaks."""

FACTS: Final = ("lists", "calls", "progress", "asks", "cancels")
"""What a client does with a server, with or without a gateway."""


def governed(through: Mapping[str, Any]) -> dict[str, bool]:
    """What a gateway adds, each as it must be."""
    modern = through.get("opened") == MODERN
    return {
        "refused": through.get("refused") == "allowlist.deny",
        "confirmed": through.get("held_yes") == "tier.L2.confirmed",
        "declined": through.get("held_no") == "mrtr.declined",
        # An answer to a question that is no longer open is taken without a word on the older wire.
        "not replayed": through.get("replay") == ("mrtr.replay" if modern else "202"),
    }
