"""The audit table in a real Postgres: what is in it after faults, what is said of them, and how long a close takes."""

from __future__ import annotations

import contextlib
import json
import random
import string
import threading
import time
from collections.abc import Callable, Iterator

import msgspec
import psycopg
import pytest

from airlock.core.audit import chain
from airlock.core.audit.record import Phase
from airlock.core.errors import ConfigError
from airlock.edge import pg
from airlock.edge.settings import Environment
from airlock.edge.sinks import jsonl, postgres
from airlock.edge.sinks.pgqueue import ROWS
from airlock.edge.sinks.postgres import PostgresMirror
from tests.fakes.postgres import PostgresServer
from tests.fakes.records import record

FULL = "the audit table is behind: its queue is full, records are dropped from the table"
UNDONE = "the audit table caught up; 0 records were dropped from it"
COLUMNS = [
    ("ts", "timestamp with time zone", "NO"),
    *((name, "text", "YES") for name in ("phase", "call_id", "principal", "method", "tool", "verdict")),
    *((name, "text", "YES") for name in ("rule_id", "tier")),
    ("dry_run", "boolean", "YES"),
    ("latency_ms", "integer", "YES"),
    ("upstream_status", "integer", "YES"),
    ("trace_id", "text", "YES"),
    ("rec", "jsonb", "NO"),
]


class Lines:
    """Sealed lines, one chain."""

    def __init__(self) -> None:
        self.prev = chain.GENESIS
        self.sealed: list[bytes] = []

    def make(self, count: int, **fields: object) -> list[bytes]:
        made = []
        for _ in range(count):
            number = len(self.sealed)
            whole = {
                "ts": f"2026-11-02T10:{number // 60000:02d}:{number // 1000 % 60:02d}.{number % 1000:03d}+00:00",
                "phase": Phase.OUTCOME, "call_id": f"{number:032x}", "principal": "alice", "method": "tools/call",
                "tool": "drop_bucket", "args_json": '{"buckets":["x1"]}', "verdict": "allow",
                "rule_id": "tier.L3.auto", "tier": "L3", "dry_run": False, "latency_ms": 12,
                "upstream_status": 200, "trace_id": "84dc", "detail_json": "null",
            }  # fmt: skip
            line, self.prev = chain.seal(record(**{**whole, **fields}), self.prev)
            self.sealed.append(line)
            made.append(line)
        return made


class Audited:
    """A fresh schema or database, mirrors before it, and what they said."""

    def __init__(self, server: PostgresServer, make: Callable[..., str]) -> None:
        self.server = server
        self.dsn = make(connect_timeout="2")
        self.said: list[str] = []
        self.lines = Lines()
        self.mirrors: list[PostgresMirror] = []

    def open(self, dsn: str | None = None, *, wait_s: float | None = None) -> PostgresMirror:
        parsed = pg.Dsn.parse(dsn or self.dsn, "AIRLOCK_AUDIT_DSN", Environment({}))
        if wait_s is not None:  # shorter than the seconds of libpq
            parsed = msgspec.structs.replace(parsed, wait_s=wait_s)
        self.mirrors.append(PostgresMirror(parsed, self.said.append))
        return self.mirrors[-1]

    def offer(self, mirror: PostgresMirror, count: int, **fields: object) -> None:
        for line in self.lines.make(count, **fields):
            mirror.offer(line)

    def sql(self, statement: str, *values: object) -> list[tuple]:
        return self.server.sql(statement, *values, dsn=self.dsn)

    def hashes(self) -> list[str]:
        try:
            return [text for (text,) in self.sql("SELECT rec->>'hash' FROM airlock_audit ORDER BY ts, ctid")]
        except psycopg.errors.UndefinedTable:
            return []

    def offered(self) -> list[str]:
        return [json.loads(line)["hash"] for line in self.lines.sealed]

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not true():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.02)


@contextlib.contextmanager
def fresh(server: PostgresServer, make: Callable[..., str]) -> Iterator[Audited]:
    made = Audited(server, make)
    yield made
    if server.owned:
        server.mend()
    for mirror in made.mirrors:
        mirror.close()
    server.drop(made.dsn)


@pytest.fixture
def audited(postgres_server: PostgresServer) -> Iterator[Audited]:
    with fresh(postgres_server, postgres_server.schema) as made:
        yield made


@pytest.fixture
def alone(postgres_server: PostgresServer) -> Iterator[Audited]:
    """With a database of its own, whose connections can be counted and cut."""
    with fresh(postgres_server, postgres_server.database) as made:
        yield made


