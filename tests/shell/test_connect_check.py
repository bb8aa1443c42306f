"""`airlock connect` against a real gateway: each client's way in, and what is said when there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airlock.gateway.connect.clients import NAMES
from tests.fakes.connecting import VISIBLE, Newcomer, newcomer
from tests.fakes.processes import JWT_SECRET

SPEAKS = {
    "claude": ("server/discover", "2026-07-28"),
    "codex": ("initialize", "2025-06-18"),
    **dict.fromkeys(("cursor", "vscode", "gemini", "hermes"), ("initialize", "2025-11-25")),
}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    with newcomer(tmp_path_factory.mktemp("gate")) as one:
        yield one


def told(done: Any, status: int) -> dict[str, Any]:
    assert done.returncode == status, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_for_a_client_gets_it_in(gate: Newcomer, name: str):
    found = told(
        gate.connect(name, "--url", gate.url, "--principal", f"of-{name}", "--write", "--check", "--json"), 0
    )
    assert (found["opened"], found["revision"]) == SPEAKS[name]
    assert (found["reachable"], found["accepted"], found["principal"]) == (True, True, f"of-{name}")
    assert found["tools"] == VISIBLE
    assert "problem" not in found
    assert (f"of-{name}", "passthrough") in gate.said("tools/list")
    plain = gate.connect(name, "--check")
    assert plain.returncode == 0
    assert f"of-{name}, accepted" in plain.stdout
    assert f"{VISIBLE} to be seen" in plain.stdout


def test_a_token_that_has_expired_is_named_with_what_to_do(gate: Newcomer):
    from airlock.gateway.connect.token import Signer

    key = bytes.fromhex((gate.folder / "state/airlock/identity.key").read_text())
    old = Signer(key, "airlock", "airlock-gateway", "").make("alice", 1_700_000_000, 60).reveal()
    headers = {"Authorization": f"Bearer {old}"}
    entry = {"mcpServers": {"airlock": {"url": gate.url, "headers": headers}}}
    (gate.home / ".cursor").mkdir(exist_ok=True)
    (gate.home / ".cursor/mcp.json").write_text(json.dumps(entry))
    done = gate.connect("cursor", "--check")
    assert done.returncode == 1
    problem, hint = done.stderr.splitlines()
    assert "401" in problem
    assert hint == "airlock: hint: the token has expired: airlock connect cursor --write"
    assert "alice, not accepted" in done.stdout
    assert gate.connect("cursor", "--url", gate.url, "--write").returncode == 0
    assert gate.connect("cursor", "--check").returncode == 0


def test_a_token_of_another_key_and_none_at_all_are_told_apart(gate: Newcomer):
    made = gate.connect(
        "gemini", "--url", gate.url, "--write", "--name", "other", AIRLOCK_JWT_SECRET="o" * 32
    )
    assert made.returncode == 0
    done = gate.connect("gemini", "--check", "--name", "other")
    assert (done.returncode, "another key" in done.stderr) == (1, True)
    path = gate.home / ".gemini/settings.json"
    document = json.loads(path.read_text())
    del document["mcpServers"]["other"]["headers"]
    path.write_text(json.dumps(document))
    done = gate.connect("gemini", "--check", "--name", "other")
    assert done.returncode == 1
    assert done.stderr.splitlines()[1].startswith(
        "airlock: hint: airlock connect gemini --name other --write"
    )


def test_a_gateway_that_is_down_is_one_line_and_a_hint(tmp_path: Path):
    with newcomer(tmp_path) as gate:
        assert gate.connect("codex", "--url", gate.url, "--write").returncode == 0
        gate.stop()
        done = gate.connect("codex", "--check")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    assert "nothing answers there" in done.stderr
    assert "is it running there?" in done.stderr


def test_a_gateway_for_clients_of_today_only_says_so_to_the_others(tmp_path: Path):
    with newcomer(tmp_path, "--front", "modern") as gate:
        assert gate.connect("claude", "--url", gate.url, "--write", "--check").returncode == 0
        done = gate.connect("codex", "--url", gate.url, "--write", "--check")
    assert done.returncode == 1
    assert "--front dual" in done.stderr.splitlines()[1]


def test_the_shared_secret_of_both_sides_gets_a_client_in(tmp_path: Path):
    secret = {"AIRLOCK_JWT_SECRET": JWT_SECRET, "AIRLOCK_JWT_ISSUER": "me", "AIRLOCK_JWT_AUDIENCE": "it"}
    with newcomer(tmp_path, **secret) as gate:
        done = gate.connect("hermes", "--url", gate.url, "--write", "--check", **secret)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "state/airlock/identity.key").exists()
        again = gate.connect("hermes", "--url", gate.url, "--write", **secret)
        assert "nothing was changed" in again.stdout


def test_where_tokens_come_from_a_provider_the_client_is_sent_there(tmp_path: Path):
    provider = {
        "AIRLOCK_JWKS_URL": "http://127.0.0.1:9/keys", "AIRLOCK_RESOURCE_URL": "http://127.0.0.1:9000/mcp",
        "AIRLOCK_AUTHORIZATION_SERVERS": "http://127.0.0.1:9", "AIRLOCK_JWT_AUDIENCE": "http://127.0.0.1:9000/mcp",
        "AIRLOCK_JWT_ISSUER": "http://127.0.0.1:9",
    }  # fmt: skip
    with newcomer(tmp_path, **provider) as gate:
        done = gate.connect(
            "claude", "--url", gate.url, "--write", "--check", AIRLOCK_JWKS_URL=provider["AIRLOCK_JWKS_URL"]
        )
    assert done.returncode == 1
    assert "OAuth" in done.stdout
    assert (
        done.stderr.splitlines()[1]
        == "airlock: hint: sign in with Claude Code itself: it gets a token by OAuth"
    )
