"""VS Code: `mcp.json` in the user's profile, where comments are allowed.

Knows that file on each system, the entry and `code --add-mcp`; writes nothing itself.
LIMIT: the default profile of the released build; Insiders, VSCodium and named profiles keep theirs elsewhere.
"""

from __future__ import annotations

import json
import shlex

from airlock.gateway.connect import jsontext
from airlock.gateway.connect.clients import Client, Opening, Place, braced

__all__ = ["CLIENT"]

_BELOW = "Code/User/mcp.json"


def _file(place: Place) -> str:
    if place.system == "darwin":
        return f"{place.home()}/Library/Application Support/{_BELOW}"
    if place.system == "win32":
        return f"{place.folder('APPDATA', 'AppData/Roaming')}/{_BELOW}"
    return f"{place.folder('XDG_CONFIG_HOME', '.config')}/{_BELOW}"


def _commands(name: str, url: str, authorization: str | None) -> tuple[str, ...]:
    server: dict[str, object] = {"name": name, "type": "http", "url": url}
    if authorization is not None:
        server["headers"] = {"Authorization": authorization}
    return (shlex.join(["code", "--add-mcp", json.dumps(server)]),)


CLIENT = Client(
    name="vscode",
    title="VS Code",
    opening=Opening("2025-11-25"),
    format=jsontext,
    file=_file,
    section="servers",
    commands=_commands,
    proof="the command MCP: List Servers says Running",
    expand=braced,
    fixed={"type": "http"},
)
"""Written from its documentation; not tried."""
