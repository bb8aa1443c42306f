"""Where Cursor keeps its servers, and what an entry is to it."""

from __future__ import annotations

from airlock.edge.settings import Environment
from airlock.gateway.connect.clients import Endpoint, Place, entry_of, reach
from airlock.gateway.connect.cursor import CLIENT


def test_its_file_its_entry_and_no_command():
    assert CLIENT.file(Place(Environment({"HOME": "/h"}))) == "/h/.cursor/mcp.json"
    entry = entry_of(CLIENT, "http://h/mcp", "Bearer t")
    assert entry == {"url": "http://h/mcp", "headers": {"Authorization": "Bearer t"}}
    assert CLIENT.commands("a", "http://h/mcp", "Bearer t") == ()


def test_variables_are_written_with_env():
    entry = {"url": "http://h/mcp", "headers": {"Authorization": "Bearer ${env:T}"}}
    assert reach(CLIENT, entry, Environment({"T": "t"})) == Endpoint(
        "http://h/mcp", {"Authorization": "Bearer t"}
    )
