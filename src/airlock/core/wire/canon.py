"""Canonical JSON out: one text per value, so that it can be hashed and compared.

SPEC: gateway.md 12.3: keys sorted at every level, no spaces, non-ASCII raw, numbers as Python's `json` writes
them, so that audit logs of the original verify. Lone surrogates are encoded as they are (`surrogatepass`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder as _json

__all__ = ["encode", "text"]

_plain = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def _built_once() -> Callable[[object], str]:
    """Return `_plain` without what it does anew on each call: the C encoder is made once, here."""
    make = getattr(_json, "c_make_encoder", None)
    quoted = _json.encode_basestring
    if make is None:
        return _plain

    def refuse(value: object) -> object:
        raise TypeError(f"{type(value).__name__} is not a JSON value")

    write = make(None, refuse, quoted, None, ":", ",", True, False, False)  # noqa: FBT003 - its own signature
    return lambda value: quoted(value) if isinstance(value, str) else "".join(write(value, 0))


text: Callable[[object], str] = _built_once()
"""Return the canonical text of a JSON value. NaN and infinities raise ValueError: they are not JSON."""


def encode(value: object) -> bytes:
    """Return the canonical text as UTF-8 bytes; lone surrogates pass as their three-byte form."""
    return text(value).encode("utf-8", "surrogatepass")
