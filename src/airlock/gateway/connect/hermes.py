"""Hermes: `config.yaml` in its home, where its servers stand among all other settings.

Knows that file, the entry and `hermes mcp`; writes nothing itself.
"""

from __future__ import annotations

import re

from airlock.gateway.connect import yamltext
from airlock.gateway.connect.clients import Client, Opening, Place, braced

__all__ = ["CLIENT"]

_PROFILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def _file(place: Place) -> str:
    home = place.folder("HERMES_HOME", ".hermes")
    return f"{_profile(home) if place.env.text('HERMES_HOME') is None else home}/config.yaml"


def _profile(home: str) -> str:
    """Return the folder of the profile that `hermes profile use` made the default."""
    try:
        with open(f"{home}/active_profile", encoding="utf-8") as file:
            name = file.read(256).strip()
    except (OSError, UnicodeDecodeError):
        return home
    return f"{home}/profiles/{name}" if name != "default" and _PROFILE.fullmatch(name) else home


def _commands(_name: str, _url: str, _authorization: str | None) -> tuple[str, ...]:
    return ()  # `hermes mcp add` asks its questions on a terminal


CLIENT = Client(
    name="hermes",
    title="Hermes",
    opening=Opening("2025-11-25"),
    format=yamltext,
    file=_file,
    section="mcp_servers",
    commands=_commands,
    proof="hermes mcp test {name}",
    expand=braced,
)
"""Tried with 0.19."""
