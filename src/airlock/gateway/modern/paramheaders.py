"""The `Mcp-Param-*` headers: which arguments of a tool a header repeats, and how their values are written.

Pure: knows a tool's `inputSchema`, its arguments and the `=?base64?…?=` form; sends nothing, checks no request.
SPEC: mcp.md 6.
"""

from __future__ import annotations

import base64
import re

import msgspec

__all__ = ["Mirror", "encode_value", "mirrors", "rendered", "value_at", "with_params"]

_KEY = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PLAIN = re.compile(r"[\x20-\x7e]*")
_TYPES = ("string", "integer", "boolean")
_PARAM = b"mcp-param-"
_MOST_SAFE = 2**53 - 1

# What holds schemas by a name of its own choice, and what holds one schema or a list of them.
_NAMED = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
_HELD = (
    "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items",
    "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip


class Mirror(msgspec.Struct, frozen=True):
    """One argument that a header repeats: `Mcp-Param-<token>`, and the keys that lead to the value."""

    token: str
    path: tuple[str, ...]


def mirrors(schema: object) -> tuple[Mirror, ...] | None:
    """Return what an `inputSchema` wants repeated; None when one of its annotations is not valid.

    A tool of which this returns None is not to be used over HTTP.
    """
    found: dict[str, Mirror] = {}
    # A path of None: no value of the arguments is sure to be described here.
    left: list[tuple[object, tuple[str, ...] | None]] = [(schema, ())]
    while left:
        here, path = left.pop()
        if isinstance(here, list):
            left += [(each, None) for each in here]
            continue
        if not isinstance(here, dict):
            continue
        if _KEY in here:
            token = here[_KEY]
            # SECURITY: the token becomes a header name: anything but a token could split the request.
            if not (isinstance(token, str) and _TOKEN.fullmatch(token)) or here.get("type") not in _TYPES:
                return None
            if not path or found.setdefault(token.lower(), Mirror(token, path)).path != path:
                return None
        for keyword in _NAMED:
            inner = here.get(keyword)
            if isinstance(inner, dict):
                follows = path if keyword == "properties" else None
                left += [
                    (each, None if follows is None else (*follows, name)) for name, each in inner.items()
                ]
        left += [(here[keyword], None) for keyword in _HELD if keyword in here]
    return tuple(sorted(found.values(), key=lambda mirror: mirror.path))


def encode_value(text: str) -> bytes | None:
    """Write a value as `headers.decode_name` reads it; None for a text that UTF-8 has no bytes for."""
    # SPEC: mcp.md 6: printable, without blanks at its ends, and not itself shaped like the other form.
    if _PLAIN.fullmatch(text) and text == text.strip(" ") and not _wrapped(text):
        return text.encode("ascii")
    try:
        return b"=?base64?" + base64.b64encode(text.encode("utf-8")) + b"?="
    except UnicodeEncodeError:
        return None


def with_params(headers: bytes, wanted: tuple[Mirror, ...], arguments: object) -> bytes:
    """Return the header block with the `Mcp-Param-*` lines that `arguments` ask for, and no others."""
    # SECURITY: what the client sent there may contradict the arguments that are really sent.
    kept = [line for line in headers.split(b"\r\n") if line and line[: len(_PARAM)].lower() != _PARAM]
    for mirror in wanted:
        value = rendered(value_at(arguments, mirror.path))
        if value is not None:
            kept.append(b"Mcp-Param-%b: %b" % (mirror.token.encode("ascii"), value))
    return b"\r\n".join(kept) + b"\r\n"


def _wrapped(text: str) -> bool:
    return text.startswith("=?base64?") and text.endswith("?=")


def value_at(value: object, path: tuple[str, ...]) -> object:
    """Return what stands at the keys of `path`; None when that is nothing."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def rendered(value: object) -> bytes | None:
    """Write one argument; None for what no header repeats."""
    if isinstance(value, str):
        return encode_value(value)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and -_MOST_SAFE <= value <= _MOST_SAFE:
        return b"%d" % value
    return None
