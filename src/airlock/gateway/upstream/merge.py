"""The lists and descriptions of several servers as one: names with their prefix, bad and doubled entries left out.

Knows shapes of lists; does not know who is asked, when, or what the caller may see. SPEC: mcp.md 9, issue 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from airlock.core.policy.compose import SEPARATOR, outside
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line

__all__ = [
    "DISCOVER",
    "LISTS",
    "MAX_INSTRUCTIONS",
    "MAX_NAME",
    "MAX_URI",
    "Entries",
    "discovered",
    "joined",
    "plain",
    "ttl_ms",
    "usable",
]

DISCOVER: Final = "server/discover"
LISTS: Final[Mapping[str, str]] = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
"""Method, and the member of its result that holds the list."""

_KEYS = {"resources/list": "uri", "resources/templates/list": "uriTemplate"}  # of the others: `name`
_REVISION = "2026-07-28"
_TASKS = "io.modelcontextprotocol/tasks"  # a task id tells nobody which server gave it

MAX_NAME = 128
"""Characters of a tool's or prompt's name outside, prefix and separator included."""

MAX_URI = 8192
"""Characters of a resource's address or template."""

MAX_INSTRUCTIONS = 16_000
"""Characters of all instructions together; each server has an equal share."""

_MAX_TTL_MS = 86_400_000
_MORE = " (cut)"


class Entries(msgspec.Struct, frozen=True):
    """What one server lists and what can be used of it: own key (name or address) to the entry as it is outside."""

    of: dict[str, dict[str, object]]
    isolated: int


def plain(text: str, most: int) -> bool:
    """Tell whether a name or address is one: not empty, not over-long, nothing in it that cannot be seen."""
    return 0 < len(text) <= most and one_line(text) == text


def usable(method: str, items: Sequence[object], prefix: str, prefixes: frozenset[str]) -> Entries:
    """Read one server's list. `prefixes` are those of all servers: without one, a name may not begin with theirs.

    An entry without a usable key is left out, and so are all that share one: nobody knows which is meant.
    """
    key = _KEYS.get(method, "name")
    found: dict[str, dict[str, object]] = {}
    doubled: set[str] = set()
    for item in items:
        own = item.get(key) if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(own, str):
            continue
        if own in found:
            doubled.add(own)
        elif key != "name":
            if plain(own, MAX_URI):
                found[own] = item
        else:
            name = outside(prefix, own)
            # SECURITY: `git__push` of a server without a prefix would be called, and judged, as that of `git`.
            if plain(name, MAX_NAME) and own and not (not prefix and _prefix_of(own) in prefixes):
                found[own] = {**item, "name": name}
    for own in doubled:
        del found[own]
    return Entries(found, len(items) - len(found))


def joined(method: str, parts: Sequence[Entries], ttl: int) -> tuple[dict[str, object], int]:
    """Return one list result of all `parts`, in their order, and how many entries were left out in all.

    An address that two servers list is left out of both. `ttl` is in milliseconds.
    """
    isolated = sum(part.isolated for part in parts)
    items = [item for part in parts for item in part.of.values()]
    if method in _KEYS:
        owners = Counter(key for part in parts for key in part.of)
        alone = [item for part in parts for key, item in part.of.items() if owners[key] == 1]
        isolated += len(items) - len(alone)
        items = alone
    result: dict[str, object] = {"resultType": "complete", LISTS[method]: items}
    # SECURITY: what several servers show one caller is for him alone, whatever scope one of them gave.
    return result | {"ttlMs": ttl, "cacheScope": "private"}, isolated


def discovered(parts: Sequence[tuple[str, Mapping[str, object]]], ttl: int) -> dict[str, object]:
    """Return one `server/discover` result of several, each given with its upstream's name."""
    capabilities: dict[str, dict[str, object]] = {}
    for _, part in parts:
        _add(capabilities, part.get("capabilities"))
    capabilities.get("extensions", {}).pop(_TASKS, None)
    result: dict[str, object] = {
        "resultType": "complete",
        "supportedVersions": [_REVISION],
        "capabilities": capabilities,
    }
    said = [
        (name, text) for name, part in parts if isinstance(text := part.get("instructions"), str) and text
    ]
    if said:
        share = MAX_INSTRUCTIONS // len(said)
        result["instructions"] = "\n\n".join(cut(f"{name}: {text}", share, _MORE) for name, text in said)
    return result | {"ttlMs": ttl, "cacheScope": "private"}


def ttl_ms(value: object) -> int:
    """Read a `ttlMs`: missing, negative or not an integer is 0, and nothing is kept longer than a day."""
    return min(value, _MAX_TTL_MS) if type(value) is int and value > 0 else 0


def _add(capabilities: dict[str, dict[str, object]], more: object) -> None:
    """Add the capabilities of one server: a flag is set when any sets it, of two settings the first stays."""
    for name, settings in more.items() if isinstance(more, dict) else ():
        if isinstance(settings, dict):
            known = capabilities.setdefault(name, {})
            for key, value in settings.items():
                if known.setdefault(key, value) is False and value is True:
                    known[key] = True


def _prefix_of(own: str) -> str | None:
    prefix, between, _ = own.partition(SEPARATOR)
    return prefix if between else None
