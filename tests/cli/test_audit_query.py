"""`airlock-audit query`: what it prints of logs made by the real sink, where, and how it ends."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from airlock.cli.audit import Progress, group
from airlock.cli.main import main
from airlock.edge.auditread import Reading
from airlock.edge.sinks import jsonl
from tests.fakes.processes import clean_env, command, run
from tests.fakes.records import record

HOSTILE = "a\u2028b\u2029c\x85d\u202e\x9b2J\x7f"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("AIRLOCK_", "PG"))]:
        monkeypatch.delenv(name)
    return tmp_path


def write(
    numbers: range,
    path: str = "audit.jsonl",
    *,
    max_bytes: int = 0,
    keep: int = 5,
    step: int = 1,
    **fields: object,
) -> None:
    """One run of a gateway: for each number a call, with its intent and its outcome, a minute after the last."""
    sink = jsonl.open(path, max_bytes=max_bytes, keep=keep, warn=print)
    for number in numbers:
        shared: dict[str, object] = {
            "ts": f"2026-11-02T{10 + number * step // 60:02}:{number * step % 60:02}:00.000+00:00",
            "call_id": f"{number:032x}",
            "principal": "alice" if number % 2 else "bob",
            "method": "tools/call",
            "tool": f"tool{number}",
            "args_json": "{}",
            "verdict": "deny" if number % 3 == 0 else "allow",
            "rule_id": "allowlist.deny" if number % 3 == 0 else "tier.L0.read",
            **fields,
        }
        for phase in ("intent", "outcome"):
            sink.write(record(phase=phase, **shared))
    sink.close()


def ask(*args: str, **env: str):
    return CliRunner().invoke(group, ["query", *args], prog_name="airlock-audit", env=env)


def tools(*args: str) -> list[str]:
    """The tools of the outcomes that a query prints."""
    result = ask("--phase", "outcome", *args)
    assert (result.stderr, result.exit_code) == ("", 0)
    return [json.loads(line)["tool"].removeprefix("tool") for line in result.stdout.splitlines()]


# What is read


def test_records_are_printed_as_they_stand_in_the_file_newest_last(here):
    write(range(3))
    result = ask()
    assert result.stdout == (here / "audit.jsonl").read_text()
    assert (result.stderr, result.exit_code) == ("", 0)
    assert ask("--json").stdout == result.stdout


@pytest.mark.case("T47")
def test_rotated_files_are_read_from_the_oldest_on(here):
    write(range(12), max_bytes=2100, keep=20)
    assert (here / "audit.jsonl.10").exists() or len(list(here.iterdir())) > 3
    assert tools() == [str(number) for number in range(12)]
    os.unlink("audit.jsonl")  # as a crash in the middle of a rotation leaves it
    assert ask().exit_code == 0


@pytest.mark.case("T46")
def test_a_lowered_keep_leaves_no_old_file_to_be_read(here):
    write(range(12), max_bytes=1100, keep=9)
    assert len(list(here.iterdir())) == 10
    write(range(12, 14), max_bytes=1100, keep=2)
    assert sorted(path.name for path in here.iterdir()) == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    assert tools() == ["11", "12", "13"]
    assert CliRunner().invoke(group, ["verify"]).stdout.startswith("OK: 6 records in 3 files, chain from ")


def test_workers_are_woven_in_by_time_and_their_rotated_files_too(here):
    write(range(0, 6, 3))
    write(range(1, 12, 3), "audit.jsonl.w1", max_bytes=1100)
    write(range(2, 9, 3), "audit.jsonl.w2")
    assert (here / "audit.jsonl.w1.1").exists()
    assert tools() == ["0", "1", "2", "3", "4", "5", "7", "8", "10"]
    assert tools("--limit", "2") == ["8", "10"]


def test_jsonl_names_another_log_and_wins_over_the_variable(here):
    write(range(2), "other.log", max_bytes=1100)
    assert tools("--jsonl", "other.log") == ["0", "1"]
    assert ask("--jsonl", "other.log", AIRLOCK_AUDIT_DSN="nonsense").exit_code == 0


@pytest.mark.case("T47")
def test_a_line_ends_at_a_line_feed_alone_and_hostile_text_reaches_no_terminal(here):
    write(range(2), principal=HOSTILE, args_json=json.dumps({"note": HOSTILE}, ensure_ascii=False))
    result = ask()
    assert result.stderr == ""
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]", result.stdout)
    stored = [json.loads(line) for line in (here / "audit.jsonl").read_bytes().split(b"\n") if line]
    assert [json.loads(line) for line in result.stdout.split("\n") if line] == stored
    assert ask("--principal", HOSTILE).stdout == result.stdout


@pytest.mark.case("T47")
def test_lines_that_are_no_records_are_named_and_stepped_over(here):
    write(range(1))
    with (here / "audit.jsonl").open("ab") as file:
        file.write(b'\n17\n{"ts":"soon","phase":"outcome","tool":"tool7"}\n{"torn":')
    result = ask("--phase", "outcome")
    assert [json.loads(line)["tool"] for line in result.stdout.splitlines()] == ["tool0", "tool7"]
    assert result.stderr == (
        "airlock-audit: skipped audit.jsonl:4: not a record\nairlock-audit: skipped audit.jsonl:6: not JSON\n"
    )
    assert result.exit_code == 0
    assert ask("--since", "2026-11-02").stderr == (
        "airlock-audit: skipped audit.jsonl:4: not a record\n"
        "airlock-audit: skipped audit.jsonl:5: bad ts\n"
        "airlock-audit: skipped audit.jsonl:6: not JSON\n"
    )


# What is asked


def test_each_filter_narrows_what_is_printed(here):
    write(range(6))
    assert tools("--principal", "alice") == ["1", "3", "5"]
    assert tools("--tool", "tool2") == ["2"]
    assert tools("--verdict", "deny") == ["0", "3"]
    assert tools("--rule", "allowlist.deny", "--principal", "alice") == ["3"]
    assert tools("--since", "2026-11-02T10:04") == ["4", "5"]
    assert tools("--since", "2026-11-02T12:04+02:00") == ["4", "5"]
    assert tools("--since", "30m") == tools("--since", "9999-01-01") == []
    assert tools("--verdict", "nothing") == []


def test_limit_keeps_the_newest_and_zero_keeps_all(here):
    write(range(5))
    assert tools("--limit", "2") == ["3", "4"]
    assert tools("--limit", "0") == tools("--limit", "9" * 30) == ["0", "1", "2", "3", "4"]
    assert tools("--limit", "1", "--verdict", "deny") == ["3"]


def test_stats_count_by_verdict_and_rule_the_most_frequent_first_whatever_the_limit(here):
    write(range(5))
    result = ask("--stats", "--limit", "1")
    assert result.stdout == (
        '{"verdict":"allow","rule_id":"tier.L0.read","count":6}\n'
        '{"verdict":"deny","rule_id":"allowlist.deny","count":4}\n'
    )
    assert ask("--stats", "--phase", "outcome", "--principal", "alice").stdout == (
        '{"verdict":"allow","rule_id":"tier.L0.read","count":1}\n'
        '{"verdict":"deny","rule_id":"allowlist.deny","count":1}\n'
    )
    assert ask("--stats", "--tool", "none").stdout == ""


@pytest.mark.case("T49")
@pytest.mark.parametrize(
    "args",
    [["--limit", "-1"], ["--limit", "many"], ["--limit", "1.5"], ["--since", "99999999d"], ["--since", "soon"],
     ["--since", ""], ["--since", "-2h"], ["--phase", "both"], ["--jsonl", "a", "--dsn", "b"], ["--nope"], ["file"]],
)  # fmt: skip
def test_what_makes_no_sense_is_a_usage_error(here, args):
    write(range(1))
    result = ask(*args)
    assert (result.stdout, result.exit_code) == ("", 2)
    assert "Traceback" not in result.stderr


def test_a_hostile_time_is_not_repeated_raw():
    assert "\x1b" not in ask("--since", "\x1b[2J").stderr


# How it ends


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "airlock-audit: audit.jsonl: No such file or directory\n"),
        (["--jsonl", "no/log"], "airlock-audit: no/log: No such file or directory\n"),
        (["--jsonl", "no\x1b[1m"], "airlock-audit: no\\u001b[1m: No such file or directory\n"),
        (["--jsonl", "folder"], "airlock-audit: folder: Is a directory\n"),
        (["--stats", "--jsonl", "no"], "airlock-audit: no: No such file or directory\n"),
    ],
)
def test_a_log_that_cannot_be_read_is_one_line_and_1(here, args, line):
    (here / "folder").mkdir()
    result = ask(*args)
    assert (result.stdout, result.stderr, result.exit_code) == ("", line, 1)


def test_a_failure_while_the_log_is_read_is_one_line_that_names_the_file(here):
    os.symlink("/proc/self/mem", "audit.jsonl")
    assert ask().stderr == "airlock-audit: audit.jsonl: Input/output error\n"
    assert ask("--stats").exit_code == 1


def test_the_program_is_named_as_it_was_called(here):
    result = CliRunner().invoke(main, ["audit", "query"], prog_name="airlock")
    assert result.stderr == "airlock audit: audit.jsonl: No such file or directory\n"
    done = run("airlock-audit", "query", cwd=here)
    assert (done.returncode, done.stderr) == (1, "airlock-audit: audit.jsonl: No such file or directory\n")


def test_help_names_every_filter():
    text = ask("--help").stdout
    for option in (
        "jsonl",
        "dsn",
        "principal",
        "tool",
        "verdict",
        "rule",
        "phase",
        "since",
        "limit",
        "stats",
        "json",
    ):
        assert f"--{option} " in text


def shell(folder: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", script, *command("airlock-audit")],
        cwd=folder, capture_output=True, text=True, check=False, timeout=60, env=clean_env(**env),
    )  # fmt: skip


def test_a_reader_who_went_away_is_silent(here):
    write(range(400))
    script = '"$0" "$@" query | head -n 1 | wc -l; echo "${PIPESTATUS[0]}"'
    done = shell(here, script)
    assert (done.stdout, done.stderr) == ("1\n0\n", "")


def test_a_full_disk_and_a_closed_stdout_are_no_traceback(here):
    write(range(2))
    done = shell(here, '"$0" "$@" query >/dev/full; echo $?; "$0" "$@" query --stats >&-; echo $?')
    assert done.stdout == "1\n0\n"
    assert done.stderr == "airlock-audit: standard output: No space left on device\n"


def test_what_a_stream_cannot_write_is_spelled_as_json(here):
    write(range(1), tool="удалить 🗑")
    done = shell(here, '"$0" "$@" query; "$0" "$@" query --stats', PYTHONIOENCODING="ascii:strict")
    assert (done.stderr, done.stdout.isascii()) == ("", True)
    assert json.loads(done.stdout.splitlines()[0])["tool"] == "удалить 🗑"
    assert "удалить 🗑" in shell(here, '"$0" "$@" query', PYTHONIOENCODING="utf8").stdout


def test_a_query_of_files_needs_no_driver(here):
    write(range(1))
    script = (
        "import sys; sys.modules['psycopg'] = None\nfrom airlock.cli.compat import airlock_audit as m\nm()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "query", "--stats"], capture_output=True, env=clean_env()
    )
    assert (done.returncode, done.stderr) == (0, b"")
    done = subprocess.run(
        [sys.executable, "-c", script, "query", "--dsn", "host=x"], capture_output=True, env=clean_env()
    )
    assert done.returncode == 1
    assert re.fullmatch(rb"airlock-audit: .*postgres.*\n", done.stderr)


# Progress


class Clock:
    def __init__(self, *times: float) -> None:
        self.times = list(times)

    def __call__(self) -> float:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def test_a_terminal_is_told_how_far_reading_has_come_after_two_seconds():
    stream = io.StringIO()
    progress = Progress(stream, "airlock-audit", 3_000_000, Clock(0, 1.9, 2, 2, 2.4, 2.5))
    reading = Reading("a", False, [("a", iter([b"x" * 500] * 8001))], 3_000_000)
    for _, lines in progress.over(reading):
        assert len(list(lines)) == 8001
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown == ["", "airlock-audit: read 1 of 3 MB", "airlock-audit: read 3 MB", ""]
    progress.clear()


def test_the_line_of_progress_is_gone_before_a_failure_is_told():
    def failing():
        yield b"x\n"
        raise OSError("gone")

    stream = io.StringIO()
    progress = Progress(stream, "airlock-audit", 0, Clock(0, 9))
    [(_, lines)] = progress.over(Reading("a", False, [("a", failing())], 0))
    with pytest.raises(OSError, match="gone"):
        list(lines)
    assert stream.getvalue() == "\r\x1b[Kairlock-audit: read 0 MB\r\x1b[K"


@pytest.mark.parametrize(
    ("terminal", "streaming", "to_file", "speaks"),
    [
        (True, False, False, True),
        (False, False, False, False),
        (True, True, False, False),
        (True, True, True, True),
    ],
)
def test_progress_is_only_for_a_terminal_that_sees_nothing_else_of_the_work(
    here, monkeypatch, terminal, streaming, to_file, speaks
):
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("airlock.cli.audit.SystemClock.monotonic", Clock(0, 9).__call__)
    with (here / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file if to_file else io.StringIO())
        ctx = click.Context(group, info_name="airlock-audit")
        progress = Progress.of(ctx, [], streaming=streaming)
    for _, lines in progress.over(Reading("a", False, [("a", iter([b"x\n"]))], 2)):
        list(lines)
    progress.clear()
    assert (stream.getvalue() != "") is speaks
