"""Principals out of RS256 and ES256 tokens, checked against the key set of an OIDC provider.

Knows when keys are fetched, kept and dropped; does not know how (`jwksfetch`) or what a key is (`jwkset`).
SPEC: gateway.md 4.2 to 4.5, performance.md 7 (trap 4).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from airlock.core.principal import Principal
from airlock.edge.identity import claims as tokens
from airlock.edge.identity.claims import CACHE_SIZE, FORGED, Known, Rules, remember
from airlock.edge.identity.jwksfetch import Fetcher, FetchFailed

__all__ = ["Jwks"]

LIFETIME_S: Final = 300.0
"""How long fetched keys are used without asking again, so how long a withdrawn key may still verify."""

COOLDOWN_S: Final = 30.0
"""The least time between two fetches, whatever is asked and however the last one ended."""

OUTAGE_S: Final = 3600.0
"""How long keys are used at all, counted from their fetch, while the provider does not answer."""

ABSENT_S: Final = 300.0
"""How long the provider is not asked again for the sake of a `kid` that it did not have."""

_ALGORITHMS: Final = frozenset(("RS256", "ES256"))

_Name = tuple[str, str | None]  # alg, kid


class _Missing(msgspec.Struct, frozen=True):
    """The token names a key that is not in the set. Only a fetch could change that."""

    name: _Name


class Jwks:
    """Verifies tokens under the current keys of the provider at `url`, and remembers the good ones.

    `issuer` and `audience` are checked only when given. `keeps`: a principal carries its token (`Proof.token`).
    `say` takes log lines: one when the provider stops giving usable keys, one when it gives them again. `clock` is
    monotonic, in seconds. Raises ConfigError when `url` cannot be asked. Belongs to the event loop that verifies;
    PyJWT and cryptography are imported here.
    """

    def __init__(
        self,
        url: str,
        *,
        issuer: str | None,
        audience: str | None,
        groups_claim: str = "groups",
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        cache_size: int = CACHE_SIZE,
        keeps: bool = False,
    ) -> None:
        self._fetcher = Fetcher(url)
        from airlock.edge.identity import jwkset

        self._read_keys = jwkset.read
        self._kid_chars = jwkset.MAX_KID_CHARS
        self._rules = Rules(issuer, audience, groups_claim, keeps)
        self._say = say
        self._clock = clock
        self._cache_size = cache_size
        # INVARIANT: holds only tokens that a key of `_keys` signed.
        self._known: dict[bytes, Known] = {}
        self._keys: jwkset.KeySet | None = None
        self._fetched_at = self._asked_at = float("-inf")
        self._well = True
        self._said: str | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._absent: dict[_Name, float] = {}

    def verify(self, token: bytes, now: float) -> Principal | Awaitable[Principal | None] | None:
        """Return whom the token names, or None when anything about it is off at `now` (Unix seconds).

        Good is a token signed by a current key of the provider with that key's own algorithm, with a usable
        `sub` and a numeric `exp` that `now` is before, without leeway. `nbf` holds when it is there, `crit` is
        refused. Something to await comes back only while keys are being fetched for it, 5 seconds at most;
        it never raises.
        """
        at = self._clock()
        if at - self._fetched_at >= LIFETIME_S:
            fetching = self._fetch(at)
            # While the provider is down, the old keys serve and nobody waits for the next attempt.
            if fetching is not None and (self._well or at - self._fetched_at >= OUTAGE_S):
                return self._later(fetching, token, now, at)
        found = self._check(token, now, at)
        if not isinstance(found, _Missing):
            return found
        # SECURITY: a stranger's made-up `kid`s: at most one fetch per cool-down, and none for one looked up before.
        if self._absent.get(found.name, at) > at:
            return None
        fetching = self._fetch(at)
        return None if fetching is None else self._later(fetching, token, now, at)

    def why(self, token: bytes, now: float) -> str:
        """Say in a few words why `verify` found nobody, by the keys that are there. Fetches nothing.

        Nothing that a forged token claims is told.
        """
        if self._keys is None or self._clock() - self._fetched_at >= OUTAGE_S:
            return "the keys of the authorization server could not be fetched"
        claims = self._claims(token)
        if claims is None or isinstance(claims, _Missing):
            return FORGED
        return self._rules.why(claims, token, now)

    async def _later(
        self, fetching: asyncio.Task[None], token: bytes, now: float, at: float
    ) -> Principal | None:
        """Wait for the fetch under way, without taking it along when this caller is cancelled; then check."""
        await asyncio.wait({fetching})
        later = self._clock()
        found = self._check(token, now + later - at, later)
        if not isinstance(found, _Missing):
            return found
        # Only an answer to a question asked after the token came says that its key is not there.
        if self._fetched_at >= at:
            remember(self._absent, found.name, later + ABSENT_S, self._cache_size)
        return None

    # --- checking

    def _check(self, token: bytes, now: float, at: float) -> Principal | _Missing | None:
        if self._keys is None or at - self._fetched_at >= OUTAGE_S:
            return None
        known = self._known.get(token)
        if known is None:
            read = self._read(token)
            if read is None or isinstance(read, _Missing):
                return read
            known = read
            if known[1] <= now < known[2]:
                remember(self._known, token, known, self._cache_size)
        principal, not_before, expires = known
        # SECURITY: also for a remembered token: it was good when it was read, which says nothing about now.
        return principal if not_before <= now < expires else None

    def _read(self, token: bytes) -> Known | _Missing | None:
        """Check everything but the time."""
        claims = self._claims(token)
        if claims is None or isinstance(claims, _Missing):
            return claims
        return self._rules.judge(claims, token)

    def _claims(self, token: bytes) -> dict[str, object] | _Missing | None:
        """Return what a token says that a current key signed."""
        signed, _, signature_part = token.rpartition(b".")
        header_part, _, claims_part = signed.partition(b".")
        header, signature = tokens.json_object(header_part), tokens.decoded(signature_part)
        if header is None or not signature or "crit" in header:
            return None
        alg, kid = header.get("alg"), header.get("kid")
        # SECURITY: `none` signs nothing, and HS256 would take a public key for the secret.
        if not isinstance(alg, str) or alg not in _ALGORITHMS:
            return None
        if not (kid is None or (isinstance(kid, str) and len(kid) <= self._kid_chars)):
            return None
        assert self._keys is not None
        key = self._keys.find(alg, kid)
        if key is None:
            return _Missing((alg, kid))
        if not key.verifies(signed, signature):
            # Without a `kid` nothing but the signature tells that the provider's one key was replaced.
            return _Missing((alg, None)) if kid is None else None
        return tokens.json_object(claims_part)

    # --- fetching

    def _fetch(self, at: float) -> asyncio.Task[None] | None:
        """Join the fetch under way or start one; None while the cool-down lasts."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        if at - self._asked_at < COOLDOWN_S:
            return None
        self._asked_at = at
        self._fetching = asyncio.get_running_loop().create_task(self._ask(at))
        return self._fetching

    async def _ask(self, at: float) -> None:
        """Fetch the keys once and take them over, or say why not."""
        try:
            keys = self._read_keys(await self._fetcher.get())
        except (FetchFailed, ValueError) as error:
            return self._failed(str(error))
        except Exception as error:  # noqa: BLE001 - whatever else a hostile answer sets off: no keys, and a line
            return self._failed(type(error).__name__)
        # SECURITY: a token that a withdrawn key signed must not live on in the memory.
        if keys != self._keys:
            self._known.clear()
        # Their age counts from the question: an answer held back on the way is no younger for it.
        self._keys, self._fetched_at, self._well = keys, at, True
        self._tell(
            None if len(keys) else "the provider lists no key for RS256 or ES256: no token is accepted"
        )
        return None

    def _failed(self, why: str) -> None:
        self._well = False
        if self._keys is None or self._clock() - self._fetched_at >= OUTAGE_S:
            self._known.clear()
            self._keys = None
        effect = (
            "no token is accepted until it answers"
            if self._keys is None
            else f"its keys of before are used until they are {OUTAGE_S / 60:.0f} minutes old"
        )
        self._tell(f"the provider gave no keys ({why}): {effect}")

    def _tell(self, trouble: str | None) -> None:
        """Say what changed, once."""
        if trouble == self._said:
            return
        self._said = trouble
        self._say(f"AIRLOCK_JWKS_URL: {trouble or 'the provider gives keys again'}")
