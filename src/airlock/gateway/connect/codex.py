"""Codex: `~/.codex/config.toml`, with one table for each server.

Knows that file, the entry and `codex mcp`; writes nothing itself.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from airlock.gateway.connect import tomltext
from airlock.gateway.connect.clients import Client, Opening, Place, literal

__all__ = ["CLIENT"]


def _file(place: Place) -> str:
    return f"{place.folder('CODEX_HOME', '.codex')}/config.toml"


def _commands(name: str, url: str, authorization: str | None) -> tuple[str, ...]:
    added = shlex.join(["codex", "mcp", "add", name, "--url", url])
    if authorization is None:
        return (added,)
    # Its command takes no header, only a variable that must be set whenever Codex starts.
    token = shlex.quote(authorization.removeprefix("Bearer "))
    return f"export AIRLOCK_TOKEN={token}", f"{added} --bearer-token-env-var AIRLOCK_TOKEN"


def _borrowed(entry: Mapping[str, object]) -> dict[str, str]:
    named = entry.get("env_http_headers")
    found = {header: f"${{{name}}}" for header, name in named.items()} if isinstance(named, dict) else {}
    token = entry.get("bearer_token_env_var")
    if isinstance(token, str):
        found["Authorization"] = f"Bearer ${{{token}}}"
    return found


CLIENT = Client(
    name="codex",
    title="Codex",
    opening=Opening("2025-06-18"),
    format=tomltext,
    file=_file,
    section="mcp_servers",
    commands=_commands,
    proof="codex mcp list",
    expand=literal,
    headers_key="http_headers",
    stale=frozenset({"bearer_token_env_var"}),
    borrowed=_borrowed,
)
"""Tried with 0.171."""
