"""What every store must hold. A module in `airlock/edge/stores` is tested here by being there.

A module may offer `contract_uri(tmp_path)`: the URI of a fresh, empty store, or None when it cannot run here; its
docstring then says what to install or set. Without one its URI is `<module>://`. Postgres needs a server, which
`tests/fakes/postgres.py` brings; a selection runs through PgBouncer in transaction mode, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import pkgutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import airlock.edge.stores
from airlock.core.errors import StoreUnavailable
from airlock.core.ports import Store
from airlock.edge import registry
from tests.fakes.postgres import PgBouncer, PostgresServer

START = 1_700_000_000.0
KEPT_S = 86_400.0
MODULES = sorted(module.name for module in pkgutil.iter_modules(airlock.edge.stores.__path__))
POOLED = "postgres through pgbouncer"
# Tests of what differs through PgBouncer: transactions and locks, and what comes back.
pooled_too = pytest.mark.parametrize("make", [*MODULES, POOLED], indirect=True)


class FakeClock:
    def __init__(self) -> None:
        self.time = START

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=MODULES)
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Callable[[], Store]]:
    with fresh_uri(request, tmp_path) as (module, uri):

        def fresh() -> Store:
            opened: Store = module.open(uri, clock)
            return opened

        yield fresh


@contextlib.contextmanager
def fresh_uri(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ModuleType, str]]:
    """The module under test, and the URI of an empty store."""
    name: str = request.param
    if name in ("postgres", POOLED):
        server: PostgresServer = request.getfixturevalue("postgres_server")
        bouncer: PgBouncer | None = request.getfixturevalue("pgbouncer") if name == POOLED else None
        dsn = server.schema() if bouncer is None else server.database()
        yield registry.load("airlock.edge.stores", "postgres"), dsn if bouncer is None else bouncer.dsn(dsn)
        server.drop(dsn)
        return
    module = registry.load("airlock.edge.stores", name)
    offered = getattr(module, "contract_uri", None)
    uri = offered(tmp_path) if offered is not None else f"{name}://"
    if uri is None:
        pytest.fail(f"the {name} store offers no URI to test it with")
    yield module, uri


@pytest.fixture
async def store(make: Callable[[], Store]) -> AsyncIterator[Store]:
    opened = make()
    yield opened
    await opened.close()


def test_the_suite_finds_the_stores_there_are():
    assert {"memory", "postgres", "sqlite"} <= set(MODULES)


# --- keys


async def test_a_key_burns_once(store: Store):
    assert await store.burn("k", START + 600) is True
    assert await store.burn("k", START + 600) is False
    assert await store.burn("other", START + 600) is True


@pooled_too
async def test_of_many_burns_at_once_exactly_one_wins(store: Store):
    won = await asyncio.gather(*(store.burn("k", START + 600) for _ in range(50)))
    assert sorted(won) == [False] * 49 + [True]


@pytest.mark.case("T04")
async def test_a_burned_key_says_so_when_it_is_polled(store: Store):
    assert await store.burned("k") is False
    await store.burn("k", START + 600)
    assert await store.burned("k") is True
    assert await store.burned("other") is False


async def test_an_approved_key_is_not_burned_and_burns_once(store: Store):
    await store.approve("k", START + 600)
    assert await store.burned("k") is False
    assert await store.burn("k", START + 600) is True
    assert await store.burn("k", START + 600) is False


@pooled_too
async def test_a_burned_key_stays_burned_when_it_is_approved(store: Store):
    await store.burn("k", START + 600)
    await store.approve("k", START + 600)
    assert await store.burned("k") is True
    assert await store.burn("k", START + 600) is False


async def test_a_burned_key_cannot_be_burned_again_just_before_it_expires(store: Store, clock: FakeClock):
    await store.burn("k", START + 600)
    clock.time = START + 599.9
    assert await store.burn("other", START + 1200) is True  # writes purge
    assert await store.burn("k", START + 600) is False


async def test_a_clock_set_back_does_not_make_a_burned_key_good_again(store: Store, clock: FakeClock):
    await store.burn("k", START + 600)
    clock.time = START + 900
    await store.burn("other", START + 1500)
    clock.time = START + 300
    assert await store.burn("k", START + 600) is False


async def test_an_approval_is_good_until_its_end_and_no_longer(store: Store):
    assert await store.approved("k", START) is False
    await store.approve("k", START + 600)
    assert await store.approved("k", START) is True
    assert await store.approved("k", START + 599.9) is True
    assert await store.approved("k", START + 600) is False
    assert await store.approved("other", START) is False


async def test_approving_twice_changes_nothing(store: Store):
    await store.approve("k", START + 600)
    await store.approve("k", START + 600)
    assert await store.approved("k", START + 1) is True


async def test_a_later_approval_counts_after_the_first_has_ended(store: Store, clock: FakeClock):
    await store.approve("k", START + 10)
    clock.time = START + 20
    await store.approve("k", START + 600)
    clock.time = START + 30
    await store.burn("other", START + 600)
    assert await store.approved("k", START + 30) is True


# --- prompts


@pooled_too
async def test_a_prompt_is_kept_as_it_was_given(store: Store):
    text = '[prod] drop: delete\nArguments: {"name": "ключ 🗝"}\n\'; DROP TABLE airlock_keys; --'
    assert await store.prompt("k") is None
    await store.save_prompt("k", text, START + 600)
    assert await store.prompt("k") == text
    assert await store.prompt("other") is None


async def test_a_prompt_saved_again_is_replaced(store: Store):
    await store.save_prompt("k", "first", START + 600)
    await store.save_prompt("k", "second", START + 700)
    assert await store.prompt("k") == "second"


async def test_a_prompt_is_gone_at_its_end(store: Store, clock: FakeClock):
    await store.save_prompt("k", "text", START + 600)
    clock.time = START + 599.9
    assert await store.prompt("k") == "text"
    clock.time = START + 600
    assert await store.prompt("k") is None
    await store.save_prompt("other", "text", START + 1200)
    assert await store.prompt("k") is None


# --- charges


async def test_what_nobody_charged_is_zero(store: Store):
    assert await store.used("alice", "drop", 0.0) == 0


@pooled_too
async def test_a_charge_that_meets_the_limit_passes_and_one_over_does_not(store: Store):
    since = START - 600
    assert await store.reserve("alice", "drop", 3, START, since, 5) is True
    assert await store.reserve("alice", "drop", 3, START, since, 5) is False
    assert await store.used("alice", "drop", since) == 3
    assert await store.reserve("alice", "drop", 2, START, since, 5) is True
    assert await store.reserve("alice", "drop", 1, START, since, 5) is False
    assert await store.used("alice", "drop", since) == 5


async def test_a_first_charge_over_the_limit_is_refused(store: Store):
    assert await store.reserve("alice", "drop", 6, START, START - 600, 5) is False
    assert await store.used("alice", "drop", START - 600) == 0


async def test_a_charge_of_nothing_passes_at_the_limit_and_counts_nothing(store: Store):
    since = START - 600
    assert await store.reserve("alice", "drop", 5, START, since, 5) is True
    assert await store.reserve("alice", "drop", 0, START, since, 5) is True
    await store.give_back("alice", "drop", 0, START)
    assert await store.used("alice", "drop", since) == 5


async def test_principals_and_tools_are_counted_apart(store: Store):
    since = START - 600
    await store.reserve("alice", "drop", 5, START, since, 5)
    assert await store.reserve("alice", "restart", 5, START, since, 5) is True
    assert await store.reserve("bob", "drop", 5, START, since, 5) is True
    assert await store.reserve("alice/drop", "", 5, START, since, 5) is True
    assert await store.used("alice", "drop", since) == 5


async def test_a_charge_at_the_very_start_of_the_window_counts(store: Store):
    await store.reserve("alice", "drop", 1, START - 600, START - 1200, 9)
    await store.reserve("alice", "drop", 2, START, START - 600, 9)
    assert await store.used("alice", "drop", START - 600) == 3
    assert await store.used("alice", "drop", START - 599.999) == 2
    assert await store.used("alice", "drop", START) == 2
    assert await store.used("alice", "drop", START + 0.001) == 0


async def test_a_charge_leaves_the_window_and_makes_room(store: Store, clock: FakeClock):
    assert await store.reserve("alice", "drop", 5, START, START - 600, 5) is True
    clock.time = START + 600
    assert await store.reserve("alice", "drop", 1, START + 600, START, 5) is False
    clock.time = START + 600.5
    assert await store.reserve("alice", "drop", 5, START + 600.5, START + 0.5, 5) is True


async def test_a_refund_leaves_the_window_together_with_its_charge(store: Store):
    await store.reserve("alice", "drop", 3, START, START - 600, 9)
    await store.reserve("alice", "drop", 4, START + 10, START - 590, 9)
    await store.give_back("alice", "drop", 3, START)
    assert await store.used("alice", "drop", START - 600) == 4
    assert await store.used("alice", "drop", START) == 4
    assert await store.used("alice", "drop", START + 0.5) == 4
    assert await store.used("alice", "drop", START + 10) == 4
    assert await store.used("alice", "drop", START + 11) == 0


async def test_a_refund_makes_room_at_once(store: Store):
    since = START - 600
    await store.reserve("alice", "drop", 5, START, since, 5)
    await store.give_back("alice", "drop", 5, START)
    assert await store.reserve("alice", "drop", 5, START + 1, since + 1, 5) is True


async def test_sums_are_exact_for_any_order_of_charges_and_any_window(store: Store):
    charges = [
        (START - 50, 1),
        (START - 10, 2),
        (START - 30, 4),
        (START - 30, 8),
        (START - 70, 16),
        (START, 32),
    ]
    for ts, n in charges:
        assert await store.reserve("alice", "drop", n, ts, START - 100, 1000) is True
    await store.give_back("alice", "drop", 4, START - 30)
    charges.append((START - 30, -4))
    for since in (
        START - 100,
        START - 70,
        START - 69,
        START - 30,
        START - 29,
        START - 50,
        START,
        START + 1,
        0.0,
    ):
        assert await store.used("alice", "drop", since) == sum(n for ts, n in charges if ts >= since)


@pooled_too
@pytest.mark.case("T67")
async def test_of_many_charges_at_once_exactly_as_many_pass_as_fit(store: Store):
    passed = await asyncio.gather(
        *(store.reserve("alice", "drop", 3, START + i / 1000, START - 600, 20) for i in range(40))
    )
    assert passed.count(True) == 6
    assert await store.used("alice", "drop", START - 600) == 18


async def test_sums_stay_exact_while_old_charges_are_dropped(store: Store, clock: FakeClock):
    charges = []
    for step in range(700):
        clock.time = ts = START + step * 400.0
        charges.append((ts, step % 7))
        assert await store.reserve("alice", "drop", step % 7, ts, ts - KEPT_S, 10_000) is True
    for back in (0.0, 400.0, 4000.0, 40_000.0, KEPT_S):
        since = clock.time - back
        assert await store.used("alice", "drop", since) == sum(n for ts, n in charges if ts >= since)


async def test_a_refund_after_its_charge_was_dropped_leaves_no_credit(store: Store, clock: FakeClock):
    await store.reserve("alice", "drop", 5, START, START - 600, 5)
    clock.time = START + KEPT_S + 100
    await store.reserve("alice", "drop", 1, clock.time, clock.time - 600, 5)
    await store.give_back("alice", "drop", 5, START)
    assert await store.used("alice", "drop", clock.time - KEPT_S) == 1


async def test_names_that_no_database_can_hold_are_counted_all_the_same(store: Store):
    for name in ("a\0b", "'; DROP TABLE airlock_usage; --", "back\\slash'", "", "%s %(n)s %"):
        assert await store.reserve(name, name, 3, START, START - 600, 5) is True
        assert await store.reserve(name, name, 3, START, START - 600, 5) is False
        assert await store.used(name, name, START - 600) == 3


# --- life


@pooled_too
async def test_an_open_store_answers_a_ping(store: Store):
    await store.ping()


@pooled_too
async def test_a_closed_store_answers_nothing(make: Callable[[], Store]):
    store = make()
    await store.burn("k", START + 600)
    await store.close()
    for call in (
        store.burn("k", START + 600),
        store.burned("k"),
        store.approve("k", START + 600),
        store.approved("k", START),
        store.save_prompt("k", "text", START + 600),
        store.prompt("k"),
        store.used("alice", "drop", START),
        store.reserve("alice", "drop", 1, START, START, 5),
        store.give_back("alice", "drop", 1, START),
        store.ping(),
    ):
        with pytest.raises(StoreUnavailable):
            await call


async def test_closing_twice_is_the_same_as_once(make: Callable[[], Store]):
    store = make()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.ping()
