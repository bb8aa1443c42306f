"""Who sent a request: the token first, then the trusted header, never both. And who clicked an approve link.

Knows which source counts for which request; does not know how a token is verified. Never looks at the body.
SPEC: gateway.md 4.1, 4.6, 8.5.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec

from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.text.cut import cut
from airlock.edge.headers import Headers
from airlock.edge.identity.header import from_headers

__all__ = ["CHALLENGE", "Approver", "Identity", "Tokens"]

CHALLENGE = (b"www-authenticate", b"Bearer")
"""The header line of every 401 answer. SPEC: gateway.md 4.7."""

_TRUSTED = (b"x-airlock-principal", b"x-airlock-groups")
_APPROVERS = (b"x-airlock-principal", b"x-forwarded-user")
_NAME_CHARS = 128


class Tokens(Protocol):
    """What verifies bearer tokens: `Hs256` at once, `Jwks` now and then only after a fetch."""

    def verify(self, token: bytes, now: float) -> Principal | Awaitable[Principal | None] | None:
        """Return whom the token names at `now` (Unix seconds), or None, or a promise of one of them."""
        ...

    def why(self, token: bytes, now: float) -> str:
        """Say in a few words of ours why `verify` found nobody."""
        ...


class Approver(msgspec.Struct, frozen=True):
    """Who clicked an approve link, as it is recorded: the name scrubbed and cut, `source` as the audit spells it.

    `verified` is said only of a subject out of a token this process checked. Both are None for nobody.
    """

    name: str | None = None
    source: Literal["verified", "header"] | None = None


class Identity:
    """Resolves principals from request headers.

    Without `hs256` and `jwks` no token names anybody; with both, `jwks` alone decides. `trust_header` says
    that only a gateway which sets the `X-Airlock-*` headers itself can reach us.
    """

    def __init__(self, *, hs256: Tokens | None, jwks: Tokens | None = None, trust_header: bool) -> None:
        self._tokens = hs256 if jwks is None else jwks
        self._trust_header = trust_header

    def resolve(self, headers: Headers, now: float) -> Principal | Awaitable[Principal | None] | None:
        """Return who sent the request, or None. Something to await comes back only while keys are fetched."""
        # SECURITY: a header that stands twice names nobody: others may have read the other one.
        if b"authorization" in headers.doubled:
            return None
        found = headers.first
        authorization = found.get(b"authorization")
        if authorization is not None and self._tokens is not None:
            token = _bearer(authorization)
            if token is not None:
                # SECURITY: the token decides alone: one that fails, an empty one too, never falls back to the
                # header.
                return self._tokens.verify(token, now)
        if not self._trust_header or not headers.doubled.isdisjoint(_TRUSTED):
            return None
        return from_headers(found.get(b"x-airlock-principal"), found.get(b"x-airlock-groups"))

    def why(self, headers: Headers, now: float) -> str | None:
        """Say why the token of a request that `resolve` found nobody for names nobody; None when there is no token.

        SPEC: RFC 6750, 3.1: who sent none is not told of an error.
        """
        if b"authorization" in headers.doubled:
            return "the Authorization header stands more than once"
        authorization = headers.first.get(b"authorization")
        token = None if authorization is None else _bearer(authorization)
        if token is None or self._tokens is None:
            return None
        return self._tokens.why(token, now) if token else "the token is empty"

    async def approver(self, headers: Headers, now: float) -> Approver:
        """Return who clicked an approve link: a note for the record, never a permission.

        Whatever the headers say, and whatever fails on the way, there is an answer.
        """
        principal = await self._subject(headers, now)
        if principal is not None:
            return Approver(_written(principal.name), "verified")
        # Whether the header is trusted makes no difference here: the record says that it is a header.
        for name in _APPROVERS:
            principal = None if name in headers.doubled else from_headers(headers.first.get(name), None)
            if principal is not None:
                return Approver(_written(principal.name), "header")
        return Approver()

    async def _subject(self, headers: Headers, now: float) -> Principal | None:
        authorization = headers.first.get(b"authorization")
        if authorization is None or self._tokens is None or b"authorization" in headers.doubled:
            return None
        token = _bearer(authorization)
        if token is None:
            return None
        try:
            found = self._tokens.verify(token, now)
            return found if found is None or isinstance(found, Principal) else await found
        except Exception:  # noqa: BLE001 - SPEC: gateway.md 8.5: the click is recorded, as one of nobody we checked
            return None


def _bearer(authorization: bytes) -> bytes | None:
    """Return the token after the word Bearer, an empty one too; None for any other scheme."""
    if (
        authorization[:7] == b"Bearer "
        and b" " not in (token := authorization[7:])
        and token.strip() == token
    ):
        return token  # as every client writes it
    parts = authorization.split(None, 1)
    if not parts or parts[0].lower() != b"bearer":
        return None
    return parts[1] if len(parts) == 2 else b""


def _written(name: str) -> str:
    # SECURITY: scrubbed before it is cut: half of a secret would not be found.
    return cut(values.name(name) or "", _NAME_CHARS, "…[cut]")
