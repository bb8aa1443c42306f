"""Principals out of HS256 tokens (JWT, RFC 7519) signed with the operator's shared secret.

Knows the token's form and claims; does not know headers or where else a principal may come from.
SPEC: gateway.md 4.2 to 4.4, performance.md 7 (trap 4).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from itertools import islice
from typing import Final

from airlock.core.principal import Principal, Source, groups_from, usable_name
from airlock.core.wire import strict

__all__ = ["Hs256"]

_NEVER: Final = float("-inf")

_Known = tuple[Principal, float, float]  # not before, expires


class Hs256:
    """Verifies tokens under one secret, and remembers the ones that were good.

    `issuer` and `audience` are checked only when given. At most `cache_size` tokens are remembered, each by
    its whole text; a new secret means a new object, and with it an empty memory.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        issuer: str | None,
        audience: str | None,
        groups_claim: str = "groups",
        cache_size: int = 1024,
    ) -> None:
        if not secret:
            raise ValueError("the JWT secret is empty")
        if cache_size < 1:
            raise ValueError("the token cache needs room for one token")
        self._secret = secret
        self._issuer = issuer
        self._audience = audience
        self._groups_claim = groups_claim
        self._cache_size = cache_size
        self._known: dict[bytes, _Known] = {}

    def verify(self, token: bytes, now: float) -> Principal | None:
        """Return whom the token names, or None when anything about it is off at `now` (Unix seconds).

        Good is a token of exactly our algorithm and signature, with a usable `sub` and a numeric `exp` that
        `now` is before, without leeway. `nbf` holds when it is there, `typ` and `kid` say nothing, `crit` is
        refused.
        """
        known = self._known.get(token)
        if known is None:
            known = self._read(token)
            if known is None:
                return None
            if known[1] <= now < known[2]:
                self._remember(token, known)
        principal, not_before, expires = known
        # SECURITY: also for a remembered token: it was good when it was read, which says nothing about now.
        return principal if not_before <= now < expires else None

    def _remember(self, token: bytes, known: _Known) -> None:
        if len(self._known) >= self._cache_size:
            for old in list(islice(self._known, (self._cache_size + 1) // 2)):
                del self._known[old]
        self._known[token] = known

    def _read(self, token: bytes) -> _Known | None:
        """Check everything but the time."""
        signed, dot, signature = token.rpartition(b".")
        header_part, _, claims_part = signed.partition(b".")
        # SECURITY: the signature comes first, always ours and in constant time: `alg` never chooses how a
        # token is checked, and no unsigned text is parsed. Compared as written: each token has one spelling.
        if not dot or not hmac.compare_digest(
            _encode(hmac.digest(self._secret, signed, "sha256")), signature
        ):
            return None
        header, claims = _object(header_part), _object(claims_part)
        if header is None or claims is None:
            return None
        if header.get("alg") != "HS256" or "crit" in header:
            return None
        return self._judge(claims)

    def _judge(self, claims: dict[str, object]) -> _Known | None:
        name = claims.get("sub")
        expires = _number(claims.get("exp"))
        not_before = _number(claims["nbf"]) if "nbf" in claims else _NEVER
        issued = _number(claims["iat"]) if "iat" in claims else 0.0
        if expires is None or not_before is None or issued is None:
            return None
        if not isinstance(name, str) or not usable_name(name) or not _encodable(name):
            return None
        if self._issuer is not None and claims.get("iss") != self._issuer:
            return None
        if self._audience is not None and not _is_for(self._audience, claims.get("aud")):
            return None
        groups = groups_from(claims.get(self._groups_claim))
        return Principal(name, groups, Source.TOKEN), not_before, expires


def _encode(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _object(part: bytes) -> dict[str, object] | None:
    """Return the JSON object of a base64url part, or None; loose base64 and repeated keys are refused."""
    try:
        raw = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value = strict.parse(raw)
    except (binascii.Error, strict.StrictError):
        return None
    return value if isinstance(value, dict) and _encode(raw) == part else None


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
