from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airlock.core.errors import ConfigError, StoreUnavailable
from airlock.edge.stores import sqlite

START = 1_700_000_000.0

_CHILD = """
import asyncio, os, signal, sys
from airlock.edge.clock import SystemClock
from airlock.edge.stores import sqlite

class Clock(SystemClock):
    def now(self):
        return 1_700_000_000.0

async def main():
    store = sqlite.open(sys.argv[1], Clock())
    await store.ping()
    print("ready", flush=True)
    sys.stdin.readline()
    for call in sys.argv[2:]:
        print(await eval(call), flush=True)
    if "kill" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    await store.close()

asyncio.run(main())
"""


class FakeClock:
    def __init__(self) -> None:
        self.time = START
        self.ticks = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.ticks


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def store(path: Path, clock: FakeClock) -> AsyncIterator[sqlite.SqliteStore]:
    opened = sqlite.open(f"sqlite:///{path}", clock)
    yield opened
    await opened.close()


def child(path: Path, *calls: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, f"sqlite:///{path}", *calls],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env},
    )  # fmt: skip


def run_together(children: list[subprocess.Popen[str]]) -> list[list[str]]:
    """Let every child get ready, start all at once, return what each said."""
    for one in children:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in children:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    return [one.communicate(timeout=60)[0].split() for one in children]


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    db = sqlite3.connect(path)
    try:
        return db.execute(query).fetchall()
    finally:
        db.close()


# --- the address


def test_three_slashes_name_a_file_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    store = sqlite.open("sqlite:///some.db", FakeClock())
    monkeypatch.chdir("/")
    assert store._path == str(tmp_path / "some.db")


@pytest.mark.parametrize(
    "uri",
    [
        "sqlite:", "sqlite://", "sqlite:///", "sqlite://hunter2/x.db", "sqlite:hunter2.db", "sqlite:///:memory:",
        "sqlite:///hunter2/", "sqlite:///hunter2.db?mode=ro", "sqlite:///hunter2.db#x", "sqlite:///hunter2\0.db",
        "SQLITE:///hunter2.db", "postgres://u:hunter2@h/d",
    ],
)  # fmt: skip
def test_an_address_of_another_form_is_refused_and_not_quoted(uri: str):
    with pytest.raises(ConfigError) as caught:
        sqlite.open(uri, FakeClock())
    assert caught.value.source == "AIRLOCK_STORE_DSN"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["a b%20c.db", "имя.db", os.fsdecode(b"bad\xff.db")])
async def test_the_path_is_taken_as_it_stands(tmp_path: Path, name: str):
    store = sqlite.open(f"sqlite:///{tmp_path}/{name}", FakeClock())
    await store.burn("k", START + 600)
    await store.close()
    assert (tmp_path / name).is_file()


# --- the file


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o277])
async def test_the_file_and_its_companions_are_private_whatever_the_umask(path: Path, umask: int):
    before = os.umask(umask)
    try:
        store = sqlite.open(f"sqlite:///{path}", FakeClock())
        await store.burn("k", START + 600)
        names = {entry.name: stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}
    finally:
        os.umask(before)
        await store.close()
    assert names == {"store.db": 0o600, "store.db-wal": 0o600, "store.db-shm": 0o600}


