"""Which public keys a provider's key set (JWK set, RFC 7517) offers, and which token each of them may check.

Knows key types, sizes and uses; does not know where the set came from or what a token claims.
Imports PyJWT and cryptography, so nothing imports this module before a provider is configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.exceptions import PyJWTError

from airlock.core.wire import strict

__all__ = ["MAX_KEYS", "MAX_KID_CHARS", "Key", "KeySet", "read"]

MAX_KEYS: Final = 100
MAX_KID_CHARS: Final = 256

_RSA_BITS: Final = range(2048, 16385)
_RS256: Final = RSAAlgorithm(RSAAlgorithm.SHA256)
_ES256: Final = ECAlgorithm(ECAlgorithm.SHA256, SECP256R1)
_MEMBERS: Final = {"RS256": ("n", "e"), "ES256": ("x", "y")}


class Key:
    """One public key with the one algorithm it may be used for. Equal keys have equal numbers."""

    __slots__ = ("_numbers", "_public", "alg")

    def __init__(self, alg: str, public: RSAPublicKey | EllipticCurvePublicKey) -> None:
        self.alg = alg
        self._public = public
        self._numbers = public.public_numbers()

    def verifies(self, signed: bytes, signature: bytes) -> bool:
        """Tell whether `signature` (raw bytes, as in RFC 7518) is this key's for `signed`."""
        # SECURITY: the key decides how it is used, never the token: no `none`, and no public key as an HMAC secret.
        if isinstance(self._public, RSAPublicKey):
            return _RS256.verify(signed, self._public, signature)
        return _ES256.verify(signed, self._public, signature)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._numbers == other._numbers

    __hash__ = None  # type: ignore[assignment]


class KeySet:
    """The usable keys of one answer, by algorithm and `kid`."""

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[tuple[str, str | None], Key]) -> None:
        self._keys = keys

    def find(self, alg: str, kid: str | None) -> Key | None:
        """Return the key for a token that names `alg` and `kid`.

        A token without a `kid` is checked only where one key of that algorithm is all there is.
        """
        if kid is not None:
            return self._keys.get((alg, kid))
        fitting = [key for key in self._keys.values() if key.alg == alg]
        return fitting[0] if len(fitting) == 1 else None

    def __len__(self) -> int:
        return len(self._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeySet) and self._keys == other._keys

    __hash__ = None  # type: ignore[assignment]


def read(raw: bytes) -> KeySet:
    """Read a JWK set, leaving out every key that is not for checking RS256 or ES256 signatures.

    Raises ValueError in our own words when it is no JWK set or lists more than `MAX_KEYS` keys.
    """
    value = strict.parse(raw)
    listed = value.get("keys") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        raise ValueError("the answer is not a JWK set")
    if len(listed) > MAX_KEYS:
        raise ValueError(f"the JWK set lists more than {MAX_KEYS} keys")
    found: dict[tuple[str, str | None], Key] = {}
    twice: set[tuple[str, str | None]] = set()
    for jwk in listed:
        key = _key(jwk) if isinstance(jwk, dict) else None
        if key is None:
            continue
        name = (key.alg, jwk.get("kid"))
        if found.setdefault(name, key) != key:
            twice.add(name)
    # SECURITY: two keys of one name: whoever could add the second would choose by its place which one counts.
    return KeySet({name: key for name, key in found.items() if name not in twice})


def _key(jwk: dict[str, object]) -> Key | None:
    """Make the public key of one entry; None when it is of another kind, weak, broken or for something else."""
    kid = jwk.get("kid")
    if not (kid is None or (isinstance(kid, str) and len(kid) <= MAX_KID_CHARS)):
        return None
    alg = {"RSA": "RS256", "EC": "ES256"}.get(str(jwk.get("kty")))
    if alg is None or jwk.get("alg", alg) != alg or not _for_signatures(jwk):
        return None
    # Only what makes the public half: a provider that shows a private key by mistake gives us no use for it.
    public = {name: jwk.get(name) for name in ("kty", "crv", *_MEMBERS[alg])}
    if not all(isinstance(public[name], str) for name in _MEMBERS[alg]):
        return None
    try:
        if alg == "RS256":
            rsa = cast(RSAPublicKey, RSAAlgorithm.from_jwk(public))
            # SECURITY: a short modulus can be factored, and then anybody signs; a very long one takes the loop.
            return Key(alg, rsa) if rsa.key_size in _RSA_BITS else None
        ec = cast(EllipticCurvePublicKey, ECAlgorithm.from_jwk(public))
        return Key(alg, ec) if isinstance(ec.curve, SECP256R1) else None
    except (ValueError, PyJWTError, UnsupportedAlgorithm):
        return None


def _for_signatures(jwk: dict[str, object]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
