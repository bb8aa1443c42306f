"""A log opened at one instant, while a gateway may be rotating it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airlock.edge import auditfiles, auditread


def log(folder: Path, **texts: str) -> str:
    for suffix, text in texts.items():
        (folder / f"audit.jsonl{suffix.replace('_', '.') if suffix != 'live' else ''}").write_text(text)
    return str(folder / "audit.jsonl")


def rotate(path: str, text: str) -> None:
    for number in (2, 1):
        if os.path.exists(f"{path}.{number}"):
            os.rename(f"{path}.{number}", f"{path}.{number + 1}")
    os.rename(path, f"{path}.1")
    Path(path).write_text(text)


def contents(readings: list[auditread.Reading]) -> list[str]:
    return ["".join(line.decode() for _, lines in each.files for line in lines) for each in readings]


def test_all_files_of_all_chains_are_read_oldest_first(tmp_path):
    path = log(tmp_path, _2="a\n", _1="b\n", live="c\n", _w1="x\n")
    with auditread.opened(path) as readings:
        assert [(each.name, each.worker, each.size) for each in readings] == [
            (path, False, 6),
            (f"{path}.w1", True, 2),
        ]
        assert contents(readings) == ["a\nb\nc\n", "x\n"]


def test_a_rotation_while_the_log_is_read_hides_nothing_and_shows_nothing_twice(tmp_path):
    path = log(tmp_path, _1="a\n", live="b\n")
    with auditread.opened(path) as readings:
        rotate(path, "c\n")
        assert contents(readings) == ["a\nb\n"]


@pytest.mark.parametrize("after", ["_still_named", "chains"])
def test_a_rotation_while_the_log_is_opened_makes_it_open_again(tmp_path, monkeypatch, after):
    path = log(tmp_path, _1="a\n", live="b\n")
    owner = auditread if after == "_still_named" else auditfiles
    real = getattr(owner, after)
    rotated: list[str] = []

    def once(argument: object) -> object:
        answer = real(argument) if after == "chains" else None
        if not rotated:
            rotated.append("yes")
            rotate(path, "c\n")
        return answer if after == "chains" else real(argument)

    monkeypatch.setattr(owner, after, once)
    with auditread.opened(path) as readings:
        assert contents(readings) == ["a\nb\nc\n"]


def test_a_file_that_went_after_it_was_listed_is_looked_for_again(tmp_path, monkeypatch):
    path = log(tmp_path, _1="a\n", live="b\n")
    real = auditfiles.chains

    def stale(asked: str) -> list[auditfiles.Chain]:
        monkeypatch.setattr(auditfiles, "chains", real)
        listed = real(asked)
        os.unlink(f"{path}.1")
        return listed

    monkeypatch.setattr(auditfiles, "chains", stale)
    with auditread.opened(path) as readings:
        assert contents(readings) == ["b\n"]


def test_a_log_that_never_settles_is_given_up(tmp_path, monkeypatch):
    path = log(tmp_path, live="a\n")
    monkeypatch.setattr(auditread, "_still_named", lambda files: False)
    with pytest.raises(OSError, match="faster than they can be opened") as failed, auditread.opened(path):
        pass
    assert failed.value.filename == path


def test_a_link_to_nowhere_is_named(tmp_path):
    path = log(tmp_path, live="a\n")
    os.symlink("nowhere", f"{path}.1")
    with pytest.raises(FileNotFoundError) as failed, auditread.opened(path):
        pass
    assert failed.value.filename == f"{path}.1"


def test_a_log_without_files_is_not_found(tmp_path):
    path = str(tmp_path / "audit.jsonl")
    with pytest.raises(FileNotFoundError) as failed, auditread.opened(path):
        pass
    assert failed.value.filename == path


def test_files_are_closed_whatever_happens(tmp_path):
    path = log(tmp_path, live="a\n", _1="b\n")
    before = os.listdir("/proc/self/fd")
    with auditread.opened(path):
        assert len(os.listdir("/proc/self/fd")) == len(before) + 2
    os.symlink("nowhere", f"{path}.2")
    with pytest.raises(FileNotFoundError), auditread.opened(path):
        pass
    assert os.listdir("/proc/self/fd") == before


def test_given_files_are_opened_in_their_turn(tmp_path):
    path = log(tmp_path, live="a\n", _w1="x\n")
    readings = auditread.given([f"{path}.w1", path, f"{path}.9"])
    assert [(each.name, each.worker, each.size) for each in readings] == [
        (path, False, 2),
        (f"{path}.w1", True, 2),
    ]
    assert contents(readings[1:]) == ["x\n"]
    with pytest.raises(FileNotFoundError) as failed:
        contents(readings[:1])
    assert failed.value.filename == f"{path}.9"
