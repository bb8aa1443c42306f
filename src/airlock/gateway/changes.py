"""Tells every open subscription that the policy or the pins changed, and holds how many there are.

Knows callbacks and counts; does not know what a subscription sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["MOST", "MOST_PER_PRINCIPAL", "Changes"]

MOST = 4096
"""SECURITY: open subscriptions in this process; each holds a stream to its client. A legacy session has one."""

MOST_PER_PRINCIPAL = 1024
"""SECURITY: open subscriptions of one principal, so that nobody takes them all."""


class Changes:
    """The open subscriptions of one gateway process. LIMIT: other worker processes count their own."""

    __slots__ = ("_of", "_told")

    def __init__(self) -> None:
        self._told: dict[object, Callable[[], None]] = {}
        self._of: Counter[str] = Counter()

    def full(self, principal: str) -> str | None:
        """Return why `principal` may not subscribe now, None when it may."""
        if self._of[principal] >= MOST_PER_PRINCIPAL:
            return f"this caller has {MOST_PER_PRINCIPAL} subscriptions open, the most there may be"
        if len(self._told) >= MOST:
            return f"{MOST} subscriptions are open, the most there may be"
        return None

    @contextmanager
    def subscribe(self, principal: str, told: Callable[[], None]) -> Iterator[None]:
        """Call `told` at each `announce` while the block runs. `told` must neither block nor raise."""
        handle = object()
        self._told[handle] = told
        self._of[principal] += 1
        try:
            yield
        finally:
            del self._told[handle]
            self._of[principal] -= 1
            if not self._of[principal]:
                del self._of[principal]

    def announce(self) -> None:
        """Tell every open subscription that what may be listed has changed."""
        for told in list(self._told.values()):
            told()
