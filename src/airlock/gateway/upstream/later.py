"""Timers of the back side, behind one argument so that a test can turn time itself.

Knows how to be called later, and a deadline that progress moves; does not know what waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

__all__ = ["Deadline", "Later", "Timer", "on_loop"]


class Timer(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Do not call it; nothing happens when it was called before."""
        ...


Later = Callable[[float, Callable[[], object]], Timer]
"""Calls a function once, after so many seconds, on the event loop."""


def on_loop(delay_s: float, then: Callable[[], object]) -> Timer:
    """Use the clock of the running event loop."""
    return asyncio.get_running_loop().call_later(delay_s, then)


class Deadline:
    """Calls `over` once: `quiet_s` after the start or the last `renew`, at the latest `hard_s` after the start."""

    __slots__ = ("_hard", "_later", "_over", "_quiet", "_quiet_s")

    def __init__(self, later: Later, quiet_s: float, hard_s: float, over: Callable[[], None]) -> None:
        self._later = later
        self._quiet_s = quiet_s
        self._over = over
        self._quiet = later(quiet_s, self._end)
        self._hard = later(hard_s, self._end)

    def renew(self) -> None:
        """Something was heard: wait as long again, but not past `hard_s`."""
        self._quiet.cancel()
        self._quiet = self._later(self._quiet_s, self._end)

    def stop(self) -> None:
        """There is nothing to wait for any more."""
        self._quiet.cancel()
        self._hard.cancel()

    def _end(self) -> None:
        self.stop()
        self._over()
