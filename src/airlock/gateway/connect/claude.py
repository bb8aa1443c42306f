"""Claude Code: `~/.claude.json`, where it keeps the servers of the user scope among much else.

Knows that file, the entry and `claude mcp`; writes nothing itself.
"""

from __future__ import annotations

import os
import shlex

from airlock.gateway.connect import jsontext
from airlock.gateway.connect.clients import Client, Opening, Place, braced

__all__ = ["CLIENT"]


def _file(place: Place) -> str:
    folder = place.folder("CLAUDE_CONFIG_DIR", ".claude")
    # Installations of early days keep it here, and Claude Code goes on with it for as long as it is there.
    older = f"{folder}/.config.json"
    try:
        if os.stat(older).st_size:
            return older
    except OSError:
        pass
    return f"{place.home() if place.env.text('CLAUDE_CONFIG_DIR') is None else folder}/.claude.json"


def _commands(name: str, url: str, authorization: str | None) -> tuple[str, ...]:
    words = ["claude", "mcp", "add", "-s", "user", "-t", "http", name, url]
    if authorization is not None:
        words += ["--header", f"Authorization: {authorization}"]
    return (shlex.join(words),)


CLIENT = Client(
    name="claude",
    title="Claude Code",
    opening=Opening("2025-11-25", discovers=True),
    format=jsontext,
    file=_file,
    section="mcpServers",
    commands=_commands,
    proof="claude mcp list",
    expand=braced,
    fixed={"type": "http"},
)
"""Tried with 2.1.332."""
