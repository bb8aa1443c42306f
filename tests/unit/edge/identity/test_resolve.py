from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Awaitable

import pytest

from airlock.core.principal import Principal, Source
from airlock.edge.headers import Headers
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import CHALLENGE, Approver, Identity

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


# --- tokens checked against a provider


class Provider:
    """Verifies one token; `fetches` makes every answer one to await."""

    def __init__(self, *, fetches: bool = False, fails: bool = False) -> None:
        self.fetches, self.fails = fetches, fails

    def verify(self, text: bytes, now: float) -> Principal | Awaitable[Principal | None] | None:
        if self.fails and not self.fetches:
            raise RuntimeError
        return self._later(text) if self.fetches else self._at_once(text)

    def why(self, text: bytes, now: float) -> str:
        return f"{text.decode()} is not good"

    def _at_once(self, text: bytes) -> Principal | None:
        return Principal("carol") if text == b"good" else None

    async def _later(self, text: bytes) -> Principal | None:
        if self.fails:
            raise RuntimeError
        return self._at_once(text)


def both(provider: Provider, *, trust: bool = True) -> Identity:
    return Identity(hs256=Hs256(SECRET, issuer=None, audience=None), jwks=provider, trust_header=trust)


@pytest.mark.case("T03")
def test_a_provider_wins_over_the_shared_secret_and_its_no_is_final():
    who = both(Provider())
    assert who.resolve(Headers([*authorized(b"Bearer good"), *TRUSTED]), NOW) == Principal("carol")
    assert who.resolve(Headers([*authorized(b"Bearer " + token()), *TRUSTED]), NOW) is None
    assert who.resolve(Headers([*authorized(b"Bearer"), *TRUSTED]), NOW) is None
    assert who.resolve(Headers(TRUSTED), NOW) == BOB


@pytest.mark.case("T03")
async def test_while_keys_are_fetched_there_is_something_to_await_and_no_fall_back():
    who = both(Provider(fetches=True))
    for text, expected in ((b"good", Principal("carol")), (token(), None)):
        found = who.resolve(Headers([*authorized(b"Bearer " + text), *TRUSTED]), NOW)
        assert isinstance(found, Awaitable)
        assert await found == expected
    assert who.resolve(Headers(TRUSTED), NOW) == BOB


def test_a_refusal_asks_for_a_bearer_token():
    assert CHALLENGE == (b"www-authenticate", b"Bearer")


@pytest.mark.case("T02")
@pytest.mark.parametrize("name", ["group:sre", "group:ops"])
def test_a_name_like_a_group_is_in_no_group(name: str):
    headers = Headers([(b"x-airlock-principal", name.encode())])
    assert identity().resolve(headers, NOW) == Principal(name, (), Source.HEADER)
    found = identity().resolve(Headers(authorized(b"Bearer " + token(sub=name))), NOW)
    assert found == Principal(name, (), Source.TOKEN)


# --- who clicked


NOBODY = Approver(None, None)
FORWARDED = (b"x-forwarded-user", b"dave")


@pytest.mark.case("T15")
@pytest.mark.parametrize("fetches", [False, True])
async def test_a_click_is_verified_only_by_a_token_that_was_checked_here(fetches: bool):
    who = both(Provider(fetches=fetches))
    assert await who.approver(Headers(authorized(b"Bearer good")), NOW) == Approver("carol", "verified")
    everything = Headers([*authorized(b"bearer good"), *TRUSTED, FORWARDED])
    assert await who.approver(everything, NOW) == Approver("carol", "verified")
    assert await identity(trust=False).approver(Headers(authorized(b"Bearer " + token())), NOW) == Approver(
        "alice", "verified"
    )


@pytest.mark.case("T15")
@pytest.mark.parametrize(
    "value", [b"Basic Y2Fyb2w6", b"good", b"", b"Bearer", b"Bearer bad", b"Negotiate good"]
)
async def test_any_other_authorization_verifies_nobody_and_leaves_the_header(value: bytes):
    who = both(Provider())
    assert await who.approver(Headers([*authorized(value), FORWARDED]), NOW) == Approver("dave", "header")
    assert await who.approver(Headers(authorized(value)), NOW) == NOBODY


