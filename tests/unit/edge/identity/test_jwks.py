from __future__ import annotations

import asyncio
import gc
import hmac
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from airlock.core.errors import ConfigError
from airlock.core.principal import Principal, Source
from airlock.edge.identity import jwksfetch
from airlock.edge.identity.jwks import ABSENT_S, COOLDOWN_S, LIFETIME_S, OUTAGE_S, Jwks
from tests.unit.edge.identity.issuer import (
    CLAIMS,
    NOW,
    Clock,
    Issuer,
    b64,
    ec_key,
    page,
    public,
    rsa_key,
    signed,
    token,
)

ALICE = Principal("alice", (), Source.TOKEN)


class World:
    """A provider, the verifier that asks it, a clock for both, and what was logged."""

    def __init__(self, issuer: Issuer, /, **settings: Any) -> None:
        self.issuer = issuer
        self.clock = Clock()
        self.said: list[str] = []
        self.jwks = Jwks(
            issuer.url + "?key=" + "hunter" + "2secret",
            **{"issuer": None, "audience": None, "say": self.said.append, "clock": self.clock, **settings},
        )

    @property
    def now(self) -> float:
        return NOW + self.clock.at - 5_000.0

    async def who(self, text: bytes) -> Principal | None:
        """Whom a token names, after a fetch if need be."""
        found = self.jwks.verify(text, self.now)
        return found if found is None or isinstance(found, Principal) else await found

    def at_once(self, text: bytes) -> Principal | None:
        """Whom a token names without a fetch."""
        found = self.jwks.verify(text, self.now)
        assert found is None or isinstance(found, Principal)
        return found


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    one = Issuer()
    one.body = page(public(rsa_key(), "one"), public(ec_key(), "two"))
    await one.up()
    yield one
    await one.down()


@pytest.fixture
def world(issuer: Issuer) -> World:
    return World(issuer)


RSA = token(rsa_key())
EC = token(ec_key(), "two")
CLAIMS_TEXT = json.dumps(CLAIMS).encode()


# --- what a good token is


@pytest.mark.parametrize("text", [RSA, EC])
async def test_a_token_of_either_algorithm_names_its_subject(world: World, text: bytes):
    assert await world.who(text) == ALICE
    assert world.at_once(text) == ALICE
    assert world.said == []


async def test_groups_come_as_a_list_or_a_string_under_the_configured_claim(issuer: Issuer):
    assert await World(issuer).who(token(rsa_key(), groups=["sre", " dev ", "", 7])) == Principal(
        "alice", ("sre", "dev")
    )
    roles = World(issuer, groups_claim="roles")
    assert await roles.who(token(rsa_key(), roles="sre, dev ops", groups=["x"])) == Principal(
        "alice", ("sre", "dev", "ops")
    )


@pytest.mark.case("T02")
async def test_a_subject_named_like_a_group_is_in_no_group(world: World):
    assert await world.who(token(rsa_key(), sub="group:sre")) == Principal("group:sre", ())


@pytest.mark.case("T01")
@pytest.mark.parametrize("sub", ["", " ", " alice", "alice ", "alice\n", "\u00a0alice"])
async def test_a_subject_that_is_no_usable_name_names_nobody(world: World, sub: str):
    assert await world.who(token(rsa_key(), sub=sub)) is None


@pytest.mark.parametrize("missing", ["sub", "exp"])
async def test_subject_and_expiry_are_required(world: World, missing: str):
    assert await world.who(token(rsa_key(), **{missing: None})) is None


async def test_times_are_checked_without_leeway_and_for_remembered_tokens_too(world: World):
    late, early = token(rsa_key(), exp=int(NOW) + 60), token(rsa_key(), nbf=int(NOW) + 60)
    assert await world.who(late) == ALICE
    assert world.at_once(early) is None
    world.clock.at += 59.5
    assert world.at_once(late) == ALICE
    assert world.at_once(early) is None
    world.clock.at += 0.5
    assert world.at_once(late) is None
    assert world.at_once(early) == ALICE


