"""Reading the audit table back from a real Postgres: what the file would give, bounded waits, no DSN in an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import psycopg
import pytest

from airlock.core.audit import chain, query
from airlock.core.audit.query import Filters
from airlock.core.audit.record import Phase
from airlock.edge import pg
from airlock.edge.settings import Environment
from airlock.edge.sinks import pgquery
from airlock.edge.sinks.pgquery import QueryFailed
from airlock.edge.sinks.postgres import PostgresMirror
from tests.fakes.postgres import PostgresServer
from tests.fakes.records import record

LONG = "n" * 600
FILTERS = [
    Filters(),
    Filters(principal="alice"),
    Filters(principal=LONG),
    Filters(principal="n" * 512),
    Filters(tool="drop_bucket"),
    Filters(tool="' OR true --"),
    Filters(verdict="deny"),
    Filters(rule="tier.L3.auto"),
    Filters(phase="outcome"),
    Filters(since=datetime(2026, 11, 2, 10, 0, 2, tzinfo=UTC)),
    Filters("bob", "drop_bucket", "deny", "tier.unassigned", "outcome", datetime(2026, 11, 2, tzinfo=UTC)),
    Filters(principal="nobody"),
    Filters(principal="\udcff"),
]


def lines() -> list[bytes]:
    """Pairs of records, some within the same millisecond."""
    made: list[bytes] = []
    prev = chain.GENESIS
    for n in range(40):
        who = ("alice", "bob", LONG, None)[n % 4]
        rule = ("tier.L3.auto", "tier.unassigned", "tier.L0.auto")[n % 3]
        for phase in Phase:
            line, prev = chain.seal(
                record(
                    ts=f"2026-11-02T10:00:{n // 10:02d}.{n // 4:03d}+00:00",
                    phase=phase, call_id=f"{n:032x}", principal=who, method="tools/call",
                    tool=("drop_bucket", "' OR true --")[n % 2],
                    args_json='{"a":[1,2.5,{"long":null,"z":"é"}],"bb":true}', verdict="deny" if n % 3 == 1 else "allow",
                    rule_id=rule, latency_ms=None if phase == Phase.INTENT else n,
                ),
                prev,
            )  # fmt: skip
            made.append(line)
    return made


LINES = lines()


def dsn_of(text: str, wait_s: float = 20.0) -> pg.Dsn:
    return msgspec.structs.replace(pg.Dsn.parse(text, "--dsn", Environment({})), wait_s=wait_s)


@pytest.fixture(scope="module")
def place(postgres_server: PostgresServer) -> Iterator[str]:
    """The DSN of a schema whose table holds `LINES`."""
    text = postgres_server.schema(connect_timeout="2")
    said: list[str] = []
    mirror = PostgresMirror(dsn_of(text), said.append)
    for line in LINES:
        mirror.offer(line)
    mirror.close()
    assert said == []
    yield text
    postgres_server.drop(text)


def from_the_file(filters: Filters) -> list[query.Found]:
    return list(query.select([("audit.jsonl", LINES)], filters, lambda *_: None))


@pytest.mark.parametrize("filters", FILTERS)
def test_the_table_gives_what_the_file_gives(place: str, filters: Filters):
    rows = list(pgquery.rows(dsn_of(place), filters, 0))
    assert [query.render(row) for row in rows] == [found.text for found in from_the_file(filters)]


@pytest.mark.parametrize("limit", [1, 7, 80, 10**30])
def test_a_limit_keeps_the_newest_oldest_first(place: str, limit: int):
    rows = pgquery.rows(dsn_of(place), Filters(), limit)
    assert [query.render(row) for row in rows] == [line.decode().strip() for line in LINES[-min(limit, 80) :]]


@pytest.mark.parametrize("filters", FILTERS)
def test_the_counts_are_those_of_the_file(place: str, filters: Filters):
    counts = query.tally(found.record for found in from_the_file(filters))
    assert pgquery.stats(dsn_of(place), filters) == [(row.verdict, row.rule_id, row.count) for row in counts]


def test_more_records_than_one_fetch_come_in_order(postgres_server: PostgresServer):
    text = postgres_server.schema()
    mirror = PostgresMirror(dsn_of(text), lambda _: None)
    mirror.offer(LINES[0])
    mirror.close()
    postgres_server.sql(
        "INSERT INTO airlock_audit (ts, rec) SELECT timestamptz '2027-01-01Z' + n * interval '1 s',"
        " jsonb_build_object('n', n) FROM generate_series(1, 1200) AS n",
        dsn=text,
    )
    for odd in ("[1]", f'{{"n":{"9" * 5000}}}'):
        postgres_server.sql("INSERT INTO airlock_audit (ts, rec) VALUES ('2028-01-01', %s)", odd, dsn=text)
    rows = list(pgquery.rows(dsn_of(text), Filters(), 0))
    assert [row.get("n") for row in rows] == [None, *range(1, 1201)]
    reader = pgquery.rows(dsn_of(text), Filters(), 0)
    assert next(reader) == json.loads(LINES[0])
    reader.close()  # type: ignore[attr-defined]  # a reader that went away leaves no connection behind
    postgres_server.drop(text)


def test_reading_changes_nothing(place: str):
    with (
        pgquery._Reading(dsn_of(place)) as reading,
        pytest.raises(QueryFailed, match="read-only transaction"),
    ):
        reading.ask("DELETE FROM airlock_audit")


def test_no_table_is_one_line_in_the_words_of_the_server(postgres_server: PostgresServer):
    text = postgres_server.schema()
    for ask in (
        lambda: list(pgquery.rows(dsn_of(text), Filters(), 5)),
        lambda: pgquery.stats(dsn_of(text), Filters()),
    ):
        with pytest.raises(QueryFailed) as caught:
            ask()
        assert str(caught.value) == 'relation "airlock_audit" does not exist'
    postgres_server.drop(text)


@pytest.mark.case("T50")
def test_a_server_that_is_not_there_is_one_line_without_a_value_of_the_dsn():
    text = "postgresql://auditor:p%40ss'word@/books?host=/nowhere/at/all&connect_timeout=2"
    with pytest.raises(QueryFailed) as caught:
        pgquery.stats(dsn_of(text), Filters())
    words = str(caught.value)
    assert "No such file or directory" in words
    assert "\n" not in words
    for value in ("nowhere", "auditor", "p@ss", "p%40ss", "books"):
        assert value not in words


def test_a_locked_table_ends_the_wait(place: str):
    with psycopg.connect(place) as holder:
        holder.execute("LOCK TABLE airlock_audit")
        with pytest.raises(QueryFailed, match=r"canceling statement due to (statement|lock) timeout"):
            pgquery.stats(dsn_of(place, 0.3), Filters())


def test_a_server_that_freezes_while_it_is_read_ends_the_wait(postgres_server: PostgresServer, place: str):
    if not postgres_server.owned:
        pytest.skip("breaks the server: unset AIRLOCK_TEST_PG_DSN, and the tests start one of their own")
    with pgquery._Reading(dsn_of(place, 0.2)) as reading:
        postgres_server.freeze()
        try:
            with pytest.raises(QueryFailed, match=r"^the database did not answer within 0\.2 s$"):
                reading.ask("SELECT 1")
        finally:
            postgres_server.thaw()


def test_a_connection_that_takes_no_bounds_is_closed_and_not_used(
    place: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        pg, "set_timeouts", lambda _: "SELECT set_config('statement_timeout', 'never', false)"
    )
    with pytest.raises(QueryFailed, match="invalid value for parameter"):
        pgquery.stats(dsn_of(place), Filters())
