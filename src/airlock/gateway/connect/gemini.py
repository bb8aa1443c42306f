"""Gemini CLI: `~/.gemini/settings.json`, where it keeps the servers of the user scope among other settings.

Knows that file, the entry and `gemini mcp`; writes nothing itself.
"""

from __future__ import annotations

import re
import shlex

from airlock.edge.settings import Environment
from airlock.gateway.connect import jsontext
from airlock.gateway.connect.clients import Client, Opening, Place, braced

__all__ = ["CLIENT"]

_BARE = re.compile(r"\$(\w+)")


def _file(place: Place) -> str:
    given = place.env.text("GEMINI_CLI_HOME") is not None
    return f"{place.folder('GEMINI_CLI_HOME', '') if given else place.home()}/.gemini/settings.json"


def _commands(name: str, url: str, authorization: str | None) -> tuple[str, ...]:
    words = ["gemini", "mcp", "add", "--scope", "user", "--transport", "http", name, url]
    if authorization is not None:
        words += ["-H", f"Authorization: {authorization}"]
    return (shlex.join(words),)


def _expand(text: str, env: Environment) -> str:
    return braced(_BARE.sub(r"${\1}", text), env)


CLIENT = Client(
    name="gemini",
    title="Gemini CLI",
    opening=Opening("2025-11-25"),
    format=jsontext,
    file=_file,
    section="mcpServers",
    commands=_commands,
    proof="gemini mcp list, in a folder that it trusts",
    expand=_expand,
    # SPEC: its own command writes `url` and `type`, which earlier versions take for the older HTTP+SSE.
    url_keys=("httpUrl", "url"),
    stale=frozenset({"type"}),
)
"""Tried with 0.61."""