async def test_a_token_that_expires_while_the_keys_are_fetched_names_nobody(world: World):
    world.issuer.gate = asyncio.Event()
    waiting = asyncio.ensure_future(world.who(token(rsa_key(), exp=int(NOW) + 3)))
    await world.issuer.arrived.wait()
    world.clock.at += 3
    world.issuer.gate.set()
    assert await waiting is None


async def test_another_issuer_names_nobody(issuer: Issuer):
    world = World(issuer, issuer="https://issuer")
    assert await world.who(token(rsa_key(), iss="https://issuer")) == ALICE
    for other in ("https://issuer/", "https://other", "", None):
        assert world.at_once(token(rsa_key(), iss=other)) is None


async def test_another_audience_names_nobody_and_a_list_of_audiences_may_hold_ours(issuer: Issuer):
    world = World(issuer, audience="gateway")
    assert await world.who(token(rsa_key(), aud="gateway")) == ALICE
    assert world.at_once(token(rsa_key(), aud=["other", "gateway"])) == ALICE
    for other in ("other", ["other"], [], "gateway2", None):
        assert world.at_once(token(rsa_key(), aud=other)) is None


# --- forged tokens


def forged(header: dict[str, Any], signature: bytes, claims: Any = None) -> bytes:
    body = {"sub": "alice", "exp": int(NOW) + 3600} if claims is None else claims
    return b".".join((b64(json.dumps(header).encode()), b64(json.dumps(body).encode()), b64(signature)))


async def test_a_public_key_used_as_an_hmac_secret_signs_nothing(world: World):
    assert await world.who(RSA) == ALICE
    shown = rsa_key().public_key()
    pem, formats = serialization.Encoding.PEM, serialization.PublicFormat
    der = shown.public_bytes(serialization.Encoding.DER, formats.SubjectPublicKeyInfo)
    secrets = [
        shown.public_bytes(pem, formats.SubjectPublicKeyInfo),
        shown.public_bytes(pem, formats.PKCS1),
        shown.public_bytes(pem, formats.SubjectPublicKeyInfo).strip(),
        der,
        public(rsa_key())["n"].encode(),
        b"",
    ]
    for secret in secrets:
        for alg in ("HS256", "RS256"):
            unsigned = forged({"alg": alg, "kid": "one"}, b"").rpartition(b".")[0]
            mac = hmac.digest(secret, unsigned, "sha256")
            assert world.at_once(unsigned + b"." + b64(mac)) is None


@pytest.mark.parametrize(
    "alg", ["none", "None", "NONE", "", "HS256", "RS384", "PS256", "ES384", "rs256", None, 7, ["RS256"]]
)
async def test_any_other_algorithm_is_refused_without_a_fetch(world: World, alg: object):
    assert await world.who(RSA) == ALICE
    world.clock.at += COOLDOWN_S
    for kid in ("one", "two", "other"):
        for signature in (b"", b"x"):
            assert world.at_once(forged({"alg": alg, "kid": kid}, signature)) is None
        assert world.at_once(signed({"alg": alg, "kid": kid}, CLAIMS_TEXT)) is None
    assert world.issuer.asked == 1


async def test_a_key_is_used_with_its_own_algorithm_only(world: World):
    assert await world.who(RSA) == ALICE
    # A kid is looked up together with the algorithm: another one is another key, which nobody has.
    assert world.at_once(token(ec_key(), "one")) is None
    assert world.at_once(token(rsa_key(), "two")) is None
    assert world.at_once(token(rsa_key(), "one", "RS512")) is None
    assert world.at_once(token(rsa_key(), "one", "PS256")) is None


async def test_a_token_signed_by_somebody_else_names_nobody(world: World):
    assert await world.who(token(rsa_key("stranger"))) is None
    assert world.at_once(token(ec_key("stranger"), "two")) is None
    signed, _, signature = RSA.rpartition(b".")
    header, _, _ = signed.partition(b".")
    _, claims, _ = token(rsa_key("stranger"), sub="root").split(b".")
    for bad in (
        b"",
        b".",
        b"..",
        b"...",
        b"x",
        signed,
        signed + b".",
        RSA + b".",
        RSA + b"=",
        b" " + RSA,
        RSA + b" ",
        header + b"." + claims + b"." + signature,
        header + b".." + signature,
        signed + b"." + signature + b"." + signature,
        signed + b"." + token(rsa_key(), sub="bob").rpartition(b".")[2],
        "алиса".encode(),
    ):
        assert world.at_once(bad) is None
    assert world.issuer.asked == 1


