"""The Protocols through which flows reach the world. Implementations live in `edge` and in the products."""

from __future__ import annotations

from typing import Protocol

from airlock.core.audit.record import Record

__all__ = ["AuditSink", "Clock", "Ids", "Store"]


class Store(Protocol):
    """The shared state behind confirmations and blast radius. All times are Unix seconds.

    A store that does not answer raises `StoreUnavailable`; after `close` every call does. Whatever else it
    raises is a bug. Every operation is atomic on its own.
    """

    async def burn(self, key: str, exp: float) -> bool:
        """Use `key` up. True the first time, False ever after (at least until `exp`)."""
        ...

    async def burned(self, key: str) -> bool:
        """Tell whether `key` was used up."""
        ...

    async def approve(self, key: str, exp: float) -> None:
        """Record a person's yes for `key`, good until `exp`."""
        ...

    async def approved(self, key: str, now: float) -> bool:
        """Tell whether `key` has a yes that is still good at `now`."""
        ...

    async def standing(self, key: str, now: float) -> tuple[bool, bool]:
        """Return what `burned(key)` and `approved(key, now)` would; a burned key's yes may be told as False."""
        ...

    async def save_prompt(self, key: str, text: str, exp: float) -> None:
        """Keep the text a person is shown for `key` until `exp`."""
        ...

    async def prompt(self, key: str) -> str | None:
        """Return the text kept for `key`, or None."""
        ...

    async def used(self, principal: str, tool: str, since: float) -> int:
        """Sum the objects charged to (principal, tool) at or after `since`."""
        ...

    async def reserve(self, principal: str, tool: str, n: int, ts: float, since: float, limit: int) -> bool:
        """Check and charge in one step: add `n` at `ts` unless the sum since `since` would pass `limit`."""
        ...

    async def burn_and_reserve(
        self, key: str, exp: float, principal: str, tool: str, n: int, ts: float, since: float, limit: int
    ) -> tuple[bool, bool]:
        """`burn`, and if that was the first time `reserve`: (burned now, charged now).

        A key stays burned when the charge is refused. When it raises, the key may be burned without a charge.
        """
        ...

    async def give_back(self, principal: str, tool: str, n: int, ts: float) -> None:
        """Undo a charge of `n` made at `ts`, stamped with that same time so both leave the window together."""
        ...

    async def ping(self) -> None:
        """Return when the store answers and its tables exist (missing ones are made again)."""
        ...

    async def close(self) -> None:
        """Release everything; later calls raise `StoreUnavailable`."""
        ...


class AuditSink(Protocol):
    """Where audit records go."""

    def write(self, *records: Record) -> None:
        """Return only when all the records are on file, in order; raise OSError when none of them is."""
        ...

    def close(self) -> None: ...


class Clock(Protocol):
    """Time, as an argument."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...


class Ids(Protocol):
    """Random identifiers, as an argument."""

    def hex(self, nbytes: int) -> str:
        """`2 * nbytes` lower-case hex digits from the system's random source."""
        ...
