"""The machine's own clocks, behind the `Clock` port.

Knows where time comes from; does not know what anyone does with it.
"""

from __future__ import annotations

import time

__all__ = ["SystemClock"]


class SystemClock:
    """Wall and monotonic time of this machine."""

    __slots__ = ()

    def now(self) -> float:
        """Unix seconds; may step when the machine's clock is set."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        return time.monotonic()
