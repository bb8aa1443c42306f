"""The audit file on a real disk: what is in it after crashes, full disks, rotations and other writers."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from airlock.core.audit import chain
from airlock.core.audit.record import Phase, Record
from airlock.edge import auditfiles
from airlock.edge.auditfiles import log_files
from airlock.edge.sinks import jsonl
from tests.fakes.records import record as make_record

LINE = 468  # about the length of one of our lines here; only used for sizes of rotation


def record(number: int, *, pad: int = 0) -> Record:
    return make_record(
        ts="2026-11-02T10:00:00.125+00:00",
        phase=Phase.OUTCOME,
        call_id=f"{number:032x}",
        principal="alice",
        method="tools/call",
        tool="drop_bucket",
        args_json=json.dumps("x" * pad) if pad else "null",
        verdict="allow",
        rule_id="tier.L3.auto",
    )


class Log:
    """An audit log in a folder of its own, and what its sink warned about."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        self.warnings: list[str] = []
        self.sinks: list[jsonl.JsonlSink] = []

    def open(self, *, max_bytes: int = 0, keep: int = 5) -> jsonl.JsonlSink:
        sink = jsonl.open(str(self.path), max_bytes=max_bytes, keep=keep, warn=self.warnings.append)
        self.sinks.append(sink)
        return sink

    def add(self, *numbers: int) -> None:
        """Write records with a sink of their own, as one run of the gateway would."""
        sink = self.open()
        for number in numbers:
            sink.write(record(number))
        sink.close()

    def rotated(self, number: int) -> Path:
        return self.path.with_name(f"audit.jsonl.{number}")

    @property
    def torn(self) -> Path:
        return self.path.with_name("audit.jsonl.torn")

    def names(self) -> list[str]:
        return [Path(name).name for name in log_files(str(self.path))]

    def calls(self) -> list[int]:
        lines = [line for name in log_files(str(self.path)) for line in Path(name).read_bytes().split(b"\n")]
        return [int(json.loads(line)["call_id"], 16) for line in lines if line]

    def verdict(self) -> str:
        files = [(Path(name).name, auditfiles.read_lines(name)) for name in log_files(str(self.path))]
        return chain.render(chain.verify(files))


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    yield log
    for sink in log.sinks:
        sink.close()


def short_write(monkeypatch, taken: int, *, then=lambda fd: None) -> None:
    """Make the next write take only `taken` bytes, as a disk that fills up does; `then` runs right after."""
    real = os.write

    def write(fd, data):
        monkeypatch.setattr(os, "write", real)
        count = real(fd, data[:taken])
        then(fd)
        return count

    monkeypatch.setattr(os, "write", write)


# Writing


def test_each_record_is_on_file_when_write_returns(log):
    sink = log.open()
    for number in range(3):
        sink.write(record(number))
        assert log.calls() == list(range(number + 1))
    assert log.verdict().startswith(f"OK: 3 records in 1 file, chain from {'0' * 64} to ")
    assert log.warnings == []


def test_the_file_is_made_for_its_owner_alone(log):
    log.add(1)
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_one_record_costs_one_system_call(log, monkeypatch):
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)  # one look a second comes to that
    sink = log.open(max_bytes=100_000)
    calls = []
    real = os.write

    def write(fd, data):
        calls.append("write")
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    for name in ("fstat", "lseek", "stat", "lstat"):
        monkeypatch.setattr(os, name, lambda *args, name=name: calls.append(name))
    sink.write(record(1))
    sink.write(record(2))
    monkeypatch.undo()
    assert calls == ["write", "write"]


