"""Files of other programs: replaced whole or not at all, kept as they were beside, private when it matters."""

from __future__ import annotations

import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airlock.core.errors import ConfigError
from airlock.gateway.connect import configfile

NOW = datetime(2026, 11, 4, 12, 0, 5, tzinfo=UTC)
STAMP = "airlock-backup-20261104T120005Z"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path):
    path = tmp_path / "a/b/c.json"
    held = configfile.read(str(path))
    assert (held.data, held.text()) == (None, "")
    assert configfile.replace(held, "é\r\n", NOW, private=False) is None
    assert path.read_bytes() == "é\r\n".encode()
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)
    assert os.listdir(path.parent) == ["c.json"]


@pytest.mark.parametrize(("private", "after"), [(True, 0o600), (False, 0o644)])
def test_a_file_is_kept_beside_and_loses_its_readers_only_when_it_holds_a_secret(
    tmp_path: Path, private: bool, after: int
):
    path = tmp_path / "c.json"
    path.write_text("old")
    path.chmod(0o644)
    copy = configfile.replace(configfile.read(str(path)), "new", NOW, private=private)
    assert copy == f"{path}.{STAMP}"
    assert (Path(copy).read_text(), mode(Path(copy))) == ("old", 0o600)
    assert (path.read_text(), mode(path)) == ("new", after)


def test_two_changes_in_one_second_keep_two_copies(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text("1")
    configfile.replace(configfile.read(str(path)), "2", NOW, private=True)
    configfile.replace(configfile.read(str(path)), "3", NOW, private=True)
    assert sorted(os.listdir(tmp_path)) == ["c.json", f"c.json.{STAMP}", f"c.json.{STAMP}-1"]
    assert (tmp_path / f"c.json.{STAMP}-1").read_text() == "2"


def test_there_is_an_end_to_the_copies_of_one_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(configfile, "_SAME_SECOND", 1)
    path = tmp_path / "c.json"
    path.write_text("1")
    configfile.replace(configfile.read(str(path)), "2", NOW, private=True)
    with pytest.raises(ConfigError, match="too many copies"):
        configfile.replace(configfile.read(str(path)), "3", NOW, private=True)
    assert path.read_text() == "2"
    assert sorted(os.listdir(tmp_path)) == ["c.json", f"c.json.{STAMP}"]


def test_a_symbolic_link_stays_one_and_what_it_leads_to_is_replaced(tmp_path: Path):
    (tmp_path / "dot").mkdir()
    real, link = tmp_path / "dot/c.json", tmp_path / "c.json"
    real.write_text("old")
    link.symlink_to(real)
    copy = configfile.replace(configfile.read(str(link)), "new", NOW, private=True)
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert copy == f"{link}.{STAMP}"
    assert os.listdir(tmp_path / "dot") == ["c.json"]


def test_a_link_put_in_the_place_of_the_copy_is_not_followed(tmp_path: Path):
    path, victim = tmp_path / "c.json", tmp_path / "victim"
    path.write_text("old")
    (tmp_path / f"c.json.{STAMP}").symlink_to(victim)
    copy = configfile.replace(configfile.read(str(path)), "new", NOW, private=True)
    assert copy == f"{path}.{STAMP}-1"
    assert not victim.exists()


def test_a_file_that_another_program_changed_meanwhile_is_left_as_that_left_it(tmp_path: Path):
    path = tmp_path / "c.json"
    path.write_text("old")
    held = configfile.read(str(path))
    path.write_text("theirs")
    with pytest.raises(ConfigError, match=r"c\.json: it was changed by another program"):
        configfile.replace(held, "ours", NOW, private=True)
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["c.json"]


def test_a_rename_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "c.json"
    path.write_text("old")
    held = configfile.read(str(path))

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ConfigError, match=r"c\.json: No space left on device"):
        configfile.replace(held, "new", NOW, private=True)
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["c.json"])


def test_what_is_no_file_or_no_text_or_too_long_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="not a regular file"):
        configfile.read(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="not a regular file"):
        configfile.read(str(tmp_path / "pipe"))
    (tmp_path / "f").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        configfile.read(str(tmp_path / "f")).text()
    monkeypatch.setattr(configfile, "MAX_BYTES", 0)
    with pytest.raises(ConfigError, match="longer than 0 bytes"):
        configfile.read(str(tmp_path / "f"))
    with pytest.raises(ConfigError, match="Not a directory"):
        configfile.read(str(tmp_path / "f/g"))


def test_the_file_of_another_user_is_not_taken_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "f").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(ConfigError, match="belongs to another user"):
        configfile.read(str(tmp_path / "f"))