async def test_a_file_that_others_could_read_is_made_private(path: Path, store: sqlite.SqliteStore):
    path.touch()
    path.chmod(0o666)
    await store.burn("k", START + 600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_symlink_as_the_file_is_refused(path: Path, store: sqlite.SqliteStore):
    target = path.with_name("elsewhere.db")
    path.symlink_to(target)
    with pytest.raises(StoreUnavailable):
        await store.burn("k", START + 600)
    assert not target.exists()
    target.touch()
    with pytest.raises(StoreUnavailable):
        await store.ping()
    assert target.stat().st_size == 0


async def test_a_symlink_as_the_log_is_refused(path: Path, store: sqlite.SqliteStore):
    path.with_name("store.db-wal").symlink_to(path.with_name("elsewhere"))
    with pytest.raises(StoreUnavailable):
        await store.ping()


async def test_a_file_of_another_user_is_refused(
    path: Path, store: sqlite.SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    path.touch(mode=0o600)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(StoreUnavailable):
        await store.ping()


@pytest.mark.parametrize("kind", ["folder", "fifo"])
async def test_what_is_no_file_is_refused(path: Path, store: sqlite.SqliteStore, kind: str):
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    with pytest.raises(StoreUnavailable):
        await store.ping()


async def test_a_missing_folder_is_no_answer_and_cures_itself(tmp_path: Path):
    folder = tmp_path / "later"
    store = sqlite.open(f"sqlite:///{folder}/store.db", FakeClock())
    with pytest.raises(StoreUnavailable) as caught:
        await store.ping()
    assert str(tmp_path) not in str(caught.value)
    folder.mkdir()
    await store.ping()
    await store.close()


async def test_the_log_is_write_ahead(path: Path, store: sqlite.SqliteStore):
    await store.ping()
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


async def test_burns_and_approvals_are_synced_and_charges_are_not(store: sqlite.SqliteStore):
    modes: list[int] = []

    def watch(statement: str) -> None:
        if statement == "BEGIN IMMEDIATE":
            assert store._db is not None
            store._db.set_trace_callback(None)
            modes.append(store._db.execute("PRAGMA synchronous").fetchone()[0])

    for call in (
        lambda: store.burn("k", START + 600),
        lambda: store.approve("k", START + 600),
        lambda: store.save_prompt("k", "text", START + 600),
        lambda: store.reserve("alice", "drop", 1, START, START - 600, 5),
        lambda: store.give_back("alice", "drop", 1, START),
    ):
        await store.ping()
        await store._do(lambda db: db.set_trace_callback(watch))
        await call()
    assert modes == [2, 2, 1, 1, 1]


# --- mending


@pytest.mark.case("T40")
async def test_missing_tables_are_made_again_by_use_and_by_ping(path: Path, store: sqlite.SqliteStore):
    await store.burn("k", START + 600)
    await store._do(
        lambda db: [
            db.execute(f"DROP TABLE {name}") for name in ("airlock_keys", "airlock_prompts", "airlock_usage")
        ]
    )
    assert await store.burn("k", START + 600) is True
    assert await store.reserve("alice", "drop", 1, START, START - 600, 5) is True
    assert await store.used("alice", "drop", START) == 1
    await store._do(lambda db: db.execute("DROP TABLE airlock_prompts"))
    await store.ping()
    assert rows(path, "SELECT * FROM airlock_prompts") == []


async def test_a_file_removed_or_replaced_under_us_is_opened_anew(
    path: Path, store: sqlite.SqliteStore, clock
):
    await store.burn("k", START + 600)
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        path.with_name(name).unlink()
    other = sqlite.open(f"sqlite:///{path}", clock)
    assert await other.burn("k", START + 600) is True
    assert await store.burn("k", START + 600) is False
    await other.close()
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        path.with_name(name).unlink(missing_ok=True)
    assert await store.burn("k", START + 600) is True
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_file_that_is_no_database_is_a_complaint(path: Path, store: sqlite.SqliteStore):
    path.write_bytes(b"not a database, " * 100)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError):
            await store.ping()
    path.unlink()
    await store.ping()


async def test_tables_of_another_shape_are_a_complaint(path: Path, store: sqlite.SqliteStore):
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE airlock_keys (key TEXT, exp_ts REAL)")
    db.close()
    with pytest.raises(sqlite3.OperationalError, match="consumed"):
        await store.burned("k")


async def test_a_file_locked_for_too_long_is_no_answer(
    path: Path, store: sqlite.SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.01)
    await store.ping()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="BUSY"):
        await store.burn("k", START + 600)
    assert await store.burned("k") is False
    db.execute("ROLLBACK")
    db.close()
    assert await store.burn("k", START + 600) is True


async def test_a_new_file_locked_by_another_is_no_answer_until_it_is_free(
    path: Path, store: sqlite.SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN EXCLUSIVE")
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="BUSY"):
            await store.ping()
    db.execute("ROLLBACK")
    db.close()
    await store.ping()
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]


async def test_calls_that_waited_too_long_for_their_turn_are_not_run(
    store: sqlite.SqliteStore, clock: FakeClock
):
    started, go = threading.Event(), threading.Event()

    def block(_: sqlite3.Connection) -> None:
        started.set()
        go.wait(30)

    first = asyncio.ensure_future(store._do(block))
    late = asyncio.ensure_future(store.burn("k", START + 600))
    await asyncio.to_thread(started.wait, 30)
    clock.ticks += sqlite.BUSY_S + 0.1
    go.set()
    await first
    with pytest.raises(StoreUnavailable, match="busy"):
        await late
    assert await store.burned("k") is False


async def test_a_file_we_may_not_write_is_no_answer(store: sqlite.SqliteStore):
    await store.ping()
    await store._do(lambda db: db.execute("PRAGMA query_only = ON"))
    with pytest.raises(StoreUnavailable, match="READONLY"):
        await store.burn("k", START + 600)
    assert await store.burn("k", START + 600) is True


async def test_a_full_disk_is_no_answer_and_leaves_no_open_transaction(store: sqlite.SqliteStore):
    await store.ping()
    await store._do(lambda db: db.execute("PRAGMA max_page_count = 1"))
    with pytest.raises(StoreUnavailable, match="FULL"):
        await store.save_prompt("k", "x" * 1_000_000, START + 600)
    await store.save_prompt("k", "text", START + 600)
    assert await store.prompt("k") == "text"


