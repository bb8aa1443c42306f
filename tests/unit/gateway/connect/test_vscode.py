"""Where VS Code keeps its servers on each system, and how it is told of one."""

from __future__ import annotations

import json
import shlex

import pytest

from airlock.edge.settings import Environment
from airlock.gateway.connect.clients import Place, entry_of
from airlock.gateway.connect.vscode import CLIENT


@pytest.mark.parametrize(
    ("system", "env", "path"),
    [
        ("linux", {}, "/h/.config/Code/User/mcp.json"),
        ("linux", {"XDG_CONFIG_HOME": "/x"}, "/x/Code/User/mcp.json"),
        ("darwin", {"XDG_CONFIG_HOME": "/x"}, "/h/Library/Application Support/Code/User/mcp.json"),
        ("win32", {"APPDATA": "/r"}, "/r/Code/User/mcp.json"),
        ("win32", {}, "/h/AppData/Roaming/Code/User/mcp.json"),
    ],
)
def test_its_file_on_each_system(system: str, env: dict[str, str], path: str):
    assert CLIENT.file(Place(Environment({"HOME": "/h", **env}), system)) == path


def test_its_entry_and_its_command_say_the_same():
    for authorization in ("Bearer t", None):
        entry = entry_of(CLIENT, "http://h/mcp", authorization)
        (line,) = CLIENT.commands("a", "http://h/mcp", authorization)
        words = shlex.split(line)
        assert words[:2] == ["code", "--add-mcp"]
        assert json.loads(words[2]) == {"name": "a", **entry}
    assert CLIENT.section == "servers"
