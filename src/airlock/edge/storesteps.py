"""The store operations that a store without round trips to save may do one after the other.

Knows the order of the steps; must not know where anything is kept.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["InSteps"]


class _Single(Protocol):
    async def burn(self, key: str, exp: float) -> bool: ...

    async def burned(self, key: str) -> bool: ...

    async def approved(self, key: str, now: float) -> bool: ...

    async def reserve(
        self, principal: str, tool: str, n: int, ts: float, since: float, limit: int
    ) -> bool: ...


class InSteps:
    """`standing` and `burn_and_reserve` out of the single operations, for stores on the same machine."""

    async def standing(self: _Single, key: str, now: float) -> tuple[bool, bool]:
        """Return what `burned(key)` and `approved(key, now)` would."""
        if await self.burned(key):
            return True, False
        return False, await self.approved(key, now)

    async def burn_and_reserve(
        self: _Single,
        key: str,
        exp: float,
        principal: str,
        tool: str,
        n: int,
        ts: float,
        since: float,
        limit: int,
    ) -> tuple[bool, bool]:
        """Burn, and if that was the first time reserve: (burned now, charged now)."""
        if not await self.burn(key, exp):
            return False, False
        return True, await self.reserve(principal, tool, n, ts, since, limit)
