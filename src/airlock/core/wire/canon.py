"""Canonical JSON out: one text per value, so that it can be hashed and compared.

SPEC: gateway.md 12.3: keys sorted at every level, no spaces, non-ASCII raw, numbers as Python's `json` writes
them, so that audit logs of the original verify. Lone surrogates are encoded as they are (`surrogatepass`).
"""

from __future__ import annotations

import json

__all__ = ["encode", "text"]

_encoder = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)

text = _encoder.encode
"""Return the canonical text of a JSON value. NaN and infinities raise ValueError: they are not JSON."""


def encode(value: object) -> bytes:
    """Return the canonical text as UTF-8 bytes; lone surrogates pass as their three-byte form."""
    return text(value).encode("utf-8", "surrogatepass")
