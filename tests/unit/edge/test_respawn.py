"""When a process is started again, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge import respawn as module
from airlock.edge.respawn import Backoff, Respawner


class FakeRun:
    """A run that is alive from `start` until it is told to end."""

    def __init__(self, on_end: Callable[[str], None], *, gate: asyncio.Event | None, fails: bool) -> None:
        self.alive = False
        self.stopped = 0
        self._on_end = on_end
        self._gate = gate
        self._fails = fails

    async def start(self) -> None:
        if self._gate is not None:
            await self._gate.wait()
        if self._fails:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "cannot", reached=False)
        self.alive = True

    async def stop(self) -> None:
        self.alive = False
        self.stopped += 1

    def end(self) -> None:
        self.alive = False
        self._on_end("ended")


class Kept:
    """A respawner over fake runs, with a clock of its own."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.runs: list[FakeRun] = []
        self.ends: list[str] = []
        self.gate: asyncio.Event | None = None
        self.fails = False
        self.backoff = Backoff(lambda: self.now)
        self.kept: Respawner[FakeRun] = Respawner(self._make, self.ends.append, self.backoff)

    def _make(self, on_end: Callable[[str], None]) -> FakeRun:
        self.runs.append(FakeRun(on_end, gate=self.gate, fails=self.fails))
        return self.runs[-1]


def test_the_wait_doubles_up_to_half_a_minute_and_is_forgiven_by_a_minute_of_life():
    now = 50.0
    backoff = Backoff(lambda: now)
    assert backoff.remaining() == 0
    waits = []
    for _ in range(10):
        backoff.began()
        backoff.ended()
        waits.append(round(backoff.remaining(), 3))
        now += backoff.remaining()
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]
    backoff.began()
    now += 59.5
    backoff.ended()
    assert round(backoff.remaining(), 3) == 30.0
    now += 30.0
    backoff.began()
    now += 60.5
    backoff.ended()
    assert round(backoff.remaining(), 3) == 0.2
    now += 100.0
    assert backoff.remaining() == 0


async def test_many_callers_cause_one_start_and_share_the_run():
    kept = Kept()
    assert kept.kept.current is None
    runs = await asyncio.gather(*(kept.kept.running() for _ in range(20)))
    assert len(kept.runs) == 1
    assert set(map(id, runs)) == {id(kept.runs[0])}
    assert await kept.kept.running() is kept.runs[0] is kept.kept.current
    await kept.kept.close()
    assert kept.runs[0].stopped == 1


async def test_a_run_that_was_begun_before_it_was_needed_is_the_one_that_callers_get():
    kept = Kept()
    kept.gate = asyncio.Event()
    for _ in range(3):
        kept.kept.begin()
    waiting = asyncio.ensure_future(kept.kept.running())
    await asyncio.sleep(0)
    kept.gate.set()
    assert await waiting is kept.runs[0]
    kept.kept.begin()
    await asyncio.sleep(0)
    assert len(kept.runs) == 1
    await kept.kept.close()
    kept.kept.begin()
    await asyncio.sleep(0)
    assert len(kept.runs) == 1


async def test_a_run_that_could_not_be_begun_is_tried_again_by_who_needs_it():
    kept = Kept()
    kept.fails = True
    kept.kept.begin()
    await asyncio.sleep(0.01)
    kept.fails = False
    kept.now += 1
    assert await kept.kept.running() is kept.runs[1]
    await kept.kept.close()


async def test_after_an_end_the_next_caller_starts_another_when_the_last_was_stopped():
    kept = Kept()
    first = await kept.kept.running()
    first.end()
    kept.now += 1
    assert kept.ends == ["ended"]
    assert kept.kept.current is None
    second = await kept.kept.running()
    assert second is not first
    assert first.stopped == 1
    await kept.kept.close()


async def test_no_run_begins_before_the_end_of_the_last_was_told():
    kept = Kept()
    first = await kept.kept.running()
    first.alive = False
    waiting = asyncio.ensure_future(kept.kept.running())
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(kept.runs) == 1
    assert first.stopped == 0
    first.end()
    kept.now += 1
    assert await waiting is kept.runs[1]
    await kept.kept.close()


async def test_a_start_that_fails_is_told_to_everyone_who_waits_and_counts_as_an_end():
    kept = Kept()
    kept.fails = True
    failures = await asyncio.gather(*(kept.kept.running() for _ in range(3)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["upstream.unreachable: cannot"] * 3
    assert len(kept.runs) == 1
    assert kept.backoff.remaining() > 0
    assert kept.ends == []
    kept.now += 1
    kept.fails = False
    assert await kept.kept.running() is kept.runs[1]
    await kept.kept.close()


async def test_a_server_that_ends_again_and_again_is_left_alone_and_callers_fail_at_once():
    kept = Kept()
    for _ in range(6):
        (await kept.kept.running()).end()
        kept.now += 5.0
    kept.now -= 5.0
    with pytest.raises(UpstreamError, match="too often") as caught:
        await kept.kept.running()
    assert not caught.value.reached
    assert len(kept.runs) == 6
    kept.now += 6.4
    assert await kept.kept.running() is kept.runs[6]
    await kept.kept.close()


async def test_a_caller_waits_through_a_short_back_off():
    kept = Kept()
    (await kept.kept.running()).end()
    kept.now += 0.19
    assert await kept.kept.running() is kept.runs[1]
    await kept.kept.close()


async def test_a_caller_does_not_wait_for_a_start_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "PATIENCE_S", 0.01)
    kept = Kept()
    kept.gate = asyncio.Event()
    with pytest.raises(UpstreamError, match="not started yet"):
        await kept.kept.running()
    waiting = asyncio.ensure_future(kept.kept.running())
    await asyncio.sleep(0)
    waiting.cancel()
    kept.gate.set()
    monkeypatch.undo()
    assert await kept.kept.running() is kept.runs[0]
    await kept.kept.close()


async def test_nothing_is_started_after_a_close():
    kept = Kept()
    await kept.kept.close()
    with pytest.raises(UpstreamError, match="closed"):
        await kept.kept.running()
    assert kept.runs == []


async def test_a_close_ends_a_back_off_and_everyone_who_waits():
    kept = Kept()
    for _ in range(4):
        (await kept.kept.running()).end()
        kept.now += 2.0
    kept.now -= 2.0  # 1.6 s to go, on a clock that stands
    waiting = asyncio.ensure_future(kept.kept.running())
    for _ in range(5):
        await asyncio.sleep(0)
    await kept.kept.close()
    with pytest.raises(UpstreamError, match="closed"):
        await waiting
    assert len(kept.runs) == 4


async def test_a_run_that_was_starting_at_the_close_is_stopped_and_given_to_nobody():
    kept = Kept()
    kept.gate = asyncio.Event()
    waiting = asyncio.ensure_future(kept.kept.running())
    while not kept.runs:
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(kept.kept.close())
    await asyncio.sleep(0)
    kept.gate.set()
    await closing
    with pytest.raises(UpstreamError, match="closed"):
        await waiting
    assert kept.runs[0].stopped == 1
    assert kept.kept.current is None


async def test_a_failure_that_nobody_waits_for_is_not_left_lying():
    kept = Kept()
    kept.fails, kept.gate = True, asyncio.Event()
    waiting = asyncio.ensure_future(kept.kept.running())
    await asyncio.sleep(0)
    waiting.cancel()
    kept.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await kept.kept.close()