def test_many_threads_make_one_chain(log):
    sink = log.open(max_bytes=LINE * 30, keep=50)
    threads = [
        threading.Thread(target=lambda base=base: [sink.write(record(base + n)) for n in range(25)])
        for base in (0, 100, 200, 300)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.verdict().startswith("OK: 100 records in ")
    assert len(set(log.calls())) == 100


def test_closing_twice_is_harmless_and_a_closed_sink_takes_nothing(log):
    sink = log.open(max_bytes=1)
    sink.write(record(1))
    sink.close()
    sink.close()
    with pytest.raises(OSError, match="closed"):
        sink.write(record(2))
    assert log.names() == ["audit.jsonl"]


# Continuing


def test_the_chain_goes_on_after_a_restart(log):
    log.add(1, 2)
    log.add(3)
    assert log.calls() == [1, 2, 3]
    assert log.verdict().startswith("OK: 3 records in 1 file")


@pytest.mark.case("T45")
def test_the_chain_goes_on_from_the_rotated_file_after_a_crash_between_rename_and_first_write(log):
    log.add(1, 2)
    log.path.rename(log.rotated(1))
    log.add(3)
    assert log.verdict().startswith("OK: 3 records in 2 files")


@pytest.mark.case("T45")
@pytest.mark.parametrize("left", [b"", b"\n", b'{"ts":"2026'])
def test_the_chain_goes_on_from_the_rotated_file_when_the_live_one_has_no_whole_record(log, left):
    log.add(1, 2)
    log.path.rename(log.rotated(1))
    log.path.write_bytes(left)
    log.add(3)
    assert log.verdict().startswith("OK: 3 records in 2 files")


def test_a_torn_end_of_the_rotated_file_does_not_hide_its_last_record(log):
    log.add(1, 2)
    log.path.rename(log.rotated(1))
    log.add(3)
    first = json.loads(log.path.read_bytes())["prev"]
    log.path.unlink()
    with log.rotated(1).open("ab") as file:
        file.write(b'{"ts":')
    log.add(4)
    assert json.loads(log.path.read_bytes())["prev"] == first


def test_records_from_before_the_chain_are_followed_by_zeros(log):
    log.path.write_bytes(b'{"old":1}\n{"old":2}\n')
    log.rotated(1).write_bytes(chain.seal(record(0), "ab" * 32)[0])
    log.add(1)
    assert json.loads(log.path.read_bytes().split(b"\n")[2])["prev"] == chain.GENESIS
    log.rotated(1).unlink()
    assert log.verdict().endswith(", 2 unchained records skipped")


def test_the_last_record_is_found_behind_lines_that_are_none_however_long_they_are(log):
    log.add(1)
    before = json.loads(log.path.read_bytes())["hash"]
    with log.path.open("ab") as file:
        file.write(b"x" * 200_000 + b"\n\n" + b"y" * 70_000 + b"\n")
    log.add(2)
    assert json.loads(log.path.read_bytes().split(b"\n")[-2])["prev"] == before


def test_a_record_longer_than_a_block_is_read_back_whole(log):
    sink = log.open()
    sink.write(record(1, pad=200_000))
    sink.close()
    log.add(2)
    assert log.verdict().startswith("OK: 2 records in 1 file")


# What a crash leaves


@pytest.mark.case("T43")
def test_a_torn_last_line_is_moved_away_at_start_and_the_chain_goes_on(log):
    log.add(1, 2)
    whole = log.path.read_bytes()
    with log.path.open("ab") as file:
        file.write(b'{"ts":"2026-11-02T')
    assert log.verdict() == "BREAK: audit.jsonl:3: not JSON"
    sink = log.open()
    assert log.path.read_bytes() == whole
    assert log.torn.read_bytes() == b'{"ts":"2026-11-02T\n'
    assert stat.S_IMODE(log.torn.stat().st_mode) == 0o600
    (warning,) = log.warnings
    assert str(log.path) in warning
    assert str(log.torn) in warning
    sink.write(record(3))
    assert log.verdict().startswith("OK: 3 records in 1 file")


@pytest.mark.case("T43")
@pytest.mark.parametrize(
    "fragment", [b"[1]", b"\x00\x00\x00", b'{"a":1,"a":2}', b"{}{}", b'{"a":NaN}', b"  "]
)
def test_whatever_is_no_record_is_torn(log, fragment):
    log.path.write_bytes(b'{"old":1}\n' + fragment)
    log.open()
    assert log.path.read_bytes() == b'{"old":1}\n'
    assert log.torn.read_bytes() == fragment + b"\n"


@pytest.mark.case("T43")
def test_evidence_of_earlier_tears_is_kept(log):
    log.torn.write_bytes(b"earlier\n")
    log.path.write_bytes(b"torn")
    log.open()
    assert log.torn.read_bytes() == b"earlier\ntorn\n"


@pytest.mark.case("T43")
def test_a_whole_record_that_lacks_only_its_newline_gets_it(log):
    log.add(1, 2)
    whole = log.path.read_bytes()
    log.path.write_bytes(whole[:-1])
    log.add(3)
    assert log.path.read_bytes().startswith(whole)
    assert log.verdict().startswith("OK: 3 records in 1 file")
    assert log.warnings == []
    assert not log.torn.exists()


@pytest.mark.case("T43")
def test_a_whole_record_gets_its_newline_with_the_next_one_when_the_disk_is_full_at_start(log, monkeypatch):
    log.add(1)
    log.path.write_bytes(log.path.read_bytes()[:-1])

    def full(fd, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        sink = log.open()
    sink.write(record(2))
    assert log.calls() == [1, 2]
    assert log.verdict().startswith("OK: 2 records")


@pytest.mark.case("T43")
@pytest.mark.parametrize("left", [b"", b'{"ts":"2026'])
@pytest.mark.parametrize("when", [1, 2])
def test_bytes_of_another_writer_are_never_cut_at_start(log, monkeypatch, left, when):
    log.add(1)
    log.path.write_bytes(log.path.read_bytes() + (left or log.path.read_bytes()[:-1]))
    before = log.path.read_bytes()
    real, looks = os.fstat, []

    def fstat(fd):
        # The other process writes just before our first or our second look at the file's size.
        looks.append(fd)
        if len(looks) == when + 1:
            with log.path.open("ab") as file:
                file.write(b'"}\n{"theirs":1}\n')
        return real(fd)

    monkeypatch.setattr(os, "fstat", fstat)
    sink = log.open()
    monkeypatch.undo()
    text = log.path.read_bytes()
    assert text.startswith(before) or not left
    assert text.endswith(b'"}\n{"theirs":1}\n')
    sink.write(record(9))
    assert json.loads(log.path.read_bytes().split(b"\n")[-2])["call_id"] == f"{9:032x}"


@pytest.mark.case("T43")
def test_a_torn_line_that_cannot_be_cut_stays_and_costs_no_later_record(log, monkeypatch):
    log.add(1)
    with log.path.open("ab") as file:
        file.write(b"torn")

    def append_only(fd, length):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "ftruncate", append_only)
    sink = log.open()
    (warning,) = log.warnings
    assert str(log.path) in warning
    assert str(log.torn) in warning
    assert "Operation not permitted" in warning
    sink.write(record(2))
    assert log.path.read_bytes().split(b"\n")[1] == b"torn"
    assert json.loads(log.path.read_bytes().split(b"\n")[2])["call_id"] == f"{2:032x}"
    assert log.verdict() == "BREAK: audit.jsonl:2: not JSON"


@pytest.mark.case("T43")
def test_a_torn_line_that_cannot_be_kept_as_evidence_is_not_cut(log):
    log.torn.mkdir()
    log.path.write_bytes(b"torn")
    log.open()
    assert log.path.read_bytes() == b"torn"
    assert "Is a directory" in log.warnings[0]


# Full disks


@pytest.mark.case("T44")
@pytest.mark.parametrize("taken", [1, 100])
def test_a_short_write_is_cut_back_at_once_and_the_chain_stands_where_it_stood(log, monkeypatch, taken):
    sink = log.open()
    sink.write(record(1))
    before = log.path.read_bytes()
    short_write(monkeypatch, taken)
    with pytest.raises(OSError, match="No space left"):
        sink.write(record(2))
    assert log.path.read_bytes() == before
    sink.write(record(3))
    assert log.calls() == [1, 3]
    assert log.verdict().startswith("OK: 2 records in 1 file")


@pytest.mark.case("T44")
def test_a_short_write_is_not_cut_back_over_what_another_writer_appended(log, monkeypatch):
    sink = log.open()
    sink.write(record(1))

    def append(fd):
        with log.path.open("ab") as file:
            file.write(b"theirs")

    short_write(monkeypatch, 50, then=append)
    with pytest.raises(OSError, match="No space left"):
        sink.write(record(2))
    assert log.path.read_bytes().endswith(b"theirs")
    sink.write(record(3))
    lines = log.path.read_bytes().split(b"\n")
    assert lines[1].endswith(b"theirs")
    assert json.loads(lines[2])["prev"] == json.loads(lines[0])["hash"]


@pytest.mark.case("T44")
def test_a_short_write_that_cannot_be_cut_back_costs_no_later_record(log, monkeypatch):
    sink = log.open()
    sink.write(record(1))
    short_write(monkeypatch, 50)

    def append_only(fd, length):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", append_only)
        with pytest.raises(OSError, match="No space left"):
            sink.write(record(2))
    sink.write(record(3))
    lines = log.path.read_bytes().split(b"\n")
    assert json.loads(lines[2])["call_id"] == f"{3:032x}"
    assert log.verdict() == "BREAK: audit.jsonl:2: not JSON"


@pytest.mark.case("T44")
@pytest.mark.parametrize("taken", [0, 30])
def test_a_write_that_fails_leaves_the_chain_where_it_stood(log, monkeypatch, taken):
    sink = log.open()
    sink.write(record(1))
    real = os.write

    def failing(fd, data):
        real(fd, data[:taken])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing)
        with pytest.raises(OSError, match="Input/output error"):
            sink.write(record(2))
    sink.write(record(3))
    lines = log.path.read_bytes().split(b"\n")
    assert json.loads(lines[-2])["prev"] == json.loads(lines[0])["hash"]
    assert len(lines) == (4 if taken else 3)


