"""Sealed texts: what opens them, and that nothing else does."""

from __future__ import annotations

import base64
import subprocess
import sys

import pytest

from airlock.edge.seal import NONCE_BYTES, seal, unseal

KEY = bytes(range(32))
NONCE = bytes(range(100, 112))


@pytest.mark.parametrize("plain", [b"", b"x", b"\x00\xff" * 40_000])
def test_what_was_sealed_opens_as_it_was(plain: bytes):
    text = seal(KEY, NONCE, plain, b"here")
    assert unseal(KEY, text, b"here") == plain
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_it_is_aes_gcm_as_everybody_computes_it():
    # Test case 14 of the GCM specification: an all-zero key of 256 bits, nonce and block.
    text = seal(bytes(32), bytes(12), bytes(16), b"")
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert raw[NONCE_BYTES:].hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
    assert raw[:NONCE_BYTES] == bytes(12)


def test_what_was_sealed_cannot_be_read_in_the_text():
    text = seal(KEY, NONCE, b"the server's own words", b"here")
    assert b"server" not in base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_text_opens_only_where_it_belongs_and_with_its_key():
    text = seal(KEY, NONCE, b"plain", b"dryrun.k1")
    for key, bound in ((KEY, b"upstream.k1"), (KEY, b"dryrun.k2"), (KEY, b""), (bytes(32), b"dryrun.k1")):
        assert unseal(key, text, bound) is None


def test_a_changed_text_opens_nothing():
    text = seal(KEY, NONCE, b"plain", b"here")
    for place in range(len(text)):
        changed = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
        assert unseal(KEY, changed, b"here") is None
    for odd in ("", "A", "AAAA", text[:30], text + "AAAA", text + "é", text + "=", "*" + text[1:], "A" * 38):
        assert unseal(KEY, odd, b"here") is None


def test_the_cipher_is_imported_when_something_is_sealed_and_not_before():
    look = (
        "import sys, airlock.edge.seal; print(any(name.startswith('cryptography') for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
