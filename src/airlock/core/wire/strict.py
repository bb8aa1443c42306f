"""Strict JSON in: one reading per text, the same on every Python, or a refusal that says which rule it broke.

Knows texts and values; does not know requests, answers or what is done with a refusal.
SPEC: gateway.md 2 (A3, A5) and 11.4.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Any, NoReturn

__all__ = [
    "MAX_DEPTH",
    "MAX_PARSE_DEPTH",
    "StrictError",
    "StrictKind",
    "deeper_than",
    "nesting",
    "parse",
    "skeleton",
]

MAX_PARSE_DEPTH = 1000
"""Containers inside one another that are read at all; the outermost is level 1."""

MAX_DEPTH = 64
"""Containers inside one another that a request or an answer may have."""


class StrictKind(StrEnum):
    """Which rule a text broke."""

    ENCODING = "encoding"
    SYNTAX = "syntax"
    DUPLICATE = "duplicate"
    NUMBER = "number"
    DEPTH = "depth"


_WORDS = {
    StrictKind.ENCODING: "the text is not UTF-8, or begins with a byte order mark",
    StrictKind.SYNTAX: "the text is not JSON",
    StrictKind.DUPLICATE: "an object has the same key twice",
    StrictKind.NUMBER: "a number does not fit a double",
    StrictKind.DEPTH: "the text is nested too deep",
}


class StrictError(ValueError):
    """The text is refused. `kind` names the rule; the message is our own words and never quotes the text."""

    def __init__(self, kind: StrictKind) -> None:
        self.kind = kind
        super().__init__(kind)

    def __str__(self) -> str:
        return _WORDS[self.kind]


_BOM = b"\xef\xbb\xbf"
_SIGN = re.compile(r"[ \t\n\r]*([]{}[,:]?)[ \t\n\r]*")
_CLOSING = {"[": "]", "{": "}"}
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_CONTENT = bytes(byte for byte in range(256) if byte not in b'[]{}:"')
_PIECE = 48
_DOUBLE_DIGITS = 309  # the largest double has 309 digits before the point


def skeleton(data: bytes) -> bytes:
    """Return the brackets and colons of a JSON text that stand outside its strings. Linear in its length.

    Of a text that is not JSON it is right up to the first error, which is as far as any parser reads.
    """
    if b"\\" in data:
        # A run of backslashes in a string is paired from its start, and that is how `replace` pairs them.
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Taking out two neighbouring quotes leaves every other byte inside or outside, as it was.
    signs = data.translate(None, _CONTENT).replace(b'""', b"")
    return b"".join(signs.split(b'"')[::2])


def nesting(data: bytes) -> int:
    """Return the deepest container level of a JSON text: 0 for a scalar, 1 for `{}`. Strings do not count."""
    steps = skeleton(data).translate(_STEPS, b":")
    return max(accumulate(memoryview(steps).cast("b"), initial=0))


def deeper_than(data: bytes, limit: int) -> bool:
    """Tell whether a JSON text is nested deeper than `limit`; walked only where it could be.

    The brackets are taken piece by piece: one whose opening brackets all together stay within the limit needs no
    walk, whatever their order.
    """
    if not _brackets_exceed(data, limit):
        return False
    brackets = skeleton(data).translate(None, b":")
    depth = 0
    for at in range(0, len(brackets), _PIECE):
        piece = brackets[at : at + _PIECE]
        opened = piece.count(b"{") + piece.count(b"[")
        if depth + opened > limit:
            steps = memoryview(piece.translate(_STEPS)).cast("b")
            if depth + max(accumulate(steps, initial=0)) > limit:
                return True
        depth += 2 * opened - len(piece)
    return False


def _brackets_exceed(data: bytes, limit: int) -> bool:
    # `find` skips text several times faster than `count`, and most texts have few brackets.
    for bracket in (b"{", b"["):
        at = data.find(bracket)
        while at >= 0:
            if not limit:
                return True
            limit -= 1
            at = data.find(bracket, at + 1)
    return False


def parse(data: bytes, *, unique: bool = True) -> object:
    """Return the value of a JSON text. Integers keep every digit, lone surrogate escapes stay as they are.

    Raises `StrictError`: ENCODING for bytes that are not UTF-8 or begin with a byte order mark; DEPTH beyond
    `MAX_PARSE_DEPTH`; NUMBER for NaN, infinities and numbers beyond a double; DUPLICATE for a key that stands
    twice in one object (unless `unique` is False: then the last one wins); SYNTAX for the rest.
    """
    # SECURITY: `json` given bytes would guess UTF-16 and skip a mark, and two readers would see two texts.
    if data.startswith(_BOM):
        raise StrictError(StrictKind.ENCODING)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise StrictError(StrictKind.ENCODING) from None
    if deeper_than(data, MAX_PARSE_DEPTH):
        raise StrictError(StrictKind.DEPTH)
    decoder = _unique_decoder if unique else _last_wins_decoder
    try:
        try:
            return decoder.decode(text)
        except RecursionError:
            # SPEC: gateway.md 2 (A3): the limit is ours, never the parser's, which on some Pythons is lower.
            return _parse_deep(text, decoder)
    except json.JSONDecodeError:
        raise StrictError(StrictKind.SYNTAX) from None


def _parse_deep(text: str, decoder: json.JSONDecoder) -> object:
    """Do what `decoder.decode(text)` does, keeping the open containers in a list, not on the call stack.

    LIMIT: some ten times slower than the C parser; only a text near `MAX_PARSE_DEPTH` comes here.
    """
    opened: list[tuple[str, list[Any]]] = []
    keys: list[str] = []
    at = 0
    while True:
        mark, at = _sign(text, at)
        if mark in _CLOSING:
            sign, after = _sign(text, at)
            if sign != _CLOSING[mark]:
                opened.append((mark, []))
                at = _key(text, at, decoder, keys) if mark == "{" else at
                continue
            value, at = _container(mark, [], decoder), after
        elif mark:
            raise StrictError(StrictKind.SYNTAX)
        else:
            value, at = decoder.raw_decode(text, at)
        while opened:
            mark, members = opened[-1]
            members.append((keys.pop(), value) if mark == "{" else value)
            sign, at = _sign(text, at)
            if sign == ",":
                at = _key(text, at, decoder, keys) if mark == "{" else at
                break
            if sign != _CLOSING[mark]:
                raise StrictError(StrictKind.SYNTAX)
            opened.pop()
            value = _container(mark, members, decoder)
        else:
            sign, at = _sign(text, at)
            if sign or at < len(text):
                raise StrictError(StrictKind.SYNTAX)
            return value


def _key(text: str, at: int, decoder: json.JSONDecoder, keys: list[str]) -> int:
    if not text.startswith('"', at):
        raise StrictError(StrictKind.SYNTAX)
    key, at = decoder.raw_decode(text, at)
    sign, at = _sign(text, at)
    if sign != ":":
        raise StrictError(StrictKind.SYNTAX)
    keys.append(key)
    return at


def _container(mark: str, members: list[Any], decoder: json.JSONDecoder) -> object:
    return members if mark == "[" else decoder.object_pairs_hook(members)


def _sign(text: str, at: int) -> tuple[str, int]:
    """Return the structural sign at `at`, or "", and where the text goes on; blanks around it are skipped."""
    match = _SIGN.match(text, at)
    assert match is not None  # every part of the pattern may be empty
    return match[1], match.end()


def _no_duplicates(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    # SECURITY: two readers of `{"a":1,"a":2}` may see two values: what is judged must be what is run.
    if len(members) != len(pairs):
        raise StrictError(StrictKind.DUPLICATE)
    return members


def _integer(text: str) -> int:
    # SECURITY: counted before `int`, which is quadratic in the digits and has a limit and error of its own.
    digits = len(text.removeprefix("-"))
    if digits > _DOUBLE_DIGITS or (digits == _DOUBLE_DIGITS and math.isinf(float(text))):
        raise StrictError(StrictKind.NUMBER)
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise StrictError(StrictKind.NUMBER)
    return number


def _constant(_: str) -> NoReturn:
    raise StrictError(StrictKind.NUMBER)


_unique_decoder = json.JSONDecoder(
    object_pairs_hook=_no_duplicates, parse_int=_integer, parse_float=_real, parse_constant=_constant
)
_last_wins_decoder = json.JSONDecoder(
    object_pairs_hook=dict, parse_int=_integer, parse_float=_real, parse_constant=_constant
)
