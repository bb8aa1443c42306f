"""The questions that wait for a person: identical calls share one, and nobody may have people asked too often.

Knows which tickets this process issued and what is still open of them; what a question says, and whether an answer
to it counts, is decided elsewhere. SPEC: gateway.md 8.6 [BEAT]; issue 4, item 7.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import msgspec

from airlock.core.action import Action
from airlock.core.approval.ticket import Claims, Keys, open_agent
from airlock.core.limits import Buckets, Rate
from airlock.core.ports import Clock, Store
from airlock.edge.tasks import inside_task
from airlock.gateway import body, meta

__all__ = [
    "FRESH_S",
    "MOST_BYTES",
    "MOST_EACH",
    "MOST_IN_ALL_BYTES",
    "MOST_OPEN",
    "WAIT_S",
    "Place",
    "Prompts",
]

# LIMIT: of tickets that are known to be open. What is issued beyond it is good all the same, and asked anew.
MOST_OPEN: Final = 10_000
# LIMIT: of questions that are kept to be shown again, of one principal and in bytes; others are asked anew.
# SECURITY: nobody can push out the questions of somebody else.
MOST_EACH: Final = 256
MOST_BYTES: Final = 256 << 10
MOST_IN_ALL_BYTES: Final = 64 << 20

FRESH_S: Final = 30.0
"""A question with less time left, in seconds, is not shown again: a person could not answer it any more."""

WAIT_S: Final = 60.0
"""How long a call waits for an identical one that is just having its question made, in seconds."""

Place = tuple[str, str, str, str, str]
"""What makes two calls one: principal, tool, digest of the arguments, environment, server."""


class _Question(msgspec.Struct):
    """An open ticket. `shown` is the encoded result that is given out again, None: it is not."""

    place: Place
    exp: float
    shown: bytes | None = None


class Prompts:
    """What one process asks people. `collapse`: identical calls share a question; `rate`: how often for one caller.

    `asked`, `collapsed`, `limited` and `lost` only ever grow. Belongs to one event loop.
    """

    def __init__(self, store: Store, clock: Clock, *, collapse: bool, rate: Rate | None) -> None:
        self._store, self._clock, self._collapse = store, clock, collapse
        self._buckets = None if rate is None else Buckets(rate)
        self._open: OrderedDict[str, _Question] = OrderedDict()  # by ticket key, the oldest first
        self._at: dict[Place, str] = {}
        self._making: dict[Place, asyncio.Event] = {}
        self._each: Counter[str] = Counter()
        self._bytes = 0
        self.asked = self.collapsed = self.limited = self.lost = 0

    @property
    def open(self) -> int:
        """How many tickets of this process wait for an answer, as far as it knows."""
        self._expire()
        return len(self._open)

    async def find(self, action: Action, principal: str) -> tuple[str, bytes] | None:
        """Return key and encoded result of the question that an identical call asked and that is still open.

        Waits for a question that is just being made. After None, `making` must be entered without a wait between.
        Raises StoreUnavailable.
        """
        if not self._collapse:
            return None
        place = _place(action, principal)
        until = self._clock.monotonic() + WAIT_S
        while True:
            making = self._making.get(place)
            if making is not None and (left := until - self._clock.monotonic()) > 0:
                await inside_task()
                try:
                    async with asyncio.timeout(left):
                        await making.wait()
                except TimeoutError:
                    return None
                continue
            key = self._at.get(place)
            if key is None:
                return None
            now = self._clock.now()
            if self._open[key].exp - now < FRESH_S:
                self._hide(key)
                return None
            # Another process, or another call of this one, may have used it up.
            used, _ = await self._store.standing(key, now)
            if used:
                self.settled(key)
                continue
            question = self._open.get(key)
            if question is not None and question.shown is not None:
                self.collapsed += 1
                return key, question.shown

    def over(self, principal: str) -> float:
        """Count a question of `principal`; return 0.0, or the seconds after which it may be asked."""
        wait = 0.0 if self._buckets is None else self._buckets.take(principal, self._clock.monotonic())
        self.limited += wait > 0.0
        return wait

    @property
    def collapses(self) -> bool:
        """Tell whether the same call again finds the question that is still open."""
        return self._collapse

    @property
    def rate(self) -> Rate | None:
        """How often people may be asked for one caller."""
        return None if self._buckets is None else self._buckets.rate

    @contextmanager
    def making(self, action: Action, principal: str) -> Iterator[None]:
        """Let identical calls wait while the question of this one is made."""
        place = _place(action, principal) if self._collapse else None
        if place is None or place in self._making:
            yield
            return
        self._making[place] = made = asyncio.Event()
        try:
            yield
        finally:
            del self._making[place]
            made.set()

    def keep(self, claims: Claims, result: dict[str, object]) -> Callable[[], None]:
        """Remember a question just made. Call what is returned when its message was lost: it is not shown again."""
        self._expire()
        self.asked += 1
        if len(self._open) >= MOST_OPEN:
            return _nothing
        place = (claims.p, claims.t, claims.h, claims.e, claims.u)
        question = self._open[claims.k] = _Question(place, claims.exp)
        if self._collapse and self._each[claims.p] < MOST_EACH:
            shown = body.encode({**result, "_meta": {**_own(result), meta.COLLAPSED: True}})
            if len(shown) <= MOST_BYTES and self._bytes + len(shown) <= MOST_IN_ALL_BYTES:
                if (older := self._at.get(place)) is not None:
                    self._hide(older)
                question.shown = shown
                self._bytes += len(shown)
                self._each[claims.p] += 1
                self._at[place] = claims.k
        return partial(self._untold, claims.k)

    def settled(self, key: str) -> None:
        """Forget a ticket that is used up, by a yes or a no."""
        self._hide(key)
        self._open.pop(key, None)

    def declined(self, keys: Keys, state: object) -> None:
        """Forget the ticket that a call brought back with a no."""
        claims = open_agent(keys, state)
        if isinstance(claims, Claims):
            self.settled(claims.k)

    def _untold(self, key: str) -> None:
        # SPEC: gateway.md 8.6: a question whose message was lost can be asked again.
        self.lost += 1
        self._hide(key)

    def _hide(self, key: str) -> None:
        """Show a question no more; its ticket stays open."""
        question = self._open.get(key)
        if question is None or question.shown is None:
            return
        self._bytes -= len(question.shown)
        question.shown = None
        del self._at[question.place]
        principal = question.place[0]
        self._each[principal] -= 1
        if not self._each[principal]:
            del self._each[principal]

    def _expire(self) -> None:
        now = self._clock.now()
        while self._open:
            key, question = next(iter(self._open.items()))
            if question.exp > now:
                return
            self.settled(key)


def _place(action: Action, principal: str) -> Place:
    return principal, action.name, action.arguments_digest(), action.environment, action.target


def _own(result: dict[str, object]) -> dict[str, object]:
    own = result.get("_meta")
    return own if isinstance(own, dict) else {}


def _nothing() -> None:
    """Nothing was kept, so nothing is to be forgotten."""
