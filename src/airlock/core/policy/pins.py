"""Pins: the hash of what a model reads about a tool, as somebody reviewed it, and whether a tool still has it.

Knows which members of a tool count and what a pins file holds; does not know files, servers or what is done
about a changed tool. SPEC: gateway.md 9.5.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

import msgspec

from airlock.core.errors import ConfigError, Fault
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line
from airlock.core.wire import canon

__all__ = ["COVERED", "PREFIX", "Pins", "parse", "pin_of", "text"]

COVERED = ("annotations", "description", "inputSchema", "name", "outputSchema", "title")
"""The members of a tool that a pin covers. A model reads neither `icons` nor `_meta`."""

PREFIX = "sha256v2:"
"""What a pin begins with; 64 lowercase hex digits follow."""

_PIN = re.compile(PREFIX + "[0-9a-f]{64}")
_OLD_PREFIX = "sha256:"
_SHOWN_NAME_CHARS = 80
_MORE = "..."


class Pins(msgspec.Struct, frozen=True):
    """The pins of one file: tool name to pin. A tool that is not in it is not pinned."""

    of: Mapping[str, str] = {}

    def changed(self, tool: Mapping[str, object]) -> bool:
        """Tell whether the listed `tool` is pinned and is not what was pinned."""
        name = tool.get("name")
        pin = self.of.get(name) if isinstance(name, str) else None
        return pin is not None and pin != pin_of(tool)


def pin_of(tool: Mapping[str, object]) -> str:
    """Return the pin of a listed tool: SHA-256 of the canonical JSON of what is covered, missing as null.

    `tool` holds JSON values only.
    """
    covered = {member: tool.get(member) for member in COVERED}
    return PREFIX + hashlib.sha256(canon.encode(covered)).hexdigest()


def parse(document: object, source: str) -> Pins:
    """Turn the parsed `document` of a pins file into Pins. `source` names the file in the error.

    Raises ConfigError with every fault. An older pin covers no title, so a file that holds one is refused
    whole, with that as its only fault.
    """
    if not isinstance(document, dict):
        raise ConfigError(source, "a pins file is a JSON object: tool name to pin")
    # SECURITY: to keep the new pins of such a file and skip the old ones would leave tools unpinned in silence.
    if any(isinstance(pin, str) and pin.startswith(_OLD_PREFIX) for pin in document.values()):
        problem = f"holds pins of an older form ({_OLD_PREFIX}), which do not cover the title"
        raise ConfigError(source, [Fault("", problem, "pin again, from a server you trust")])
    faults = [
        Fault(cut(one_line(name), _SHOWN_NAME_CHARS, _MORE), f"must be {PREFIX} and 64 lowercase hex digits")
        for name, pin in document.items()
        if not (isinstance(pin, str) and _PIN.fullmatch(pin))
    ]
    if faults:
        raise ConfigError(source, faults)
    return Pins(document)


def text(pins: Pins) -> str:
    """Return what a pins file holds: a JSON object with sorted keys, indented by 2, a newline at the end, ASCII."""
    return json.dumps(dict(pins.of), indent=2, sort_keys=True) + "\n"
