"""One entry in a JSON file, the rest of the file kept byte for byte, comments of VS Code's dialect too.

Knows JSON texts and where their members stand; does not know files, or what an entry means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from airlock.core.errors import ConfigError
from airlock.core.wire import strict

__all__ = ["parse", "put", "show"]

_BOM: Final = "\ufeff"
_UNIT: Final = "  "
_SPACE: Final = " \t\r\n"
# A string, so that nothing inside one is taken for a comment; or a comment.
_COMMENT: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')
_VISIBLE: Final = re.compile(r"[^\r\n]")
_DECODER: Final = json.JSONDecoder()


class _Member(NamedTuple):
    """Where a member of an object stands: its key, its value, and the end of that."""

    key: str
    start: int
    value: int
    end: int


class _Object(NamedTuple):
    """Where an object stands: its opening brace, its closing one, and what is between them."""

    start: int
    close: int
    members: tuple[_Member, ...]

    def find(self, key: str) -> _Member | None:
        return next((member for member in self.members if member.key == key), None)


def parse(text: str, path: str) -> dict[str, object]:
    """Return the object that `text` is. Raises ConfigError."""
    return _parsed(_plain(text), path)


def put(text: str, path: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return `text` with `entry` as its member `section.name`. Raises ConfigError."""
    plain = _plain(text)
    document = _parsed(plain, path)
    if not document and not plain.strip(_SPACE):
        return show(section, name, entry)
    root = _object(plain, len(plain) - len(plain.lstrip(_SPACE)))
    held = root.find(section)
    if held is None:
        return _added(text, plain, root, section, {name: entry})
    if not isinstance(document[section], dict):
        raise ConfigError(path, f"{section} is not an object")
    servers = _object(plain, held.value)
    old = servers.find(name)
    if old is None:
        return _added(text, plain, servers, name, entry)
    new = _line(entry)
    if _own_line(text, old.start):
        new = _value(entry, _unit(plain, root), _indent(text, old.start), _newline(text))
    return text[: old.value] + new + text[old.end :]


def show(section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return a document that holds `entry` as `section.name` and nothing else."""
    return json.dumps({section: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def _plain(text: str) -> str:
    """Return `text` as strict JSON of the same length: blanks for comments, trailing commas and a mark."""
    if text.startswith(_BOM):
        text = " " + text[1:]
    return _TRAILING.sub(_blanked, _COMMENT.sub(_blanked, text))


def _blanked(match: re.Match[str]) -> str:
    return match[0] if match[1] is not None else _VISIBLE.sub(" ", match[0])


def _parsed(plain: str, path: str) -> dict[str, object]:
    if not plain.strip(_SPACE):
        return {}
    try:
        document = strict.parse(plain.encode())
    except (strict.StrictError, UnicodeEncodeError) as error:
        raise ConfigError(path, f"not JSON that can be edited: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(path, "not a JSON object")
    return document


def _object(plain: str, start: int) -> _Object:
    """Find the members of the object that begins at `start` of a text that `_parsed` read."""
    members: list[_Member] = []
    at = _next(plain, start + 1)
    while plain[at] != "}":
        begin = at
        key, at = _DECODER.raw_decode(plain, begin)
        value = _next(plain, _next(plain, at) + 1)
        _, end = _DECODER.raw_decode(plain, value)
        members.append(_Member(key, begin, value, end))
        at = _next(plain, end)
        if plain[at] == ",":
            at = _next(plain, at + 1)
    return _Object(start, at, tuple(members))


def _next(plain: str, at: int) -> int:
    while plain[at] in _SPACE:
        at += 1
    return at


def _added(text: str, plain: str, where: _Object, key: str, value: Mapping[str, object]) -> str:
    """Return `text` with one more member at the end of an object."""
    newline, unit = _newline(text), _unit(plain, _object(plain, _next(plain, 0)))
    if not where.members:
        # A comment in an object without members stays, before its first one.
        inner = text[where.start + 1 : where.close].rstrip()
        indent = _indent(text, where.start)
        member = f"{newline}{indent}{unit}{json.dumps(key)}: {_value(value, unit, indent + unit, newline)}"
        return text[: where.start + 1] + inner + member + newline + indent + text[where.close :]
    last = where.members[-1]
    if not _own_line(text, last.start):
        return text[: last.end] + f", {json.dumps(key)}: {_line(value)}" + text[last.end :]
    indent = _indent(text, last.start)
    member = f"{newline}{indent}{json.dumps(key)}: {_value(value, unit, indent, newline)}"
    line = _end_of_line(text, last.end, where.close)
    # A comment behind the last member stays with it. The comma may be there already, as a trailing one.
    comma = _COMMENT.sub(_blanked, text[last.end : where.close]).find(",")
    if comma < 0:
        return text[: last.end] + "," + text[last.end : line] + member + text[line:]
    line = max(line, last.end + comma + 1)
    return text[:line] + member + "," + text[line:]


def _end_of_line(text: str, at: int, close: int) -> int:
    """Return where what stands behind a member on its line ends; `at` when that is no comment of one line."""
    end = text.find("\n", at, close)
    rest = text[at:end]
    if end < 0 or "/*" in rest:
        return at
    return end - 1 if rest.endswith("\r") else end


def _value(value: Mapping[str, object], unit: str, indent: str, newline: str) -> str:
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", newline + indent)


def _line(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(plain: str, root: _Object) -> str:
    """Return what one level of the text is set in by."""
    first = root.members[0].start if root.members else 0
    return (_indent(plain, first) if root.members and _own_line(plain, first) else "") or _UNIT


def _own_line(text: str, at: int) -> bool:
    """Tell whether nothing stands before `at` on its line."""
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 :]
    return line[: len(line) - len(line.lstrip(" \t"))]
