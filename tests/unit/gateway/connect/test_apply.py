"""Entries put into clients' files: once, with what people added, and never over somebody else's."""

from __future__ import annotations

import json
import os
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.settings import Environment
from airlock.gateway.connect import apply as module
from airlock.gateway.connect.apply import Applied, Wish, apply, read_entry
from airlock.gateway.connect.clients import NAMES, Place, load
from airlock.gateway.connect.token import Signer, claimed

URL = "http://127.0.0.1:9000/mcp"
NOW = datetime(2026, 11, 4, 12, 0, tzinfo=UTC)
DAY = 86400
SIGNER = Signer(b"k" * 32, "airlock", "airlock-gateway", "here")
OTHER = Signer(b"o" * 32, "airlock", "airlock-gateway", "there")


class Home:
    """A user with clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = Place(Environment({"HOME": str(folder)}), "linux")

    def go(self, client: str = "claude", *, url: str = URL, principal: str = "alice", days: int = 30,
           signer: Signer | None = SIGNER, later: float = 0, replace: bool = False) -> Applied:  # fmt: skip
        wish = Wish(url, principal, days * DAY, signer)
        return apply(load(client), self.place, "airlock", wish, NOW + timedelta(days=later), replace=replace)

    def holds(self, text: str | dict[str, Any], client: str = "claude") -> Path:
        path = Path(load(client).file(self.place))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps({"mcpServers": {"airlock": text}}))
        return path


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def bearer(principal: str = "alice", signer: Signer = SIGNER) -> str:
    return f"Bearer {signer.make(principal, int(NOW.timestamp()), 30 * DAY).reveal()}"


@pytest.mark.parametrize("name", NAMES)
def test_a_second_run_changes_nothing(home: Home, name: str):
    first = home.go(name)
    assert first.changed
    before = Path(first.path).read_bytes()
    assert b"Bearer " in before
    again = home.go(name, later=14)
    assert not again.changed
    assert again.until == first.until == int(NOW.timestamp()) + 30 * DAY
    assert Path(first.path).read_bytes() == before
    assert os.listdir(os.path.dirname(first.path)) == [os.path.basename(first.path)]
    assert read_entry(load(name), home.place, "airlock") == (first.path, first.entry)
    assert read_entry(load(name), home.place, "other")[1] is None


@pytest.mark.parametrize("change", [{"later": 16}, {"principal": "bob"}, {"days": 7}, {"days": 90}, {"signer": OTHER},
                                    {"url": "http://127.0.0.1:9001/mcp"}])  # fmt: skip
def test_an_entry_of_ours_is_renewed_when_it_says_something_else(home: Home, change: dict[str, Any]):
    first = home.go()
    after = home.go(**change)
    assert after.changed
    assert after.copy is not None
    assert (after.entry["headers"] == first.entry["headers"]) == ("url" in change)


def test_the_token_says_who_and_until_when(home: Home):
    entry: Any = home.go(days=2).entry
    now = int(NOW.timestamp())
    assert claimed(entry["headers"]["Authorization"]) == {
        "iss": "airlock", "aud": "airlock-gateway", "sub": "alice", "iat": now, "exp": now + 2 * DAY
    }  # fmt: skip


def test_what_people_added_stays_in_the_entry_and_around_it(home: Home):
    path = home.holds(
        'model = "x" # mine\n[mcp_servers.airlock]\nurl = "http://127.0.0.1:9000/mcp"\ntool_timeout_sec = 9\n',
        "codex",
    )
    assert home.go("codex").changed
    assert path.read_text().startswith('model = "x" # mine\n[mcp_servers.airlock]\n')
    entry = tomllib.loads(path.read_text())["mcp_servers"]["airlock"]
    assert (entry["tool_timeout_sec"], entry["url"]) == (9, URL)
    assert not home.go("codex").changed


FOREIGN: list[dict[str, Any]] = [
    {"type": "stdio", "command": "x"},
    {"type": "http", "url": "https://other.example/mcp"},
    {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${TOKEN}"}},
    {"type": "http", "url": "not one"},
]


@pytest.mark.parametrize("entry", FOREIGN)
def test_an_entry_of_somebody_else_is_replaced_only_when_that_is_said(home: Home, entry: dict[str, Any]):
    path = home.holds(entry)
    before = path.read_bytes()
    with pytest.raises(
        ConfigError, match=r"\.claude\.json: it holds an entry \"airlock\".*--replace"
    ) as caught:
        home.go()
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(home.folder) == [".claude.json"]
    done = home.go(replace=True)
    assert done.copy is not None
    assert Path(done.copy).read_bytes() == before
    assert set(done.entry) == {"type", "url", "headers"}


def test_replacing_is_no_reason_to_drop_what_was_added_to_an_entry_of_ours(home: Home):
    home.holds(
        {
            "type": "http",
            "url": URL,
            "headers": {"Authorization": bearer(signer=OTHER), "X-Team": "a"},
            "timeout": 5,
        }
    )
    done = home.go(replace=True)
    assert done.entry["timeout"] == 5
    assert done.entry["headers"]["X-Team"] == "a"  # type: ignore[index]


def test_without_a_key_no_token_is_written_ours_goes_and_somebody_elses_stays(home: Home):
    made = home.go(signer=None)
    assert made.entry == {"type": "http", "url": URL}
    assert made.until is None
    assert not home.go(signer=None).changed
    home.holds({"type": "http", "url": URL, "headers": {"Authorization": bearer()}})
    assert home.go(signer=None).entry == {"type": "http", "url": URL}
    theirs = {"type": "http", "url": URL, "headers": {"Authorization": "Bearer of-the-provider"}}
    home.holds(theirs)
    assert not home.go(signer=None).changed
    home.holds({**theirs, "url": "https://other.example/mcp"})
    with pytest.raises(ConfigError, match="--replace"):
        home.go(signer=None)


def test_others_may_not_read_a_file_any_more_that_holds_a_token(home: Home):
    path = home.holds("{}")
    path.chmod(0o664)
    assert not home.go(signer=None).narrowed
    assert path.stat().st_mode & 0o777 == 0o664
    assert home.go().narrowed
    assert path.stat().st_mode & 0o777 == 0o600
    assert not home.go(principal="bob").narrowed


@pytest.mark.parametrize(
    "text", ['{"mcpServers": []}', '{"mcpServers": {"airlock": 1}}', '{"mcpServers": 1}']
)
def test_a_table_that_is_none_is_told(home: Home, text: str):
    path = home.holds(text)
    with pytest.raises(ConfigError, match="mcpServers is not a table of servers"):
        home.go()
    assert path.read_text() == text


def test_a_null_is_an_empty_table_where_the_format_can_say_so(home: Home):
    home.holds("mcp_servers:\n", "hermes")
    assert home.go("hermes").changed
    home.holds('{"mcpServers": null}')
    with pytest.raises(ConfigError, match="mcpServers is not an object"):
        home.go()


@pytest.mark.parametrize("text", ['{"mcpServers": {"b": {}}}', "broken"])
def test_nothing_is_written_that_does_not_read_as_it_was_meant(
    home: Home, monkeypatch: pytest.MonkeyPatch, text: str
):
    client = load("claude")

    class Wrong:
        parse = staticmethod(client.format.parse)
        show = staticmethod(client.format.show)

        @staticmethod
        def put(*_: object) -> str:
            return text

    path = home.holds('{"mcpServers": {"b": {}}}')
    import msgspec

    broken = msgspec.structs.replace(client, format=Wrong)
    with pytest.raises(ConfigError, match=r"cannot be edited safely.*by hand"):
        apply(broken, home.place, "airlock", Wish(URL, "alice", DAY, SIGNER), NOW)
    assert path.read_text() == '{"mcpServers": {"b": {}}}'


@pytest.mark.parametrize(
    ("client", "text"),
    [("hermes", "x: &a {airlock: {url: u}}\nmcp_servers: *a\n"), ("codex", 'mcp_servers = { b = { url = "u" } }\n'),
     ("hermes", "mcp_servers: {b: {url: u}}\n"), ("claude", "nonsense"), ("codex", 's = """\n[mcp_servers.airlock]\n"""\n[mcp_servers."airlock"]\nurl = "http://127.0.0.1:9000/mcp"\n')],
)  # fmt: skip
def test_a_file_that_is_written_in_an_odd_way_is_left_to_its_owner(home: Home, client: str, text: str):
    path = home.holds(text, client)
    with pytest.raises(ConfigError, match=path.name) as caught:
        home.go(client)
    assert "\n" not in str(caught.value)
    assert path.read_text() == text
    assert os.listdir(path.parent) == [path.name]


def test_addresses_are_compared_as_addresses():
    assert module._same("http://LOCALHOST:80/mcp", "http://localhost/mcp")
    assert not module._same("x", "http://localhost/mcp")
