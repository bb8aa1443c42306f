"""The exchange of a caller's token against an endpoint on a real socket that may answer anything."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import pytest

from airlock.core.secret import Secret
from airlock.edge import tokenexchange
from airlock.edge.tokenexchange import (
    EARLY_S,
    LONGEST_S,
    MAX_KEPT,
    REST_S,
    Exchange,
    ExchangeFailed,
    TokenExchange,
)
from tests.fakes import hostile
from tests.fakes.hostile import Hostile, Peer, Request
from tests.fakes.world import StillClock

SUBJECT = "sub" + "ject.token"
GIVEN = "up" + "stream-token"
GOOD: dict[str, Any] = {
    "access_token": GIVEN,
    "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    "token_type": "Bearer",
    "expires_in": 300,
}


def answer(status: int = 200, content_type: str = "application/json", **change: Any) -> bytes:
    found = {name: value for name, value in {**GOOD, **change}.items() if value is not ...}
    return hostile.http(json.dumps(found).encode(), status=status, content_type=content_type)


class World:
    """An endpoint, an exchange that asks it, and a clock that stands still."""

    def __init__(self, server: Hostile, **settings: Any) -> None:
        self.server = server
        self.clock = StillClock()
        who = {"client_id": Secret("gate way"), "client_secret": Secret("p+ss:word%"), **settings}
        self.exchange = TokenExchange(Exchange(server.url, **who), self.clock)

    async def token(self, principal: str = "alice", subject: str = SUBJECT) -> str:
        return (await self.exchange.token(principal, Secret(subject))).reveal()

    async def failure(self) -> str:
        with pytest.raises(ExchangeFailed) as caught:
            await self.token()
        assert caught.value.__cause__ is None
        told = str(caught.value)
        assert SUBJECT not in told
        assert GIVEN not in told
        return told

    @property
    def forms(self) -> list[dict[str, str]]:
        return [
            dict(parse_qsl(request.body.decode(), strict_parsing=True)) for request in self.server.requests
        ]


@pytest.fixture
async def server() -> AsyncIterator[Hostile]:
    async with asyncio.timeout(30), Hostile(default=answer()) as one:
        yield one


@pytest.fixture
async def world(server: Hostile) -> AsyncIterator[World]:
    made = World(server)
    yield made
    await made.exchange.close()


# --- the question


async def test_a_token_is_exchanged_as_the_rfc_says(world: World):
    assert await world.token() == GIVEN
    (request,) = world.server.requests
    assert request.method == "POST"
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert request.headers["accept-encoding"] == "identity"
    scheme, _, who = request.headers["authorization"].partition(" ")
    # RFC 6749, 2.3.1: each half is form-encoded, so that neither can hold the colon.
    assert (scheme, base64.b64decode(who)) == ("Basic", b"gate+way:p%2Bss%3Aword%25")
    assert world.forms == [
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": SUBJECT,
            "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "requested_token_type": "urn:ietf:params:oauth:token-type:access_token",
        }
    ]


async def test_what_the_token_is_for_goes_along(server: Hostile):
    world = World(server, audience="api://git & more", resource="https://git.example/mcp", scope="read write")
    assert await world.token() == GIVEN
    assert world.forms[0].items() >= {
        "audience": "api://git & more", "resource": "https://git.example/mcp", "scope": "read write"
    }.items()  # fmt: skip
    await world.exchange.close()


def test_an_address_that_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="address"):
        TokenExchange(Exchange("idp/token", Secret("a"), Secret("b")), StillClock())


# --- how long it is kept


async def test_a_token_is_kept_until_shortly_before_it_expires(world: World):
    for _ in range(3):
        assert await world.token() == GIVEN
    world.clock.time += 300 - EARLY_S - 0.1
    assert await world.token() == GIVEN
    assert len(world.server.requests) == 1
    world.clock.time += 0.1
    assert await world.token() == GIVEN
    assert len(world.server.requests) == 2


async def test_every_token_of_every_principal_is_exchanged_for_itself(world: World):
    world.server.script(*(answer(access_token=f"t{n}") for n in range(3)))
    asked = [("alice", "a"), ("bob", "a"), ("alice", "b")]
    assert [await world.token(*each) for each in asked] == ["t0", "t1", "t2"]
    assert [await world.token(*each) for each in asked] == ["t0", "t1", "t2"]


@pytest.mark.parametrize("lives", [..., 0, -5, 30, 29.5])
async def test_a_token_of_unknown_or_short_life_is_for_those_who_wait_now(world: World, lives: Any):
    world.server.default = answer(expires_in=lives)
    both = await asyncio.gather(world.token(), world.token())
    assert list(both) == [GIVEN, GIVEN]
    assert len(world.server.requests) == 1
    assert await world.token() == GIVEN
    assert len(world.server.requests) == 2


@pytest.mark.parametrize("lives", [10**300, 1e300, LONGEST_S * 2])
async def test_no_token_is_kept_for_longer_than_an_hour(world: World, lives: float):
    world.server.default = answer(expires_in=lives)
    await world.token()
    world.clock.time += LONGEST_S - 1
    await world.token()
    assert len(world.server.requests) == 1
    world.clock.time += 1
    await world.token()
    assert len(world.server.requests) == 2


async def test_the_age_counts_from_the_question(world: World):
    async def slow(peer: Peer, request: Request) -> None:
        world.clock.time += 200
        peer.send(answer())

    world.server.script(slow)
    await world.token()
    world.clock.time += 300 - 200 - EARLY_S
    await world.token()
    assert len(world.server.requests) == 2


async def test_a_token_that_the_upstream_does_not_take_is_dropped(world: World):
    await world.token()
    world.exchange.forget("bob", Secret(SUBJECT))
    await world.token()
    assert len(world.server.requests) == 1
    world.exchange.forget("alice", Secret(SUBJECT))
    await world.token()
    assert len(world.server.requests) == 2


async def test_only_so_many_tokens_are_kept_and_the_one_used_last_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    assert MAX_KEPT == 1000
    monkeypatch.setattr(tokenexchange, "MAX_KEPT", 3)
    for name in ("a", "b", "c", "a", "d"):
        await world.token(name)
    assert len(world.exchange._kept) == 3
    asked = len(world.server.requests)
    await world.token("a")
    assert len(world.server.requests) == asked
    await world.token("b")
    assert len(world.server.requests) == asked + 1


# --- many at a time


class Gate:
    """Answers when it is opened."""

    def __init__(self, body: bytes = answer()) -> None:
        self.body = body
        self.open = asyncio.Event()

    async def __call__(self, peer: Peer, request: Request) -> None:
        await self.open.wait()
        peer.send(self.body)


async def test_many_callers_with_one_token_are_one_exchange_and_who_leaves_does_not_end_it(world: World):
    gate = Gate()
    world.server.default = gate
    waiting = [asyncio.ensure_future(world.token()) for _ in range(20)]
    await world.server.arrived(1)
    waiting[0].cancel()
    gate.open.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [GIVEN] * 19
    assert len(world.server.requests) == 1


async def test_only_so_many_exchanges_are_under_way(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenexchange, "MAX_OPEN", 2)
    gate = Gate()
    world.server.default = gate
    waiting = [asyncio.ensure_future(world.token(name)) for name in ("a", "b")]
    await world.server.arrived(2)
    assert await world.failure() == "too many exchanges are under way"
    gate.open.set()
    assert await asyncio.gather(*waiting) == [GIVEN, GIVEN]
    assert await world.token("c") == GIVEN


async def test_closing_ends_what_is_under_way_and_lets_nothing_begin(world: World):
    world.server.default = hostile.silence
    waiting = asyncio.ensure_future(world.token())
    await world.server.arrived(1)
    await world.exchange.close()
    with pytest.raises(ExchangeFailed, match=r"^the gateway is stopping$"):
        await waiting
    assert await world.failure() == "the gateway is stopping"
    assert world.exchange._kept == {}


# --- answers that are no token


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (answer(400, error="invalid_grant", error_description=f"{SUBJECT} is bad"), "HTTP 400 (invalid_grant)"),
        (answer(400, error="unsupported_grant_type"), "HTTP 400 (unsupported_grant_type)"),
        (answer(401, error=f"see {GIVEN}"), "HTTP 401"),
        (answer(400, error=["invalid_grant"]), "HTTP 400"),
        (answer(500, content_type="text/html", error="invalid_grant"), "HTTP 500"),
        (hostile.http(b"{", status=503), "HTTP 503"),
        (hostile.http(b"", status=302, headers={"Location": "https://evil.example/"}), "HTTP 302"),
        (answer(201), "HTTP 201"),
        (answer(content_type="text/plain"), "the answer is no JSON object"),
        (hostile.http(b""), "the answer is no JSON object"),
        (hostile.http(b"[]"), "the answer is no JSON object"),
        (hostile.http(b'{"access_token":"a","access_token":"b","token_type":"Bearer"}'), "the answer is no JSON object"),
        (hostile.http(b"\xff"), "the answer is no JSON object"),
        (answer(access_token=...), "the answer holds no usable access_token"),
        (answer(access_token=""), "the answer holds no usable access_token"),
        (answer(access_token=5), "the answer holds no usable access_token"),
        (answer(access_token="a b"), "the answer holds no usable access_token"),
        (answer(access_token="a\r\nX-Evil: 1"), "the answer holds no usable access_token"),
        (answer(access_token="a\n"), "the answer holds no usable access_token"),
        (answer(access_token="ключ"), "the answer holds no usable access_token"),
        (answer(access_token="x" * (16 * 1024 + 1)), "the answer holds no usable access_token"),
        (answer(token_type=...), "the token is no bearer token"),
        (answer(token_type="DPoP"), "the token is no bearer token"),
        (answer(token_type="N_A"), "the token is no bearer token"),
        (answer(token_type=["Bearer"]), "the token is no bearer token"),
        (answer(issued_token_type="urn:ietf:params:oauth:token-type:refresh_token"), "the token is no access token"),
        (answer(issued_token_type={"a": 1}), "the token is no access token"),
        (answer(expires_in="300"), "expires_in is no number"),
        (answer(expires_in=True), "expires_in is no number"),
        (answer(expires_in=None), "expires_in is no number"),
        (hostile.http(b'{"access_token":"a","token_type":"Bearer","expires_in":1e400}'), "the answer is no JSON object"),
        (hostile.gzipped(), "compressed answer"),
        (hostile.huge(128 * 1024), "answer too large"),
        (hostile.declared(), "answer too large"),
        (b"nonsense\r\n\r\n", "not HTTP"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_no_token_is_one_short_cause(world: World, reply: Any, why: str):
    world.server.script(reply, close=True)
    assert await world.failure() == why


@pytest.mark.parametrize("change", [{"token_type": "bearer"}, {"issued_token_type": ...},
                                    {"issued_token_type": "urn:ietf:params:oauth:token-type:jwt"}])  # fmt: skip
async def test_what_providers_leave_open_is_taken(world: World, change: dict[str, Any]):
    world.server.default = answer(**change)
    assert await world.token() == GIVEN


async def test_a_redirect_takes_nothing_along(world: World):
    async with Hostile() as other:
        world.server.script(hostile.http(b"", status=307, headers={"Location": other.url}))
        assert await world.failure() == "HTTP 307"
        assert other.requests == []


async def test_a_provider_that_does_not_answer_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokenexchange, "TOTAL_S", 0.05)
    world.server.default = hostile.drip(inside="head")
    assert await world.failure() == "no answer within 0.05 s"


async def test_a_provider_that_is_not_there_is_a_class_name(server: Hostile):
    world = World(server)
    await server.__aexit__(None, None, None)
    assert await world.failure() == "ConnectionRefusedError"
    await server.__aenter__()
    await world.exchange.close()


async def test_a_failure_is_not_asked_for_again_at_once(world: World):
    world.server.script(answer(400, error="invalid_grant"))
    for _ in range(5):
        assert await world.failure() == "HTTP 400 (invalid_grant)"
    assert len(world.server.requests) == 1
    world.exchange.forget("alice", Secret(SUBJECT))  # what there is to forget is a token
    assert await world.failure() == "HTTP 400 (invalid_grant)"
    world.clock.time += REST_S
    assert await world.token() == GIVEN
