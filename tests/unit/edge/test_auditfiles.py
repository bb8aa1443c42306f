"""Which files an audit log has, in which order, and their lines."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from airlock.edge import auditfiles
from airlock.edge.auditfiles import Chain


def make(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).touch()
    return str(folder / "audit.jsonl")


def test_the_files_of_a_log_come_oldest_first_by_number_not_by_name(tmp_path):
    path = make(tmp_path, "audit.jsonl", "audit.jsonl.2", "audit.jsonl.10", "audit.jsonl.1")
    files = [f"{path}.10", f"{path}.2", f"{path}.1", path]
    assert auditfiles.log_files(path) == files
    assert auditfiles.chains(path) == [Chain(path, tuple(files))]


def test_each_worker_has_a_chain_of_its_own_behind_the_logs(tmp_path):
    path = make(
        tmp_path, "audit.jsonl.w10", "audit.jsonl.w2.1", "audit.jsonl.w2", "audit.jsonl.1", "audit.jsonl"
    )
    assert auditfiles.chains(path) == [
        Chain(path, (f"{path}.1", path)),
        Chain(f"{path}.w2", (f"{path}.w2.1", f"{path}.w2"), worker=True),
        Chain(f"{path}.w10", (f"{path}.w10",), worker=True),
    ]
    assert auditfiles.log_files(path) == [f"{path}.1", path]


def test_a_log_whose_live_file_is_missing_still_has_its_rotated_files(tmp_path):
    path = make(tmp_path, "audit.jsonl.1", "audit.jsonl.w1.3")
    assert auditfiles.chains(path) == [
        Chain(path, (f"{path}.1",)),
        Chain(f"{path}.w1", (f"{path}.w1.3",), worker=True),
    ]


@pytest.mark.parametrize(
    "name",
    ["audit.jsonl.torn", "audit.jsonl.0", "audit.jsonl.01", "audit.jsonl.1.gz", "audit.jsonl.w0", "audit.jsonl.w1.torn",
     "audit.jsonl.w01", "audit.jsonl.w", "audit.jsonl.١", "audit.jsonl.1\n", "xaudit.jsonl", "auditxjsonl"],
)  # fmt: skip
def test_other_files_beside_a_log_are_not_its(tmp_path, name):
    assert auditfiles.chains(make(tmp_path, name)) == []


def test_a_workers_log_may_be_read_by_itself(tmp_path):
    path = make(tmp_path, "audit.jsonl", "audit.jsonl.w1", "audit.jsonl.w1.1") + ".w1"
    assert auditfiles.chains(path) == [Chain(path, (f"{path}.1", path))]


def test_a_name_without_a_folder_is_looked_for_here_and_a_missing_folder_holds_nothing(tmp_path, monkeypatch):
    make(tmp_path, "audit.jsonl")
    monkeypatch.chdir(tmp_path)
    assert auditfiles.chains("audit.jsonl") == [Chain("audit.jsonl", ("audit.jsonl",))]
    assert auditfiles.chains("missing/audit.jsonl") == []
    with pytest.raises(NotADirectoryError):
        auditfiles.chains("audit.jsonl/audit.jsonl")


def test_given_files_are_one_chain_in_the_order_given_with_those_of_workers_apart():
    given = ["d/a.w2", "d/a.2", "d/a.w1.1", "d/a.1", "d/a", "d/a.w1"]
    assert auditfiles.split(given) == [
        Chain("d/a", ("d/a.2", "d/a.1", "d/a")),
        Chain("d/a.w2", ("d/a.w2",), worker=True),
        Chain("d/a.w1", ("d/a.w1.1", "d/a.w1"), worker=True),
    ]
    assert auditfiles.split(["b.1", "a.3"]) == [Chain("a", ("b.1", "a.3"))]
    assert auditfiles.split(["d.w1/a"]) == [Chain("d.w1/a", ("d.w1/a",))]
    assert auditfiles.split([]) == []


@pytest.mark.case("T47")
def test_a_line_ends_at_a_line_feed_alone(tmp_path):
    text = "a\u2028b\u2029c\x85d\x0b\x0c\re\n\nf".encode()
    (tmp_path / "log").write_bytes(text)
    assert list(auditfiles.read_lines(str(tmp_path / "log"))) == [text[:-2], b"\n", b"f"]


class Growing(io.BytesIO):
    """A file whose last record is still being written when its end is reached."""

    def __next__(self) -> bytes:
        line = super().__next__()
        if not line.endswith(b"\n"):
            place = self.tell()
            self.write(b"half\nnext\n")
            self.seek(place)
        return line


def test_a_record_that_is_being_written_is_not_taken_for_a_torn_one():
    assert list(auditfiles.lines("log", Growing(b"whole\nother "))) == [
        b"whole\n",
        b"other half\n",
        b"next\n",
    ]


def test_every_failure_names_the_file(tmp_path):
    with pytest.raises(FileNotFoundError) as missing:
        list(auditfiles.read_lines(str(tmp_path / "missing")))
    assert missing.value.filename == str(tmp_path / "missing")
    with open("/proc/self/mem", "rb") as unreadable, pytest.raises(OSError) as failing:
        list(auditfiles.lines("name", unreadable))
    assert failing.value.filename == "name"
