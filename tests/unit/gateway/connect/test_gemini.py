"""Where Gemini CLI keeps its servers, and how it is told of one."""

from __future__ import annotations

from airlock.edge.settings import Environment
from airlock.gateway.connect.clients import Endpoint, Place, entry_of, reach
from airlock.gateway.connect.gemini import CLIENT

URL = "http://h/mcp"


def test_its_file_is_in_the_home_or_below_where_it_is_told():
    assert CLIENT.file(Place(Environment({"HOME": "/h"}))) == "/h/.gemini/settings.json"
    assert (
        CLIENT.file(Place(Environment({"HOME": "/h", "GEMINI_CLI_HOME": "/g"}))) == "/g/.gemini/settings.json"
    )


def test_its_entry_and_its_command():
    assert entry_of(CLIENT, URL, "Bearer t") == {"httpUrl": URL, "headers": {"Authorization": "Bearer t"}}
    head = "gemini mcp add --scope user --transport http a http://h/mcp"
    assert CLIENT.commands("a", URL, None) == (head,)
    assert CLIENT.commands("a", URL, "Bearer t") == (f"{head} -H 'Authorization: Bearer t'",)


def test_what_its_own_command_wrote_is_read_too_and_variables_of_both_forms():
    entry = {"url": URL, "type": "http", "headers": {"A": "$T ${T}"}}
    assert reach(CLIENT, entry, Environment({"T": "t"})) == Endpoint(URL, {"A": "t t"})