@pytest.mark.parametrize(
    "header",
    [{"crit": ["exp"]}, {"crit": []}, {"kid": 7}, {"kid": ["one"]}, {"kid": False}, {"kid": "x" * 257}],
)
async def test_critical_headers_and_odd_kids_are_refused_without_a_fetch(
    world: World, header: dict[str, Any]
):
    world.issuer.body = page(public(rsa_key(), "one"))
    good = {"alg": "RS256", "kid": "one"}
    assert await world.who(signed(good, CLAIMS_TEXT)) == ALICE
    world.clock.at += COOLDOWN_S
    assert world.at_once(signed({**good, **header}, CLAIMS_TEXT)) is None


@pytest.mark.parametrize("header", [[], None, "RS256", {}, {"kid": "one"}])
async def test_a_header_that_is_no_object_or_names_no_algorithm_is_refused(world: World, header: object):
    assert await world.who(RSA) == ALICE
    world.clock.at += COOLDOWN_S
    assert world.at_once(signed(header, CLAIMS_TEXT)) is None


async def test_a_kid_of_null_is_no_kid(world: World):
    assert await world.who(signed({"alg": "RS256", "kid": None}, CLAIMS_TEXT)) == ALICE


async def test_signed_claims_that_are_no_strict_object_name_nobody(world: World):
    assert await world.who(RSA) == ALICE
    for claims in (b"[]", b"null", b'{"sub":"bob","sub":"alice","exp":9e9}', b'{"sub":"alice","exp":NaN}'):
        assert world.at_once(signed({"alg": "RS256", "kid": "one"}, claims)) is None


# --- which key


async def test_without_a_kid_a_key_that_is_alone_checks_and_one_of_several_does_not(world: World):
    nameless = token(rsa_key(), None)
    assert await world.who(nameless) == ALICE
    world.issuer.body = page(public(rsa_key(), "one"), public(rsa_key("second"), "two"))
    world.clock.at += LIFETIME_S
    assert await world.who(nameless) is None
    assert world.at_once(RSA) == ALICE


async def test_two_keys_of_one_kid_check_nothing(world: World):
    world.issuer.body = page(public(rsa_key("stranger"), "one"), public(rsa_key(), "one"))
    assert await world.who(RSA) is None
    assert await world.who(token(rsa_key("stranger"))) is None


# --- when keys are fetched


async def test_a_hundred_first_requests_make_one_fetch(world: World):
    found = await asyncio.gather(*(world.who(token(rsa_key(), sub=f"u{number}")) for number in range(100)))
    assert found == [Principal(f"u{number}") for number in range(100)]
    assert world.issuer.asked == 1


async def test_keys_are_fetched_again_only_after_their_lifetime(world: World):
    assert await world.who(RSA) == ALICE
    world.clock.at += LIFETIME_S - 0.1
    assert world.at_once(RSA) == ALICE
    assert world.at_once(EC) == ALICE
    world.clock.at += 0.1
    assert await world.who(RSA) == ALICE
    assert world.issuer.asked == 2
    assert world.said == []


async def test_random_kids_make_one_fetch_per_cool_down(world: World):
    assert await world.who(RSA) == ALICE
    for number in range(50):
        assert world.at_once(token(ec_key("stranger"), f"x{number}")) is None
    assert world.issuer.asked == 1
    world.clock.at += COOLDOWN_S
    strangers = [token(ec_key("stranger"), f"y{number}") for number in range(50)]
    assert await asyncio.gather(*map(world.who, strangers)) == [None] * 50
    assert world.issuer.asked == 2
    assert world.at_once(RSA) == ALICE


