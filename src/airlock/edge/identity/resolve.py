"""Who sent a request: the token first, then the trusted header, never both.

Knows which source counts for which request; does not know how a token is verified. Never looks at the body.
SPEC: gateway.md 4.1.
"""

from __future__ import annotations

from airlock.core.principal import Principal
from airlock.edge.headers import Headers
from airlock.edge.identity.header import from_headers
from airlock.edge.identity.jwt import Hs256

__all__ = ["Identity"]

_TRUSTED = (b"x-airlock-principal", b"x-airlock-groups")


class Identity:
    """Resolves principals from request headers.

    `hs256` is None when no token secret is configured: then no token names anybody. `trust_header` says that
    only a gateway which sets the `X-Airlock-*` headers itself can reach us.
    """

    def __init__(self, *, hs256: Hs256 | None, trust_header: bool) -> None:
        self._hs256 = hs256
        self._trust_header = trust_header

    def resolve(self, headers: Headers, now: float) -> Principal | None:
        """Return who sent the request, or None."""
        # SECURITY: a header that stands twice names nobody: others may have read the other one.
        if b"authorization" in headers.doubled:
            return None
        found = headers.first
        authorization = found.get(b"authorization")
        if authorization is not None and self._hs256 is not None:
            parts = authorization.split(None, 1)
            if parts and parts[0].lower() == b"bearer":
                # SECURITY: the token decides alone: one that fails, an empty one too, never falls back to the
                # header.
                return self._hs256.verify(parts[1] if len(parts) == 2 else b"", now)
        if not self._trust_header or not headers.doubled.isdisjoint(_TRUSTED):
            return None
        return from_headers(found.get(b"x-airlock-principal"), found.get(b"x-airlock-groups"))
