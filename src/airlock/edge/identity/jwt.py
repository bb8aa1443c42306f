"""Principals out of HS256 tokens signed with the operator's shared secret.

Knows the secret and the tokens that were good; does not know headers or where else a principal may come from.
SPEC: gateway.md 4.2 to 4.4, performance.md 7 (trap 4).
"""

from __future__ import annotations

import hmac

from airlock.core.principal import Principal
from airlock.edge.identity.claims import CACHE_SIZE, FORGED, Known, Rules, encoded, json_object, remember

__all__ = ["Hs256"]


class Hs256:
    """Verifies tokens under one secret, and remembers the ones that were good.

    `issuer` and `audience` are checked only when given. At most `cache_size` tokens are remembered, each by
    its whole text; a new secret means a new object, and with it an empty memory. `keeps`: a principal carries its
    token (`Proof.token`).
    """

    def __init__(
        self,
        secret: bytes,
        *,
        issuer: str | None,
        audience: str | None,
        groups_claim: str = "groups",
        cache_size: int = CACHE_SIZE,
        keeps: bool = False,
    ) -> None:
        if not secret:
            raise ValueError("the JWT secret is empty")
        if cache_size < 1:
            raise ValueError("the token cache needs room for one token")
        self._secret = secret
        self._rules = Rules(issuer, audience, groups_claim, keeps)
        self._cache_size = cache_size
        self._known: dict[bytes, Known] = {}

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
                remember(self._known, token, known, self._cache_size)
        principal, not_before, expires = known
        # SECURITY: also for a remembered token: it was good when it was read, which says nothing about now.
        return principal if not_before <= now < expires else None

    def why(self, token: bytes, now: float) -> str:
        """Say in a few words why `verify` finds nobody. Nothing that a forged token claims is told."""
        claims = self._claims(token)
        return FORGED if claims is None else self._rules.why(claims, token, now)

    def _read(self, token: bytes) -> Known | None:
        """Check everything but the time."""
        claims = self._claims(token)
        return None if claims is None else self._rules.judge(claims, token)

    def _claims(self, token: bytes) -> dict[str, object] | None:
        """Return what a token that we signed says."""
        signed, dot, signature = token.rpartition(b".")
        header_part, _, claims_part = signed.partition(b".")
        # SECURITY: the signature comes first, always ours and in constant time: `alg` never chooses how a
        # token is checked, and no unsigned text is parsed. Compared as written: each token has one spelling.
        if not dot or not hmac.compare_digest(
            encoded(hmac.digest(self._secret, signed, "sha256")), signature
        ):
            return None
        header, claims = json_object(header_part), json_object(claims_part)
        if header is None or claims is None:
            return None
        if header.get("alg") != "HS256" or "crit" in header:
            return None
        return claims
