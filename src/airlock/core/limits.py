"""How often something may happen: token buckets by key, and a tally of what they refused.

Time is an argument, in seconds that never go back. Must not know who is limited, or how a refusal is told.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

import msgspec

__all__ = ["MOST_KEYS", "OTHERS", "PERIOD_S", "Buckets", "Rate", "Tally", "parse"]

# LIMIT: of keys that are remembered at once, of one kind. What was used longest ago is forgotten first, and a key
# that is forgotten has a full bucket again.
MOST_KEYS: Final = 10_000

PERIOD_S: Final = 60.0
"""How long refusals of one key are only counted after one of them was told."""

OTHERS: Final = "others"
"""The key that stands for all that the tally has no room for."""

_FORM: Final = re.compile(r"([0-9]{1,9})/([0-9]{1,9})(?::([0-9]{1,9}))?")


class Rate(msgspec.Struct, frozen=True):
    """`count` in `seconds`, on average; up to `burst` at once."""

    count: int
    seconds: int
    burst: int

    def __str__(self) -> str:
        return f"{self.count} in {self.seconds} s"


def parse(text: str) -> Rate | None:
    """Read `<count>/<seconds>[:burst]`, the burst being the count when it is not given; None for `0`, no limit.

    Raises ValueError for anything else; none of the three numbers may be 0.
    """
    if text == "0":
        return None
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError("not of the form <count>/<seconds>[:burst]")
    count, seconds, burst = (int(number) for number in found.groups(found[1]))
    if not (count and seconds and burst):
        raise ValueError("a number of a rate is 0")
    return Rate(count, seconds, burst)


class Buckets:
    """One bucket of tokens for each key, all of one rate. A key that was never seen has a full one."""

    __slots__ = ("_full_at", "_interval", "_most", "_slack", "rate")

    def __init__(self, rate: Rate, most: int = MOST_KEYS) -> None:
        self.rate = rate
        self._most = most
        self._interval = rate.seconds / rate.count
        self._slack = (rate.burst - 1) * self._interval
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: Hashable, now: float) -> float:
        """Take a token and return 0.0; without one, return the seconds until there is one, and take nothing."""
        known = self._full_at
        full_at = known.get(key)
        if full_at is None:
            known[key] = now + self._interval
            if len(known) > self._most:
                known.popitem(last=False)
            return 0.0
        known.move_to_end(key)
        if full_at < now:
            full_at = now
        wait = full_at - now - self._slack
        if wait > 0.0:
            return wait
        known[key] = full_at + self._interval
        return 0.0


class Tally:
    """Counts refusals by key, so that one word in `period_s` tells of all of them. Ask `overdue` before `count`."""

    __slots__ = ("_most", "_open", "_period_s")

    def __init__(self, period_s: float = PERIOD_S, most: int = MOST_KEYS) -> None:
        self._period_s = period_s
        self._most = most
        self._open: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()  # the oldest first

    def __len__(self) -> int:
        return len(self._open)

    def overdue(self, now: float) -> list[tuple[Hashable, int]]:
        """Forget the keys whose period is over; return those of them with refusals that nothing told of."""
        untold: list[tuple[Hashable, int]] = []
        while self._open:
            key, (since, number) = next(iter(self._open.items()))
            if now - since < self._period_s:
                break
            del self._open[key]
            if number:
                untold.append((key, number))
        return untold

    def count(self, key: Hashable, now: float) -> bool:
        """Count a refusal; True when it is the first of its key's period, and so to be told now."""
        if key not in self._open and len(self._open) >= self._most:
            # SECURITY: however many keys somebody has, what is told of them stays bounded.
            key = OTHERS
        known = self._open.get(key)
        self._open[key] = (now, 0) if known is None else (known[0], known[1] + 1)
        return known is None
