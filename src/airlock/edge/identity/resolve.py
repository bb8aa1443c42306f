"""Who sent a request: the token first, then the trusted header, never both.

Knows which source counts for which request; does not know how a token is verified. Never looks at the body.
SPEC: gateway.md 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from airlock.core.principal import Principal
from airlock.edge.identity.header import from_headers
from airlock.edge.identity.jwt import Hs256

__all__ = ["Identity"]


class Identity:
    """Resolves principals from request headers.

    `hs256` is None when no token secret is configured: then no token names anybody. `trust_header` says that
    only a gateway which sets the `X-Airlock-*` headers itself can reach us.
    """

    def __init__(self, *, hs256: Hs256 | None, trust_header: bool) -> None:
        self._hs256 = hs256
        self._trust_header = trust_header

    def resolve(self, headers: Iterable[tuple[bytes, bytes]], now: float) -> Principal | None:
        """Return who sent the request, or None. Header names are lower-case, as ASGI gives them."""
        authorization = principal = groups = None
        for name, value in headers:
            # SECURITY: a header that stands twice names nobody: others may have read the other one.
            if name == b"authorization":
                if authorization is not None:
                    return None
                authorization = value
            elif name == b"x-airlock-principal":
                if principal is not None:
                    return None
                principal = value
            elif name == b"x-airlock-groups":
                if groups is not None:
                    return None
                groups = value
        if authorization is not None and self._hs256 is not None:
            parts = authorization.split(None, 1)
            if parts and parts[0].lower() == b"bearer":
                # SECURITY: the token decides alone: one that fails, an empty one too, never falls back to the
                # header.
                return self._hs256.verify(parts[1] if len(parts) == 2 else b"", now)
        return from_headers(principal, groups) if self._trust_header else None
