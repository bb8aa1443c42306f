"""Spans that have ended, on their way out: a bounded queue and a thread for each exporter.

Knows what a span is and when a batch leaves; does not know calls, formats or collectors.
SPEC: gateway.md 14: best effort; a span never blocks a call, and never raises into one (T76).
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from airlock.core.errors import AirlockError

__all__ = ["ExportError", "Exporter", "Pace", "Resource", "Span", "Tracer"]

QUIET_S = 60.0

_NO_TIME = "no time was left"

Resource = tuple[tuple[str, str], ...]
"""Who made the spans: pairs of attribute name and value, `service.name` among them."""


class Span(msgspec.Struct, frozen=True, gc=False):
    """One SERVER span that has ended. Ids are lower-case hex, times are Unix nanoseconds.

    Whoever makes one has scrubbed and cut its texts. `error` is the description of status ERROR; None leaves
    the status unset.
    """

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start_ns: int
    end_ns: int
    attributes: tuple[tuple[str, str | int], ...]
    error: str | None = None


class Pace(msgspec.Struct, frozen=True):
    """How spans go to one exporter.

    `queue`: most that wait. `batch`: most that go at once. `delay_s`: how long the first one waits for others.
    `export_s`: how long one batch may take. `close_s`: how long the rest may take when the tracer closes.
    """

    queue: int
    batch: int
    delay_s: float
    export_s: float
    close_s: float


class ExportError(AirlockError):
    """A batch did not arrive. The text is safe to show: our own words, a class name or the system's words."""


class Exporter(Protocol):
    """Where spans go. Both methods are called in one thread, which is not the event loop's."""

    name: str
    pace: Pace

    def export(self, spans: Sequence[Span], within_s: float) -> None:
        """Deliver the spans within this time, or raise ExportError."""
        ...

    def close(self) -> None:
        """Release everything; nothing is exported after it."""
        ...


class Tracer:
    """Hands each span to every exporter.

    `warn` takes one line about lost spans, from any thread: at most one a minute and exporter, and a last one.
    """

    __slots__ = ("_lanes",)

    def __init__(
        self,
        exporters: Sequence[Exporter],
        warn: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lanes = tuple(_Lane(exporter, warn, monotonic) for exporter in exporters)

    def record(self, span: Span) -> None:
        """Take a span that has ended. Never waits and never raises; what finds a queue full is dropped."""
        for lane in self._lanes:
            lane.put(span)

    def close(self) -> None:
        """Export what waits and stop. Blocks for the longest `close_s` at most; what is left then is dropped.

        Call it off the event loop. A second call does nothing, and a later `record` drops its span.
        """
        for lane in self._lanes:
            lane.begin_close()
        for lane in self._lanes:
            lane.end_close()


class _Lane:
    """The queue and the thread of one exporter. The thread starts with the first span."""

    __slots__ = (
        "_abandoned", "_books", "_cause", "_closed", "_deadline", "_ended", "_exporter", "_failed", "_flying",
        "_monotonic", "_pace", "_queue", "_quiet_until", "_thread", "_told", "_turned_away", "_wake", "_warn",
    )  # fmt: skip

    def __init__(
        self, exporter: Exporter, warn: Callable[[str], None], monotonic: Callable[[], float]
    ) -> None:
        self._exporter = exporter
        self._pace = exporter.pace
        self._warn = warn
        self._monotonic = monotonic
        self._queue: deque[Span] = deque()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._ended = False
        self._abandoned = False
        self._deadline = 0.0
        # INVARIANT: a span is in the queue, in the exporter's hands (`_flying`), arrived, or in `_failed`; who
        # moves one holds `_books`, whoever closes counts the rest. `record` holds no lock, and what it turns
        # away has a number of its own.
        self._books = threading.Lock()
        self._flying = 0
        self._turned_away = 0
        self._failed = 0
        self._cause = ""
        self._told = (0, 0)
        self._quiet_until = float("-inf")

    def put(self, span: Span) -> None:
        """Queue a span, and wake the thread if it sleeps or waits for a batch that is now whole."""
        queue = self._queue
        if self._closed or len(queue) >= self._pace.queue:
            self._turned_away += 1
            return
        queue.append(span)
        # INVARIANT: counted after the append; a thread that saw an empty queue is woken by whoever filled it.
        waiting = len(queue)
        if waiting == 1 or waiting == self._pace.batch:
            self._start()
            self._wake.set()

    def begin_close(self) -> None:
        """Tell the thread to export the rest."""
        if not self._closed:
            self._deadline = self._monotonic() + self._pace.close_s
            self._closed = True
            self._wake.set()

    def end_close(self) -> None:
        """Wait for the thread until the deadline, then leave it behind: it cannot keep the process."""
        if self._ended:
            return
        self._ended = True
        thread = self._thread
        if thread is None:
            self._release()
        else:
            thread.join(max(0.0, self._deadline - self._monotonic()))
        with self._books:
            self._lose(self._flying + len(self._queue), _NO_TIME)
            self._abandoned = True
        self._tell(last=True)

    def _start(self) -> None:
        if self._thread is not None:
            return
        with self._books:
            if self._thread is None:
                thread = threading.Thread(target=self._work, name="airlock-spans", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the system has no thread to give; the next full batch asks again
                    return
                self._thread = thread

    def _work(self) -> None:
        pace, queue, wake = self._pace, self._queue, self._wake
        while not self._closed:
            wake.wait()
            wake.clear()
            while queue and not self._closed:
                if len(queue) < pace.batch:
                    wake.wait(pace.delay_s)
                    wake.clear()
                self._export(pace.export_s)
        while queue and (left := self._deadline - self._monotonic()) > 0:
            self._export(min(left, pace.export_s))
        self._release()

    def _release(self) -> None:
        try:
            self._exporter.close()
        except Exception as error:  # noqa: BLE001 - the boundary: told; nothing depends on it any more
            self._warn(f"tracing: {self._exporter.name} was not closed properly: {type(error).__name__}")

    def _export(self, within_s: float) -> None:
        queue, cause = self._queue, ""
        with self._books:
            spans = [queue.popleft() for _ in range(min(len(queue), self._pace.batch))]
            self._flying = len(spans)
        try:
            self._exporter.export(spans, within_s)
        except ExportError as error:
            cause = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary: counted and told; the thread goes on
            cause = type(error).__name__
        with self._books:
            self._flying = 0
            if self._abandoned:
                return
            if cause:
                self._lose(len(spans), cause)
        self._tell()

    def _lose(self, count: int, cause: str) -> None:
        if count:
            self._failed += count
            self._cause = cause

    def _tell(self, *, last: bool = False) -> None:
        """Say how many spans were lost since this was last said, unless that was a moment ago."""
        failed, turned_away = self._failed, self._turned_away
        new_failed, new_turned_away = failed - self._told[0], turned_away - self._told[1]
        now = self._monotonic()
        if not (new_failed or new_turned_away) or (now < self._quiet_until and not last):
            return
        self._told = (failed, turned_away)
        self._quiet_until = now + QUIET_S
        causes = [self._cause] if new_failed else []
        if new_turned_away:
            causes.append("the queue was full")
        lost = new_failed + new_turned_away
        self._warn(f"tracing: spans lost on the way to {self._exporter.name}: {lost} ({'; '.join(causes)})")
