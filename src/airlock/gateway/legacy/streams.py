"""Event streams that outlive their connection: numbered events, a bounded memory of them, one reader at a time.

Knows the form and the resuming of streams (mcp.md 18); knows no session and not what the events say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from airlock.core.wire import sse
from airlock.gateway.legacy.replies import Write

__all__ = ["KEEP_ALIVE_S", "REPLAY_S", "Replay", "Signal", "Stream", "place"]

KEEP_ALIVE_S: Final = 15.0
REPLAY_S: Final = 60.0
"""How long a finished stream can still be resumed, in seconds."""

# LIMIT: of one stream, as many events and bytes can be sent again; the newest always can.
MOST_EVENTS: Final = 256
MOST_BYTES: Final = 1_048_576
# SECURITY: clients that start calls and leave would otherwise fill the memory with answers nobody fetches.
MOST_BYTES_IN_ALL: Final = 64 * 1_048_576

_OPENING: Final = b": open\n\n"
_KEEP_ALIVE: Final = b": keep-alive\n\n"
_RETRY: Final = b"retry: 1000\n"
_MOST_ID: Final = 48


class Signal:
    """Wakes the one task that waits for it; told before the wait, it ends the wait at once."""

    __slots__ = ("_told", "_waiter")

    def __init__(self) -> None:
        self._told = False
        self._waiter: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """End the wait."""
        self._told = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float | None) -> bool:
        """Return True when told, False after `seconds`. A True is used up."""
        if not self._told:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = None if seconds is None else loop.call_later(seconds, _give_up, waiter)
            try:
                await waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        told, self._told = self._told, False
        return told


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Replay:
    """What all streams together may remember, and the finished ones in the order of their end."""

    __slots__ = ("_finished", "used")

    def __init__(self) -> None:
        self.used = 0
        self._finished: deque[tuple[float, Stream]] = deque()

    @property
    def full(self) -> bool:
        """Whether a stream must forget before it remembers more."""
        return self.used > MOST_BYTES_IN_ALL

    def charge(self, size: int) -> None:
        """Count `size` bytes more; the oldest finished streams make room."""
        self.used += size
        while self.full and self._finished:
            self._finished.popleft()[1].forget()

    def keep(self, stream: Stream, until: float) -> None:
        """Take a finished stream, to be forgotten at `until` (monotonic seconds)."""
        self._finished.append((until, stream))

    def expire(self, now: float) -> None:
        """Forget the streams whose time is over."""
        while self._finished and self._finished[0][0] <= now:
            self._finished.popleft()[1].forget()


class Stream:
    """One stream of a session: what was said on it, and whoever reads it now.

    `home` is where the session finds it by `number`; it takes itself out when it is forgotten. `priming`: the
    client understands an event that holds an id and no data.
    """

    __slots__ = (
        "_events", "_home", "_last", "_primed", "_priming", "_reader", "_replay", "_sent", "_size", "ended",
        "number",
    )  # fmt: skip

    def __init__(self, number: int, home: dict[int, Stream], replay: Replay, *, priming: bool) -> None:
        self.number = number
        self.ended = False
        self._home, self._replay, self._priming = home, replay, priming
        self._events: deque[tuple[int, bytes]] = deque()
        self._size = self._last = self._sent = self._primed = 0
        self._reader: Signal | None = None
        home[number] = self

    @property
    def attached(self) -> bool:
        """Whether a client reads it now."""
        return self._reader is not None

    def add(self, data: bytes) -> None:
        """Say one message, given as JSON; what is said after the end is dropped."""
        if self.ended:
            return
        self._last += 1
        event = sse.event(data, id=f"{self.number}-{self._last}")
        self._events.append((self._last, event))
        self._size += len(event)
        self._replay.charge(len(event))
        while len(self._events) > 1 and (
            len(self._events) > MOST_EVENTS or self._size > MOST_BYTES or self._replay.full
        ):
            self._drop()
        self._wake()

    def end(self, until: float) -> None:
        """Say no more; what was said can be read until then (monotonic seconds)."""
        if not self.ended:
            self.ended = True
            self._replay.keep(self, until)
            self._wake()

    def forget(self) -> None:
        """Let go of everything: the stream cannot be resumed any more."""
        self.ended = True
        while self._events:
            self._drop()
        self._home.pop(self.number, None)
        self._wake()

    def exhausted(self, after: int) -> bool:
        """Tell whether there is nothing to read behind event `after`, now and for ever."""
        return self.ended and after >= self._last

    async def serve(self, write: Write, keep_alive_s: float, after: int | None = None) -> None:
        """Write what was said behind event `after`, and go on until the end, or until another reader comes.

        None: behind what was written before. Returns quietly when the client leaves.
        """
        mine = Signal()
        self._wake()
        self._reader = mine
        at = self._sent if after is None else min(after, self._last)
        try:
            await write(_OPENING if after is not None or not self._priming else self._prime(at))
            while self._reader is mine:
                waiting = [event for number, event in self._events if number > at]
                if waiting:
                    at = self._last
                    await write(b"".join(waiting))
                    self._sent = max(self._sent, at)
                elif self.ended:
                    return
                elif not await mine.wait(keep_alive_s):
                    await write(_KEEP_ALIVE)
        except ConnectionError:
            return
        finally:
            if self._reader is mine:
                self._reader = None

    def _prime(self, at: int) -> bytes:
        """The event that tells a client where to resume before anything is said. Its id is like no other."""
        self._primed += 1
        return _RETRY + sse.event(b"", name=None, id=f"{self.number}-{at}-{self._primed}")

    def _drop(self) -> None:
        size = len(self._events.popleft()[1])
        self._size -= size
        self._replay.used -= size

    def _wake(self) -> None:
        if self._reader is not None:
            self._reader.tell()


def place(event_id: bytes) -> tuple[int, int] | None:
    """Return the stream and the event that an id names; None for an id that is not of our form."""
    parts = event_id.split(b"-")
    if len(parts) not in (2, 3) or len(event_id) > _MOST_ID or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])
