"""The Postgres store against a real server that is killed, frozen, locked, emptied and cut off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

import msgspec
import psycopg
import pytest
import uvloop

from airlock.core.errors import StoreUnavailable
from airlock.edge import pg
from airlock.edge.clock import SystemClock
from airlock.edge.pgpool import Complaint, Pool
from airlock.edge.settings import Environment
from airlock.edge.stores import postgres
from airlock.edge.stores.postgres import PostgresStore
from tests.fakes.postgres import PostgresServer

LONG_S = 30.0
ENOUGH_S = 10.0
SHORT_S = 0.6
T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[object, ...]]
Make = Callable[..., PostgresStore]


class FakeClock(SystemClock):
    def __init__(self) -> None:
        self.time = time.time()

    def now(self) -> float:
        return self.time


@pytest.fixture(scope="module")
def database(postgres_server: PostgresServer) -> Iterator[str]:
    """One for all tests here: making one takes longer than most of them."""
    if not postgres_server.owned:
        pytest.skip("the server of AIRLOCK_TEST_PG_DSN is not ours to break: unset it")
    made = postgres_server.database(connect_timeout="2")
    yield made
    postgres_server.mend()
    postgres_server.drop(made)


@pytest.fixture
def server(postgres_server: PostgresServer, database: str) -> Iterator[PostgresServer]:
    """A server that may be broken, and is mended afterwards."""
    yield postgres_server
    postgres_server.mend()


@pytest.fixture
def dsn(server: PostgresServer, database: str) -> Iterator[str]:
    """A database without tables and without anybody connected to it."""
    yield database
    server.mend()
    server.terminate(database)
    server.sql("DROP TABLE IF EXISTS airlock_keys, airlock_prompts, airlock_usage", dsn=database)


@pytest.fixture
async def make(dsn: str) -> AsyncIterator[Make]:
    """Opens stores of separate replicas, with a bound short enough for a test to wait for."""
    opened: list[PostgresStore] = []

    def fresh(
        wait_s: float = ENOUGH_S, size: int = 4, clock: SystemClock | None = None, text: str = dsn
    ) -> PostgresStore:
        opened.append(PostgresStore(pool(text, wait_s, size), clock or SystemClock()))
        return opened[-1]

    yield fresh
    for store in opened:
        await store.close()


def pool(text: str, wait_s: float = ENOUGH_S, size: int = 4) -> Pool:
    parsed = pg.Dsn.parse(text, "AIRLOCK_STORE_DSN", Environment({}))
    return Pool(msgspec.structs.replace(parsed, wait_s=wait_s), size)


async def nothing(connection: Connection) -> None:
    await connection.execute("SELECT 1")


async def warm(text: str, size: int = 4) -> Pool:
    """A pool with a short bound, and a connection in it however long that took."""
    made = pool(text, SHORT_S, size)
    async with asyncio.timeout(LONG_S):
        while True:
            with contextlib.suppress(StoreUnavailable):
                await made.run(nothing)
                return made


async def in_time(call: Awaitable[T]) -> T:
    async with asyncio.timeout(LONG_S):
        return await call


async def until_it_answers(store: PostgresStore) -> None:
    """The database is back; the store must find it by itself."""
    async with asyncio.timeout(LONG_S):
        while True:
            with contextlib.suppress(StoreUnavailable):
                return await store.ping()


def soon() -> float:
    return time.time() + 600


# --- several replicas


@pytest.mark.case("T41")
async def test_replicas_that_start_together_on_an_empty_database_all_succeed(make: Make):
    stores = [make() for _ in range(6)]
    for answer in await asyncio.gather(
        *(store.burn(f"k{n}", soon()) for n, store in enumerate(stores)),
        *(store.reserve("alice", "drop", 1, time.time(), 0.0, 99) for store in stores),
        *(store.ping() for store in stores),
    ):
        assert answer in (True, None)
    assert await stores[0].used("alice", "drop", 0.0) == 6


@pytest.mark.case("T41")
async def test_the_tables_are_made_under_the_lock_that_the_audit_table_takes(
    make: Make, dsn: str, postgres_server: PostgresServer
):
    import psycopg

    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("SELECT pg_advisory_xact_lock(%s)", (pg.DDL_LOCK,))
        asked = asyncio.create_task(make().ping())
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await asyncio.to_thread(postgres_server.sql, waiting):
            assert not asked.done()
        assert postgres_server.sql("SELECT to_regclass('airlock_keys')", dsn=dsn) == [(None,)]
    await asked
    assert postgres_server.sql("SELECT to_regclass('airlock_keys') IS NULL", dsn=dsn) == [(False,)]


async def test_of_many_burns_by_several_replicas_exactly_one_wins(make: Make):
    stores = [make() for _ in range(5)]
    won = await asyncio.gather(*(store.burn("k", soon()) for store in stores for _ in range(10)))
    assert sorted(won) == [False] * 49 + [True]


@pytest.mark.case("T67")
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
async def test_charges_of_several_replicas_at_the_windows_edge_admit_exactly_what_fits(
    make: Make, dsn: str, isolation: str
):
    options = f"-c default_transaction_isolation={isolation.replace(' ', chr(92) + ' ')}"
    text = psycopg.conninfo.make_conninfo(dsn, options=options)
    stores = [make(text=text) for _ in range(4)]
    await stores[0].ping()
    now = time.time()
    alone = [store.reserve("alice", "drop", 3, now, now - 600, 31) for store in stores for _ in range(5)]
    both = [
        store.burn_and_reserve(f"{at}.{n}", soon(), "alice", "drop", 3, now, now - 600, 31)
        for at, store in enumerate(stores)
        for n in range(5)
    ]
    passed = [*await asyncio.gather(*alone, *both)]
    assert sum(one is True or one == (True, True) for one in passed) == 10
    assert await stores[0].used("alice", "drop", now - 600) == 30


async def test_of_many_burns_with_a_charge_exactly_one_burns_and_charges(make: Make):
    stores = [make() for _ in range(4)]
    now = time.time()
    done = await asyncio.gather(
        *(
            store.burn_and_reserve("k", soon(), f"p{n}", "drop", 2, now, 0.0, 9)
            for store in stores
            for n in range(5)
        )
    )
    assert sorted(done) == [(False, False)] * 19 + [(True, True)]
    assert sum([await stores[0].used(f"p{n}", "drop", 0.0) for n in range(5)]) == 2


# --- the two operations more


async def test_a_key_stays_burned_when_its_charge_is_refused(make: Make):
    store, now = make(), time.time()
    assert await store.burn_and_reserve("k", soon(), "alice", "drop", 6, now, now - 600, 5) == (True, False)
    assert await store.burned("k") is True
    assert await store.used("alice", "drop", now - 600) == 0


async def test_a_used_key_charges_nothing(make: Make):
    store, now = make(), time.time()
    await store.burn("k", soon())
    assert await store.burn_and_reserve("k", soon(), "alice", "drop", 1, now, now - 600, 5) == (False, False)
    assert await store.used("alice", "drop", now - 600) == 0


async def test_a_burn_with_a_charge_of_nothing_leaves_no_row(make: Make, server: PostgresServer, dsn: str):
    store, now = make(), time.time()
    assert await store.burn_and_reserve("k", soon(), "alice", "drop", 0, now, now - 600, 5) == (True, True)
    assert server.sql("SELECT count(*) FROM airlock_usage", dsn=dsn) == [(0,)]


async def test_standing_is_burned_and_approved_in_one(make: Make):
    store, now = make(), time.time()
    assert await store.standing("k", now) == (False, False)
    await store.approve("k", now + 10)
    assert await store.standing("k", now) == (False, True)
    assert await store.standing("k", now + 10) == (False, False)
    await store.burn("k", now + 10)
    assert await store.standing("k", now) == (True, True)


async def test_half_a_character_is_stored_as_a_mark(make: Make):
    store = make()
    await store.save_prompt("k", "half \ud83d", soon())
    assert await store.prompt("k") == "half \ufffd"
    assert await store.reserve("\ud83d", "a\0", 3, time.time(), 0.0, 5) is True
    assert await store.reserve("\ufffd", "a\ufffd", 3, time.time(), 0.0, 5) is False


# --- faults


@pytest.mark.case("T39")
async def test_a_killed_database_does_not_answer_and_is_found_again(
    make: Make, server: PostgresServer, capfd: pytest.CaptureFixture[str]
):
    store = make(wait_s=SHORT_S)
    await until_it_answers(store)
    assert await store.burn("k", soon()) is True
    server.kill()
    with pytest.raises(StoreUnavailable, match=r"^postgres: .*failed"):
        await in_time(store.burned("k"))
    server.start()
    await until_it_answers(store)
    assert await store.burned("k") is True
    assert capfd.readouterr() == ("", "")  # neither the driver's loggers nor ours say anything


@pytest.mark.case("T39")
async def test_a_frozen_database_holds_up_neither_a_call_nor_the_loop(
    make: Make, server: PostgresServer, dsn: str
):
    store = make(wait_s=SHORT_S)
    await until_it_answers(store)
    held = len(server.backends(dsn))
    server.freeze()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    silent = pytest.raises(StoreUnavailable, match=r"no (answer|connection) within 0\.6 s|timeout")
    for _ in range(2):  # the first on a connection that was idle, the second on none
        with silent:
            await in_time(store.burn("k", soon()))
    ticking.cancel()
    assert ticks > 20
    server.thaw()
    await until_it_answers(store)
    server.wait_backends(dsn, held)
    await store.close()
    server.wait_backends(dsn, 0)


async def test_a_frozen_database_does_not_hold_up_the_end(make: Make, server: PostgresServer):
    store = make(wait_s=20.0)
    await store.ping()
    server.freeze()
    calls = [asyncio.create_task(store.ping()) for _ in range(6)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        await store.close()
    for call in calls:
        with pytest.raises(StoreUnavailable):
            await in_time(call)


@pytest.mark.case("T39")
async def test_cut_connections_are_noticed_before_they_are_used(make: Make, server: PostgresServer, dsn: str):
    store = make()
    await asyncio.gather(*(store.ping() for _ in range(4)))
    await asyncio.gather(*store._pool._making)
    assert server.terminate(dsn) >= 1
    for n in range(4):
        assert await store.burn(f"k{n}", soon()) is True


@pytest.mark.case("T39")
async def test_a_connection_whose_end_was_announced_is_not_used(make: Make, server: PostgresServer, dsn: str):
    with half_deaf_relay(str(server.folder / ".s.PGSQL.5432") if server.folder else "") as folder:
        store = make(text=psycopg.conninfo.make_conninfo(dsn, host=folder))
        await store.burn("k", soon())
        assert store._sweeping is not None
        await store._sweeping
        assert server.terminate(dsn) >= 1
        assert await store.burn("k", soon()) is False


@contextlib.contextmanager
def half_deaf_relay(path: str) -> Iterator[str]:
    """A socket in a folder of its own that passes everything on but the end of a connection."""
    sockets: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)

    def serve(front: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = front.accept()[0]
                far = socket.socket(socket.AF_UNIX)
                far.connect(path)
                sockets.extend((near, far))
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="apr") as folder, socket.socket(socket.AF_UNIX) as front:
        front.bind(f"{folder}/.s.PGSQL.5432")
        front.listen()
        sockets.append(front)
        threading.Thread(target=serve, args=(front,), daemon=True).start()
        try:
            yield folder
        finally:
            for one in sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()


@pytest.mark.case("T40")
async def test_a_database_made_again_empty_is_filled_again(make: Make, server: PostgresServer, dsn: str):
    store, other = make(), make()
    assert await store.burn("k", soon()) is True
    await other.ping()
    server.remake(dsn)
    assert await store.burn("k", soon()) is True  # documented: used keys go with a lost database
    await other.ping()
    assert await other.burn("k", soon()) is False


@pytest.mark.case("T40")
@pytest.mark.parametrize("table", ["airlock_keys", "airlock_prompts", "airlock_usage"])
async def test_a_missing_table_is_made_again(make: Make, server: PostgresServer, dsn: str, table: str):
    store, now = make(), time.time()
    await store.ping()
    server.sql(f"DROP TABLE {table}", dsn=dsn)
    assert await store.reserve("alice", "drop", 1, now, now - 600, 5) is True
    assert await store.burn_and_reserve("k", soon(), "alice", "drop", 1, now, now - 600, 5) == (True, True)
    await store.save_prompt("k", "text", soon())
    server.sql(f"DROP TABLE {table}", dsn=dsn)
    await store.ping()
    assert server.sql(f"SELECT count(*) FROM {table}", dsn=dsn) == [(0,)]


@pytest.mark.case("T39")
async def test_a_locked_table_is_given_up_by_the_server_and_the_connection_kept(
    make: Make, server: PostgresServer, dsn: str
):
    store = make(wait_s=SHORT_S)
    await until_it_answers(store)
    await store.burn("k", soon())
    kept = server.backends(dsn)
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE airlock_keys, airlock_usage")
        for call in (store.burn("k", soon()), store.reserve("alice", "drop", 1, time.time(), 0.0, 5)):
            with pytest.raises(StoreUnavailable, match="timeout"):
                await in_time(call)
        other.rollback()
    assert await store.burn("k", soon()) is False
    assert set(kept) <= set(server.backends(dsn))


@pytest.mark.case("T39")
async def test_work_that_is_cut_off_leaves_no_backend_behind(server: PostgresServer, dsn: str):
    cut = await warm(dsn)

    async def forever(connection: Connection) -> None:
        await connection.execute("SET statement_timeout = 0")
        await connection.execute("SELECT pg_sleep(600)")

    with pytest.raises(StoreUnavailable, match=r"^postgres: no answer within 0\.6 s$"):
        await in_time(cut.run(forever))
    server.wait_backends(dsn, 0)
    await cut.close()


async def test_a_database_killed_under_a_statement_does_not_answer(server: PostgresServer, dsn: str):
    used = pool(dsn)
    begun = asyncio.Event()

    async def slow(connection: Connection) -> None:
        begun.set()
        await connection.execute("SELECT pg_sleep(9)")

    call = asyncio.create_task(used.run(slow))
    await begun.wait()
    await asyncio.to_thread(server.kill)
    with pytest.raises(StoreUnavailable, match="server closed the connection"):
        await in_time(call)
    await used.close()


async def test_a_value_the_driver_cannot_send_is_a_complaint(dsn: str):
    used = pool(dsn)

    async def odd(connection: Connection) -> None:
        await connection.execute("SELECT %s", (object(),))

    with pytest.raises(Complaint, match="cannot adapt") as caught:
        await used.run(odd)
    assert caught.value.sqlstate is None
    await used.close()


async def test_a_server_that_accepts_and_then_says_nothing_is_given_up(make: Make):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        store = make(
            wait_s=SHORT_S,
            text=f"postgresql://alice@127.0.0.1:{port}/secretdb?connect_timeout=2&sslmode=disable",
        )
        with pytest.raises(StoreUnavailable) as caught:
            await in_time(store.ping())
        assert "secretdb" not in str(caught.value)
        await store.close()


@pytest.mark.case("T38")
async def test_a_database_that_complains_is_not_one_that_does_not_answer(
    make: Make, server: PostgresServer, dsn: str
):
    store = make(size=1)
    await store.ping()
    server.sql("ALTER TABLE airlock_keys RENAME consumed TO used", dsn=dsn)
    with pytest.raises(Complaint, match=r"\(SQLSTATE 42703\)$"):
        await store.burn("k", soon())
    server.sql("ALTER TABLE airlock_keys RENAME used TO consumed", dsn=dsn)
    assert await store.burn("k", soon()) is True
    with pytest.raises(Complaint, match="22003"):
        await store.reserve("alice", "drop", 2**40, time.time(), 0.0, 2**41)
    assert await store.reserve("alice", "drop", 5, time.time(), 0.0, 5) is True


@pytest.mark.case("T38")
async def test_a_permission_denied_is_a_complaint_that_names_no_role(
    make: Make, server: PostgresServer, dsn: str
):
    await make().ping()
    server.sql("DROP ROLE IF EXISTS lowly")
    server.sql("CREATE ROLE lowly LOGIN")
    store = make(text=psycopg.conninfo.make_conninfo(dsn, user="lowly"))
    with pytest.raises(Complaint, match="42501") as caught:
        await store.burn("k", soon())
    assert "lowly" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.case("T38")
@pytest.mark.parametrize(
    ("state", "kind"),
    [(state, StoreUnavailable) for state in ("08006", "25006", "53300", "55P03", "57014", "58030")]
    + [(state, Complaint) for state in ("22003", "23505", "40001", "42501", "XX000")],
)
async def test_an_error_is_sorted_by_its_code(dsn: str, state: str, kind: type[Exception]):
    used = pool(dsn)

    async def fail(connection: Connection) -> None:
        raising = f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', MESSAGE = 'no'; END $$"
        await connection.execute(raising.encode())

    with pytest.raises(kind, match=r"^postgres: no"):
        await used.run(fail)
    await used.close()


async def test_a_database_that_became_a_standby_is_left_for_a_new_connection(
    make: Make, server: PostgresServer, dsn: str
):
    store = make(size=1)
    await store.ping()
    database = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    server.sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    server.terminate(dsn)
    with pytest.raises(StoreUnavailable, match="read-only"):
        await store.burn("k", soon())
    server.sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert await store.burn("k", soon()) is True


@pytest.mark.case("T50")
async def test_no_value_of_the_dsn_is_in_an_error(make: Make, server: PostgresServer, dsn: str):
    password = "p@ss\"w'or\\d " + "x" * 8
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    text = psycopg.conninfo.make_conninfo(dsn, user="no such user", password=password, dbname="missing\"db'")
    store = make(wait_s=SHORT_S, text=text)
    with pytest.raises(StoreUnavailable) as caught:
        await in_time(store.ping())
    said = str(caught.value)
    assert "failed" in said
    for value in ("such user", "missing", "p@ss", str(given["host"])):
        assert value not in said
    assert caught.value.__cause__ is None


# --- the pool


async def test_a_replica_holds_no_more_connections_than_it_may(make: Make, server: PostgresServer, dsn: str):
    store = make(size=2)
    await asyncio.gather(*(store.burn(f"k{n}", soon()) for n in range(40)))
    assert 1 <= len(server.backends(dsn)) <= 2


async def test_a_full_pool_says_so_within_the_bound(dsn: str):
    small = await warm(dsn, size=1)

    async def slow(connection: Connection) -> None:
        await connection.execute("SELECT pg_sleep(0.3)")

    busy = [asyncio.create_task(small.run(slow)) for _ in range(4)]
    done = await in_time(asyncio.gather(*busy, return_exceptions=True))
    assert {type(one) for one in done} == {type(None), StoreUnavailable}
    assert "no connection within 0.6 s" in " ".join(map(str, done))
    await small.run(nothing)
    await small.close()


async def test_work_under_way_goes_on_when_its_caller_goes_away(make: Make, server: PostgresServer, dsn: str):
    store = make(size=1)
    await store.ping()
    with psycopg.connect(dsn) as other:
        other.execute("LOCK TABLE airlock_keys")
        calls = [asyncio.create_task(store.burn(key, soon())) for key in ("first", "second")]
        await asyncio.sleep(0.05)
        for call in calls:  # one at work, one that waits for the connection
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        other.rollback()
    assert await store.burned("first") is True
    assert await store.burned("second") is False


async def test_a_transaction_left_open_is_not_handed_to_the_next(dsn: str):
    small = pool(dsn, size=1)

    async def careless(connection: Connection) -> None:
        await connection.execute("BEGIN")

    async def state(connection: Connection) -> psycopg.pq.TransactionStatus:
        return connection.info.transaction_status

    await small.run(careless)
    assert await small.run(state) == psycopg.pq.TransactionStatus.IDLE
    await small.close()


async def test_a_closed_pool_answers_those_who_wait(dsn: str):
    small = pool(dsn, wait_s=20.0, size=1)

    async def slow(connection: Connection) -> None:
        await connection.execute("SELECT pg_sleep(0.2)")

    calls = [asyncio.create_task(small.run(slow)) for _ in range(3)]
    while not small._busy:
        await asyncio.sleep(0.01)
    await small.close()
    done = await in_time(asyncio.gather(*calls, return_exceptions=True))
    assert done[0] is None  # what was under way may end
    assert [str(one) for one in done[1:]] == ["the store is closed"] * 2


async def test_an_exception_of_the_work_itself_costs_the_connection_and_nothing_more(
    server: PostgresServer, dsn: str
):
    small = pool(dsn, size=1)

    async def broken(connection: Connection) -> None:
        await connection.execute("BEGIN")
        raise LookupError

    calls = [small.run(broken), small.run(nothing), small.run(broken), small.run(nothing)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(one) for one in done] == [LookupError, type(None)] * 2
    server.wait_backends(dsn, 1)
    await small.close()
    server.wait_backends(dsn, 0)


async def test_a_connection_handed_to_a_caller_that_left_is_not_lost(server: PostgresServer, dsn: str):
    small = pool(dsn, size=1)
    hold, held = asyncio.Event(), asyncio.Event()

    async def busy(connection: Connection) -> None:
        held.set()
        await hold.wait()

    first = asyncio.create_task(small.run(busy))
    await held.wait()
    second = asyncio.create_task(small.run(nothing))
    while not small._waiting:
        await asyncio.sleep(0)
    hold.set()
    while small._waiting:  # handed over, but the second has not run yet
        await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await first
    await in_time(small.run(nothing))
    assert len(server.backends(dsn)) == 1
    await small.close()


async def test_work_that_ends_in_the_moment_it_is_cut_off_harms_nobody(server: PostgresServer, dsn: str):
    small = pool(dsn, size=1)

    async def just_in_time(connection: Connection) -> int:
        small._cut(connection)
        small._cut(connection)
        return 7

    assert await small.run(just_in_time) == 7
    await asyncio.gather(*small._cutting)
    await small.run(nothing)
    server.wait_backends(dsn, 1)
    await small.close()


async def test_a_connection_that_is_made_too_late_is_closed(server: PostgresServer, dsn: str):
    small = pool(dsn, SHORT_S)
    server.freeze()
    with pytest.raises(StoreUnavailable):
        await small.run(nothing)
    await small.close()
    threads = [thread for thread in threading.enumerate() if thread.name == "airlock-postgres"]
    server.thaw()
    assert threads
    for thread in threads:
        thread.join(LONG_S)
    server.wait_backends(dsn, 0)


async def test_a_connection_made_in_the_moment_nobody_wants_it_is_closed(
    dsn: str, monkeypatch: pytest.MonkeyPatch
):
    small = pool(dsn, SHORT_S)
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()
    connection = await psycopg.AsyncConnection.connect(dsn)

    def connect(made: Future[Connection]) -> None:
        made.set_running_or_notify_cancel()
        begun.set()
        go.wait(LONG_S)
        made.set_result(connection)
        ended.set()

    monkeypatch.setattr(small, "_connect", connect)
    call = asyncio.create_task(small.run(nothing))
    await asyncio.to_thread(begun.wait, LONG_S)
    await small.close()
    with pytest.raises(StoreUnavailable):
        await call
    go.set()
    await asyncio.to_thread(ended.wait, LONG_S)
    assert connection.closed


async def test_a_connection_whose_bounds_cannot_be_set_is_not_used(
    server: PostgresServer, dsn: str, monkeypatch: pytest.MonkeyPatch
):
    small = pool(dsn, 2.0)
    monkeypatch.setattr(pg, "set_timeouts", lambda seconds: "SELECT no_such_column")
    with pytest.raises(StoreUnavailable, match="no_such_column"):
        await small.run(nothing)
    monkeypatch.undo()
    await small.run(nothing)
    await small.close()
    server.wait_backends(dsn, 0)


async def test_a_cancel_that_cannot_be_sent_is_given_up(dsn: str, monkeypatch: pytest.MonkeyPatch):
    for able in (True, False):
        small = await warm(dsn)
        monkeypatch.setattr(psycopg.capabilities, "has_cancel_safe", lambda able=able: able)
        monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", _refused)

        async def slow(connection: Connection) -> None:
            await connection.execute("SET statement_timeout = 5000")
            await connection.execute("SELECT pg_sleep(10)")

        with pytest.raises(StoreUnavailable, match="no answer"):
            await in_time(small.run(slow))
        await asyncio.gather(*small._cutting)
        await small.close()


async def _refused(self: object, *, timeout: float) -> None:
    raise psycopg.OperationalError("refused")


def test_the_store_works_on_the_loop_of_the_gateway(server: PostgresServer, dsn: str):
    async def life() -> list[bool]:
        store = postgres.open(dsn, SystemClock(), Environment({"AIRLOCK_STORE_POOL_SIZE": "2"}))
        await store.ping()
        server.terminate(dsn)
        won = await asyncio.gather(*(store.burn("k", soon()) for _ in range(10)))
        server.freeze()
        with pytest.raises(StoreUnavailable):
            await in_time(store.burned("k"))
        server.thaw()
        await until_it_answers(store)
        await store.close()
        return won

    assert sorted(uvloop.run(life())) == [False] * 9 + [True]


# --- what expires


async def test_what_has_expired_is_deleted_beside_the_calls(make: Make, server: PostgresServer, dsn: str):
    clock = FakeClock()
    store = make(clock=clock)
    now = clock.time
    await store.burn("old", now + 1)
    assert store._sweeping is not None
    await store._sweeping
    await store.burn("kept", now + 90_000)
    await store.save_prompt("old", "text", now + 1)
    await store.reserve("alice", "drop", 2, now, 0.0, 9)
    server.sql("INSERT INTO airlock_keys SELECT 'k' || n, 0 FROM generate_series(1, 2500) n", dsn=dsn)
    clock.time = now + 86_500
    await store.burn("now", clock.time + 600)
    await store._sweeping
    assert server.sql("SELECT key FROM airlock_keys ORDER BY key", dsn=dsn) == [("kept",), ("now",)]
    assert server.sql("SELECT count(*) FROM airlock_prompts", dsn=dsn) == [(0,)]
    assert server.sql("SELECT count(*) FROM airlock_usage", dsn=dsn) == [(0,)]
    last = store._sweeping
    await store.burn("more", clock.time + 600)
    assert store._sweeping is last  # not for every write


async def test_a_row_that_somebody_holds_is_left_to_the_next_sweep(
    make: Make, server: PostgresServer, dsn: str
):
    store = make()
    await store.ping()
    server.sql("INSERT INTO airlock_keys VALUES ('held', 0), ('free', 0)", dsn=dsn)
    with psycopg.connect(dsn) as other:
        other.execute("SELECT FROM airlock_keys WHERE key = 'held' FOR UPDATE")
        await in_time(store._sweep(time.time()))
        other.rollback()
    assert server.sql("SELECT key FROM airlock_keys", dsn=dsn) == [("held",)]


async def test_no_statement_scans_a_table(make: Make, dsn: str):
    await make().ping()
    values = {"key": "k", "now": 1.0, "principal": "p", "tool": "t", "since": 1.0, "before": 1.0}
    sweeps = zip(
        postgres._SWEEP, ("airlock_keys_exp", "airlock_prompts_exp", "airlock_usage_ts"), strict=True
    )
    plans = {
        postgres._STANDING: "airlock_keys_pkey",
        postgres._PROMPT: "airlock_prompts_pkey",
        postgres._SUM.format(""): "airlock_usage_window",
        **dict(sweeps),
    }
    with psycopg.connect(dsn, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        for statement, index in plans.items():
            rows = connection.execute(f"EXPLAIN {statement}".encode(), values).fetchall()
            plan = "\n".join(line for (line,) in rows)
            assert "Seq Scan" not in plan, plan
            assert f"using {index}" in plan, plan
