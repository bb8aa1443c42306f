"""The pins file: strict to read, and replaced whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from airlock.core.errors import ConfigError
from airlock.core.policy.pins import Pins
from airlock.edge import pinsfile

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "pins.json"
FILES: list[dict[str, str]] = json.loads(VECTORS.read_text(encoding="utf-8"))["files"]
GOOD = "sha256v2:" + "0" * 64
PINS = Pins({"read": GOOD})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pins.json"


@pytest.mark.case("T57")
@pytest.mark.parametrize("case", FILES, ids=[case["name"] for case in FILES])
def test_a_file_is_read_or_refused_as_in_the_vectors(path: Path, case: dict[str, str]):
    path.write_bytes(case["text"].encode())
    if case["expect"] == "pins":
        assert pinsfile.read(str(path)).of == json.loads(case["text"])
        return
    with pytest.raises(ConfigError) as caught:
        pinsfile.read(str(path))
    assert str(caught.value).startswith(f"{path}: ")
    assert ("older form" in str(caught.value)) == (case["expect"] == "older")


def test_what_is_not_utf_8_or_nested_without_end_is_refused(path: Path):
    for data in (b'{"read": "\xff"}', b"[" * 100_000):
        path.write_bytes(data)
        with pytest.raises(ConfigError, match="not a pins file: the text is"):
            pinsfile.read(str(path))


def test_a_file_that_cannot_be_read_has_the_systems_words(path: Path):
    with pytest.raises(ConfigError, match=r"pins\.json: No such file or directory$"):
        pinsfile.read(str(path))
    path.mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        pinsfile.read(str(path))


def test_a_file_without_end_is_refused():
    with pytest.raises(ConfigError, match="longer than"):
        pinsfile.read("/dev/zero")


def test_a_file_that_was_written_reads_back(path: Path):
    pinsfile.write(str(path), PINS)
    assert path.read_text() == f'{{\n  "read": "{GOOD}"\n}}\n'
    assert pinsfile.read(str(path)) == PINS


def test_a_written_file_is_readable_by_all_whatever_the_umask(path: Path):
    before = os.umask(0o077)
    try:
        pinsfile.write(str(path), PINS)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_file_is_replaced_and_never_written_into(path: Path):
    path.write_text("old")
    with path.open() as reader:
        pinsfile.write(str(path), PINS)
        assert reader.read() == "old"
    assert pinsfile.read(str(path)) == PINS
    assert [entry.name for entry in path.parent.iterdir()] == ["pins.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
):
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, full)
    with pytest.raises(ConfigError, match=r"pins\.json: No space left on device$"):
        pinsfile.write(str(path), PINS)
    assert path.read_text() == "old"
    assert [entry.name for entry in path.parent.iterdir()] == ["pins.json"]


def test_a_new_file_is_in_its_place_before_its_folder_is_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
):
    fsync, seen = os.fsync, []

    def folders_cannot(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            seen.append(path.exists())
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", folders_cannot)
    pinsfile.write(str(path), PINS)
    assert seen == [True]
    assert pinsfile.read(str(path)) == PINS


def test_a_folder_that_is_not_there_has_the_systems_words(tmp_path: Path):
    with pytest.raises(ConfigError, match="No such file or directory"):
        pinsfile.write(str(tmp_path / "nowhere" / "pins.json"), PINS)


def test_a_symbolic_link_stays_one(path: Path, tmp_path: Path):
    (tmp_path / "shared").mkdir()
    target = tmp_path / "shared" / "real.json"
    path.symlink_to(target)
    for _ in range(2):
        pinsfile.write(str(path), PINS)
        assert path.is_symlink()
        assert pinsfile.read(str(target)) == PINS


def test_what_is_no_regular_file_is_not_replaced(path: Path):
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="not a regular file"):
        pinsfile.write(str(path), PINS)
    assert stat.S_ISFIFO(path.stat().st_mode)
    with pytest.raises(ConfigError, match="not a regular file"):
        pinsfile.write(str(path.parent), PINS)
