"""Several processes that do the same work: forked once, started again when one dies, stopped together.

Knows processes and signals; must not know what a worker does. POSIX only.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

__all__ = ["run"]

_AGAIN_AFTER_S = 1.0  # a worker that dies at once is not started again at once
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if os.name == "posix" else ()


def run(count: int, work: Callable[[int], int], say: Callable[[str], None]) -> int:
    """Run `work(0)` to `work(count - 1)`, each in a process of its own, until SIGTERM or SIGINT stops them all.

    SIGHUP reaches every worker. A worker that ends by itself is told by `say` and started again. Returns the
    highest exit status of the workers after a stop, raises SystemExit 130 after ctrl-C.
    """
    crew = _Crew(work, say)
    for number in range(count):
        crew.start(number)
    for sig in _PASSED_ON:
        signal.signal(sig, crew.passed_on)
    status = crew.watched()
    if crew.stopping == signal.SIGINT:
        raise SystemExit(128 + signal.SIGINT)
    return status


class _Crew:
    """The running workers by process id."""

    def __init__(self, work: Callable[[int], int], say: Callable[[str], None]) -> None:
        self._work = work
        self._say = say
        self._numbers: dict[int, int] = {}
        self.stopping: int | None = None

    def start(self, number: int) -> None:
        """Fork a worker. It never returns from here: its process ends with its work."""
        # A signal between the fork and the worker's own handlers waits until those stand.
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        pid = os.fork()
        if pid:
            self._numbers[pid] = number
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            return
        status = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
            status = self._work(number)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else 1
        except BaseException as error:  # noqa: BLE001 - the end of a process: what broke is told, nothing goes on
            self._say(f"worker {number} failed: {type(error).__name__}")
        finally:
            os._exit(status)

    def passed_on(self, number: int, _frame: FrameType | None) -> None:
        """Hand a signal to every worker; one that stops is remembered."""
        if number != signal.SIGHUP:
            self.stopping = number
        for pid in list(self._numbers):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def watched(self) -> int:
        """Wait for the workers; the highest of their exit statuses once they were told to stop."""
        worst = 0
        while self._numbers:
            pid, raw = os.wait()
            number = self._numbers.pop(pid, None)
            if number is None:
                continue
            status = os.waitstatus_to_exitcode(raw)
            if self.stopping is not None:
                worst = max(worst, status if status >= 0 else 128 - status)
                continue
            self._say(f"worker {number} ended with status {status} and is started again")
            time.sleep(_AGAIN_AFTER_S)
            if self.stopping is None:
                self.start(number)
        return worst
