"""The handshake of the older eras in terms of the newer: versions, capabilities both ways, names, instructions.

Pure. Knows what a revision can say; knows no session. SPEC: mcp.md 4, 18, 20a (initialize).
"""

from __future__ import annotations

from functools import cache
from importlib import metadata
from typing import Final

from airlock.gateway.door import LEGACY_VERSIONS

__all__ = ["NEWEST", "advertised", "agreed", "change_kinds", "declared", "named", "opened"]

NEWEST: Final = LEGACY_VERSIONS[0]

_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
_URL_SINCE: Final = "2025-11-25"
_TITLE_SINCE: Final = "2025-06-18"

_FLAGS: Final = {
    "tools": ("listChanged",),
    "prompts": ("listChanged",),
    "resources": ("subscribe", "listChanged"),
    "completions": (),
    "logging": (),
}
_KINDS: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
_NEED_LISTEN: Final = ("listChanged", "subscribe")
# SECURITY: what a client says of itself is kept as long as its session lives.
_MOST_CHARS: Final = 256


def agreed(offered: str) -> str:
    """Return the version to answer with: the one offered when it is served, else the newest of this front."""
    return offered if offered in LEGACY_VERSIONS else NEWEST


def declared(capabilities: object, version: str) -> dict[str, object]:
    """Return what a client of `version` declared, as revision 2026-07-28 says it. What has no bridge is left out.

    `elicitation: {}` is forms only, in every revision.
    """
    if not isinstance(capabilities, dict):
        return {}
    found: dict[str, object] = {}
    elicitation = capabilities.get("elicitation")
    if isinstance(elicitation, dict):
        url = version >= _URL_SINCE and isinstance(elicitation.get("url"), dict)
        form = not url or isinstance(elicitation.get("form"), dict)
        found["elicitation"] = {"form": {}} if not url else {"form": {}, "url": {}} if form else {"url": {}}
    sampling = capabilities.get("sampling")
    if isinstance(sampling, dict):
        found["sampling"] = {
            name: {} for name in ("context", "tools") if isinstance(sampling.get(name), dict)
        }
    if isinstance(capabilities.get("roots"), dict):
        found["roots"] = {}
    return found


def named(info: object) -> dict[str, object] | None:
    """Return who a client says it is, cut short; None without a name and a version."""
    if not isinstance(info, dict):
        return None
    found: dict[str, object] = {
        key: text[:_MOST_CHARS]
        for key in ("name", "version", "title")
        if isinstance(text := info.get(key), str)
    }
    return found if "name" in found and "version" in found else None


def advertised(capabilities: object, *, listen: bool) -> dict[str, object]:
    """Return a server's capabilities as the older eras say them. Without `listen` nothing is said to be announced.

    SPEC: mcp.md 4: what is advertised is what is served: no extensions, no tasks.
    """
    if not isinstance(capabilities, dict):
        return {}
    return {
        name: {
            flag: True
            for flag in flags
            if capabilities[name].get(flag) is True and (listen or flag not in _NEED_LISTEN)
        }
        for name, flags in _FLAGS.items()
        if isinstance(capabilities.get(name), dict)
    }


def change_kinds(opened: dict[str, object]) -> tuple[str, ...]:
    """Return the kinds of changes that the result of an `initialize` promises, as a listen names them."""
    capabilities = opened["capabilities"]
    assert isinstance(capabilities, dict)
    return tuple(
        kind
        for name, kind in _KINDS.items()
        if isinstance(found := capabilities.get(name), dict) and found.get("listChanged") is True
    )


def opened(discovered: dict[str, object], version: str, *, listen: bool) -> dict[str, object]:
    """Return the result of an `initialize` at `version`, given that of a `server/discover`."""
    result: dict[str, object] = {
        "protocolVersion": version,
        "capabilities": advertised(discovered.get("capabilities"), listen=listen),
        "serverInfo": _server_info(discovered.get("_meta"), version),
    }
    instructions = discovered.get("instructions")
    if isinstance(instructions, str):
        result["instructions"] = instructions
    return result


def _server_info(meta: object, version: str) -> dict[str, object]:
    info = meta.get(_SERVER_INFO) if isinstance(meta, dict) else None
    if not (
        isinstance(info, dict) and isinstance(info.get("name"), str) and isinstance(info.get("version"), str)
    ):
        return {"name": "airlock", "version": _own_version()}
    if version >= _URL_SINCE:
        return info
    known = ("name", "version", "title") if version >= _TITLE_SINCE else ("name", "version")
    return {key: info[key] for key in known if key in info}


@cache
def _own_version() -> str:
    try:
        return metadata.version("airlock")
    except metadata.PackageNotFoundError:
        return "0"
