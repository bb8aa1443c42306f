"""One table in a TOML file, the rest of the file kept byte for byte.

Knows TOML texts and where a table begins and ends; does not know files, or what an entry means.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from typing import Final

from airlock.core.errors import ConfigError
from airlock.core.text.safe import one_line

__all__ = ["parse", "put", "show"]

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_HEADER: Final = re.compile(r"[ \t]*\[")
_KEY: Final = re.compile(r"""[ \t]*(?:([A-Za-z0-9_-]+)|"([^"\\]*)"|'([^']*)')[ \t]*(\.?)""")


def parse(text: str, path: str) -> dict[str, object]:
    """Return what `text` says. Raises ConfigError."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(path, f"not TOML that can be edited: {one_line(str(error))}") from None


def put(text: str, path: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return `text` with `entry` as the table `section.name`. Raises ConfigError."""
    servers = parse(text, path).get(section, {})
    if not isinstance(servers, dict):
        raise ConfigError(path, f"{section} is not a table")
    newline = "\r\n" if "\r\n" in text else "\n"
    table = _table(section, name, entry, path).replace("\n", newline)
    if name not in servers:
        gap = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
        return text + gap + table
    lines = text.splitlines(keepends=True)
    begin, end = _extent(lines, (section, name))
    if begin == end:
        raise ConfigError(path, f"{section}.{name} has no table of its own, so it is yours to edit")
    return "".join(lines[:begin]) + table + "".join(lines[end:])


def show(section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return a document that holds `entry` as the table `section.name` and nothing else."""
    return _table(section, name, entry, "")


def _extent(lines: list[str], wanted: tuple[str, str]) -> tuple[int, int]:
    """Find the lines of a table and of the tables below it. What is not found this way is an empty range.

    LIMIT: a line of a text of several lines may look like a header; what is made of it is then not what was
    meant, which whoever writes the file has to see.
    """
    begin = end = 0
    inside = False
    for number, line in enumerate(lines):
        if _HEADER.match(line):
            inside = _names(line)[:2] == wanted
            if inside and begin == end:
                begin = number
        # Blank lines and comments at the end belong to what follows.
        if inside and line.strip() and not line.lstrip().startswith("#"):
            end = number + 1
    return begin, end


def _names(line: str) -> tuple[str, ...]:
    """Return the keys of a header, `[a.b]`; none for one of an array of tables."""
    found: list[str] = []
    at = line.index("[") + 1
    while (match := _KEY.match(line, at)) is not None:
        found.append(next(group for group in match.groups()[:3] if group is not None))
        at = match.end()
        if not match[4]:
            break
    return tuple(found)


def _table(section: str, name: str, entry: Mapping[str, object], path: str) -> str:
    lines = [f"[{_key(section)}.{_key(name)}]"]
    lines += [f"{_key(key)} = {_written(value, path)}" for key, value in entry.items()]
    return "\n".join(lines) + "\n"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _string(key)


def _written(value: object, path: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(_written(item, path) for item in value)}]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_written(item, path)}" for key, item in value.items()) + " }"
    raise ConfigError(path, f"the entry holds a {type(value).__name__}, so it is yours to edit")


def _string(text: str) -> str:
    # JSON's escapes are among TOML's; one sign that JSON leaves as it is has to be escaped in TOML.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
