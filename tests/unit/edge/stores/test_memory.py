from __future__ import annotations

import random
from itertools import count

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.stores import memory

START = 1_700_000_000.0


class FakeClock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


def held(store: memory.MemoryStore) -> int:
    return (
        len(store._burned) + len(store._approved) + len(store._prompts)
        + len(store._windows) + len(store._key_expiry) + len(store._window_expiry)
    )  # fmt: skip


@pytest.mark.parametrize("uri", ["memory:", "memory://"])
async def test_both_spellings_open_an_empty_store(uri: str):
    store = memory.open(uri, FakeClock())
    assert await store.burned("k") is False


@pytest.mark.parametrize("uri", ["memory", "memory:///pass", "memory://u:hunter2@h", "sqlite://", ""])
def test_anything_else_in_the_uri_is_refused_and_not_quoted(uri: str):
    with pytest.raises(ConfigError) as caught:
        memory.open(uri, FakeClock())
    assert caught.value.source == "AIRLOCK_STORE_DSN"
    assert "hunter2" not in str(caught.value)
    assert "pass" not in str(caught.value)


async def test_what_has_expired_does_not_stay_in_memory():
    clock = FakeClock()
    store = memory.open("memory:", clock)
    for number in range(500):
        clock.time += 60.0
        exp = clock.time + 600
        await store.burn(f"b{number}", exp)
        await store.approve(f"a{number}", exp)
        await store.save_prompt(f"p{number}", "text", exp)
        await store.reserve(f"alice{number}", "drop", 1, clock.time, clock.time - 60, 5)
    # Keys and prompts of 10 to 70 minutes; the charges of a day stay.
    assert held(store) < 500 * 2 + 4 * 100
    clock.time += 2 * 86_400
    for _ in count():
        before = held(store)
        await store.approve("last", clock.time + 600)
        if held(store) == before:
            break
    assert held(store) == 2


async def test_a_window_in_use_outlives_its_first_charge():
    clock = FakeClock()
    store = memory.open("memory:", clock)
    await store.reserve("alice", "drop", 1, clock.time, 0.0, 9)
    clock.time += 50_000
    await store.reserve("alice", "drop", 2, clock.time, 0.0, 9)
    clock.time += 50_000
    await store.burn("k", clock.time)
    assert await store.used("alice", "drop", clock.time - 86_400) == 2
    clock.time += 50_000
    await store.burn("l", clock.time)
    assert store._windows == {}


async def test_a_prompt_or_approval_renewed_before_its_end_is_kept():
    clock = FakeClock()
    store = memory.open("memory:", clock)
    await store.save_prompt("k", "first", START + 10)
    await store.approve("k", START + 10)
    await store.save_prompt("k", "second", START + 100)
    await store.save_prompt("k", "third", START + 100)
    await store.approve("k", START + 100)
    clock.time += 50
    await store.burn("other", START + 100)
    assert await store.prompt("k") == "third"
    assert await store.approved("k", clock.time) is True
    clock.time += 100
    await store.burn("another", START + 100)
    assert await store.prompt("k") is None
    assert (store._prompts, store._approved) == ({}, {})


async def test_ten_thousand_charges_are_summed_without_looking_at_them():
    clock = FakeClock()
    store = memory.open("memory:", clock)
    for _ in range(10_000):
        clock.time += 0.01
        await store.reserve("alice", "drop", 1, clock.time, clock.time - 3600, 1_000_000)
    window = store._windows["alice", "drop"]
    reads = 0

    class Counted(type(window._sums)):  # type: ignore[misc]
        def __getitem__(self, index):
            nonlocal reads
            reads += 1
            return super().__getitem__(index)

    window._sums = Counted("q", window._sums)
    assert await store.reserve("alice", "drop", 1, clock.time + 1, clock.time - 50, 1_000_000) is True
    assert reads < 10


async def test_sums_equal_those_of_a_plain_list_for_random_histories():
    rng = random.Random(7)
    for _ in range(30):
        clock = FakeClock()
        store = memory.open("memory:", clock)
        rows: list[tuple[float, int]] = []
        for _ in range(400):
            clock.time += rng.choice([0.0, 1.0, 300.0, 900.0])
            ts = clock.time - rng.choice([0.0, 0.0, 0.0, 5.0, 500.0])
            if rows and rng.random() < 0.2:
                ts, n = rows[rng.randrange(len(rows))]
                await store.give_back("alice", "drop", n, ts)
                if ts >= clock.time - 86_400:
                    rows.append((ts, -n))
            else:
                n = rng.randrange(5)
                await store.reserve("alice", "drop", n, ts, 0.0, 1_000_000)
                rows.append((ts, n))
            since = clock.time - rng.choice([0.0, 60.0, 3600.0, 86_400.0])
            assert await store.used("alice", "drop", since) == sum(n for at, n in rows if at >= since)
