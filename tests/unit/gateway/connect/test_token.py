"""Tokens for clients: the key is the gateway's own, and what is made is what it takes."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.headers import Headers
from airlock.edge.settings import Environment
from airlock.gateway import parts
from airlock.gateway.connect import token
from airlock.gateway.connect.token import Signer, Unsigned, claimed, made_here, signer
from airlock.gateway.settings import Defaults, Flags

URL = "http://127.0.0.1:9000/mcp"
NOW = 1_800_000_000


def found(url: str = URL, make_key: bool = True, **env: Any) -> Signer | Unsigned:
    return signer(Environment(env), url, make_key=make_key)


def made(tmp_path: Path, **env: str) -> tuple[str, Environment]:
    settings: dict[str, Any] = {"XDG_STATE_HOME": str(tmp_path), **env}
    one = found(**settings)
    assert isinstance(one, Signer)
    return one.make("alice", NOW, 60).reveal(), Environment(settings)


SETTINGS: list[dict[str, str]] = [
    {},
    {"AIRLOCK_JWT_SECRET": "k" * 32},
    {"AIRLOCK_JWT_SECRET": "k" * 32, "AIRLOCK_JWT_ISSUER": "me", "AIRLOCK_JWT_AUDIENCE": "it"},
    {"AIRLOCK_JWT_SECRET": "k" * 32, "AIRLOCK_TRUST_PRINCIPAL_HEADER": "1"},
]


@pytest.mark.parametrize("env", SETTINGS)
def test_a_gateway_with_the_same_settings_takes_the_token_until_it_expires(
    tmp_path: Path, env: dict[str, str]
):
    text, settings = made(tmp_path, **env)

    class Silent:
        def line(self, _text: str) -> None: ...

    local = parts.local_key(Flags(policy="p"), settings, Defaults("airlock", durable=True))
    gateway = parts.identity(settings, Silent(), local)  # type: ignore[arg-type]
    headers = Headers([(b"authorization", f"Bearer {text}".encode())])
    principal = gateway.resolve(headers, NOW)
    assert principal is not None
    assert principal.name == "alice"  # type: ignore[union-attr]
    assert gateway.resolve(headers, NOW + 60) is None


def test_the_local_key_is_made_only_when_a_token_is_really_wanted(tmp_path: Path):
    state: dict[str, Any] = {"XDG_STATE_HOME": str(tmp_path)}
    assert isinstance(found(make_key=False, **state), Signer)
    assert list(tmp_path.iterdir()) == []
    one = found(**state)
    assert isinstance(one, Signer)
    assert one.source == f"{tmp_path}/airlock/identity.key"
    assert (tmp_path / "airlock/identity.key").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("url", "env", "words"),
    [
        (URL, {"AIRLOCK_JWKS_URL": "https://id/keys", "AIRLOCK_JWT_SECRET": "k"}, "OAuth"),
        (URL, {"AIRLOCK_TRUST_PRINCIPAL_HEADER": "1"}, "another gateway in front"),
        ("https://gate.example/mcp", {}, "another machine"),
        ("http://10.0.0.1:9000/mcp", {}, "another machine"),
    ],
)
def test_where_no_token_can_be_made_the_reason_is_told(url: str, env: dict[str, Any], words: str):
    one = found(url, **env)
    assert isinstance(one, Unsigned)
    assert words in one.reason


def test_a_key_of_this_machine_signs_nothing_for_another(tmp_path: Path):
    assert isinstance(found("http://gate.example/mcp", XDG_STATE_HOME=str(tmp_path)), Unsigned)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(found("https://gate.example/mcp", AIRLOCK_JWT_SECRET="k" * 32), Signer)
    assert isinstance(found("http://localhost:1/mcp", XDG_STATE_HOME=str(tmp_path)), Signer)
    assert isinstance(found("http://[::1]:1/mcp", XDG_STATE_HOME=str(tmp_path)), Signer)


def test_a_token_is_known_again_by_its_key_its_name_and_its_time(tmp_path: Path):
    text, settings = made(tmp_path)
    one = signer(settings, URL, make_key=True)
    assert isinstance(one, Signer)
    assert one.until(text, "alice", NOW) == NOW + 60
    assert one.until(text, "bob", NOW) is None
    assert one.until(text, "alice", NOW + 60) is None
    assert one.until(text + "x", "alice", NOW) is None
    assert one.until("\ud800", "alice", NOW) is None


def test_a_name_that_the_gateway_would_not_take_is_refused(tmp_path: Path):
    one = found(XDG_STATE_HOME=str(tmp_path))
    assert isinstance(one, Signer)
    for name in (" alice", "", "\ud800"):
        with pytest.raises(ConfigError, match="no such name"):
            one.make(name, NOW, 60)


def test_what_a_token_claims_is_read_without_a_key_and_believed_by_nobody(tmp_path: Path):
    text, settings = made(tmp_path)
    assert claimed(f"Bearer {text}")["sub"] == "alice"
    assert made_here(f"Bearer {text}", settings)
    for authorization in (
        None,
        "",
        text,
        "Bearer a.b",
        "Bearer a.é.c",
        "Basic a.b.c",
        "Bearer a.e30.c",
        "Bearer ${T}",
    ):
        assert claimed(authorization) == {}
        assert not made_here(authorization, settings)
    other, env = made(
        tmp_path, AIRLOCK_JWT_SECRET="k" * 32, AIRLOCK_JWT_ISSUER="me", AIRLOCK_JWT_AUDIENCE="it"
    )
    assert made_here(f"Bearer {other}", env)
    assert made_here(f"Bearer {text}", env)
    assert not made_here(f"Bearer {other}", settings)


def test_the_user_is_the_one_the_system_knows(monkeypatch: pytest.MonkeyPatch):
    assert token.user() == pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(ConfigError, match="--principal"):
        token.user()
