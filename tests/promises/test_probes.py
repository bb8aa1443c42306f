"""The probes: what they ask, how long they wait, and what they leave behind."""

from __future__ import annotations

import asyncio

import pytest

from airlock.gateway import probes
from tests.fakes.world import Got, World


async def probe(world: World, path: str = "/readyz", method: str = "GET") -> Got:
    return await world.http(b"", [], path=path, method=method)


class Stuck:
    """A store whose ping ends only when it is let go, or fails."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()
        self.trouble: Exception | None = None

    async def ping(self) -> None:
        self.asked += 1
        await self.go.wait()
        if self.trouble is not None:
            raise self.trouble


def test_readiness_waits_two_seconds_for_the_store() -> None:
    assert probes.READY_WAIT_S == 2


async def test_a_store_that_says_nothing_is_503_and_the_next_probe_asks_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "READY_WAIT_S", 0.01)
    world, store = World(), Stuck()
    world.gate.store = store  # type: ignore[assignment]
    got = await probe(world)
    assert (got.status, got.raw) == (503, b'{"status":"unavailable"}')
    assert store.asked == 1
    store.go.set()
    got = await probe(world)
    assert (got.status, got.raw, store.asked) == (200, b'{"status":"ok"}', 2)


async def test_probes_that_come_together_ask_the_store_once() -> None:
    world, store = World(), Stuck()
    world.gate.store = store  # type: ignore[assignment]
    waiting = [asyncio.create_task(probe(world)) for _ in range(20)]
    while store.asked == 0:
        await asyncio.sleep(0)
    store.go.set()
    assert {got.status for got in await asyncio.gather(*waiting)} == {200}
    assert store.asked == 1


async def test_a_store_that_fails_is_503_without_a_word_of_why() -> None:
    world, store = World(), Stuck()
    store.trouble = OSError("could not reach db.internal")
    store.go.set()
    world.gate.store = store  # type: ignore[assignment]
    got = await probe(world)
    assert (got.status, got.raw) == (503, b'{"status":"unavailable"}')
    assert (await probe(world, "/healthz")).status == 200


async def test_probes_ask_nobody_who_they_are_and_leave_nothing_behind() -> None:
    world = World()
    for path in ("/healthz", "/readyz"):
        for method in ("GET", "HEAD"):
            assert (await probe(world, path, method)).status == 200
    assert (world.sink.lines, world.client.sent, world.client.listed, world.logged) == ([], [], [], [])
