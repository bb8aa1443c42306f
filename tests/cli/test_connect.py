"""`airlock connect` as a command: what is printed and written, what is refused, and that no token shows by itself."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from airlock.cli.connect import command as connect
from airlock.edge.identity.claims import json_object
from airlock.gateway.connect.clients import NAMES
from tests.fakes.processes import clean_env, command, run

TOKEN = re.compile(r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}")
CLIENT_VARIABLES = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "HERMES_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")


class Home:
    """A user's home, in which the command runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch

    def go(self, *args: str, status: int = 0, **env: Any) -> Result:
        kept = {name: value for name, value in clean_env().items() if name not in CLIENT_VARIABLES}
        places = {"HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        self._monkeypatch.setattr(os, "environ", {**kept, **places, **env})
        done = CliRunner().invoke(connect, list(args), prog_name="airlock")
        assert done.exit_code == status, done.output
        assert "Traceback" not in done.output
        return done

    def refused(self, *args: str, **env: Any) -> str:
        done = self.go(*args, status=1, **env)
        lines = done.stderr.splitlines()
        assert 1 <= len(lines) <= 2
        assert all(line.startswith("airlock") for line in lines)
        return done.stderr

    def files(self) -> list[str]:
        return sorted(
            path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if path.is_file()
        )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    return Home(tmp_path, monkeypatch)


def subject(text: str) -> object:
    found = TOKEN.search(text)
    assert found is not None
    return (json_object(found[0].split(".")[1].encode()) or {}).get("sub")


@pytest.mark.parametrize("name", NAMES)
def test_printing_shows_the_file_and_the_entry_and_neither_writes_nor_tells_a_token(home: Home, name: str):
    done = home.go(name)
    assert "http://127.0.0.1:9000/mcp" in done.stdout
    assert f"# {name.capitalize()}"[:3].lower() in done.stdout.lower()
    assert "Bearer ***" in done.stdout
    assert TOKEN.search(done.output) is None
    assert home.files() == []


@pytest.mark.parametrize("name", NAMES)
def test_writing_puts_a_token_into_the_file_and_shows_none(home: Home, name: str):
    done = home.go(name, "--write", "--principal", "alice")
    assert TOKEN.search(done.output) is None
    written = [file for file in home.files() if not file.startswith("state/")]
    assert len(written) == 1
    path = home.folder / written[0]
    assert subject(path.read_text()) == "alice"
    assert path.stat().st_mode & 0o777 == 0o600
    again = home.go(name, "--write", "--principal", "alice")
    assert "nothing was changed" in again.stdout
    assert [file for file in home.files() if not file.startswith("state/")] == written


def test_a_token_is_shown_when_that_is_asked_for(home: Home):
    done = home.go("claude", "--show-token", "--principal", "alice")
    assert subject(done.stdout) == "alice"
    line = next(line for line in done.stdout.splitlines() if line.startswith("claude mcp add"))
    header = shlex.split(line)[-1]
    assert TOKEN.fullmatch(header.removeprefix("Authorization: Bearer "))
    assert home.files() == ["state/airlock/identity.key"]


def test_without_a_name_the_token_is_of_whoever_runs_it(home: Home):
    import pwd

    home.go("cursor", "--write")
    assert subject((home.folder / ".cursor/mcp.json").read_text()) == pwd.getpwuid(os.geteuid()).pw_name


def test_the_entry_has_the_name_the_address_and_the_time_that_are_given(home: Home):
    home.go("codex", "--write", "--name", "ops", "--url", "http://localhost:9471/mcp", "--ttl", "2h")
    table = tomllib.loads((home.folder / ".codex/config.toml").read_text())["mcp_servers"]["ops"]
    assert table["url"] == "http://localhost:9471/mcp"
    found = TOKEN.search(table["http_headers"]["Authorization"])
    assert found is not None
    claims: Any = json_object(found[0].split(".")[1].encode())
    assert claims["exp"] - claims["iat"] == 7200


def test_what_was_there_before_is_kept_beside(home: Home):
    path = home.folder / ".claude.json"
    path.write_text('{\n\t"theme": "dark"\n}')
    done = home.go("claude", "--write")
    (copy,) = home.folder.glob(".claude.json.airlock-backup-*")
    assert copy.read_text() == '{\n\t"theme": "dark"\n}'
    assert str(copy) in done.stdout
    assert path.read_text().startswith('{\n\t"theme": "dark",\n\t"mcpServers": {\n\t\t"airlock": {')


def test_others_that_could_read_the_file_are_named(home: Home):
    path = home.folder / ".claude.json"
    path.write_text("{}")
    path.chmod(0o644)
    assert "others could read the file" in home.go("claude", "--write").stdout
    assert path.stat().st_mode & 0o777 == 0o600


def test_each_client_is_looked_for_where_its_own_variable_says(home: Home):
    places = {"claude": ("CLAUDE_CONFIG_DIR", ".claude.json"), "codex": ("CODEX_HOME", "config.toml"),
              "vscode": ("XDG_CONFIG_HOME", "Code/User/mcp.json"), "hermes": ("HERMES_HOME", "config.yaml"),
              "gemini": ("GEMINI_CLI_HOME", ".gemini/settings.json")}  # fmt: skip
    for name, (variable, file) in places.items():
        env: dict[str, Any] = {variable: str(home.folder / f"of-{name}")}
        home.go(name, "--write", **env)
        assert (home.folder / f"of-{name}" / file).exists()
    assert "CODEX_HOME must name an absolute folder" in home.refused("codex", CODEX_HOME="here")
    assert "HOME must name an absolute folder" in home.refused("cursor", HOME="")


def test_json_says_the_same_and_masks_the_token_too(home: Home):
    shown = json.loads(home.go("claude", "--json", "--principal", "alice").stdout)
    assert shown["file"] == str(home.folder / ".claude.json")
    assert shown["entry"]["headers"] == {"Authorization": "Bearer ***"}
    assert shown["commands"][0].startswith("claude mcp add")
    assert (shown["client"], shown["name"], shown["principal"]) == ("claude", "airlock", "alice")
    assert isinstance(shown["expires"], int)
    wrote = json.loads(home.go("claude", "--json", "--write").stdout)
    assert (wrote["changed"], wrote["backup"]) == (True, None)
    assert TOKEN.search(json.dumps(wrote)) is None
    assert json.loads(home.go("claude", "--json", "--write").stdout)["changed"] is False
    failed = home.go("codex", "--json", "--check", status=1)
    assert json.loads(failed.stdout)["problem"].endswith('it has no entry "airlock"')


def test_the_shared_secret_signs_when_there_is_one(home: Home):
    done = home.go("claude", "--write", AIRLOCK_JWT_SECRET="k" * 32)
    assert "(AIRLOCK_JWT_SECRET)" in done.stdout
    assert home.files() == [".claude.json"]


@pytest.mark.parametrize(
    ("env", "args", "words"),
    [({"AIRLOCK_JWKS_URL": "https://id.example/keys"}, (), "OAuth"), ({"AIRLOCK_TRUST_PRINCIPAL_HEADER": "1"}, (), "in front"),
     ({}, ("--url", "https://gate.example/mcp"), "ask whoever runs it")],
)  # fmt: skip
def test_where_no_token_can_be_made_the_entry_has_no_header_and_that_is_said(
    home: Home, env: dict[str, Any], args: tuple[str, ...], words: str
):
    for flags in ((), ("--write",)):
        done = home.go("claude", *flags, *args, **env)
        assert words in done.stdout
        assert "Authorization" not in done.stdout
    entry = json.loads((home.folder / ".claude.json").read_text())["mcpServers"]["airlock"]
    assert set(entry) == {"type", "url"}
    assert "note" in json.loads(home.go("claude", "--json", *args, **env).stdout)
    assert "--principal has no token" in home.refused("claude", "--principal", "alice", *args, **env)


def test_what_is_in_the_way_is_one_line_and_nothing_is_written(home: Home):
    path = home.folder / ".claude.json"
    for text, words in (("{", "not JSON"), ('{"mcpServers": {"airlock": {"command": "x"}}}', "--replace")):
        path.write_text(text)
        said = home.refused("claude", "--write")
        assert words in said
        assert len(said.splitlines()) == 1
        assert path.read_text() == text
        assert [file for file in home.files() if not file.startswith("state/")] == [".claude.json"]
    home.go("claude", "--write", "--replace")


def test_a_key_file_that_others_can_read_signs_nothing(home: Home):
    folder = home.folder / "state/airlock"
    folder.mkdir(parents=True)
    (folder / "identity.key").write_text("0" * 64)
    (folder / "identity.key").chmod(0o644)
    assert "chmod 600" in home.refused("claude", "--write")
    assert home.files() == ["state/airlock/identity.key"]


@pytest.mark.parametrize(
    ("args", "words"),
    [((), "Missing argument"), (("emacs",), "'emacs' is not one of"), (("claude", "--url", "h"), "--url"), (("claude", "--url", "unix:/s"), "https://"),
     (("claude", "--url", "http://u:p@h/"), "--url"), (("claude", "--url", "http://h/$X"), "variable"), (("claude", "--name", "a b"), "--name"),
     (("claude", "--name", "1"), "--name"), (("claude", "--principal", " x"), "--principal"), (("claude", "--ttl", "30"), "--ttl"),
     (("claude", "--ttl", "367d"), "366d"), (("claude", "--ttl", "59s"), "60s"), (("claude", "--replace"), "--write"),
     (("claude", "--show-token", "--write"), "--show-token"), (("claude", "--show-token", "--check"), "--show-token"),
     (("claude", "--nope"), "--nope")],
)  # fmt: skip
def test_a_wrong_command_line_is_a_usage_error(home: Home, args: tuple[str, ...], words: str):
    done = home.go(*args, status=2)
    assert words in done.stderr
    assert home.files() == []


CHECKS: list[tuple[Any, str, str]] = [
    (None, 'it has no entry "airlock"', "airlock connect claude --write"),
    ({"command": "x"}, "it starts a command", "--replace"),
    ({"url": "http://127.0.0.1:1/mcp", "enabled": False}, "switched off", "enabled"),
    ({"url": "http://127.0.0.1:1/mcp", "disabled": True}, "switched off", "disabled"),
    ({"url": "http://127.0.0.1:1/mcp"}, "nothing answers there", "is it running there?"),
    ({"url": "nonsense"}, "the entry cannot be used", "hint"),
]


@pytest.mark.parametrize(("entry", "problem", "hint"), CHECKS)
def test_a_check_that_fails_says_what_is_wrong_and_what_to_do(
    home: Home, entry: Any, problem: str, hint: str
):
    servers = {} if entry is None else {"airlock": entry}
    (home.folder / ".claude.json").write_text(json.dumps({"mcpServers": servers}))
    said = home.refused("claude", "--check").splitlines()
    assert problem in said[0]
    assert said[1].startswith("airlock: hint: ")
    assert hint in said[1]


def test_a_check_wants_the_address_that_is_given_and_the_variables_that_are_named(home: Home):
    path = home.folder / ".claude.json"
    path.write_text('{"mcpServers": {"ops": {"url": "http://127.0.0.1:1/mcp"}}}')
    said = home.refused("claude", "--check", "--name", "ops", "--url", "http://127.0.0.1:2/mcp")
    assert "leads to http://127.0.0.1:1/mcp" in said
    assert "claude --name ops --write --url http://127.0.0.1:2/mcp" in said
    path.write_text(
        '{"mcpServers": {"airlock": {"url": "http://h/", "headers": {"Authorization": "Bearer ${T}"}}}}'
    )
    assert "${T}" in home.refused("claude", "--check")


def test_the_real_command_has_help_and_completes_the_names(tmp_path: Path):
    done = run("airlock", "connect", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "claude|codex|cursor|vscode|gemini|hermes" in done.stdout
    env = clean_env(_AIRLOCK_COMPLETE="bash_complete", COMP_WORDS="airlock connect c", COMP_CWORD="2")
    offered = subprocess.run(
        command("airlock"), env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert offered.stdout.split() == ["plain,claude", "plain,codex", "plain,cursor"]
