"""Questions that wait for a client: an opaque handle, whom and what it is good for, and until when.

Knows handles, bindings, caps and time; does not know what was asked or what waits for the answer.
SPEC: mcp.md 10, 20b, 25e.
"""

from __future__ import annotations

import hashlib
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from airlock.core.ports import Ids
from airlock.core.wire import canon
from airlock.gateway.upstream.later import Later, Timer

__all__ = ["MOST", "MOST_EACH", "PARK_S", "PREFIX", "Binding", "Held", "Parks", "bind"]

PREFIX: Final = "park1."

PARK_S: Final = 600.0
"""LIMIT: how long a question waits for its answer."""

# SECURITY: every question that waits keeps a call open at the server.
MOST_EACH: Final = 32
"""LIMIT: questions of one principal that wait."""

MOST: Final = 1024
"""LIMIT: questions that wait in all."""


class Binding(msgspec.Struct, frozen=True):
    """What a handle is good for: this principal's retry of this very request."""

    principal: str
    method: str
    digest: str


def bind(principal: str, method: str, params: dict[str, object]) -> Binding:
    """Return the binding of a request. Its name or uri, and its arguments, are in the digest."""
    what = [params.get("name"), params.get("uri"), params.get("arguments") or {}]
    return Binding(principal, method, hashlib.sha256(canon.encode(what)).hexdigest())


class Held(Protocol):
    """What waits."""

    def forget(self) -> None:
        """Nobody will answer: let go, and tell who asked. Must not block or raise."""
        ...


_H = TypeVar("_H", bound=Held)


class _Entry(Generic[_H]):
    __slots__ = ("binding", "held", "timer")

    def __init__(self, binding: Binding, held: _H, timer: Timer) -> None:
        self.binding = binding
        self.held = held
        self.timer = timer


class Parks(Generic[_H]):
    """The questions that wait in this process.

    LIMIT: a retry that reaches another process finds nothing there: the open call lives in this one.
    """

    __slots__ = ("_entries", "_ids", "_later", "_of", "_park_s")

    def __init__(self, ids: Ids, later: Later, park_s: float = PARK_S) -> None:
        self._ids = ids
        self._later = later
        self._park_s = park_s
        self._entries: dict[str, _Entry[_H]] = {}
        self._of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def park(self, binding: Binding, held: _H) -> str | None:
        """Keep `held` and return its handle; None when too many wait already (nothing is kept then)."""
        mine = self._of.get(binding.principal, 0)
        if mine >= MOST_EACH or len(self._entries) >= MOST:
            return None
        state = PREFIX + self._ids.hex(16)
        timer = self._later(self._park_s, lambda: self.abandon(state))
        self._entries[state] = _Entry(binding, held, timer)
        self._of[binding.principal] = mine + 1
        return state

    def find(self, state: object, binding: Binding) -> _H | None:
        """Return what waits under `state`, which stays; None when it is unknown or good for another request."""
        entry = self._entries.get(state) if isinstance(state, str) else None
        # SECURITY: a handle that leaked answers nobody's question but its owner's, and only with the request that
        # was asked about; to anybody else it looks like one that never was.
        return entry.held if entry is not None and entry.binding == binding else None

    def take(self, state: object) -> None:
        """Use a handle up: it was answered."""
        self._remove(state)

    def abandon(self, state: object) -> None:
        """Nobody will answer this question; does nothing for an unknown state."""
        held = self._remove(state)
        if held is not None:
            held.forget()

    def close(self) -> None:
        """Abandon them all."""
        for state in list(self._entries):
            self.abandon(state)

    def _remove(self, state: object) -> _H | None:
        entry = self._entries.pop(state, None) if isinstance(state, str) else None
        if entry is None:
            return None
        entry.timer.cancel()
        principal = entry.binding.principal
        left = self._of[principal] - 1
        if left:
            self._of[principal] = left
        else:
            del self._of[principal]
        return entry.held
