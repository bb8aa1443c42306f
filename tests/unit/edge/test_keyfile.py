from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.keyfile import KEY_BYTES, read_or_make


def test_a_key_is_made_once_private_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a/b/key"
    key = read_or_make(str(path))
    assert len(key) == KEY_BYTES
    assert read_or_make(str(path)) == key
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


def test_two_that_start_together_agree_on_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "key")
    real = os.link

    def first_comes_another(source: str, target: str) -> None:
        monkeypatch.setattr(os, "link", real)
        Path(target).touch(mode=0o600)
        Path(target).write_text("ab" * KEY_BYTES)
        real(source, target)

    monkeypatch.setattr(os, "link", first_comes_another)
    assert read_or_make(path) == b"\xab" * KEY_BYTES


def test_threads_that_race_see_one_key(tmp_path: Path) -> None:
    path = str(tmp_path / "key")
    read_or_make(path)
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: read_or_make(path), range(50)))) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_text("ab" * KEY_BYTES)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_or_make(str(path))


@pytest.mark.parametrize("text", ["", "zz", "ab" * 31, "ab " * 3])
def test_a_file_that_holds_no_key_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="hex digits"):
        read_or_make(str(path))


def test_a_link_and_a_pipe_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("ab" * KEY_BYTES)
    (tmp_path / "real").chmod(0o600)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="symbolic links"):
        read_or_make(str(tmp_path / "link"))
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="regular file"):
        read_or_make(str(tmp_path / "pipe"))
