"""Listings that were shaped before: the same bytes for the same caller under the same snapshot need no second look.

Knows bytes and callers; does not know how a listing is shaped. LIMIT: `MAX_BYTES` and
`MAX_KEPT` in all, the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from airlock.core.principal import Principal
from airlock.gateway.eras import Era

__all__ = ["MAX_BYTES", "MAX_KEPT", "Listing", "Listings"]

MAX_BYTES = 16 * 1024 * 1024
MAX_KEPT = 512
_LARGEST = 1024 * 1024


class Listing(msgspec.Struct, frozen=True):
    """A shaped result: its JSON, the `detail` of its outcome record, the tools that its pins dropped, the number
    of injection findings."""

    encoded: bytes
    detail_json: str
    dropped: tuple[str, ...]
    suspicious: int


class Listings:
    """A bounded memory of one snapshot, one listing for each caller, method and era."""

    __slots__ = ("_bytes", "_kept")

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str, tuple[str, ...], Era], tuple[bytes, Listing]] = OrderedDict()
        self._bytes = 0

    def find(self, method: str, principal: Principal, raw: bytes, era: Era = Era.MODERN) -> Listing | None:
        """Return what `raw` was shaped to for this caller, if it is what came the last time in this era."""
        kept = self._kept.get((method, principal.name, principal.groups, era))
        return kept[1] if kept is not None and kept[0] == raw else None

    def keep(
        self, method: str, principal: Principal, raw: bytes, listing: Listing, era: Era = Era.MODERN
    ) -> None:
        """Remember what `raw`, the upstream's own result, was shaped to."""
        size = len(raw) + len(listing.encoded)
        if size > _LARGEST:
            return
        key = (method, principal.name, principal.groups, era)
        self._forget(self._kept.pop(key, None))
        self._kept[key] = (raw, listing)
        self._bytes += size
        while self._bytes > MAX_BYTES or len(self._kept) > MAX_KEPT:
            self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, kept: tuple[bytes, Listing] | None) -> None:
        if kept is not None:
            self._bytes -= len(kept[0]) + len(kept[1].encoded)