@pytest.fixture
def breakable(audited: Audited) -> Audited:
    if not audited.server.owned:
        pytest.skip("breaks the server: unset AIRLOCK_TEST_PG_DSN, and the tests start one of their own")
    return audited


def test_the_table_holds_what_the_file_holds(audited: Audited):
    mirror = audited.open()
    audited.offer(mirror, 250)
    audited.offer(mirror, 1, tier=None, dry_run=None, latency_ms=None, upstream_status=None, args_json="null")
    mirror.close()
    rows = [rec for (rec,) in audited.sql("SELECT rec FROM airlock_audit ORDER BY ts")]
    assert rows == [json.loads(line) for line in audited.lines.sealed]
    assert audited.said == []
    names = [name for name, _, _ in COLUMNS]
    row = audited.sql(f"SELECT {', '.join(names)} FROM airlock_audit ORDER BY ts LIMIT 1")[0]
    last = audited.sql("SELECT * FROM airlock_audit ORDER BY ts DESC LIMIT 1")[0]
    assert row[0].isoformat(timespec="milliseconds") == "2026-11-02T10:00:00.000+00:00"
    assert row[1:-1] == (
        "outcome", "0" * 32, "alice", "tools/call", "drop_bucket", "allow", "tier.L3.auto", "L3", False, 12, 200, "84dc"
    )  # fmt: skip
    assert last[8:13] == (None, None, None, None, "84dc")


def test_the_table_has_the_columns_and_indexes_of_the_specification(audited: Audited):
    mirror = audited.open()
    audited.offer(mirror, 1)
    mirror.close()
    columns = audited.sql(
        "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND table_name = 'airlock_audit' ORDER BY ordinal_position"
    )
    assert columns == COLUMNS
    indexes = audited.sql(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() AND tablename = 'airlock_audit' ORDER BY 1"
    )
    assert [text.rpartition("btree ")[2] for (text,) in indexes] == ["(principal, ts)", "(ts)"]


@pytest.mark.case("T31")
def test_no_text_costs_the_database_its_row(audited: Audited):
    mirror = audited.open()
    hostile = r'{"a":"x\u0000\ud800y","\u0000":"\\u0000","e":"\ud83d\ude00","n":[-0.0,5e-324,309.5]}'
    audited.offer(mirror, 1, args_json=hostile)
    audited.offer(mirror, 1, args_json='"\ud800"', tool="\ud800", principal="a\x00b")
    audited.offer(mirror, 1, args_json="[" * 60 + "]" * 60)
    mirror.close()
    first, second, _ = (rec for (rec,) in audited.sql("SELECT rec FROM airlock_audit ORDER BY ts"))
    assert first["args"] == {
        "a": "x\ufffd\ufffdy", "\ufffd": "\\u0000", "e": "\U0001f600", "n": [0.0, 5e-324, 309.5]
    }  # fmt: skip
    assert (second["args"], second["tool"], second["principal"]) == ("\ufffd", "\ufffd", "a\ufffdb")
    assert audited.hashes() == audited.offered()
    assert audited.said == []


def test_a_principal_too_long_for_an_index_keeps_its_row(audited: Audited):
    name = "".join(random.Random(7).choices(string.ascii_letters, k=9000))
    mirror = audited.open()
    audited.offer(mirror, 1, principal=name)
    mirror.close()
    assert audited.sql("SELECT principal, rec->>'principal' FROM airlock_audit") == [
        (name[: postgres.PRINCIPAL_CUT], name)
    ]


def test_a_record_larger_than_a_batch_is_stored_among_the_others(audited: Audited):
    mirror = audited.open(wait_s=10)
    audited.offer(mirror, 3)
    audited.offer(mirror, 1, args_json=json.dumps("x" * 3_000_000))
    audited.offer(mirror, 3)
    mirror.close()
    assert audited.said == []
    assert audited.hashes() == audited.offered()


def test_a_row_that_cannot_be_stored_costs_no_other_and_is_not_quoted(audited: Audited):
    mirror = audited.open()
    audited.offer(mirror, 1)
    audited.until(lambda: bool(audited.hashes()))
    before = audited.offered()
    with psycopg.connect(audited.dsn) as holder:  # so that the next ones are one batch
        holder.execute("LOCK TABLE airlock_audit")
        audited.offer(mirror, 30)
        bad = audited.lines.make(1, ts="2026-13-45T10:00:00.000+00:00", args_json='"secret"')
        mirror.offer(bad[0])
        audited.offer(mirror, 30)
    mirror.close()
    expected = [text for text in audited.offered() if text != json.loads(bad[0])["hash"]]
    assert expected[:1] == before
    assert audited.hashes() == expected
    assert audited.said == [
        "the audit table took no record, it is dropped: DatetimeFieldOverflow",
        "the audit table caught up; 1 record was dropped from it",
    ]


