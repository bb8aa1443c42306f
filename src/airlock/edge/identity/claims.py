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

from airlock.core.principal import Principal, Proof, Source, groups_from, usable_name
from airlock.core.secret import Secret
from airlock.core.wire import strict

__all__ = [
    "CACHE_SIZE",
    "FORGED",
    "Known",
    "Rules",
    "decoded",
    "encoded",
    "json_object",
    "remember",
    "scopes_of",
]

CACHE_SIZE: Final = 1024
"""How many verified tokens are remembered."""

FORGED: Final = "the token is no JWT that a trusted key signed"
"""What is said of a token whose claims prove nothing."""

Known = tuple[Principal, float, float]
"""Whom a verified token names, from when (`nbf`) and until when (`exp`), in Unix seconds."""

_NEVER: Final = float("-inf")

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Rules(msgspec.Struct, frozen=True):
    """What is demanded of the claims. `issuer` and `audience` are checked only when given.

    `keeps`: a principal carries its token, for the one component that exchanges it.
    """

    issuer: str | None
    audience: str | None
    groups_claim: str = "groups"
    keeps: bool = False

    def judge(self, claims: dict[str, object], token: bytes) -> Known | None:
        """Check everything but the time; None when anything is off. `token` is what the claims stood in.

        `sub` must be a usable name and `exp` a number; `nbf` and `iat` are numbers where they are there.
        """
        found = self._judged(claims, token)
        return None if isinstance(found, str) else found

    def why(self, claims: dict[str, object], token: bytes, now: float) -> str:
        """Tell the holder of a token whose signature is good why it names nobody at `now`: a few words of ours."""
        found = self._judged(claims, token)
        if isinstance(found, str):
            return found
        return "the token is not valid yet" if now < found[1] else "the token has expired"

    def _judged(self, claims: dict[str, object], token: bytes) -> Known | str:
        name = claims.get("sub")
        expires = _number(claims.get("exp"))
        not_before = _number(claims["nbf"]) if "nbf" in claims else _NEVER
        issued = _number(claims["iat"]) if "iat" in claims else 0.0
        if expires is None or not_before is None or issued is None:
            return "the token needs an exp, and numbers for its times"
        if not isinstance(name, str) or not usable_name(name) or not _encodable(name):
            return "the token names no usable subject"
        if self.issuer is not None and claims.get("iss") != self.issuer:
            return "the token is of another issuer"
        if self.audience is not None and not _is_for(self.audience, claims.get("aud")):
            return "the token is for another audience"
        kept = Secret(token.decode("ascii")) if self.keeps else None
        proof = Proof(expires, scopes_of(claims), kept)
        return (
            Principal(name, groups_from(claims.get(self.groups_claim)), Source.TOKEN, proof),
            not_before,
            expires,
        )


def scopes_of(claims: dict[str, object]) -> frozenset[str]:
    """Return the scopes of a token: `scope` (RFC 8693, 9068) and `scp`, each one text or a list of texts."""
    found: set[str] = set()
    for claim in (claims.get("scope"), claims.get("scp")):
        for entry in claim if isinstance(claim, list) else [claim]:
            if isinstance(entry, str):
                found.update(entry.split())
    return frozenset(found)


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
