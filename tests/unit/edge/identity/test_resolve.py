from __future__ import annotations

import base64
import hmac
import json

import pytest

from airlock.core.principal import Principal, Source
from airlock.edge.headers import Headers
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import Identity

NOW = 1_700_000_000.0
SECRET = b"s" * 32
BOB = Principal("bob", ("ops",), Source.HEADER)
TRUSTED = [(b"x-airlock-principal", b"bob"), (b"x-airlock-groups", b"ops")]


def token(secret: bytes = SECRET, **claims: object) -> bytes:
    def b64(raw: bytes) -> bytes:
        return base64.urlsafe_b64encode(raw).rstrip(b"=")

    body = {"sub": "alice", "exp": NOW + 60, **claims}
    signed = b64(json.dumps({"alg": "HS256"}).encode()) + b"." + b64(json.dumps(body).encode())
    return signed + b"." + b64(hmac.digest(secret, signed, "sha256"))


def identity(*, jwt: bool = True, trust: bool = True) -> Identity:
    return Identity(hs256=Hs256(SECRET, issuer=None, audience=None) if jwt else None, trust_header=trust)


def authorized(value: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"gate"), (b"authorization", value)]


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER ", b"Bearer  ", b"Bearer\t"])
def test_a_good_token_names_its_subject_even_beside_a_trusted_header(scheme: bytes):
    found = identity().resolve(Headers([*authorized(scheme + token()), *TRUSTED]), NOW)
    assert found == Principal("alice", (), Source.TOKEN)


@pytest.mark.case("T03")
@pytest.mark.parametrize(
    "bad",
    [token(secret=b"other"), token(exp=NOW), token(sub=""), b"x", token() + b" x", token() + b" ", b"\xff"],
)
def test_a_failing_token_never_falls_back_to_the_trusted_header(bad: bytes):
    assert identity().resolve(Headers([*authorized(b"Bearer " + bad), *TRUSTED]), NOW) is None


@pytest.mark.case("T72")
@pytest.mark.parametrize("empty", [b"Bearer", b"bearer", b"Bearer ", b"BEARER\t", b" Bearer"])
def test_an_empty_bearer_is_a_failing_token(empty: bytes):
    assert identity().resolve(Headers([*authorized(empty), *TRUSTED]), NOW) is None


@pytest.mark.parametrize("value", [b"Basic Ym9iOng=", b"", b" ", b"Bearerx", b"Bearer" + token(), b"alice"])
def test_an_authorization_that_is_no_bearer_does_not_block_the_trusted_header(value: bytes):
    assert identity().resolve(Headers([*authorized(value), *TRUSTED]), NOW) == BOB
    assert identity(trust=False).resolve(Headers([*authorized(value), *TRUSTED]), NOW) is None


@pytest.mark.parametrize("value", [b"Bearer " + token(), b"Bearer", b"Bearer x"])
def test_without_a_secret_a_bearer_names_nobody_and_does_not_block_the_trusted_header(value: bytes):
    assert identity(jwt=False).resolve(Headers([*authorized(value), *TRUSTED]), NOW) == BOB
    assert identity(jwt=False, trust=False).resolve(Headers([*authorized(value), *TRUSTED]), NOW) is None


def test_the_header_counts_only_while_it_is_trusted():
    assert identity().resolve(Headers(TRUSTED), NOW) == BOB
    assert identity(trust=False).resolve(Headers(TRUSTED), NOW) is None


def test_nothing_names_nobody():
    assert identity().resolve(Headers([]), NOW) is None
    assert (
        identity().resolve(Headers([(b"x-airlock-groups", b"ops"), (b"x-forwarded-user", b"bob")]), NOW)
        is None
    )


@pytest.mark.parametrize("jwt", [True, False])
@pytest.mark.parametrize("trust", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        [*authorized(b"Bearer " + token()), *authorized(b"Bearer " + token())],
        [*authorized(b"Bearer " + token()), *authorized(b"Basic x"), *TRUSTED],
        [*authorized(b""), *authorized(b""), *TRUSTED],
        [*TRUSTED, (b"x-airlock-principal", b"bob")],
        [*TRUSTED, (b"x-airlock-principal", b"")],
        [*TRUSTED, (b"x-airlock-groups", b"sre")],
    ],
)
def test_a_header_that_stands_twice_names_nobody(headers: list[tuple[bytes, bytes]], jwt: bool, trust: bool):
    assert identity(jwt=jwt, trust=trust).resolve(Headers(headers), NOW) is None


@pytest.mark.case("T01")
@pytest.mark.parametrize("name", [b"", b" ", b"bob ", b" bob"])
def test_a_padded_name_in_the_trusted_header_is_nobody(name: bytes):
    assert identity().resolve(Headers([(b"x-airlock-principal", name)]), NOW) is None


def test_a_token_is_checked_against_the_time_of_each_request():
    who = identity()
    headers = authorized(b"Bearer " + token())
    assert who.resolve(Headers(headers), NOW) is not None
    assert who.resolve(Headers(headers), NOW + 60) is None
