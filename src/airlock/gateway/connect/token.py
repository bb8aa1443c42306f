"""Tokens for a client of the gateway: which key signs them, and what they say.

Knows the identity settings that client and gateway share, and HS256; does not know clients or files of theirs.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import Final

import msgspec

from airlock.core.errors import ConfigError
from airlock.core.principal import usable_name
from airlock.core.secret import Secret
from airlock.edge import keyfile
from airlock.edge.httpurl import parse_target
from airlock.edge.identity.claims import encoded, json_object
from airlock.edge.identity.jwt import Hs256
from airlock.edge.settings import Environment, secret_bytes
from airlock.gateway.door import is_loopback
from airlock.gateway.settings import LOCAL_AUDIENCE, LOCAL_ISSUER

__all__ = ["SCHEME", "Signer", "Unsigned", "claimed", "made_here", "signer", "user"]

SCHEME: Final = "Bearer "


class Unsigned(msgspec.Struct, frozen=True):
    """Why no token is made, in a sentence for whoever asked for one."""

    reason: str


class Signer:
    """Makes tokens that a gateway with the same settings takes. `source` names the key for a person."""

    def __init__(self, key: bytes, issuer: str, audience: str, source: str) -> None:
        self._key = key
        self._issuer, self._audience = issuer, audience
        self._verifier = Hs256(key, issuer=issuer, audience=audience)
        self.source = source

    def make(self, principal: str, now: int, seconds: int) -> Secret:
        """Return a token that names `principal` for so long from `now` on (Unix seconds).

        Raises ConfigError for a name that the gateway would not take.
        """
        claims = {
            "iss": self._issuer,
            "aud": self._audience,
            "sub": principal,
            "iat": now,
            "exp": now + seconds,
        }
        signed = b".".join(
            encoded(json.dumps(part, separators=(",", ":")).encode())
            for part in ({"alg": "HS256", "typ": "JWT"}, claims)
        )
        token = b"%b.%b" % (signed, encoded(hmac.digest(self._key, signed, "sha256")))
        if self._verifier.verify(token, now) is None:
            raise ConfigError("", "the gateway takes no such name of a principal")
        return Secret(token.decode("ascii"))

    def until(self, token: str, principal: str, now: int) -> int | None:
        """Return until when a token names `principal` (Unix seconds); None when it does not, or not any more."""
        found = self._verifier.verify(token.encode("utf-8", "replace"), now)
        if found is None or found.name != principal or found.proof.until is None:
            return None
        return int(found.proof.until)


def signer(env: Environment, url: str, *, make_key: bool) -> Signer | Unsigned:
    """Find the key that the gateway at `url` checks tokens with, as far as the settings here are also its own.

    The same order as the gateway's (`parts.identity`). `make_key`: make the local key when there is none yet;
    without it a key of this process stands in. Raises ConfigError for a key file that cannot be used.
    """
    if env.text("AIRLOCK_JWKS_URL") is not None:
        return Unsigned(
            "AIRLOCK_JWKS_URL is set, so tokens come from your identity provider: the client signs in by OAuth "
            "where it offers that, else put a token of the provider into its entry"
        )
    secret = env.secret("AIRLOCK_JWT_SECRET")
    if secret is not None:
        issuer, audience = env.text("AIRLOCK_JWT_ISSUER"), env.text("AIRLOCK_JWT_AUDIENCE")
        key = secret_bytes(secret)
        return Signer(key, issuer or LOCAL_ISSUER, audience or LOCAL_AUDIENCE, "AIRLOCK_JWT_SECRET")
    if env.text("AIRLOCK_TRUST_PRINCIPAL_HEADER") == "1":
        return Unsigned(
            "AIRLOCK_TRUST_PRINCIPAL_HEADER is set, so another gateway in front names the principals: the client "
            "needs what that one asks for"
        )
    if not is_loopback(parse_target(url).host):
        # SECURITY: no gateway elsewhere takes a token of this machine's key, and nobody there should see one.
        return Unsigned(
            "the gateway is on another machine, and neither AIRLOCK_JWT_SECRET nor AIRLOCK_JWKS_URL is set here: "
            "ask whoever runs it for a token"
        )
    path = f"{env.state_folder()}/identity.key"
    key = keyfile.read_or_make(path) if make_key else os.urandom(keyfile.KEY_BYTES)
    return Signer(key, LOCAL_ISSUER, LOCAL_AUDIENCE, path)


def claimed(authorization: str | None) -> dict[str, object]:
    """Return what the token of an `Authorization` says, checked by nobody; empty when there is none to read."""
    parts = (authorization or "").removeprefix(SCHEME).split(".")
    if len(parts) != 3 or authorization is None or not authorization.startswith(SCHEME):
        return {}
    return json_object(parts[1].encode("utf-8", "replace")) or {}


def made_here(authorization: str | None, env: Environment) -> bool:
    """Tell whether a token looks like one of `Signer`, so that it may be replaced by another one."""
    claims = claimed(authorization)
    issuers = {LOCAL_ISSUER, env.text("AIRLOCK_JWT_ISSUER") or LOCAL_ISSUER}
    audiences = {LOCAL_AUDIENCE, env.text("AIRLOCK_JWT_AUDIENCE") or LOCAL_AUDIENCE}
    issuer, audience = claims.get("iss"), claims.get("aud")
    return (
        isinstance(issuer, str) and issuer in issuers and isinstance(audience, str) and audience in audiences
    )


def user() -> str:
    """Return the name of the user who runs this. Raises ConfigError when the system knows none."""
    try:
        import pwd

        name = pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        name = ""
    if not usable_name(name):
        raise ConfigError("", "the system has no name for this user: give one with --principal")
    return name