async def test_a_kid_that_was_looked_up_is_not_looked_up_again_for_a_while(world: World):
    assert await world.who(RSA) == ALICE
    world.clock.at += COOLDOWN_S
    assert await world.who(token(ec_key("stranger"), "nobody")) is None
    assert world.issuer.asked == 2
    while world.clock.at < 5_000 + LIFETIME_S + COOLDOWN_S - 1:
        world.clock.at += 1
        assert world.at_once(token(ec_key("stranger"), "nobody")) is None
        if world.clock.at % COOLDOWN_S == 0:
            assert world.at_once(RSA) == ALICE
    assert world.issuer.asked == 2
    assert ABSENT_S == LIFETIME_S


async def test_a_kid_that_came_during_a_fetch_may_be_looked_up_by_the_next(world: World):
    assert await world.who(RSA) == ALICE
    world.clock.at += COOLDOWN_S
    world.issuer.gate = asyncio.Event()
    world.issuer.arrived.clear()
    first = asyncio.ensure_future(world.who(token(ec_key("stranger"), "x")))
    await world.issuer.arrived.wait()
    world.clock.at += 1
    late = token(rsa_key("second"), "new")
    second = asyncio.ensure_future(world.who(late))
    await asyncio.sleep(0)
    world.issuer.gate.set()
    assert (await first, await second) == (None, None)
    world.issuer.body = page(public(rsa_key("second"), "new"))
    world.clock.at += COOLDOWN_S
    assert await world.who(late) == ALICE


async def test_the_kids_that_were_not_there_are_remembered_in_bounds(issuer: Issuer):
    world = World(issuer, cache_size=4)
    assert await world.who(RSA) == ALICE
    for number in range(20):
        world.clock.at += COOLDOWN_S
        assert await world.who(token(ec_key("stranger"), f"x{number}")) is None
        assert len(world.jwks._absent) <= 4


async def test_good_tokens_are_remembered_in_bounds_and_others_not_at_all(issuer: Issuer):
    world = World(issuer, cache_size=4)
    assert await world.who(token(rsa_key("stranger"))) is None
    assert world.at_once(token(rsa_key(), exp=int(NOW))) is None
    assert world.at_once(token(rsa_key(), nbf=int(NOW) + 1)) is None
    assert world.jwks._known == {}
    for number in range(10):
        text = token(ec_key(), "two", sub=f"u{number}")
        assert world.at_once(text) == Principal(f"u{number}")
        assert text in world.jwks._known
        assert len(world.jwks._known) <= 4


async def test_a_remembered_token_is_not_checked_again(world: World):
    first = await world.who(RSA)
    assert world.at_once(RSA) is first


# --- rotation


async def test_a_new_key_is_found_when_its_first_token_comes(world: World):
    assert await world.who(RSA) == ALICE
    world.issuer.body = page(public(rsa_key(), "one"), public(rsa_key("second"), "new"))
    fresh = token(rsa_key("second"), "new")
    world.clock.at += COOLDOWN_S - 1
    assert world.at_once(fresh) is None
    world.clock.at += 1
    assert await world.who(fresh) == ALICE
    assert world.issuer.asked == 2
    assert world.at_once(RSA) == ALICE


async def test_a_token_of_a_withdrawn_key_is_forgotten_with_the_key(world: World):
    assert await world.who(RSA) == ALICE
    assert world.at_once(EC) == ALICE
    world.issuer.body = page(public(ec_key(), "two"))
    world.clock.at += LIFETIME_S - 1
    assert world.at_once(RSA) == ALICE
    world.clock.at += 1
    assert await world.who(RSA) is None
    assert world.jwks._known == {}
    assert world.at_once(EC) == ALICE


async def test_a_key_replaced_under_its_old_name_no_longer_checks(world: World):
    assert await world.who(RSA) == ALICE
    world.issuer.body = page(public(rsa_key("second"), "one"))
    world.clock.at += LIFETIME_S
    assert await world.who(RSA) is None
    assert world.at_once(token(rsa_key("second"))) == ALICE


async def test_a_provider_without_kids_may_replace_its_key(world: World):
    world.issuer.body = page(public(rsa_key()))
    assert await world.who(token(rsa_key(), None)) == ALICE
    world.issuer.body = page(public(rsa_key("second")))
    world.clock.at += COOLDOWN_S
    assert await world.who(token(rsa_key("second"), None)) == ALICE
    assert world.at_once(token(rsa_key(), None)) is None
    assert world.issuer.asked == 2


