"""A process that is started when it is first needed, kept, and started again after it ended: not too often.

Knows starts, ends and time; does not know what the process is for.
SPEC: mcp.md 17 (unexpected exit: restart with back-off).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from airlock.core.errors import UpstreamError, UpstreamFailure

__all__ = ["PATIENCE_S", "Backoff", "Respawner", "Run"]

FIRST_S: Final = 0.2
LONGEST_S: Final = 30.0
STEADY_S: Final = 60.0
"""A run that lived this long is forgiven the ends before it."""

PATIENCE_S: Final = 5.0
"""LIMIT: how long a request waits for a process to be started."""

_TOLD_S = 5.0


class Run(Protocol):
    """One run of the process."""

    @property
    def alive(self) -> bool: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...


RunT = TypeVar("RunT", bound=Run)


class Backoff:
    """When the next start may be: 0.2 s after the last end, doubling to 30 s, forgiven by 60 s of life."""

    __slots__ = ("_began", "_clock", "_delay", "_next")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._delay = self._began = self._next = 0.0

    def began(self) -> None:
        """A run begins."""
        self._began = self._clock()

    def ended(self) -> None:
        """The run that began last has ended, or could not start."""
        now = self._clock()
        if now - self._began >= STEADY_S:
            self._delay = 0.0
        self._delay = min(self._delay * 2, LONGEST_S) if self._delay else FIRST_S
        self._next = now + self._delay

    def remaining(self) -> float:
        """Return the seconds until the next run may begin."""
        return max(0.0, self._next - self._clock())


class Respawner(Generic[RunT]):
    """Keeps one process running. `make(on_end)` returns a new run that calls `on_end` once if it ends by itself."""

    def __init__(
        self,
        make: Callable[[Callable[[str], None]], RunT],
        on_end: Callable[[str], None],
        backoff: Backoff | None = None,
    ) -> None:
        self._make = make
        self._on_end = on_end
        self._backoff = backoff or Backoff()
        self._run: RunT | None = None
        self._told = asyncio.Event()
        self._starting: asyncio.Task[RunT] | None = None
        self._closing = asyncio.Event()

    @property
    def current(self) -> RunT | None:
        """The run that is alive now, if any; None once this is closed."""
        run = self._run
        return None if run is None or self._closing.is_set() or not run.alive else run

    def begin(self) -> None:
        """Start a run before anybody needs it. If that fails, whoever needs one first starts it again."""
        if self.current is None and self._starting is None and not self._closing.is_set():
            self._begin()

    async def running(self) -> RunT:
        """Return a run that is alive, started for this if need be; many callers cause one start.

        Raises `UpstreamError` (UNREACHABLE, not reached): it cannot be started, or not within `PATIENCE_S`.
        """
        if self._closing.is_set():
            raise _unreachable("the upstream is closed")
        run = self.current
        if run is not None:
            return run
        if self._starting is None and self._backoff.remaining() > PATIENCE_S:
            raise _unreachable("the server process ended too often to be started again now")
        starting = self._starting or self._begin()
        if not (await asyncio.wait({starting}, timeout=PATIENCE_S))[0]:
            raise _unreachable("the server process is not started yet")
        return starting.result()

    async def close(self) -> None:
        """End the process for good. Whoever waits for a start fails."""
        self._closing.set()
        if self._starting is not None:
            await asyncio.wait({self._starting})
        if self._run is not None:
            await self._run.stop()

    def _begin(self) -> asyncio.Task[RunT]:
        self._starting = starting = asyncio.get_running_loop().create_task(self._start())
        starting.add_done_callback(self._started)
        return starting

    async def _start(self) -> RunT:
        if self._run is not None:
            # INVARIANT: a run begins when the end of the last one was told and nobody of its group is left.
            await _within(_TOLD_S, self._told)
            await self._run.stop()
            self._run = None
        if self._closing.is_set() or await _within(self._backoff.remaining(), self._closing):
            raise _unreachable("the upstream is closed")
        told = asyncio.Event()
        run = self._make(lambda cause: self._ended(told, cause))
        self._backoff.began()
        try:
            await run.start()
        except UpstreamError:
            self._backoff.ended()
            raise
        self._run, self._told = run, told
        if self._closing.is_set():
            raise _unreachable("the upstream is closed")
        return run

    def _ended(self, told: asyncio.Event, cause: str) -> None:
        told.set()
        self._backoff.ended()
        self._on_end(cause)

    def _started(self, task: asyncio.Task[RunT]) -> None:
        self._starting = None
        if not task.cancelled():
            task.exception()  # everybody who waited may have been cancelled


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for `event`; tell whether it came in time."""
    if event.is_set() or not seconds:
        return event.is_set()
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


def _unreachable(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=False)
