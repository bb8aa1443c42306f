"""Cursor: `~/.cursor/mcp.json`, the servers of all projects.

Knows that file and the entry; Cursor has no command for it. Writes nothing itself.
"""

from __future__ import annotations

from airlock.gateway.connect import jsontext
from airlock.gateway.connect.clients import Client, Opening, Place, braced

__all__ = ["CLIENT"]


def _file(place: Place) -> str:
    return f"{place.home()}/.cursor/mcp.json"


def _commands(_name: str, _url: str, _authorization: str | None) -> tuple[str, ...]:
    return ()


CLIENT = Client(
    name="cursor",
    title="Cursor",
    opening=Opening("2025-11-25"),
    format=jsontext,
    file=_file,
    section="mcpServers",
    commands=_commands,
    proof="Settings, MCP: the server has a green dot",
    expand=braced,
)
"""Written from its documentation; not tried."""
