"""The two families of revisions, and the ear of a request: what every part of the gateway says of a request.

Knows words only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

__all__ = ["Era", "Heard"]


class Era(StrEnum):
    """Which family of revisions a peer speaks: 2026-07-28, or those that open with `initialize`."""

    MODERN = "modern"
    LEGACY = "legacy"


class Heard(Protocol):
    """Takes what an upstream says before its answer: notifications, as whole JSON-RPC messages."""

    def notify(self, message: dict[str, object]) -> None:
        """Take one notification. Called in the order of arrival, never after the answer; must not block."""
        ...
