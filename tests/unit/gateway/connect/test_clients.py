"""What all clients share: where files are, what an entry says, and how entries are put together."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from airlock.cli.connect import command
from airlock.core.errors import ConfigError
from airlock.edge.settings import Environment
from airlock.gateway.connect import clients
from airlock.gateway.connect.clients import (
    NAMES,
    Endpoint,
    Place,
    braced,
    entry_of,
    literal,
    load,
    merged,
    reach,
)

URL = "http://127.0.0.1:9000/mcp"
NONE = Environment({})


def place(system: str = "linux", **env: str) -> Place:
    return Place(Environment({"HOME": "/home/alice", **env}), system)


def test_there_is_one_module_for_each_name_and_it_bears_the_name():
    assert [load(name).name for name in NAMES] == list(NAMES)
    files = {path.stem for path in Path(clients.__file__).parent.glob("*.py")}
    assert set(NAMES) <= files
    choice = next(param.type for param in command.params if param.name == "client")
    assert isinstance(choice, click.Choice)
    assert tuple(choice.choices) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_client_reads_back_what_is_written_for_it(name: str):
    client = load(name)
    for authorization in ("Bearer a.b.c", None):
        entry = entry_of(client, URL, authorization)
        text = client.format.put("", "f", client.section, "airlock", entry)
        assert text == client.format.show(client.section, "airlock", entry)
        found = client.format.parse(text, "f")[client.section]["airlock"]  # type: ignore[index]
        endpoint = reach(client, found, NONE)
        assert endpoint is not None
        assert (endpoint.url, endpoint.authorization) == (URL, authorization)
        assert merged(client, found, entry) == found
        for line in client.commands("airlock", URL, authorization):
            assert "\n" not in line
        assert client.file(place()).startswith("/home/alice/")


def test_a_home_has_to_be_absolute():
    for env in ({}, {"HOME": "here"}):
        with pytest.raises(ConfigError, match="HOME must name an absolute folder"):
            Place(Environment(env)).home()
    with pytest.raises(ConfigError, match="CODEX_HOME must name an absolute folder"):
        place(CODEX_HOME="x").folder("CODEX_HOME", ".codex")
    assert place(CODEX_HOME="/x").folder("CODEX_HOME", ".codex") == "/x"
    assert place().folder("CODEX_HOME", ".codex") == "/home/alice/.codex"


def test_what_people_added_to_an_entry_stays():
    client = load("codex")
    old = {"startup_timeout_sec": 9, "url": "http://old/mcp", "bearer_token_env_var": "T",
           "http_headers": {"authorization": "old", "X-Team": "a"}, "enabled": True}  # fmt: skip
    new = entry_of(client, URL, "Bearer a.b.c")
    assert merged(client, old, new) == {
        "startup_timeout_sec": 9, "url": URL, "http_headers": {"X-Team": "a", "Authorization": "Bearer a.b.c"},
        "enabled": True,
    }  # fmt: skip
    assert merged(client, old, entry_of(client, URL, None))["http_headers"] == {"X-Team": "a"}
    assert "http_headers" not in merged(client, {"url": URL, "http_headers": {}}, entry_of(client, URL, None))


def test_an_address_under_another_key_does_not_stay_beside_ours():
    entry = merged(load("gemini"), {"url": "http://old/mcp", "type": "http", "trust": True}, {"httpUrl": URL})
    assert entry == {"trust": True, "httpUrl": URL}


def test_an_entry_without_an_address_leads_nowhere():
    assert reach(load("claude"), {"command": "x", "args": []}) is None
    assert reach(load("claude"), {"url": 7}) is None


def test_headers_are_found_by_their_name_in_any_case():
    assert Endpoint(URL, {"x": "1", "AUTHORIZATION": "a"}).authorization == "a"
    assert Endpoint(URL, {}).authorization is None
    found = reach(load("claude"), {"url": URL, "headers": {"A": 1, "B": "2"}})
    assert found == Endpoint(URL, {"B": "2"})
    assert reach(load("claude"), {"url": URL, "headers": "x"}) == Endpoint(URL, {})


def test_variables_are_filled_in_or_missed():
    env = Environment({"T": "tok", "E": "x"})
    assert braced("Bearer ${T} ${env:E} ${N:-no} ${T:-no} $T", env) == "Bearer tok x no tok $T"
    assert literal("${T}", env) == "${T}"
    with pytest.raises(ConfigError, match=r"takes \$\{input:t\} from a variable that is not set"):
        braced("${input:t}", env)
