"""`airlock-audit verify`: what it prints, where, and how it ends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from airlock.cli.audit import group
from airlock.core.audit import chain
from airlock.core.audit.record import Phase
from airlock.edge.sinks import jsonl
from tests.fakes.records import record as make_record

# How the two installed commands reach the group; `python -c` stands for them.
ALONE = "from airlock.cli.audit import group; group.main(prog_name='airlock-audit')"


def sealed(count: int) -> list[bytes]:
    lines, prev = [], chain.GENESIS
    for number in range(count):
        record = make_record(
            ts="t",
            phase=Phase.OUTCOME if number % 2 else Phase.INTENT,
            call_id=f"{number // 2:032x}",
            principal="alice",
            method="tools/call",
            tool="t",
            args_json="null",
            verdict="deny",
            rule_id="allowlist.deny",
        )
        line, prev = chain.seal(record, prev)
        lines.append(line)
    return lines


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = sealed(6)
    Path("audit.jsonl.10").write_bytes(b"".join(lines[:2]))
    Path("audit.jsonl.2").write_bytes(b"".join(lines[2:4]))
    Path("audit.jsonl").write_bytes(b"".join(lines[4:]))
    Path("audit.jsonl.torn").write_bytes(b"torn\n")
    return lines


def run(*args: str):
    return CliRunner().invoke(group, ["verify", *args], prog_name="airlock-audit")


def test_without_files_the_log_of_the_working_directory_is_checked_oldest_first(here):
    result = run()
    last = json.loads(here[-1])["hash"]
    assert result.stdout == f"OK: 6 records in 3 files, chain from {'0' * 64} to {last}\n"
    assert (result.stderr, result.exit_code) == ("", 0)


def test_given_files_are_checked_in_the_order_given(here):
    assert run("audit.jsonl.2", "audit.jsonl").stdout.startswith("OK: 4 records in 2 files, chain from ")
    wrong = run("audit.jsonl", "audit.jsonl.2")
    assert wrong.stdout == "BREAK: audit.jsonl.2:1: prev mismatch\n"
    assert wrong.exit_code == 1


def test_a_break_is_named_by_file_and_line_and_ends_with_1(here):
    text = Path("audit.jsonl.2").read_bytes()
    Path("audit.jsonl.2").write_bytes(text.replace(b'"alice"', b'"bob"'))
    result = run()
    assert result.stdout == "BREAK: audit.jsonl.2:1: hash mismatch\n"
    assert (result.stderr, result.exit_code) == ("", 1)


@pytest.mark.case("T43")
def test_a_torn_line_that_was_not_moved_is_not_json(here):
    with Path("audit.jsonl").open("ab") as file:
        file.write(b'{"ts":')
    assert run().stdout == "BREAK: audit.jsonl:3: not JSON\n"


@pytest.mark.case("T48")
def test_a_duplicate_key_and_hashes_cut_off_the_oldest_lines_are_breaks(here):
    text = Path("audit.jsonl").read_bytes()
    Path("audit.jsonl").write_bytes(text.replace(b'{"ts":"t"', b'{"ts":"t","ts":"t"', 1))
    assert run().stdout == "BREAK: audit.jsonl:1: not JSON\n"
    Path("audit.jsonl.10").write_bytes(b'{"ts":"t"}\n')
    assert run().stdout == "BREAK: audit.jsonl.10:1: missing hash\n"


def test_line_separators_inside_a_text_do_not_split_a_line(tmp_path):
    record = make_record(
        ts="t",
        phase=Phase.INTENT,
        call_id="c",
        principal="\u2028\u2029\u0085",
        method=None,
        tool=None,
        args_json="null",
        verdict="deny",
        rule_id="r",
    )
    (tmp_path / "a").write_bytes(chain.seal(record, chain.GENESIS)[0])
    assert run(str(tmp_path / "a")).stdout.startswith("OK: 1 record in 1 file, chain from ")


def test_verify_only_reads(here):
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path().iterdir()}
    for path in Path().iterdir():
        path.chmod(0o400)
    run()
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in Path().iterdir()} == before


def test_an_empty_file_is_whole(tmp_path):
    (tmp_path / "a").touch()
    result = run(str(tmp_path / "a"))
    assert (result.stdout, result.exit_code) == ("OK: 0 records in 1 file\n", 0)


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ([], "airlock-audit: audit.jsonl: No such file or directory\n"),
        (["missing"], "airlock-audit: missing: No such file or directory\n"),
        (["."], "airlock-audit: .: Is a directory\n"),
        (["no\x1b[1m\nOK"], "airlock-audit: no\\u001b[1m\\nOK: No such file or directory\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_on_stderr(tmp_path, monkeypatch, args, line):
    monkeypatch.chdir(tmp_path)
    result = run(*args)
    assert (result.stdout, result.stderr, result.exit_code) == ("", line, 1)


def test_the_program_is_named_as_it_was_called():
    root = click.Group("airlock")
    root.add_command(group)
    result = CliRunner().invoke(root, ["audit", "verify", "missing"])
    assert result.stderr == "airlock audit: missing: No such file or directory\n"


def test_json_prints_one_object(here):
    result = run("--json")
    assert json.loads(result.stdout) == {
        "ok": True,
        "chain": "audit.jsonl",
        "records": 6,
        "files": 3,
        "first_prev": "0" * 64,
        "last_hash": json.loads(here[-1])["hash"],
        "unchained": 0,
        "lone_intents": [],
    }
    Path("audit.jsonl").write_bytes(b"x\n")
    broken = run("--json")
    assert json.loads(broken.stdout) == {
        "ok": False,
        "chain": "audit.jsonl",
        "file": "audit.jsonl",
        "line": 1,
        "reason": "not JSON",
    }
    assert (result.exit_code, broken.exit_code) == (0, 1)


@pytest.fixture
def workers(here):
    """Beside the log of `here`, a second and a third worker that wrote with the real sink and rotated."""
    for path, calls in (("audit.jsonl.w1", 6), ("audit.jsonl.w10", 1)):
        sink = jsonl.open(path, max_bytes=1500, keep=9, warn=print)
        for number in range(calls):
            for phase in Phase:
                sink.write(
                    make_record(
                        ts="t", phase=phase, call_id=f"{number}", verdict="allow", rule_id="tier.L0.read"
                    )
                )
        sink.close()
    assert Path("audit.jsonl.w1.2").exists()


def test_each_worker_has_a_line_of_its_own_that_names_its_chain(workers, here):
    last = json.loads(here[-1])["hash"]
    first, second, third = run().stdout.splitlines()
    assert first == f"OK: 6 records in 3 files, chain from {'0' * 64} to {last}"
    zeros = "0" * 64
    assert re.fullmatch(
        rf"OK: 12 records in [3-9] files, chain from {zeros} to [0-9a-f]{{64}} \(audit\.jsonl\.w1\)", second
    )
    assert re.fullmatch(
        rf"OK: 2 records in 1 file, chain from {zeros} to [0-9a-f]{{64}} \(audit\.jsonl\.w10\)", third
    )
    assert run().exit_code == 0
    objects = [json.loads(line) for line in run("--json").stdout.splitlines()]
    assert [each["chain"] for each in objects] == ["audit.jsonl", "audit.jsonl.w1", "audit.jsonl.w10"]


def test_a_break_in_one_chain_fails_the_whole_and_the_others_are_still_checked(workers):
    Path("audit.jsonl.w1.1").write_bytes(b"")
    first, second, third = run().stdout.splitlines()
    assert (first[:3], third[:3]) == ("OK:", "OK:")
    assert second == "BREAK: audit.jsonl.w1:1: prev mismatch"
    assert run().exit_code == 1
    os.replace("audit.jsonl.w1", "audit.jsonl")
    assert run().stdout.splitlines()[0].startswith("BREAK: audit.jsonl:1: ")


def test_given_files_of_workers_are_chains_of_their_own(workers):
    mixed = run("audit.jsonl.2", "audit.jsonl.w10", "audit.jsonl")
    assert [line[:15] for line in mixed.stdout.splitlines()] == ["OK: 4 records i", "OK: 2 records i"]
    assert run("audit.jsonl.w10").stdout == mixed.stdout.splitlines(keepends=True)[1]


def test_intents_without_an_outcome_are_named_in_a_line_of_their_own_and_are_no_break(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = sealed(5)
    Path("audit.jsonl.1").write_bytes(b"".join(lines[:3]))
    Path("audit.jsonl").write_bytes(b"".join(lines[3:]))
    result = run()
    first, second = result.stdout.splitlines()
    assert first.startswith("OK: 5 records in 2 files, chain from ")
    assert second == (
        "NOTE: 1 intent has no outcome (still running, or cut off by a crash or a full disk): audit.jsonl:2"
    )
    assert result.exit_code == 0
    assert json.loads(run("--json").stdout)["lone_intents"] == [
        {"file": "audit.jsonl", "line": 2, "call_id": f"{2:032x}"}
    ]


def test_an_outcome_whose_intent_was_rotated_away_is_no_matter(here):
    Path("audit.jsonl.10").write_bytes(here[1])
    assert run().stdout.count("\n") == 1


def test_a_rotation_while_the_log_is_checked_is_no_break(here, monkeypatch):
    real = chain.verify

    def rotating(files):
        os.rename("audit.jsonl.2", "audit.jsonl.3")
        os.rename("audit.jsonl", "audit.jsonl.1")
        return real(files)

    monkeypatch.setattr(chain, "verify", rotating)
    assert run().stdout.startswith("OK: 6 records in 3 files, ")


def test_an_unknown_option_is_a_usage_error():
    assert run("--nope").exit_code == 2


def process(folder: Path, stdout: int, **environment: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "verify"],
        cwd=folder,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("whole", [True, False])
def test_a_closed_stdout_is_silent_and_leaves_the_verdict_in_the_exit_code(here, tmp_path, whole):
    if not whole:
        (tmp_path / "audit.jsonl").write_bytes(b"x\n")
    reader, writer = os.pipe()
    os.close(reader)
    assert process(tmp_path, writer) == (0 if whole else 1, "")
    os.close(writer)


def test_a_full_disk_behind_stdout_is_one_line(here, tmp_path):
    with open("/dev/full", "wb") as full:
        code, errors = process(tmp_path, full.fileno())
    assert (code, errors) == (1, "airlock-audit: standard output: No space left on device\n")


def test_a_name_that_the_terminal_cannot_show_is_no_crash(tmp_path):
    name = "n\xe9.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", ALONE, "verify", name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii:strict"},
    )
    assert (done.returncode, done.stderr) == (1, "airlock-audit: n\\xe9.jsonl: No such file or directory\n")


def test_streams_that_were_closed_before_the_start_are_no_crash(here, tmp_path):
    done = subprocess.run(
        [
            "/bin/sh",
            "-c",
            '"$0" -c "$1" verify >&- 2>errors; echo $?; "$0" -c "$1" verify missing 2>&-; echo $?',
            sys.executable,
            ALONE,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("0\n1\n", "")
    assert (tmp_path / "errors").read_text() == ""
