"""One entry in a YAML file, the rest of the file kept byte for byte.

Knows YAML texts and where their keys stand; does not know files, or what an entry means. What may stand in the
file is the client's business: unlike a policy, it may hold anchors and words that one could read otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from airlock.core.errors import ConfigError
from airlock.core.text.safe import one_line

__all__ = ["parse", "put", "show"]

_UNIT: Final = "  "
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_MINE: Final = "so it is yours to edit"


def parse(text: str, path: str) -> dict[str, object]:
    """Return the mapping that `text` is. Raises ConfigError."""
    try:
        document = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, OverflowError) as error:
        raise ConfigError(path, f"not YAML that can be edited: {_words(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(path, "not a mapping")
    return document


def put(text: str, path: str, section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return `text` with `entry` as the key `section.name`. Raises ConfigError."""
    servers = parse(text, path).get(section)
    newline = "\r\n" if "\r\n" in text else "\n"
    root: Node | None = YAML(typ="safe", pure=True).compose(text)
    if isinstance(root, MappingNode) and root.flow_style:
        raise ConfigError(path, f"the file is written in one line, {_MINE}")
    held = _pair(root, section)
    if held is None:
        gap = "" if not text or text.endswith("\n") else newline
        return text + gap + show(section, name, entry).replace("\n", newline)
    key, value = held
    if not servers and (servers is None or isinstance(servers, dict)):
        # What stands for nothing goes; a comment behind it stays.
        end = _end(text, held)
        line = _line_end(text, end)
        rest = text[end:line]
        head = text[: key.end_mark.index] + ":" + rest.rstrip()
        body = _block(name, entry, _UNIT).replace("\n", newline)
        return head + newline + body.removesuffix(newline) + (text[line:] or newline)
    if not isinstance(value, MappingNode) or not isinstance(servers, dict):
        raise ConfigError(path, f"{section} is not a mapping")
    if value.flow_style:
        raise ConfigError(path, f"{section} is written in one line, {_MINE}")
    indent = " " * value.value[0][0].start_mark.column
    body = _block(name, entry, indent).replace("\n", newline)
    old = _pair(value, name)
    if old is None:
        line = text.find("\n", key.end_mark.index) + 1
        return text[:line] + body + text[line:]
    begin = old[0].start_mark.index - old[0].start_mark.column
    return text[:begin] + body.removesuffix(newline) + text[_line_end(text, _end(text, old)) :]


def show(section: str, name: str, entry: Mapping[str, object]) -> str:
    """Return a document that holds `entry` as `section.name` and nothing else."""
    return f"{_key(section)}:\n{_block(name, entry, _UNIT)}"


def _block(name: str, entry: Mapping[str, object], indent: str) -> str:
    lines = [f"{indent}{_key(name)}:"]
    for key, value in entry.items():
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{_UNIT}{_key(key)}:")
            lines += [f"{indent}{_UNIT * 2}{_key(inner)}: {_flow(item)}" for inner, item in value.items()]
        else:
            lines.append(f"{indent}{_UNIT}{_key(key)}: {_flow(value)}")
    return "\n".join(lines) + "\n"


def _key(key: object) -> str:
    plain = isinstance(key, str) and _PLAIN.fullmatch(key) and key.lower() not in _WORDS
    return str(key) if plain else _flow(key)


def _flow(value: object) -> str:
    # JSON is YAML; what JSON cannot say, such as a date, is no setting of a server.
    return json.dumps(value, default=str)


def _pair(node: Node | None, key: str) -> tuple[Any, Any] | None:
    """Return the nodes of a key and its value in a mapping."""
    if not isinstance(node, MappingNode):
        return None
    return next(
        ((k, v) for k, v in node.value if isinstance(k, ScalarNode) and k.value == key),
        None,
    )


def _end(text: str, pair: tuple[Any, Any]) -> int:
    """Return where what is written in a key's value ends; a node's own end may be that of what follows it."""
    key, node = pair
    if isinstance(node, MappingNode) and node.value and not node.flow_style:
        return _end(text, node.value[-1])
    if isinstance(node, SequenceNode) and node.value and not node.flow_style:
        return _end(text, (key, node.value[-1]))
    if isinstance(node, ScalarNode) and not node.value and node.style is None:
        return text.index(":", key.end_mark.index) + 1
    return len(text[: node.end_mark.index].rstrip())


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end - text[:end].endswith("\r")


def _words(error: Exception) -> str:
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = "" if mark is None else f"line {mark.line + 1}: "
        return one_line(f"{place}{error.problem or error.context}".partition("\n")[0])
    return type(error).__name__
