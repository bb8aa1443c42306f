"""The dialogues with one legacy server: one for each principal and set of capabilities, opened when needed.

Knows keys, ages and numbers; does not know what is said on a dialogue. SPEC: mcp.md 20b, 20c, 26.11.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import canon
from airlock.gateway.upstream import bridge
from airlock.gateway.upstream.dialogue import Dialogue, Limits
from airlock.gateway.upstream.later import Later, Timer
from airlock.gateway.upstream.line import Dialer

__all__ = ["IDLE_S", "MOST", "Dialogues"]

IDLE_S: Final = 300.0
"""How long a dialogue is kept that nobody uses."""

# SECURITY: a client chooses its capabilities, so it chooses how many dialogues there are.
MOST: Final = 256
"""LIMIT: dialogues with one server; the one that rested longest makes room."""

MOST_EACH: Final = 16
"""LIMIT: dialogues of one principal with one server; never more than a quarter of all."""

_Key = tuple[str, str]


class _Entry:
    __slots__ = ("closing", "dialogue", "idle", "key", "opening")

    def __init__(self, key: _Key, dialogue: Dialogue) -> None:
        self.key = key
        self.dialogue = dialogue
        self.opening: asyncio.Task[None] | None = None
        self.closing: asyncio.Task[None] | None = None
        self.idle: Timer | None = None

    @property
    def ready(self) -> bool:
        return self.opening is not None and self.opening.done()


class Dialogues:
    """Hands out dialogues. SECURITY: one that a principal used is never another's (mcp.md 26.11)."""

    def __init__(
        self, dialer: Dialer, *, client: dict[str, object], limits: Limits, later: Later, most: int
    ) -> None:
        self._dialer = dialer
        self._client = client
        self._limits = limits
        self._later = later
        self._most = most
        # SECURITY: with few in all, as of processes, one principal must not have them all in use.
        self._most_each = min(MOST_EACH, max(1, most // 4))
        self._entries: dict[_Key, _Entry] = {}  # the one used last comes last
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def get(self, principal: str, client: dict[str, object], *, asks: bool) -> Dialogue:
        """Return an open dialogue of `principal` for a client of these modern capabilities.

        `asks` False: what will be sent cannot be asked back, so when nothing is declared any dialogue of the
        principal does. Raises UpstreamError, always with `reached=False`.
        """
        if self._closed:
            raise _none("the upstream was closed")
        declared = bridge.capabilities(client)
        key = (principal, canon.text(declared))
        entry = self._entries.get(key)
        if entry is None and not declared and not asks:
            entry = next((one for one in reversed(self._entries.values()) if one.key[0] == principal), None)
        if entry is not None and entry.ready and not entry.dialogue.takes:
            # What is open on it may still end in order; nothing new comes to it.
            self._forget(entry)
            entry = None
        if entry is None:
            entry = self._made(key, declared)
        self._entries[entry.key] = self._entries.pop(entry.key)
        assert entry.opening is not None
        if not entry.opening.done():
            # Others may wait for it too, and to shake hands is not to be cancelled half-way.
            await asyncio.wait((entry.opening,))
        error = (
            entry.opening.exception() if not entry.opening.cancelled() else _none("the upstream was closed")
        )
        if error is not None:
            raise error
        return entry.dialogue

    async def close(self) -> None:
        """Close them all; later `get` fails."""
        self._closed = True
        for entry in list(self._entries.values()):
            assert entry.opening is not None
            entry.opening.cancel()
            self._discard(entry)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _made(self, key: _Key, declared: dict[str, object]) -> _Entry:
        leaving = self._room(key[0])
        dialogue = Dialogue(declared, self._client, self._limits, self._later, lambda _: self._rested(entry))
        entry = _Entry(key, dialogue)
        self._entries[key] = entry
        entry.opening = self._task(self._open(entry, leaving))
        return entry

    def _room(self, principal: str) -> asyncio.Task[None] | None:
        """Make room for one more; return the task that closes the one that has to go, if one has."""
        mine = [entry for entry in self._entries.values() if entry.key[0] == principal]
        crowded = mine if len(mine) >= self._most_each else list(self._entries.values())
        if crowded is not mine and len(crowded) < self._most:
            return None
        for entry in crowded:
            if entry.ready and not entry.dialogue.busy:
                return self._discard(entry)
        raise _none("too many dialogues with the server are in use")

    async def _open(self, entry: _Entry, leaving: asyncio.Task[None] | None) -> None:
        try:
            if leaving is not None:
                await asyncio.wait((leaving,))
            await entry.dialogue.open(self._dialer, bridge.LATEST)
        except UpstreamError as error:
            self._discard(entry)
            # The request that needed the dialogue was not sent.
            raise UpstreamError(error.kind, error.cause, reached=False, status=error.status) from None
        except BaseException:
            self._discard(entry)
            raise
        self._idle(entry)

    def _rested(self, entry: _Entry) -> None:
        """Nothing is open on a dialogue any more, or it is gone."""
        if entry.dialogue.gone is not None:
            # What is still open on it may end in order; nothing new comes to it.
            self._forget(entry)
            if not entry.dialogue.busy:
                self._discard(entry)
        elif entry.ready:
            self._idle(entry)

    def _idle(self, entry: _Entry) -> None:
        if entry.idle is not None:
            entry.idle.cancel()
        entry.idle = self._later(IDLE_S, lambda: entry.dialogue.busy or self._discard(entry))

    def _forget(self, entry: _Entry) -> None:
        if self._entries.get(entry.key) is entry:
            del self._entries[entry.key]
        if entry.idle is not None:
            entry.idle.cancel()

    def _discard(self, entry: _Entry) -> asyncio.Task[None]:
        """Close a dialogue and return the task that does it."""
        self._forget(entry)
        if entry.closing is None:
            entry.closing = self._task(entry.dialogue.close())
        return entry.closing

    def _task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits is told; when nobody does, it is no news to the loop


def _none(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=False)
