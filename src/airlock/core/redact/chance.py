"""Whether a value behind a name that says secret looks made by chance, or is a word, a reference, a stand-in.

Knows values; does not know names or where a value stood. A guess: it is only asked about what is called a secret.
"""

from __future__ import annotations

import binascii
import re

__all__ = ["SHORTEST", "by_chance", "opaque", "stand_in", "user_and_password"]

SHORTEST = 8
"""Characters of the shortest value that can look made by chance."""

_FEW = 6  # different characters
_LONG, _LONGER = 16, 32
_LONG_WITHOUT_DIGITS = 20

_STAND_IN = re.compile(
    r"\$\{?[a-z_][\w.]*\}?|\$[({].*|%\(?\w+\)?[sd%]?|<.*>?|\{.*\}?|\[.*\]?|[*x.#•_-]+|[@*&!][a-z_]\w*"
    r"|(?:your|change[_-]?(?:me|this|it)|replace|placeholder|example|dummy|redacted).*",
    re.IGNORECASE | re.DOTALL,
)
_REFERENCE = re.compile(
    r"[a-z][a-z0-9+.-]*://|(?:arn|urn|vault|data|projects|sha[0-9]+|md5|ssh|ecdsa|ssm)[:/-]|\.{1,2}/|~/|#/"
    r"|/[A-Za-z][a-z._-]+/|[A-Z]:\\|[\w.+-]+@[\w-]+(?:\.[\w-]+)+\Z|sk-(?:ssh|ecdsa)",
)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"[0-9a-f]{32,}", re.IGNORECASE)

_WORD = (
    r"(?:[A-Z]?[a-z]{2,}+|[A-Z]{2,}+|[A-Z][a-z]?(?=\d{3})|[A-Z](?=\d)|(?<![A-Za-z0-9])[A-Z][a-z]?(?![A-Za-z0-9]))"
    r"\d{0,6}+"
)
_SLUG = re.compile(rf"(?:{_WORD}|\d++|[A-Za-z])(?:[-_./:+]*+(?:{_WORD}|\d++))*+[-_./:+=]*+")
_PATH_OF_NAMES = re.compile(r"[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+")
_LONG_WORD = re.compile(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}")
_PIECE = re.compile(r"[A-Za-z0-9]+")
_DIGITS = re.compile(r"\d+")
_LOWER = re.compile(r"[a-z]")
_UPPER = re.compile(r"[A-Z]")
_SIGN = re.compile(r"[!#%&*@^~]")
_QUOTED_SIGN = re.compile(r"[!#%&*@^~?$;,<>(){}\[\]|]")


def stand_in(value: str) -> bool:
    """Tell whether `value` only says where a secret goes: a variable, a hole of a template, `***`."""
    return _STAND_IN.fullmatch(value) is not None


def by_chance(value: str, *, quoted: bool) -> bool:
    """Tell whether `value` looks like a password or key that was made, and not like a word or a name.

    A bare value may be code, so it has to look more like one than a `quoted` value. Takes linear time.
    """
    digits = _DIGITS.findall(value)
    if len(value) < SHORTEST or not (digits or len(value) >= _LONG_WITHOUT_DIGITS) or len(set(value)) < _FEW:
        return False
    if stand_in(value) or _REFERENCE.match(value) or _UUID.fullmatch(value):
        return False
    if _HEX.fullmatch(value):
        return True
    if not quoted and _PATH_OF_NAMES.fullmatch(value):
        value = max(value.split("."), key=len)
        if len(value) < SHORTEST:
            return False
    lower, upper = _LOWER.search(value) is not None, _UPPER.search(value) is not None
    if digits and (lower or upper) and (_QUOTED_SIGN if quoted else _SIGN).search(value):
        return True
    if lower and upper:
        named = _SLUG.fullmatch(value) is not None and not (value.isalnum() and len(digits) > 2)
        return not named and _mixed(value, len(digits))
    return any(
        len(piece) >= _LONGER or (len(piece) >= _LONG and len(_DIGITS.findall(piece)) > 1)
        for piece in _PIECE.findall(value)
    )


def _mixed(value: str, digit_groups: int) -> bool:
    """Judge letters of both cases: words in CamelCase are none of chance."""
    plain = sum(map(len, _PIECE.findall(value)))
    in_words = sum(map(len, _LONG_WORD.findall(value)))
    wordy = in_words * 10 >= plain * 8
    if digit_groups:
        return not wordy or digit_groups > 2
    capitals = len(_UPPER.findall(value))
    return not wordy and 1 <= capitals * 4 // plain <= 2


def opaque(value: str) -> bool:
    """Tell whether `value` may be the token of an `Authorization` header, rather than a word about one."""
    if stand_in(value) or _UUID.fullmatch(value):
        return False
    return _DIGITS.search(value) is not None or (len(value) >= _LONG_WITHOUT_DIGITS and value.isalnum())


def user_and_password(value: str) -> bool:
    """Tell whether `value` is the base64 of `user:password`."""
    bare = value.rstrip("=")
    try:
        plain = binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
    except ValueError:
        return False
    return b":" in plain[1:-1] and plain.isascii() and plain.decode().isprintable()
