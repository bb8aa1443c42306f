"""The state store of a single process: gone when the process ends, shared with nobody.

Knows keys, prompts and charges; does not know tickets, policy or what a charge stands for.

Every method runs without awaiting, so each is atomic within the loop. Cost does not grow with what is stored:
charges are kept as running sums, and what expires leaves through a heap, a few entries per write.
SPEC: gateway.md 13.2.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from heapq import heappop, heappush
from typing import Final

from airlock.core.errors import ConfigError, StoreUnavailable
from airlock.core.ports import Clock
from airlock.edge.storesteps import InSteps

__all__ = ["CLOCK_SLACK_S", "USAGE_KEPT_S", "MemoryStore", "open"]

USAGE_KEPT_S: Final = 86400.0
"""How long a charge is kept: the widest window a policy may name (gateway.md 5)."""

CLOCK_SLACK_S: Final = 3600.0
"""How long past its `exp` a burned key is kept, so that a clock set back does not make it good again."""

_PURGED_PER_WRITE: Final = 16
_COMPACT_FROM: Final = 256

_BURNED: Final = 0
_APPROVED: Final = 1
_PROMPT: Final = 2


def open(uri: str, clock: Clock) -> MemoryStore:  # noqa: A001 - the name every store module offers
    """Make an empty store. `uri` is `memory:` or `memory://`; anything more is a ConfigError."""
    if uri not in ("memory:", "memory://"):
        raise ConfigError("AIRLOCK_STORE_DSN", "a memory store takes no path or options: write `memory://`")
    return MemoryStore(clock)


class _Window:
    """The charges of one (principal, tool) in order of time, each with the sum up to and including it.

    A sum since any moment is one search and one subtraction, whatever the moment and however many rows.
    INVARIANT: `_sums[i]` is `_dropped` plus every charge at or before row i; the newest row is never dropped.
    """

    __slots__ = ("_dropped", "_sums", "_times")

    def __init__(self) -> None:
        self._times = array("d")
        self._sums = array("q")
        self._dropped = 0

    def last(self) -> float:
        """Return the time of the newest row."""
        return self._times[-1]

    def since(self, moment: float) -> int:
        """Sum the charges at or after `moment`."""
        first = bisect_left(self._times, moment)
        return self._sums[-1] - (self._sums[first - 1] if first else self._dropped)

    def add(self, n: int, ts: float) -> None:
        """Count `n` at `ts`. Rows stamped later move up; usually there are none."""
        at = bisect_right(self._times, ts)
        before = self._sums[at - 1] if at else self._dropped
        self._times.insert(at, ts)
        self._sums.insert(at, before + n)
        for later in range(at + 1, len(self._sums)):
            self._sums[later] += n

    def drop(self, before: float) -> None:
        """Forget the rows older than `before`, once they are worth the move."""
        if len(self._times) < _COMPACT_FROM or self._times[len(self._times) // 2] >= before:
            return
        old = bisect_left(self._times, before)
        self._dropped = self._sums[old - 1]
        del self._times[:old]
        del self._sums[:old]


class MemoryStore(InSteps):
    """`core.ports.Store` in the memory of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._closed = False
        self._burned: dict[str, float] = {}
        self._approved: dict[str, float] = {}
        self._prompts: dict[str, tuple[str, float]] = {}
        self._windows: dict[tuple[str, str], _Window] = {}
        self._key_expiry: list[tuple[float, int, str]] = []
        self._window_expiry: list[tuple[float, tuple[str, str]]] = []

    async def burn(self, key: str, exp: float) -> bool:
        """Use `key` up: True the first time, False ever after."""
        self._purge()
        if key in self._burned:
            return False
        self._burned[key] = exp
        heappush(self._key_expiry, (exp + CLOCK_SLACK_S, _BURNED, key))
        return True

    async def burned(self, key: str) -> bool:
        """Tell whether `key` was used up."""
        self._check()
        return key in self._burned

    async def approve(self, key: str, exp: float) -> None:
        """Record a person's yes for `key`, good until `exp`."""
        self._purge()
        if self._approved.get(key) != exp:
            self._approved[key] = exp
            heappush(self._key_expiry, (exp, _APPROVED, key))

    async def approved(self, key: str, now: float) -> bool:
        """Tell whether `key` has a yes that is still good at `now`."""
        self._check()
        exp = self._approved.get(key)
        return exp is not None and now < exp

    async def save_prompt(self, key: str, text: str, exp: float) -> None:
        """Keep the text a person is shown for `key` until `exp`."""
        self._purge()
        known = self._prompts.get(key)
        self._prompts[key] = (text, exp)
        if known is None or known[1] != exp:
            heappush(self._key_expiry, (exp, _PROMPT, key))

    async def prompt(self, key: str) -> str | None:
        """Return the text kept for `key`, or None."""
        self._check()
        known = self._prompts.get(key)
        return known[0] if known is not None and self._clock.now() < known[1] else None

    async def used(self, principal: str, tool: str, since: float) -> int:
        """Sum the objects charged to (principal, tool) at or after `since`."""
        self._check()
        window = self._windows.get((principal, tool))
        return window.since(since) if window is not None else 0

    async def reserve(self, principal: str, tool: str, n: int, ts: float, since: float, limit: int) -> bool:
        """Add `n` at `ts` unless the sum since `since` would pass `limit`."""
        self._purge()
        window = self._windows.get((principal, tool))
        if (window.since(since) if window is not None else 0) + n > limit:
            return False
        self._charge(principal, tool, n, ts)
        return True

    async def give_back(self, principal: str, tool: str, n: int, ts: float) -> None:
        """Undo a charge of `n` made at `ts`, stamped with that same time."""
        self._purge()
        self._charge(principal, tool, -n, ts)

    async def ping(self) -> None:
        """Return while the store is open."""
        self._check()

    async def close(self) -> None:
        """Forget everything; later calls raise `StoreUnavailable`."""
        self._closed = True
        for held in (self._burned, self._approved, self._prompts, self._windows):
            held.clear()
        self._key_expiry.clear()
        self._window_expiry.clear()

    def _check(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")

    def _charge(self, principal: str, tool: str, n: int, ts: float) -> None:
        oldest = self._clock.now() - USAGE_KEPT_S
        # A charge this old was dropped: giving it back now would leave a credit nobody paid for.
        if n == 0 or ts < oldest:
            return
        name = (principal, tool)
        window = self._windows.get(name)
        if window is None:
            window = self._windows[name] = _Window()
            heappush(self._window_expiry, (ts + USAGE_KEPT_S, name))
        window.add(n, ts)
        window.drop(oldest)

    def _purge(self) -> None:
        """Check that the store is open and let a bounded number of expired things go."""
        self._check()
        now = self._clock.now()
        for _ in range(_PURGED_PER_WRITE):
            if not self._key_expiry or self._key_expiry[0][0] > now:
                break
            _, kind, key = heappop(self._key_expiry)
            self._forget(kind, key, now)
        for _ in range(_PURGED_PER_WRITE):
            if not self._window_expiry or self._window_expiry[0][0] >= now:
                break
            _, name = heappop(self._window_expiry)
            leaves = self._windows[name].last() + USAGE_KEPT_S
            if leaves < now:
                del self._windows[name]
            else:
                heappush(self._window_expiry, (leaves, name))

    def _forget(self, kind: int, key: str, now: float) -> None:
        # An entry of the heap may be older than what is held: a key approved or described anew stays.
        if kind == _BURNED:
            del self._burned[key]
        elif kind == _APPROVED:
            if self._approved.get(key, now) <= now:
                self._approved.pop(key, None)
        elif self._prompts.get(key, ("", now))[1] <= now:
            self._prompts.pop(key, None)
