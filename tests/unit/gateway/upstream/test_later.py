from __future__ import annotations

import asyncio

from airlock.gateway.upstream.later import Deadline, on_loop
from tests.fakes.legacy_server import HandTime


def _deadline(time: HandTime) -> tuple[Deadline, list[float]]:
    ends: list[float] = []
    return Deadline(time.later, 10, 25, lambda: ends.append(time.now)), ends


def test_a_deadline_ends_once_after_silence():
    time = HandTime()
    _, ends = _deadline(time)
    time.advance(100)
    assert ends == [10]


def test_progress_moves_it_but_not_past_the_hard_end():
    time = HandTime()
    deadline, ends = _deadline(time)
    for _ in range(5):
        time.advance(8)
        deadline.renew() if not ends else None
    assert ends == [25]


def test_a_stopped_deadline_never_ends():
    time = HandTime()
    deadline, ends = _deadline(time)
    deadline.stop()
    time.advance(100)
    assert not ends
    assert time.waiting == 0


async def test_the_loop_is_a_clock():
    called = asyncio.Event()
    on_loop(0, called.set)
    await asyncio.wait_for(called.wait(), 10)