async def test_the_same_keys_again_forget_nothing(world: World):
    first = await world.who(RSA)
    world.clock.at += LIFETIME_S
    assert await world.who(EC) == ALICE
    assert world.at_once(RSA) is first


async def test_a_provider_that_withdraws_every_key_withdraws_every_token(world: World):
    assert await world.who(RSA) == ALICE
    world.issuer.body = page()
    world.clock.at += LIFETIME_S
    assert await world.who(RSA) is None
    assert world.said == [
        "AIRLOCK_JWKS_URL: the provider lists no key for RS256 or ES256: no token is accepted"
    ]
    world.issuer.body = page(public(rsa_key(), "one"))
    world.clock.at += LIFETIME_S
    assert await world.who(RSA) == ALICE
    assert world.said[1:] == ["AIRLOCK_JWKS_URL: the provider gives keys again"]


# --- outages


async def test_a_provider_that_is_down_at_first_lets_nobody_in_until_it_is_up(world: World):
    await world.issuer.down()
    assert await asyncio.gather(*(world.who(RSA) for _ in range(20))) == [None] * 20
    for _ in range(20):
        assert world.at_once(RSA) is None
    assert len(world.said) == 1
    assert "ConnectionRefusedError" in world.said[0]
    assert "no token is accepted until it answers" in world.said[0]
    world.clock.at += COOLDOWN_S
    assert await world.who(RSA) is None
    assert len(world.said) == 1
    await world.issuer.up()
    assert world.at_once(RSA) is None
    world.clock.at += COOLDOWN_S
    assert await world.who(RSA) == ALICE
    assert world.said[1:] == ["AIRLOCK_JWKS_URL: the provider gives keys again"]


async def test_known_keys_serve_through_an_outage_and_nobody_waits_for_its_end(world: World):
    assert await world.who(RSA) == ALICE
    await world.issuer.down()
    world.clock.at += LIFETIME_S
    assert await world.who(RSA) == ALICE
    assert len(world.said) == 1
    assert "used until they are 60 minutes old" in world.said[0]
    world.clock.at += COOLDOWN_S
    assert world.at_once(RSA) == ALICE
    assert world.at_once(EC) == ALICE
    assert world.jwks._fetching is not None
    await world.jwks._fetching
    await world.issuer.up()
    world.clock.at += COOLDOWN_S
    assert world.at_once(RSA) == ALICE
    await world.jwks._fetching
    assert world.issuer.asked == 2
    assert len(world.said) == 2
    assert world.at_once(RSA) == ALICE


async def test_an_outage_lets_no_key_live_longer_than_an_hour(world: World):
    long, other = (token(rsa_key(), exp=int(NOW) + 10**6, jti=number) for number in ("1", "2"))
    assert await world.who(long) == ALICE
    await world.issuer.down()
    world.clock.at += LIFETIME_S
    assert await world.who(long) == ALICE
    world.clock.at += OUTAGE_S - LIFETIME_S - 1
    assert world.at_once(long) == ALICE
    assert world.jwks._fetching is not None
    await world.jwks._fetching
    assert len(world.said) == 1
    world.clock.at += 1
    assert world.at_once(long) is None
    assert world.at_once(other) is None
    world.clock.at += COOLDOWN_S
    assert await world.who(long) is None
    assert (world.jwks._known, world.jwks._keys) == ({}, None)
    assert len(world.said) == 2
    assert "no token is accepted" in world.said[1]


async def test_keys_that_nobody_used_for_hours_are_fetched_before_they_are_used(world: World):
    long = token(rsa_key(), exp=int(NOW) + 10**6)
    assert await world.who(long) == ALICE
    world.issuer.body = page()
    world.clock.at += OUTAGE_S * 3
    assert await world.who(long) is None
    assert world.issuer.asked == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", "status 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "the text is not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "the answer is not a JWK set"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1_100_000, "answer too large"),
    ],
)
async def test_an_answer_without_keys_is_an_outage(world: World, answer: bytes, why: str):
    assert await world.who(RSA) == ALICE
    world.issuer.raw = answer
    world.clock.at += LIFETIME_S
    assert await world.who(RSA) == ALICE
    assert world.said == [
        f"AIRLOCK_JWKS_URL: the provider gave no keys ({why}): "
        "its keys of before are used until they are 60 minutes old"
    ]


