"""What every bearer token (JWT, RFC 7519) must say to name somebody, and how verified ones are remembered.

Knows parts, claims and a bounded memory; does not know keys, signatures or headers.
SPEC: gateway.md 4.2 to 4.4, performance.md 7 (trap 4).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Hashable
from itertools import islice
from typing import Final, TypeVar

import msgspec

from airlock.core.principal import Principal, Source, groups_from, usable_name
from airlock.core.wire import strict

__all__ = ["CACHE_SIZE", "Known", "Rules", "decoded", "encoded", "json_object", "remember"]

CACHE_SIZE: Final = 1024
"""How many verified tokens are remembered."""

Known = tuple[Principal, float, float]
"""Whom a verified token names, from when (`nbf`) and until when (`exp`), in Unix seconds."""

_NEVER: Final = float("-inf")

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Rules(msgspec.Struct, frozen=True):
    """What is demanded of the claims. `issuer` and `audience` are checked only when given."""

    issuer: str | None
    audience: str | None
    groups_claim: str = "groups"

    def judge(self, claims: dict[str, object]) -> Known | None:
        """Check everything but the time; None when anything is off.

        `sub` must be a usable name and `exp` a number; `nbf` and `iat` are numbers where they are there.
        """
        name = claims.get("sub")
        expires = _number(claims.get("exp"))
        not_before = _number(claims["nbf"]) if "nbf" in claims else _NEVER
        issued = _number(claims["iat"]) if "iat" in claims else 0.0
        if expires is None or not_before is None or issued is None:
            return None
        if not isinstance(name, str) or not usable_name(name) or not _encodable(name):
            return None
        if self.issuer is not None and claims.get("iss") != self.issuer:
            return None
        if self.audience is not None and not _is_for(self.audience, claims.get("aud")):
            return None
        groups = groups_from(claims.get(self.groups_claim))
        return Principal(name, groups, Source.TOKEN), not_before, expires


def remember(memory: dict[_K, _V], key: _K, value: _V, size: int) -> None:
    """Put `value` into a memory of at most `size` entries; a full one forgets the older half first."""
    if len(memory) >= size:
        for old in list(islice(memory, (size + 1) // 2)):
            del memory[old]
    memory[key] = value


def encoded(raw: bytes) -> bytes:
    """Return base64url without padding, as tokens spell it."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def decoded(part: bytes) -> bytes | None:
    """Return the bytes of a base64url part, or None for any other spelling than `encoded` gives."""
    try:
        raw = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    return raw if encoded(raw) == part else None


def json_object(part: bytes) -> dict[str, object] | None:
    """Return the JSON object of a base64url part, or None; loose base64 and repeated keys are refused."""
    raw = decoded(part)
    if raw is None:
        return None
    try:
        value = strict.parse(raw)
    except strict.StrictError:
        return None
    return value if isinstance(value, dict) else None


def _number(value: object) -> float | None:
    # `strict.parse` lets no number through that is not finite; `type` keeps `true` from being one.
    return float(value) if type(value) is int or type(value) is float else None


def _encodable(name: str) -> bool:
    """Tell whether a name can be written as UTF-8; one with a lone surrogate fits no header and no table."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_for(audience: str, claim: object) -> bool:
    return claim == audience if isinstance(claim, str) else isinstance(claim, list) and audience in claim
