from __future__ import annotations

import base64
from typing import Any

import pytest
from jwt.algorithms import RSAAlgorithm

from airlock.edge.identity.jwkset import MAX_KEYS, KeySet, read
from tests.unit.edge.identity.issuer import ec_key, page, public, rsa_key, token


def named(*keys: Any, kid: str | None = "one") -> list[str]:
    """The algorithms for which a set of these keys has one of that name."""
    found = read(page(*keys))
    return [alg for alg in ("RS256", "ES256", "HS256", "none") if found.find(alg, kid) is not None]


def test_an_rsa_key_is_for_rs256_and_a_p256_key_for_es256():
    assert named(public(rsa_key(), "one")) == ["RS256"]
    assert named(public(ec_key(), "one")) == ["ES256"]
    assert named(public(rsa_key(), "one"), public(ec_key(), "one")) == ["RS256", "ES256"]
    assert named(public(rsa_key(), "one"), kid="two") == []


def test_a_key_verifies_what_it_signed_and_nothing_else():
    for key in (rsa_key(), ec_key()):
        found = read(page(public(key))).find("RS256" if key is rsa_key() else "ES256", None)
        signed, _, signature = token(key).rpartition(b".")
        raw = base64.urlsafe_b64decode(signature + b"=" * (-len(signature) % 4))
        assert found is not None
        assert found.verifies(signed, raw)
        assert not found.verifies(signed + b"x", raw)
        assert not found.verifies(signed, raw[:-1] + bytes([raw[-1] ^ 1]))
        for other in (b"", b"\0", raw + b"\0", raw[:-1], bytes(len(raw)), b"\xff" * len(raw), raw * 100):
            assert not found.verifies(signed, other)


@pytest.mark.parametrize(
    "extra",
    [
        {"use": "enc"},
        {"use": None},
        {"key_ops": ["sign"]},
        {"key_ops": "verify"},
        {"key_ops": []},
        {"alg": "RS512"},
        {"alg": "PS256"},
        {"alg": "HS256"},
        {"alg": "ES256"},
        {"alg": "none"},
        {"alg": None},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"kty": "OKP", "crv": "Ed25519"},
        {"kty": "rsa"},
        {"kty": ["RSA"]},
        {"kty": "EC"},
        {"n": ""},
        {"n": None},
        {"n": 7},
        {"n": "****"},
        {"e": ""},
        {"e": "AA"},
        {"e": "Ag"},
        {"e": []},
        {"kid": 7},
        {"kid": ["one"]},
        {"kid": "x" * 257},
    ],
)
def test_an_rsa_entry_for_something_else_or_broken_is_left_out(extra: dict[str, Any]):
    assert len(read(page({**public(rsa_key(), "one"), **extra}))) == 0
    assert named({**public(rsa_key(), "two"), **extra}, public(rsa_key(), "one")) == ["RS256"]


@pytest.mark.parametrize(
    "extra",
    [
        {"crv": "P-384"},
        {"crv": "secp256k1"},
        {"crv": None},
        {"crv": ["P-256"]},
        {"x": ""},
        {"x": "AAAA"},
        {"x": base64.urlsafe_b64encode(b"\x01" * 32).decode().rstrip("=")},
        {"y": None},
        {"alg": "ES384"},
        {"alg": "RS256"},
        {"kty": "RSA"},
    ],
)
def test_an_ec_entry_that_is_not_a_point_of_p256_is_left_out(extra: dict[str, Any]):
    assert len(read(page({**public(ec_key(), "one"), **extra}))) == 0


def test_a_key_of_another_curve_is_left_out():
    assert len(read(page(public(ec_key(curve="P-384"), "one")))) == 0


def test_a_key_that_can_be_factored_is_left_out():
    assert len(read(page(public(rsa_key(bits=1024), "one")))) == 0


def test_entries_that_say_what_they_are_for_are_taken():
    right = public(rsa_key(), "one", use="sig", alg="RS256", key_ops=["verify", "other"])
    assert named(right) == ["RS256"]


def test_a_private_key_shown_by_mistake_is_taken_for_its_public_half():
    private = RSAAlgorithm.to_jwk(rsa_key(), as_dict=True)
    private["key_ops"] = ["verify"]
    assert read(page({**private, "kid": "one"})) == read(page(public(rsa_key(), "one")))


def test_two_keys_of_one_name_cancel_each_other_and_repeated_ones_do_not():
    first, second = public(rsa_key(), "one"), public(rsa_key("second"), "one")
    assert named(first, first) == ["RS256"]
    assert named(first, second) == []
    assert named(second, first, first) == []
    assert named(first, second, public(ec_key(), "one"), public(rsa_key(), "two")) == ["ES256"]


def test_without_a_kid_only_a_key_that_is_alone_is_found():
    assert named(public(rsa_key()), kid=None) == ["RS256"]
    assert named(public(rsa_key(), "one"), public(ec_key(), "one"), kid=None) == ["RS256", "ES256"]
    assert named(public(rsa_key(), "one"), public(rsa_key("second"), "two"), kid=None) == []
    assert named(public(rsa_key()), kid="one") == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b"null",
        b'{"keys":{}}',
        b'{"keys":null}',
        b'{"keys":[],"keys":[]}',
        b"\xff",
        b"[" * 100_000,
        page(*[{}] * (MAX_KEYS + 1)),
    ],
)
def test_what_is_no_key_set_is_an_error_in_our_own_words(raw: bytes):
    with pytest.raises(ValueError, match=r"^(the|an) "):
        read(raw)


def test_entries_that_are_no_objects_are_left_out():
    assert named(None, 7, "x", [], {}, public(rsa_key(), "one")) == ["RS256"]


def test_sets_are_equal_by_names_and_numbers():
    one = read(page(public(rsa_key(), "one")))
    assert one == read(page(public(rsa_key(), "one", use="sig"), {"kty": "oct"}))
    assert one != read(page(public(rsa_key(), "two")))
    assert one != read(page(public(rsa_key("second"), "one")))
    assert one != KeySet({})
    assert one != object()
    assert one.find("RS256", "one") != object()