@pytest.mark.case("T37")
def test_a_full_disk_stops_the_call_and_the_table_still_gets_both_rows(audited: Audited):
    mirror = audited.open()
    sink = jsonl.open("/dev/full", warn=audited.said.append, mirror=mirror.offer)
    about = {"ts": "2026-11-02T10:00:00.125+00:00", "call_id": "5e" * 16, "principal": "alice"}
    for phase, verdict, rule in (
        (Phase.INTENT, "allow", "tier.L3.auto"),
        (Phase.OUTCOME, "error", "internal.error"),
    ):
        with pytest.raises(OSError, match="No space left"):
            sink.write(record(**about, phase=phase, verdict=verdict, rule_id=rule))
    sink.close()
    mirror.close()
    assert audited.sql("SELECT phase, rule_id, rec->>'prev' FROM airlock_audit ORDER BY ts, ctid") == [
        ("intent", "tier.L3.auto", chain.GENESIS),
        ("outcome", "internal.error", chain.GENESIS),
    ]
    assert audited.said == []


@pytest.mark.case("T41")
def test_gateways_that_start_together_on_an_empty_database_lose_nothing(audited: Audited):
    mirrors = [audited.open() for _ in range(6)]
    start = threading.Barrier(len(mirrors))
    batches = [audited.lines.make(5) for _ in mirrors]

    def run(mirror: PostgresMirror, lines: list[bytes]) -> None:
        start.wait()
        for line in lines:
            mirror.offer(line)

    threads = [threading.Thread(target=run, args=pair) for pair in zip(mirrors, batches, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mirror in mirrors:
        mirror.close()
    assert audited.hashes() == audited.offered()
    assert audited.said == []


@pytest.mark.case("T41")
def test_the_table_is_made_under_the_lock_that_the_store_takes(audited: Audited):
    mirror = audited.open()
    with psycopg.connect(audited.dsn) as holder:
        holder.execute("SELECT pg_advisory_xact_lock(%s)", (pg.DDL_LOCK,))
        audited.offer(mirror, 1)
        audited.until(
            lambda: audited.sql("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted") != []
        )
        assert audited.sql("SELECT to_regclass('airlock_audit')") == [(None,)]
    mirror.close()
    assert audited.hashes() == audited.offered()


def test_a_table_that_cannot_be_found_after_all_costs_its_rows(audited: Audited):
    """A trigger of the operator's that looks for a table of its own says the same as a missing audit table."""
    mirror = audited.open()
    audited.offer(mirror, 1)
    audited.until(lambda: audited.hashes() == audited.offered())
    audited.sql(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO gone VALUES (1); END $$"
    )
    audited.sql("CREATE TRIGGER note BEFORE INSERT ON airlock_audit FOR EACH ROW EXECUTE FUNCTION note()")
    audited.offer(mirror, 1)
    mirror.close()
    assert audited.said[0] == "the audit table took no record, it is dropped: UndefinedTable"
    assert len(audited.hashes()) == 1


def test_a_dropped_table_is_made_again_and_no_row_is_lost(audited: Audited):
    mirror = audited.open()
    audited.offer(mirror, 1)
    audited.until(lambda: audited.hashes() == audited.offered())
    audited.sql("DROP TABLE airlock_audit")
    audited.offer(mirror, 3)
    mirror.close()
    assert audited.hashes() == audited.offered()[1:]
    assert audited.said == []


def test_a_role_that_may_only_insert_is_enough_when_the_table_is_there(audited: Audited):
    mirror = audited.open()
    audited.offer(mirror, 1)
    mirror.close()
    role = f"writer_{random.randrange(10**9)}"
    audited.sql(f"CREATE ROLE {role} LOGIN")
    try:
        ((schema,),) = audited.sql("SELECT current_schema()")
        audited.sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        audited.sql(f"GRANT INSERT ON airlock_audit TO {role}")
        lesser = audited.open(psycopg.conninfo.make_conninfo(audited.dsn, user=role))
        audited.offer(lesser, 2)
        lesser.close()
        assert audited.said == []
        assert audited.hashes() == audited.offered()
        audited.sql("DROP TABLE airlock_audit")
        barred = audited.open(psycopg.conninfo.make_conninfo(audited.dsn, user=role))
        audited.offer(barred, 1)
        barred.close()
        assert "permission denied for schema" in audited.said[0]
        assert audited.said[-1] == "the audit table was closed: 1 record was left unwritten"
    finally:
        audited.sql(f"DROP OWNED BY {role}")
        audited.sql(f"DROP ROLE {role}")


def test_a_dropped_connection_is_opened_again_at_once_and_costs_nothing(alone: Audited):
    mirror = alone.open()
    alone.offer(mirror, 2)
    alone.until(lambda: alone.hashes() == alone.offered())
    assert alone.server.terminate(alone.dsn) == 1
    alone.offer(mirror, 3)
    mirror.close()
    assert alone.hashes() == alone.offered()
    assert alone.said == []


def test_a_row_that_ends_its_connection_each_time_costs_only_itself(audited: Audited):
    mirror = audited.open()
    audited.offer(mirror, 1)
    audited.until(lambda: audited.hashes() == audited.offered())
    audited.sql(
        "CREATE FUNCTION fall() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$"
    )
    audited.sql(
        "CREATE TRIGGER fall BEFORE INSERT ON airlock_audit FOR EACH ROW WHEN (NEW.tool = 'deadly')"
        " EXECUTE FUNCTION fall()"
    )
    audited.offer(mirror, 5)
    audited.offer(mirror, 1, tool="deadly")
    audited.offer(mirror, 5)
    mirror.close()
    assert audited.hashes() == [text for n, text in enumerate(audited.offered()) if n != 6]
    assert audited.said[0] == "the audit table took no record, it is dropped: AdminShutdown"


@pytest.mark.case("T50")
def test_words_of_the_driver_about_a_record_hold_no_value_of_the_dsn(audited: Audited):
    parsed = pg.Dsn.parse("host=db.books.internal user=auditor", "AIRLOCK_AUDIT_DSN", Environment({}))
    table = postgres._Table(parsed)
    words = table.complaint(psycopg.OperationalError('lost "db.books.internal"\nas auditor'))
    assert words == 'lost "..." as "..."'


def test_rows_that_a_lost_connection_had_taken_are_not_stored_twice(audited: Audited):
    table = postgres._Table(pg.Dsn.parse(audited.dsn, "AIRLOCK_AUDIT_DSN", Environment({})))
    texts = [line.decode() for line in audited.lines.make(3)]
    table.write(texts[:2])
    table._doubt = True  # as after a connection that was lost before the answer came
    table.write(texts)
    assert not table._doubt
    table.close()
    assert audited.hashes() == audited.offered()


def test_a_killed_server_gets_every_row_once_when_it_is_back(breakable: Audited):
    audited = breakable
    mirror = audited.open()
    audited.offer(mirror, 2)
    audited.until(lambda: audited.hashes() == audited.offered())
    audited.server.kill()
    audited.offer(mirror, 150)
    audited.until(lambda: len(audited.said) == 1)
    assert "its records wait: connection" in audited.said[0]
    assert str(audited.server.folder) not in audited.said[0]
    audited.server.start()
    audited.until(lambda: UNDONE in audited.said)
    assert audited.hashes() == audited.offered()


def test_a_database_that_appears_later_gets_the_first_records_too(alone: Audited):
    name = f"later_{random.randrange(10**9)}"
    later = psycopg.conninfo.make_conninfo(alone.dsn, dbname=name)
    mirror = alone.open(later)
    alone.offer(mirror, 3)
    alone.until(lambda: len(alone.said) == 1)
    assert alone.said[0].startswith("the audit table cannot be written, its records wait: ")
    assert 'database "..." does not exist' in alone.said[0]
    alone.server.sql(f"CREATE DATABASE {name}")
    try:
        alone.until(lambda: alone.said[1:] == [UNDONE])
        mirror.close()
        assert alone.server.sql("SELECT count(*) FROM airlock_audit", dsn=later) == [(3,)]
    finally:
        alone.server.drop(later)


@pytest.fixture
def locked_role(breakable: Audited) -> Iterator[tuple[str, str]]:
    """A role that has to give a password, and the DSN with a wrong one."""
    folder = breakable.server.folder
    assert folder is not None
    hba = folder / "data" / "pg_hba.conf"
    rules = hba.read_text()
    role = "auditor'of all"
    dsn = psycopg.conninfo.make_conninfo(breakable.dsn, user=role, password="p@ss'w\"ord" + "x" * 8)
    breakable.sql(f"CREATE ROLE \"{role}\" LOGIN PASSWORD 'other'")
    hba.write_text(f'local all "{role}" scram-sha-256\n{rules}')
    breakable.sql("SELECT pg_reload_conf()")

    def refused() -> bool:
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            return True
        return False

    breakable.until(refused)
    yield role, dsn
    hba.write_text(rules)
    breakable.sql("SELECT pg_reload_conf()")
    breakable.sql(f'DROP ROLE "{role}"')


@pytest.mark.case("T50")
def test_a_wrong_password_is_one_warning_without_a_value_of_the_dsn(
    breakable: Audited, locked_role: tuple[str, str]
):
    role, dsn = locked_role
    mirror = breakable.open(dsn)
    breakable.offer(mirror, 5)
    breakable.until(lambda: len(breakable.said) == 1)
    mirror.close()
    said, closed = breakable.said
    assert said.startswith("the audit table cannot be written, its records wait: ")
    assert 'password authentication failed for user "..."' in said
    for value in (role, "auditor", "p@ss", str(breakable.server.folder)):
        assert value not in said
    assert closed == "the audit table was closed: 5 records were left unwritten"


@pytest.mark.case("T50")
def test_a_dsn_that_does_not_parse_quotes_nothing():
    with pytest.raises(ConfigError) as caught:
        pg.Dsn.parse("postgresql://bob:s3cr3t-word@[half", "AIRLOCK_AUDIT_DSN", Environment({}))
    assert "s3cr3t" not in str(caught.value)
    assert "AIRLOCK_AUDIT_DSN" in str(caught.value)


def test_a_locked_table_ends_each_wait_and_a_wait_costs_one_row(audited: Audited):
    mirror = audited.open(wait_s=0.4)
    audited.offer(mirror, 1)
    audited.until(lambda: audited.hashes() == audited.offered())
    with psycopg.connect(audited.dsn) as holder:
        holder.execute("LOCK TABLE airlock_audit")
        audited.offer(mirror, 60)
        audited.until(lambda: len(audited.said) == 1)
    assert audited.said == [
        "the audit table took no record, it is dropped: it, or a lock it needs, took longer than 0.4 s"
    ]
    audited.until(lambda: len(audited.said) == 2)
    dropped = int(audited.said[1].removeprefix("the audit table caught up; ").split()[0])
    assert 1 <= dropped <= 20
    assert len(audited.hashes()) == 61 - dropped
    assert audited.hashes()[-1] == audited.offered()[-1]


def test_closing_before_a_locked_table_does_not_wait_for_the_lock(alone: Audited):
    mirror = alone.open(wait_s=0.5)
    alone.offer(mirror, 1)
    alone.until(lambda: alone.hashes() == alone.offered())
    with psycopg.connect(alone.dsn) as holder:
        holder.execute("LOCK TABLE airlock_audit")
        alone.offer(mirror, 60)
        mirror.close()
    assert alone.said[-1].startswith("the audit table was closed: ")
    alone.server.wait_backends(alone.dsn, 0)


@pytest.mark.case("T42")
def test_a_frozen_database_holds_up_no_offer_and_no_close(breakable: Audited):
    audited = breakable
    mirror = audited.open()  # W is 2 s
    audited.offer(mirror, 1)
    audited.until(lambda: audited.hashes() == audited.offered())
    lines = audited.lines.make(ROWS + 50)
    audited.server.freeze()
    began = time.monotonic()
    for line in lines:
        mirror.offer(line)
    assert time.monotonic() - began < 2  # a wait would be for ever
    assert audited.said == [FULL]
    began = time.monotonic()
    mirror.close()
    assert 1.9 < time.monotonic() - began < 2 + 2 + 2
    assert audited.said[1:] == [
        "the audit table was closed: 1000 records were left unwritten, 50 records were dropped before"
    ]
    audited.server.thaw()


@pytest.mark.case("T42")
def test_a_frozen_database_that_thaws_gets_what_was_queued(breakable: Audited):
    audited = breakable
    mirror = audited.open()
    audited.offer(mirror, 1)
    audited.until(lambda: audited.hashes() == audited.offered())
    lines = audited.lines.make(ROWS + 50)
    audited.server.freeze()
    for line in lines:
        mirror.offer(line)
    audited.server.thaw()
    mirror.close()
    assert audited.said == [FULL, "the audit table caught up; 50 records were dropped from it"]
    assert audited.hashes() == audited.offered()[: ROWS + 1]


@pytest.mark.case("T42")
def test_a_database_that_is_frozen_from_the_start_does_not_hold_up_the_close(breakable: Audited):
    audited = breakable
    mirror = audited.open(wait_s=0.2)
    audited.server.freeze()
    audited.offer(mirror, 2)
    began = time.monotonic()
    mirror.close()
    assert time.monotonic() - began < 0.2 + 2 + 2
    assert audited.said[-1] == "the audit table was closed: 2 records were left unwritten"
