"""Several processes that do the same work: forked once, started again when one dies, stopped together.

Knows processes and signals; must not know what a worker does. POSIX only.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

__all__ = ["run"]

_AGAIN_AFTER_S = 1.0  # a worker that dies at once is not started again at once
_STOPS = (signal.SIGTERM, signal.SIGINT)
_TAKEN = (*_STOPS, signal.SIGHUP, signal.SIGCHLD) if os.name == "posix" else ()


def run(
    count: int,
    work: Callable[[int], int],
    say: Callable[[str], None],
    *,
    on_hangup: Callable[[], None],
    on_stop: Callable[[], None],
) -> int:
    """Run `work(0)` to `work(count - 1)`, each in a process of its own, until SIGTERM or SIGINT stops them all.

    A signal is passed on to every worker; then `on_hangup` is called for SIGHUP, before the first that stops
    `on_stop`, both in this process: from what they leave, a later worker begins. A worker that ends by itself is
    told by `say` and started again. Workers outlive this process only to end as SIGTERM ends them. Returns the
    highest exit status of the workers after a stop, raises SystemExit 130 after ctrl-C.
    """
    crew = _Crew(work, say)
    try:
        for number in range(count):
            crew.start(number)
        status = crew.watch(on_hangup, on_stop)
    finally:
        crew.close()
    if crew.stopping == signal.SIGINT:
        raise SystemExit(128 + signal.SIGINT)
    return status


class _Crew:
    """The running workers by process id, and when which of them is started again."""

    def __init__(self, work: Callable[[int], int], say: Callable[[str], None]) -> None:
        self._work = work
        self._say = say
        self._numbers: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._came: list[int] = []
        self.stopping: int | None = None
        # Nobody writes to this one: workers read from it, and its end tells them that this process is gone.
        self._life, self._life_end = os.pipe()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._before = {sig: signal.signal(sig, self._note) for sig in _TAKEN}
        self._wake_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def close(self) -> None:
        """Give the signals back."""
        self._release()
        for fd in (self._life, self._life_end, self._woken, self._wake):
            os.close(fd)

    def start(self, number: int) -> None:
        """Fork a worker. It never returns from here: its process ends with its work."""
        # What comes between the fork and the worker's own handlers must neither be lost nor reach ours.
        signal.pthread_sigmask(signal.SIG_BLOCK, _TAKEN)
        pid = os.fork()
        if pid:
            self._numbers[pid] = number
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _TAKEN)
            return
        status = 1
        try:
            self._release()
            os.close(self._life_end)
            threading.Thread(target=_end_with, args=(self._life,), name="airlock-life", daemon=True).start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _TAKEN)
            status = self._work(number)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except BaseException as error:  # noqa: BLE001 - the end of a process: what broke is told, nothing goes on
            self._say(f"worker {number} failed: {type(error).__name__}")
        finally:
            os._exit(status)

    def watch(self, on_hangup: Callable[[], None], on_stop: Callable[[], None]) -> int:
        """Wait for signals and workers; the highest of their exit statuses once they were told to stop."""
        worst = 0
        while self._numbers or (self._due and self.stopping is None):
            self._wait()
            while self._came:
                self._take(self._came.pop(0), on_hangup, on_stop)
            worst = max(worst, self._reap())
            self._start_due()
        return worst

    def _wait(self) -> None:
        """Return at the next signal, or when a worker is due."""
        soonest = None if self.stopping or not self._due else min(self._due.values())
        timeout = None if soonest is None else max(0.0, soonest - time.monotonic())
        select.select([self._woken], [], [], timeout)
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGCHLD and number not in self._came:
            self._came.append(number)

    def _take(self, number: int, on_hangup: Callable[[], None], on_stop: Callable[[], None]) -> None:
        if number != signal.SIGHUP and self.stopping is None:
            self.stopping = number
            on_stop()
        for pid in self._numbers:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        if number == signal.SIGHUP:
            on_hangup()

    def _reap(self) -> int:
        """Take note of the workers that ended. The highest of their statuses, if they were told to."""
        worst = 0
        for pid in tuple(self._numbers):
            ended, raw = os.waitpid(pid, os.WNOHANG)
            if not ended:
                continue
            number = self._numbers.pop(pid)
            status = os.waitstatus_to_exitcode(raw)
            if self.stopping is not None:
                # One that was told before it could listen ended as told, too.
                told = status == -self.stopping
                worst = max(worst, 0 if told else status if status >= 0 else 128 - status)
                continue
            self._say(f"worker {number} ended with status {status} and is started again")
            self._due[number] = time.monotonic() + _AGAIN_AFTER_S
        return worst

    def _start_due(self) -> None:
        now = time.monotonic()
        for number in [number for number, when in self._due.items() if when <= now]:
            if self.stopping is None:
                try:
                    self.start(number)
                except OSError as error:
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TAKEN)
                    self._say(f"worker {number} cannot be started: {error.strerror or type(error).__name__}")
                    self._due[number] = now + _AGAIN_AFTER_S
                else:
                    del self._due[number]

    def _release(self) -> None:
        signal.set_wakeup_fd(self._wake_before)
        for sig, handler in self._before.items():
            signal.signal(sig, handler)


def _end_with(life: int) -> None:
    """Stop this worker when the process that forked it is gone: nobody would stop it, and a new one may come.

    SECURITY: two processes that write one audit file would fork its chain.
    """
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGTERM)