async def test_a_slow_provider_lets_nobody_in_and_holds_nobody_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(jwksfetch, "TOTAL_S", 0.2)
    world.issuer.gate = asyncio.Event()
    assert await asyncio.gather(*(world.who(RSA) for _ in range(10))) == [None] * 10
    assert world.issuer.asked == 1
    assert "no answer within 0.2 s" in world.said[0]


async def test_a_failure_nobody_thought_of_is_an_outage_and_its_text_is_not_told(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    async def broken() -> bytes:
        raise RuntimeError("hunter" + "2secret")

    monkeypatch.setattr(world.jwks._fetcher, "get", broken)
    assert await world.who(RSA) is None
    assert world.said[0].startswith("AIRLOCK_JWKS_URL: the provider gave no keys (RuntimeError)")


async def test_the_address_is_in_no_line(world: World):
    await world.issuer.down()
    assert await world.who(RSA) is None
    assert "hunter" not in world.said[0]
    assert "localhost" not in world.said[0]


async def test_a_caller_who_goes_away_does_not_take_the_fetch_along(world: World):
    world.issuer.gate = asyncio.Event()
    gone, stays = asyncio.ensure_future(world.who(RSA)), asyncio.ensure_future(world.who(RSA))
    await world.issuer.arrived.wait()
    gone.cancel()
    world.issuer.gate.set()
    assert await stays == ALICE
    assert gone.cancelled()
    assert world.issuer.asked == 1


async def test_a_fetch_that_ends_with_its_loop_leaves_no_complaint(world: World):
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    world.issuer.gate = asyncio.Event()
    waiting = asyncio.ensure_future(world.who(RSA))
    await world.issuer.arrived.wait()
    assert world.jwks._fetching is not None
    world.jwks._fetching.cancel()
    assert await waiting is None
    assert world.at_once(RSA) is None
    gc.collect()
    assert complaints == []


# --- the start


def test_an_address_that_cannot_be_asked_stops_the_start():
    with pytest.raises(ConfigError, match=r"^AIRLOCK_JWKS_URL must be"):
        Jwks("file:///keys", issuer=None, audience=None, say=print)


def test_heavy_parts_are_loaded_only_for_a_provider():
    code = (
        "import sys; import airlock.edge.identity.resolve, airlock.edge.identity.jwt;"
        "from airlock.edge.identity.jwks import Jwks;"
        "assert not {'jwt', 'cryptography'} & set(sys.modules);"
        "Jwks('http://h/', issuer=None, audience=None, say=print);"
        "assert {'jwt', 'cryptography'} <= set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- why not


async def test_why_a_token_names_nobody_is_told_by_the_keys_that_are_there(issuer: Issuer):
    world = World(issuer, audience="https://gw/mcp")
    assert world.jwks.why(RSA, world.now) == "the keys of the authorization server could not be fetched"
    assert await world.who(RSA) is None
    assert world.jwks.why(RSA, world.now) == "the token is for another audience"
    late = token(rsa_key(), aud="https://gw/mcp")
    assert world.jwks.why(late, NOW + 3600) == "the token has expired"
    forged = "the token is no JWT that a trusted key signed"
    for bad in (b"opaque", token(rsa_key("other"), "one"), token(rsa_key(), "unknown")):
        assert world.jwks.why(bad, world.now) == forged
    assert issuer.asked == 1


async def test_keys_that_are_too_old_tell_nothing(world: World):
    assert await world.who(RSA) == ALICE
    world.clock.at += OUTAGE_S
    assert world.jwks.why(RSA, world.now) == "the keys of the authorization server could not be fetched"


async def test_a_providers_token_is_kept_where_it_is_exchanged(issuer: Issuer):
    found = await World(issuer, keeps=True).who(token(rsa_key(), scp=["mcp:use"]))
    assert found == ALICE
    assert found.proof.scopes == {"mcp:use"}
    assert found.proof.token is not None
    assert found.proof.token.reveal().encode() == token(rsa_key(), scp=["mcp:use"])
