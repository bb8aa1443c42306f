"""Where Hermes keeps its servers: its home, or that of the profile in use."""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.edge.settings import Environment
from airlock.gateway.connect.clients import Place, entry_of
from airlock.gateway.connect.hermes import CLIENT


def where(**env: str) -> str:
    return CLIENT.file(Place(Environment(env)))


def test_its_file_is_in_its_home(tmp_path: Path):
    assert where(HOME=str(tmp_path)) == f"{tmp_path}/.hermes/config.yaml"
    assert where(HOME=str(tmp_path), HERMES_HOME="/x") == "/x/config.yaml"


@pytest.mark.parametrize(
    ("text", "below"),
    [
        (b"coder\n", "/profiles/coder"),
        (b"default", ""),
        (b"", ""),
        (b"../../etc", ""),
        (b"\xff", ""),
        (b".", ""),
    ],
)
def test_a_profile_in_use_has_a_home_of_its_own(tmp_path: Path, text: bytes, below: str):
    home = tmp_path / ".hermes"
    home.mkdir()
    (home / "active_profile").write_bytes(text)
    assert where(HOME=str(tmp_path)) == f"{home}{below}/config.yaml"
    assert where(HOME=str(tmp_path), HERMES_HOME=str(home)) == f"{home}/config.yaml"


def test_its_entry_and_no_command():
    assert entry_of(CLIENT, "http://h/mcp", "Bearer t") == {
        "url": "http://h/mcp", "headers": {"Authorization": "Bearer t"}
    }  # fmt: skip
    assert CLIENT.commands("a", "http://h/mcp", None) == ()
    assert CLIENT.proof.format(name="a") == "hermes mcp test a"
