"""`airlock-audit query` of the table in Postgres: what it prints, and how it ends when there is no answer."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from airlock.cli.audit import group
from airlock.core.audit import chain
from airlock.edge import pg
from airlock.edge.settings import Environment
from airlock.edge.sinks.postgres import PostgresMirror
from tests.fakes.postgres import PostgresServer, postgres_server
from tests.fakes.processes import run
from tests.fakes.records import record

__all__ = ["postgres_server"]

HOSTILE = "tool\u202e\x9b2J"


def mirrored(dsn: str, count: int) -> list[str]:
    """Fill the table as a gateway would, and return the lines."""
    mirror = PostgresMirror(pg.Dsn.parse(dsn, "--dsn", Environment({})), pytest.fail)
    prev, lines = chain.GENESIS, []
    for number in range(count):
        line, prev = chain.seal(
            record(
                ts=f"2026-11-02T10:{number:02}:00.000+00:00",
                phase="outcome",
                call_id=f"{number:032x}",
                principal="alice",
                method="tools/call",
                tool=HOSTILE if number == 0 else "tool",
                args_json='{"z":1,"a":[1.5,"\\u0442"]}',
                verdict="deny" if number < 2 else "allow",
                rule_id="rule",
            ),
            prev,
        )
        mirror.offer(line)
        lines.append(line.decode())
    mirror.close()
    return lines


def ask(*args: str, **env: str):
    return CliRunner().invoke(group, ["query", *args], prog_name="airlock-audit", env=env)


@pytest.fixture
def dsn(postgres_server: PostgresServer, monkeypatch):
    monkeypatch.delenv("AIRLOCK_AUDIT_DSN", raising=False)
    return postgres_server.schema()


def test_the_table_prints_what_the_file_would_and_takes_the_same_filters(dsn):
    lines = mirrored(dsn, 3)
    result = ask("--dsn", dsn)
    assert (result.stderr, result.exit_code) == ("", 0)
    stored = [json.loads(line) for line in lines]
    assert [json.loads(line) for line in result.stdout.splitlines()] == stored
    assert [list(json.loads(line)) for line in result.stdout.splitlines()] == [list(each) for each in stored]
    assert "\u202e" not in result.stdout
    assert "\\u202e" in result.stdout
    newest = ask("--limit", "1", AIRLOCK_AUDIT_DSN=dsn)
    assert [json.loads(line) for line in newest.stdout.splitlines()] == stored[2:]
    assert len(ask("--dsn", dsn, "--since", "2026-11-02T10:01", "--verdict", "deny").stdout.splitlines()) == 1
    assert len(ask("--dsn", dsn, "--limit", "9" * 30, "--tool", HOSTILE).stdout.splitlines()) == 1


def test_the_table_is_counted_as_the_file_would_be(dsn):
    mirrored(dsn, 3)
    assert ask("--stats", "--limit", "1", AIRLOCK_AUDIT_DSN=dsn).stdout == (
        '{"verdict":"deny","rule_id":"rule","count":2}\n{"verdict":"allow","rule_id":"rule","count":1}\n'
    )


def test_a_table_that_is_not_there_is_one_line_and_1(dsn):
    result = ask("--dsn", dsn)
    assert (result.stdout, result.exit_code) == ("", 1)
    assert result.stderr.startswith("airlock-audit: ")
    assert "airlock_audit" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.case("T50")
@pytest.mark.parametrize("form", ["uri", "words"])
def test_no_message_holds_a_part_of_the_dsn(tmp_path, form):
    password = "p@ss'w\"o rd"
    given = {
        "uri": "postgresql://hiddenuser:p%40ss'w%22o%20rd@localhost:1/hiddenbase",
        "words": "host=/hidden/folder user=hiddenuser dbname=hiddenbase password='p@ss\\'w\"o rd'",
    }[form]
    result = ask("--dsn", given)
    assert (result.stdout, result.exit_code) == ("", 1)
    assert result.stderr.startswith("airlock-audit: ")
    assert result.stderr.count("\n") == 1
    for part in (password, "hidden", "localhost", "127.0.0.1", "p@ss", "o rd"):
        assert part not in result.stderr


@pytest.mark.case("T50")
def test_a_dsn_that_does_not_parse_names_where_it_stood_and_quotes_nothing(tmp_path):
    bad = "host=h password='unclosed-hidden"
    for result, name in ((ask("--dsn", bad), "--dsn"), (ask(AIRLOCK_AUDIT_DSN=bad), "AIRLOCK_AUDIT_DSN")):
        assert result.stderr == f"airlock-audit: {name}: does not parse as a Postgres DSN\n"
        assert result.exit_code == 1
    done = run("airlock-audit", "query", cwd=tmp_path, AIRLOCK_AUDIT_DSN=bad)
    assert (done.returncode, done.stdout) == (1, "")
    assert "hidden" not in done.stderr
