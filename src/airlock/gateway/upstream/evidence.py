"""What the answer to `server/discover` says about the revisions a server speaks.

Pure: knows answers; asks nobody, and does not know how the answer came. SPEC: mcp.md 9, 19 (Back).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final

import msgspec

from airlock.core.wire import jsonrpc
from airlock.gateway.modern.admission import REVISION
from airlock.gateway.upstream import bridge
from airlock.gateway.upstream.port import Era

__all__ = ["Finding", "Sign", "Wire", "envelope", "read_discovery"]

_DATED: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_OLDER: Final = frozenset(bridge.VERSIONS)


class Wire(StrEnum):
    """How a server of the legacy era is reached."""

    HTTP = "http"
    SSE = "http+sse"
    STDIO = "stdio"


class Sign(StrEnum):
    """What an answer is evidence of."""

    MODERN = "modern"
    BOTH = "both"
    FOREIGN = "foreign"
    """Revisions of which this gateway knows none."""
    OLDER = "older"
    """Not the modern era: only `initialize` can tell."""


class Finding(msgspec.Struct, frozen=True):
    """What was found out about a server. Without eras nothing was, and `how` says why, in our own words.

    `version` is the revision that was agreed on, `wire` how the legacy era is reached.
    """

    eras: frozenset[Era]
    how: str
    version: str = ""
    wire: Wire | None = None


def envelope(version: str) -> dict[str, object]:
    """Return the `_meta` of a question of the gateway's own; `version` is that of the program.

    SECURITY: who asks is the gateway: no caller's name or credential goes with it (mcp.md 26.17).
    """
    return {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "airlock", "version": version},
        "io.mcp-airlock/principal": "airlock",
    }


def read_discovery(response: dict[str, object]) -> Sign:
    """Read a JSON-RPC response to `server/discover`: a result or an error."""
    result, error = response.get("result"), response.get("error")
    listed: object = None
    if isinstance(result, dict):
        listed = result.get("supportedVersions")
    elif isinstance(error, dict) and error.get("code") == jsonrpc.UNSUPPORTED_VERSION:
        data = error.get("data")
        listed = data.get("supported") if isinstance(data, dict) else None
    # SPEC: mcp.md 19: any other error is none of the modern era's; to go by one code alone would be wrong.
    names = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else set()
    if REVISION in names:
        return Sign.BOTH if names & _OLDER else Sign.MODERN
    newer = any(_DATED.fullmatch(name) and name > bridge.LATEST for name in names)
    return Sign.FOREIGN if newer and not names & _OLDER else Sign.OLDER