@pytest.mark.case("T15")
async def test_a_bearer_that_nobody_is_configured_to_check_verifies_nobody():
    headers = Headers([*authorized(b"Bearer " + token()), FORWARDED])
    assert await identity(jwt=False).approver(headers, NOW) == Approver("dave", "header")


async def test_a_doubled_authorization_verifies_nobody():
    headers = Headers([*authorized(b"Bearer good"), *authorized(b"Bearer good")])
    assert await both(Provider()).approver(headers, NOW) == NOBODY


@pytest.mark.case("T14")
@pytest.mark.parametrize("fetches", [False, True])
async def test_a_failure_while_working_out_who_clicked_still_gives_an_answer(fetches: bool):
    who = both(Provider(fetches=fetches, fails=True))
    assert await who.approver(Headers(authorized(b"Bearer good")), NOW) == NOBODY
    assert await who.approver(Headers([*authorized(b"Bearer good"), FORWARDED]), NOW) == Approver(
        "dave", "header"
    )


@pytest.mark.parametrize("trust", [True, False])
async def test_the_headers_of_a_proxy_name_a_click_in_order(trust: bool):
    who = identity(trust=trust)
    assert await who.approver(Headers([FORWARDED, *TRUSTED]), NOW) == Approver("bob", "header")
    assert await who.approver(Headers([FORWARDED]), NOW) == Approver("dave", "header")
    assert await who.approver(Headers([]), NOW) == NOBODY
    for name in (b"", b" ", b"bob ", b"\xff"):
        padded = (b"x-airlock-principal", name)
        assert await who.approver(Headers([padded, FORWARDED]), NOW) == Approver("dave", "header")
        assert await who.approver(Headers([padded, (b"x-forwarded-user", name)]), NOW) == NOBODY


async def test_a_name_that_stands_twice_is_passed_over():
    who = identity()
    assert await who.approver(Headers([*TRUSTED, *TRUSTED, FORWARDED]), NOW) == Approver("dave", "header")
    assert await who.approver(Headers([*TRUSTED, *TRUSTED, FORWARDED, FORWARDED]), NOW) == NOBODY


async def test_a_name_is_recorded_scrubbed_and_cut_whatever_its_source():
    secret = "gh" + "p_" + "x" * 36
    for name, shown in (
        (secret, "[REDACTED]"),
        ("a" * 110 + " " + secret, "a" * 110 + " [REDACTED]"),
        ("n" * 1000, "n" * 122 + "…[cut]"),
    ):
        sent = Headers([(b"x-forwarded-user", name.encode())])
        assert await identity().approver(sent, NOW) == Approver(shown, "header")
        sent = Headers(authorized(b"Bearer " + token(sub=name)))
        assert await identity().approver(sent, NOW) == Approver(shown, "verified")


# --- why a token names nobody


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], None),
        (TRUSTED, None),
        (authorized(b"Basic Ym9iOng="), None),
        (authorized(b""), None),
        (authorized(b"Bearer bad"), "bad is not good"),
        (authorized(b"bearer\tbad"), "bad is not good"),
        (authorized(b"Bearer"), "the token is empty"),
        (authorized(b"Bearer "), "the token is empty"),
        (
            [*authorized(b"Bearer good"), *authorized(b"Bearer good")],
            "the Authorization header stands more than once",
        ),
        ([*authorized(b""), *authorized(b"")], "the Authorization header stands more than once"),
    ],
)
def test_only_who_sent_a_token_is_told_what_is_wrong_with_it(
    lines: list[tuple[bytes, bytes]], why: str | None
):
    assert both(Provider()).why(Headers(lines), NOW) == why


def test_a_token_that_nobody_checks_is_no_token():
    assert identity(jwt=False).why(Headers(authorized(b"Bearer x")), NOW) is None
