"""Sealing bytes with AES-256-GCM, as one text: without the key nobody reads, changes or moves what is in it.

Knows keys, nonces and the text's form; does not know what is sealed, or who keeps the text.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

__all__ = ["NONCE_BYTES", "seal", "unseal"]

NONCE_BYTES: Final = 12

# LIMIT: nonces are drawn at random: one key is good for some four thousand million texts.
_TAG_BYTES: Final = 16


def seal(key: bytes, nonce: bytes, plain: bytes, bound: bytes) -> str:
    """Return `plain` sealed: base64url of the nonce, the ciphertext and its tag, without padding.

    `key` has 32 bytes, `nonce` 12 that were never used with it. Only `unseal` with the same `bound` opens the text.
    """
    # Imported on use: most gateways seal nothing.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return _encoded(nonce + AESGCM(key).encrypt(nonce, plain, bound))


def unseal(key: bytes, text: str, bound: bytes) -> bytes | None:
    """Return what was sealed, or None for a text that is not of this key, was changed, or belongs elsewhere."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) < NONCE_BYTES + _TAG_BYTES or _encoded(raw) != text:
        return None
    try:
        return AESGCM(key).decrypt(raw[:NONCE_BYTES], raw[NONCE_BYTES:], bound)
    except InvalidTag:
        return None


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")