@pytest.mark.case("T44")
def test_a_file_size_limit_of_the_system_tears_nothing(tmp_path):
    # The real thing: the system takes a part of a record, then nothing, and the log still verifies.
    program = textwrap.dedent(
        """
        import resource, sys
        from airlock.edge.sinks import jsonl
        from airlock.core.audit.record import Phase, Record, Subject, raw
        sink = jsonl.open("audit.jsonl", warn=print)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        def write():
            sink.write(Record("t", Phase.INTENT, Subject("c", None, None, None, raw("null"), None), "deny", "r"))
        fits = failed = 0
        for _ in range(6):
            try:
                write()
                fits += 1
            except OSError:
                failed += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        write()
        print(fits, failed)
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    fits, failed = map(int, done.stdout.split())
    assert fits > 0
    assert failed > 0
    outcome = chain.verify([("audit.jsonl", auditfiles.read_lines(str(tmp_path / "audit.jsonl")))])
    assert isinstance(outcome, chain.Verified)
    assert outcome.records == fits + 1


# A file that is taken away


def looking(monkeypatch) -> None:
    """Make every write a second later than the one before."""
    seconds = iter(range(1, 1000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))


def test_a_removed_file_is_made_anew_and_the_chain_goes_on_in_it(log, monkeypatch):
    looking(monkeypatch)
    sink = log.open()
    sink.write(record(1))
    head = json.loads(log.path.read_text())["hash"]
    log.path.unlink()
    sink.write(record(2))
    sink.write(record(3))
    assert log.calls() == [2, 3]
    assert json.loads(log.path.read_text().splitlines()[0])["prev"] == head
    assert log.verdict().startswith("OK: 2 records")
    assert log.warnings == [f"{log.path}: was removed; the chain goes on in a new file"]
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_while_a_removed_file_cannot_be_made_anew_every_write_fails(log, monkeypatch):
    rows: list[bytes] = []
    folder = log.path.parent / "folder"
    folder.mkdir()
    path = folder / "audit.jsonl"
    sink = jsonl.open(str(path), warn=log.warnings.append, mirror=rows.append)
    log.sinks.append(sink)
    sink.write(record(1))
    path.unlink()
    folder.rmdir()
    later = time.monotonic() + 10
    monkeypatch.setattr(time, "monotonic", lambda: later)  # a look that failed is repeated at once
    for number in (2, 3, 4):
        with pytest.raises(OSError, match="No such file"):
            sink.write(record(number))
    folder.mkdir()
    sink.write(record(5))
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (int(row["call_id"], 16), row["prev"]) == (5, json.loads(rows[0])["hash"])
    assert len(rows) == 5  # the table heard of all of them


def test_what_an_editor_put_in_the_files_place_is_written_on(log, monkeypatch):
    looking(monkeypatch)
    sink = log.open()
    sink.write(record(1))
    saved = log.path.with_name("saved")
    saved.write_bytes(log.path.read_bytes().rstrip(b"\n"))
    saved.rename(log.path)
    sink.write(record(2))
    assert log.calls() == [1, 2]
    assert log.verdict().startswith("OK: 2 records")


# Rotation


def test_without_a_limit_the_file_is_never_rotated(log):
    log.add(*range(50))
    assert log.names() == ["audit.jsonl"]


def test_a_write_that_would_pass_the_limit_rotates_first_and_the_chain_goes_on(log):
    sink = log.open(max_bytes=1000, keep=3)
    for number in range(7):
        sink.write(record(number))
        assert log.path.stat().st_size <= 1000
    assert log.names() == ["audit.jsonl.3", "audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"]
    assert log.calls() == list(range(7))
    assert log.verdict().startswith(f"OK: 7 records in 4 files, chain from {'0' * 64}")
    assert stat.S_IMODE(log.path.stat().st_mode) == 0o600


def test_a_file_exactly_at_the_limit_is_not_rotated(log):
    log.add(1)
    size = log.path.stat().st_size
    sink = log.open(max_bytes=2 * size)
    sink.write(record(2))
    assert log.names() == ["audit.jsonl"]
    sink.write(record(3))
    assert log.names() == ["audit.jsonl.1", "audit.jsonl"]


def test_the_oldest_file_is_dropped_and_the_rest_verifies(log):
    sink = log.open(max_bytes=1, keep=2)
    for number in range(6):
        sink.write(record(number))
    assert log.calls() == [3, 4, 5]
    assert log.verdict().startswith("OK: 3 records in 3 files")


def test_keeping_one_file_keeps_one_file(log):
    sink = log.open(max_bytes=1, keep=1)
    for number in range(4):
        sink.write(record(number))
    assert log.calls() == [2, 3]


def test_a_record_bigger_than_the_limit_is_still_written_and_an_empty_file_is_not_rotated(log):
    sink = log.open(max_bytes=100)
    sink.write(record(1, pad=5000))
    assert log.names() == ["audit.jsonl"]
    sink.write(record(2, pad=5000))
    assert log.names() == ["audit.jsonl.1", "audit.jsonl"]
    assert log.verdict().startswith("OK: 2 records in 2 files")


def test_the_size_of_a_file_from_an_earlier_run_counts(log):
    log.add(1, 2)
    sink = log.open(max_bytes=log.path.stat().st_size + 10)
    sink.write(record(3))
    assert log.names() == ["audit.jsonl.1", "audit.jsonl"]


def test_a_file_that_somebody_emptied_meanwhile_is_not_rotated(log):
    sink = log.open(max_bytes=1000)
    sink.write(record(1))
    sink.write(record(2))
    log.path.write_bytes(b"")
    sink.write(record(3))
    assert log.names() == ["audit.jsonl"]


def test_a_live_file_that_somebody_moved_away_is_made_anew_at_the_next_rotation(log):
    sink = log.open(max_bytes=1)
    sink.write(record(1))
    log.path.rename(log.path.with_name("elsewhere"))
    sink.write(record(2))
    assert log.names() == ["audit.jsonl"]
    assert log.calls() == [2]


@pytest.mark.case("T46")
def test_lowering_keep_removes_the_files_beyond_it_at_the_next_rotation(log):
    sink = log.open(max_bytes=1, keep=5)
    for number in range(8):
        sink.write(record(number))
    sink.close()
    log.rotated(9).write_bytes(b"not of the row\n")
    sink = log.open(max_bytes=1, keep=2)
    assert log.rotated(5).exists()
    sink.write(record(8))
    assert log.names() == ["audit.jsonl.9", "audit.jsonl.2", "audit.jsonl.1", "audit.jsonl"]
    log.rotated(9).unlink()
    assert log.calls() == [6, 7, 8]
    assert log.verdict().startswith("OK: 3 records in 3 files")


def test_a_rotation_that_fails_leaves_the_sink_writable_and_is_tried_again(log):
    blocker = log.rotated(1)
    sink = log.open(max_bytes=1, keep=1)
    sink.write(record(1))
    (blocker / "in").mkdir(parents=True)
    sink.write(record(2))
    sink.write(record(3))
    assert len(log.warnings) == 1
    assert str(log.path) in log.warnings[0]
    (blocker / "in").rmdir()
    blocker.rmdir()
    assert log.calls() == [1, 2, 3]
    sink.write(record(4))
    assert log.names() == ["audit.jsonl.1", "audit.jsonl"]
    assert log.verdict().startswith("OK: 4 records in 2 files")
    (log.path.with_name("audit.jsonl.2") / "in").mkdir(parents=True)
    sink.write(record(5))
    assert len(log.warnings) == 2


def test_an_unlink_that_fails_leaves_the_sink_writable_and_is_tried_again(log, monkeypatch):
    sink = log.open(max_bytes=1, keep=1)
    sink.write(record(1))
    log.rotated(2).write_bytes(b"")
    real = os.unlink

    def refused(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "unlink", refused)
    sink.write(record(2))
    assert "Permission denied" in log.warnings[0]
    monkeypatch.setattr(os, "unlink", real)
    sink.write(record(3))
    assert log.calls() == [1, 2, 3]
    assert log.names() == ["audit.jsonl.1", "audit.jsonl"]


def test_retries_of_a_rotation_that_failed_half_way_do_not_push_old_files_out(log, monkeypatch):
    sink = log.open(max_bytes=1, keep=4)
    for number in range(5):
        sink.write(record(number))
    real = os.rename

    def rename(source, target):
        if source == str(log.path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        real(source, target)

    monkeypatch.setattr(os, "rename", rename)
    for number in range(5, 15):
        sink.write(record(number))
    monkeypatch.undo()
    sink.write(record(15))
    assert log.calls() == list(range(1, 16))
    assert log.verdict().startswith("OK: 15 records")


def test_a_new_file_that_cannot_be_made_gives_the_old_one_its_name_back(log, monkeypatch):
    sink = log.open(max_bytes=1)
    sink.write(record(1))
    real = os.open

    def no_more_files(path, flags, mode=0o777):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", no_more_files)
    sink.write(record(2))
    monkeypatch.setattr(os, "open", real)
    assert log.names() == ["audit.jsonl"]
    log.add(3)
    assert log.verdict().startswith("OK: 3 records in 1 file")


def test_a_newline_owed_to_a_torn_line_is_not_carried_into_the_next_file(log, monkeypatch):
    sink = log.open(max_bytes=700)
    sink.write(record(1))
    short_write(monkeypatch, 50)

    def append_only(fd, length):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", append_only)
        with pytest.raises(OSError, match="No space left"):
            sink.write(record(2, pad=10))
    sink.write(record(3, pad=500))
    assert log.path.read_bytes().startswith(b'{"ts"')


# Opening


@pytest.mark.case("T75")
@pytest.mark.parametrize(
    ("where", "words"), [("", "Is a directory"), ("missing/audit.jsonl", "No such file")]
)
def test_a_file_that_cannot_be_opened_is_an_error_in_the_words_of_the_system(tmp_path, where, words):
    with pytest.raises(OSError, match=words) as caught:
        jsonl.open(str(tmp_path / where), warn=print)
    assert caught.value.strerror
    assert caught.value.filename == str(tmp_path / where)


@pytest.mark.case("T75")
def test_a_folder_that_may_not_be_written_is_an_error_in_the_words_of_the_system(tmp_path, monkeypatch):
    # Root may write anywhere, so the refusal itself is made up when the tests run as root.
    if os.geteuid() == 0:

        def refused(path, flags, mode=0o777):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

        monkeypatch.setattr(os, "open", refused)
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="Permission denied"):
        jsonl.open(str(tmp_path / "audit.jsonl"), warn=print)
    tmp_path.chmod(0o700)


def test_a_rotated_file_that_cannot_be_read_stops_the_start_instead_of_forking_the_chain(log):
    log.rotated(1).mkdir()
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Is a directory"):
        log.open()
    assert os.listdir("/proc/self/fd") == before


def test_a_file_that_shrinks_while_it_is_read_stops_the_start(log, monkeypatch):
    log.add(1)
    monkeypatch.setattr(os, "pread", lambda fd, count, offset: b"")
    with pytest.raises(OSError, match="shrank"):
        log.open()


def test_a_device_is_written_to_and_never_rotated_or_cut():
    sink = jsonl.open("/dev/null", max_bytes=1, warn=print)
    sink.write(record(1))
    sink.write(record(2))
    sink.close()


def test_a_pipe_takes_records_too(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    sink = jsonl.open(str(path), warn=print)
    reader = os.open(path, os.O_RDONLY)
    sink.write(record(1))
    assert json.loads(os.read(reader, 65536))["prev"] == chain.GENESIS
    os.close(reader)
    sink.close()


# The files of a log


def test_the_files_of_a_log_are_listed_oldest_first_by_number(tmp_path, monkeypatch):
    for name in (
        "a.jsonl",
        "a.jsonl.1",
        "a.jsonl.2",
        "a.jsonl.10",
        "a.jsonl.torn",
        "a.jsonl.01",
        "a.jsonl.1.gz",
    ):
        (tmp_path / name).touch()
    for name in ("b.jsonl.1", "axjsonl.3", "a.jsonl.0", "a.jsonl.٣"):
        (tmp_path / name).touch()
    path = str(tmp_path / "a.jsonl")
    assert log_files(path) == [f"{path}.10", f"{path}.2", f"{path}.1", path]
    monkeypatch.chdir(tmp_path)
    assert log_files("a.jsonl") == ["a.jsonl.10", "a.jsonl.2", "a.jsonl.1", "a.jsonl"]
    assert log_files("b.jsonl") == ["b.jsonl.1"]
    assert log_files("c.jsonl") == log_files("missing/a.jsonl") == []


def test_lines_are_split_on_newline_bytes_alone(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes("one\u2028\u2029\u0085\x0b\x0c\r\ntwo\rthree".encode())
    assert list(auditfiles.read_lines(str(path))) == [
        "one\u2028\u2029\u0085\x0b\x0c\r\n".encode(),
        b"two\rthree",
    ]


def test_a_file_that_cannot_be_read_names_itself(tmp_path):
    for name in (tmp_path, tmp_path / "missing"):
        with pytest.raises(OSError) as caught:
            list(auditfiles.read_lines(str(name)))
        assert caught.value.filename == str(name)


def test_records_written_together_are_on_file_together_or_not_at_all(tmp_path, monkeypatch):
    log = Log(tmp_path)
    sink = log.open()
    sink.write(record(1), record(2))
    real = os.write
    monkeypatch.setattr("airlock.edge.sinks.jsonl.os.write", lambda fd, data: real(fd, data[: LINE + 10]))
    with pytest.raises(OSError, match="bytes written"):
        sink.write(record(3), record(4))
    monkeypatch.undo()
    sink.write(record(5), record(6))
    ids = [json.loads(line)["call_id"] for line in log.path.read_bytes().splitlines()]
    assert ids == [f"{number:032x}" for number in (1, 2, 5, 6)]
    assert isinstance(chain.verify([("log", log.path.read_bytes().splitlines())]), chain.Verified)