async def test_a_transaction_that_sqlite_ended_by_itself_is_no_answer(
    store: sqlite.SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    await store.ping()
    begin = sqlite._begin

    def ended(db: sqlite3.Connection, *, durable: bool) -> None:
        begin(db, durable=durable)
        db.execute("ROLLBACK")

    monkeypatch.setattr(sqlite, "_begin", ended)
    with pytest.raises(StoreUnavailable, match="rolled back"):
        await store.burn("k", START + 600)
    monkeypatch.undo()
    assert await store.burn("another", START + 600) is True


async def test_closing_lets_what_was_asked_before_finish(path: Path, clock: FakeClock):
    store = sqlite.open(f"sqlite:///{path}", clock)
    burns = [asyncio.ensure_future(store.burn(str(number), START + 600)) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*burns) == [True] * 20
    assert rows(path, "SELECT count(*) FROM airlock_keys") == [(20,)]


# --- rows that expired


async def test_expired_rows_are_deleted_at_most_once_a_minute(
    path: Path, store: sqlite.SqliteStore, clock: FakeClock
):
    await store.burn("k", START + 600)
    await store.save_prompt("k", "text", START + 600)
    await store.reserve("alice", "drop", 1, START, START - 600, 5)
    counts = "SELECT (SELECT count(*) FROM airlock_keys), (SELECT count(*) FROM airlock_prompts),"
    counts += " (SELECT count(*) FROM airlock_usage)"
    clock.time = START + 59
    await store.save_prompt("short", "text", START + 60)
    clock.time = START + 61  # sweeps: nothing has expired long enough
    await store.approve("a", START + 600)
    clock.time = START + 120
    await store.approve("b", START + 600)
    assert rows(path, counts) == [(3, 1, 1)]
    clock.time = START + 700
    await store.approve("c", START + 1300)
    assert rows(path, counts) == [(4, 0, 1)]
    clock.time = START + 600 + sqlite.CLOCK_SLACK_S + 1
    await store.approve("d", START + 9000)
    assert rows(path, counts) == [(2, 0, 1)]
    clock.time = START + sqlite.USAGE_KEPT_S + 1
    await store.approve("e", START + 90_000)
    assert rows(path, counts) == [(1, 0, 0)]


async def test_a_sweep_of_many_rows_deletes_them_all(path: Path, store: sqlite.SqliteStore, clock: FakeClock):
    await store.ping()
    many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)"
    insert = f"INSERT INTO airlock_prompts {many} SELECT 'p' || i, ?, '' FROM n"
    await store._do(lambda db: db.execute(insert, (START - 1,)))
    await store.save_prompt("k", "text", START + 600)
    assert rows(path, "SELECT key FROM airlock_prompts") == [("k",)]


@pytest.mark.parametrize("statement", [*sqlite._SWEEP, sqlite._USED, sqlite._CHARGE, sqlite._MOVE_LATER])
async def test_no_statement_reads_a_whole_table(store: sqlite.SqliteStore, statement: str):
    named = {"principal": "a", "tool": "t", "n": 1, "ts": START, "since": START}
    values = (START, 1) if "?" in statement else named
    plan = await store._do(lambda db: db.execute(f"EXPLAIN QUERY PLAN {statement}", values).fetchall())
    steps = [step[3] for step in plan]
    assert not [step for step in steps if step.startswith("SCAN") and "CONSTANT" not in step]
    assert not [step for step in steps if "TEMP B-TREE" in step]


# --- several processes


async def test_of_many_processes_exactly_one_burns(path: Path, store: sqlite.SqliteStore):
    said = run_together(
        [child(path, *[f"store.burn('k{n}', 1.7e9 + 600)" for n in range(20)]) for _ in range(3)]
    )
    for answers in zip(*said, strict=True):
        assert sorted(answers) == ["False", "False", "True"]
    assert await store.burned("k0") is True


@pytest.mark.case("T67")
async def test_processes_together_charge_exactly_what_fits(path: Path, store: sqlite.SqliteStore):
    charge = "store.reserve('alice', 'drop', 3, 1.7e9, 1.7e9 - 600, 50)"
    said = run_together([child(path, *[charge] * 15) for _ in range(3)])
    assert sum(answers.count("True") for answers in said) == 16
    assert await store.used("alice", "drop", START - 600) == 48


async def test_what_was_answered_before_a_kill_is_kept(path: Path, store: sqlite.SqliteStore):
    calls = (
        "store.burn('k', 1.7e9 + 600)",
        "store.approve('a', 1.7e9 + 600)",
        "store.save_prompt('a', 'text', 1.7e9 + 600)",
        "store.reserve('alice', 'drop', 3, 1.7e9, 1.7e9 - 600, 50)",
    )
    victim = child(path, *calls, kill="yes")
    assert run_together([victim]) == [["True", "None", "None", "True"]]
    assert victim.returncode == -signal.SIGKILL
    assert await store.burn("k", START + 600) is False
    assert await store.approved("a", START) is True
    assert await store.prompt("a") == "text"
    assert await store.used("alice", "drop", START) == 3


async def test_stores_opened_at_the_same_moment_share_one_file(path: Path, clock: FakeClock):
    stores = [sqlite.open(f"sqlite:///{path}", clock) for _ in range(8)]
    won = await asyncio.gather(*(store.burn("k", START + 600) for store in stores))
    assert sorted(won) == [False] * 7 + [True]
    for store in stores:
        await store.close()
