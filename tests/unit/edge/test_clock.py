from __future__ import annotations

import time

from airlock.core.ports import Clock
from airlock.edge.clock import SystemClock


def test_the_clock_gives_the_time_of_the_machine():
    clock: Clock = SystemClock()
    before, now, after = time.time(), clock.now(), time.time()
    assert before <= now <= after


def test_monotonic_time_does_not_go_back():
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)
