"""Where Claude Code keeps its servers, and how it is told of one."""

from __future__ import annotations

from pathlib import Path

from airlock.edge.settings import Environment
from airlock.gateway.connect.claude import CLIENT
from airlock.gateway.connect.clients import Place, entry_of


def where(**env: str) -> str:
    return CLIENT.file(Place(Environment(env)))


def test_its_file_is_in_the_home_or_where_it_is_told(tmp_path: Path):
    assert where(HOME=str(tmp_path)) == f"{tmp_path}/.claude.json"
    assert where(HOME=str(tmp_path), CLAUDE_CONFIG_DIR="/cfg") == "/cfg/.claude.json"


def test_a_file_of_early_days_goes_first_unless_it_is_empty(tmp_path: Path):
    (tmp_path / ".claude").mkdir()
    older = tmp_path / ".claude/.config.json"
    older.touch()
    assert where(HOME=str(tmp_path)) == f"{tmp_path}/.claude.json"
    older.write_text("{}")
    assert where(HOME=str(tmp_path)) == str(older)
    assert where(HOME="/", CLAUDE_CONFIG_DIR=str(older.parent)) == str(older)


def test_its_entry_and_its_command():
    assert entry_of(CLIENT, "http://h/mcp", "Bearer t") == {
        "type": "http", "url": "http://h/mcp", "headers": {"Authorization": "Bearer t"}
    }  # fmt: skip
    assert CLIENT.commands("a", "http://h/mcp", "Bearer t") == (
        "claude mcp add -s user -t http a http://h/mcp --header 'Authorization: Bearer t'",
    )
    assert CLIENT.commands("a", "http://h/?a&b", None) == (
        "claude mcp add -s user -t http a 'http://h/?a&b'",
    )
    assert CLIENT.opening.discovers
    assert CLIENT.opening.revision == "2025-11-25"
