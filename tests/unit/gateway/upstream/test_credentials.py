"""Credentials of an upstream's own for each caller: which request gets which, how it is set up, and what fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import ConfigError, UpstreamError, UpstreamFailure
from airlock.core.grant import by_policy
from airlock.core.principal import Principal, Proof
from airlock.core.rules import Rule
from airlock.core.secret import Secret
from airlock.edge.httpc import ClientLimits, HttpClient, parse_target
from airlock.edge.settings import Environment
from airlock.edge.tokenexchange import Exchange, TokenExchange
from airlock.gateway import backs, outgoing
from airlock.gateway.upstream.credentials import Exchanged
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.upstream.port import Era, Outgoing
from airlock.gateway.upstreamsfile import Remote, UpstreamSpec, build
from tests.fakes import hostile
from tests.fakes.hostile import Hostile, Request
from tests.fakes.upstream_port import TRACE, Client
from tests.fakes.world import StillClock

SUBJECT = "sub" + "ject.token"
VARIABLES = Environment({"ID": "gateway", "KEY": "hun" + "ter2", "TOKEN": "tok-1"})
EXCHANGE: dict[str, Any] = {
    "token_url": "https://idp.example/token",
    "client_id": {"from": "ID"},
    "client_secret": {"from": "KEY"},
}


def asks(principal: str = "alice", token: str | None = SUBJECT, method: str = "tools/list") -> Outgoing:
    who = Principal(principal, proof=Proof(9e9, token=None if token is None else Secret(token)))
    made = outgoing.catalog_page("1", "2026-07-28", who, TRACE, None)
    return msgspec.structs.replace(made, method=method)


def given(request: Request) -> bytes:
    """A token that says for which one it was exchanged."""
    token = "for-" + parse_qs(request.body.decode())["subject_token"][0]
    return hostile.http(
        json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 300}).encode()
    )


class World:
    """A provider, an upstream server, and what speaks to it for its callers."""

    def __init__(self, provider: Hostile, server: Hostile) -> None:
        self.provider, self.server = provider, server
        exchange = Exchange(provider.url, Secret("gateway"), Secret("hunter2"))
        client = HttpClient(parse_target(server.url), ClientLimits(total_s=5))
        self.exchange = TokenExchange(exchange, StillClock())
        self.upstream = HttpUpstream(client, None, "http://up", b"x-own: 1\r\n", Exchanged(self.exchange))

    @property
    def seen(self) -> list[str | None]:
        return [request.headers.get("authorization") for request in self.server.requests]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with (
        asyncio.timeout(30),
        Hostile(default=given) as provider,
        Hostile(default=hostile.json_answer()) as server,
    ):
        made = World(provider, server)
        yield made
        await made.upstream.close()
        assert made.exchange._closed


# --- which request gets which


async def test_every_caller_reaches_the_upstream_with_a_token_of_their_own(world: World):
    await world.upstream.ask(asks())
    await world.upstream.send(asks("bob", "bobs"))
    await world.upstream.ask(asks())
    assert world.seen == [f"Bearer for-{SUBJECT}", "Bearer for-bobs", f"Bearer for-{SUBJECT}"]
    assert len(world.provider.requests) == 2
    for request in world.server.requests:
        assert [name for name, _ in request.header_list].count("authorization") == 1
        assert request.headers["x-own"] == "1"


async def test_a_stream_and_a_call_carry_it_too(world: World):
    allow = Allow(Rule.L0_READ, Tier.L0)
    grant = by_policy(Action("read", {}, "prod", "http://up"), allow)
    await world.upstream.call(grant, asks(method="tools/call"), exact=True, heard=Client())
    await world.upstream.listen(asks(method="subscriptions/listen"), Client())
    assert world.seen == [f"Bearer for-{SUBJECT}"] * 2


async def test_the_callers_own_token_goes_to_the_provider_and_nowhere_else(world: World):
    world.provider.default = hostile.http(b'{"access_token":"other","token_type":"Bearer","expires_in":300}')
    for sent in (asks(), asks(method="tools/call")):
        await world.upstream.ask(sent)
        assert SUBJECT not in repr(sent)
    assert [SUBJECT in request.body.decode() for request in world.provider.requests] == [True]
    for request in world.server.requests:
        assert SUBJECT.encode() not in request.head + request.body


async def test_a_caller_without_a_token_reaches_nothing(world: World):
    with pytest.raises(UpstreamError) as caught:
        await world.upstream.ask(asks(token=None))
    assert caught.value.cause == "token exchange failed: the caller came without a token"
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, False)
    assert world.server.requests == world.provider.requests == []


@pytest.mark.parametrize("heard", [None, Client()])
async def test_a_failed_exchange_sends_nothing_and_says_why(world: World, heard: Client | None):
    world.provider.default = hostile.http(b'{"error":"invalid_grant","error_description":"x"}', status=400)
    with pytest.raises(UpstreamError) as caught:
        await world.upstream.ask(asks(), heard=heard)
    assert caught.value.cause == "token exchange failed: HTTP 400 (invalid_grant)"
    assert (caught.value.kind, caught.value.reached, caught.value.status) == (
        UpstreamFailure.UNREACHABLE,
        False,
        None,
    )
    assert caught.value.__cause__ is None
    assert world.server.requests == []


@pytest.mark.parametrize("heard", [None, Client()])
async def test_a_token_that_the_upstream_does_not_take_is_exchanged_anew_by_the_next_call(
    world: World, heard: Client | None
):
    refused = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32011, "message": "no"}}
    world.server.script(hostile.http(json.dumps(refused).encode(), status=401))
    answer = await world.upstream.ask(asks(), heard=heard)
    assert (answer.status, answer.result) == (401, None)
    await world.upstream.ask(asks(), heard=heard)
    assert len(world.provider.requests) == 2
    Exchanged(world.exchange).refused(asks(token=None))


async def test_an_upstream_with_one_credential_knows_nothing_of_callers(world: World):
    upstream = HttpUpstream(world.upstream._client, Secret("Bearer own"))
    await upstream.ask(asks())
    assert world.seen == ["Bearer own"]
    assert SUBJECT.encode() not in world.server.requests[0].head + world.server.requests[0].body


# --- how it is set up


def spec(**upstream: Any) -> UpstreamSpec:
    whole = {"url": "https://git.example/mcp", "exchange": EXCHANGE, **upstream}
    return build({"upstreams": {"git": whole}}, "/etc/up.yaml", VARIABLES)[0]


def faults(**upstream: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        spec(**upstream)
    assert "tok-1" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
    return [f"{each.path}: {each.problem}" for each in caught.value.faults]


def test_an_exchange_is_read_with_what_it_is_for():
    at = spec(
        exchange={**EXCHANGE, "audience": "api", "resource": "https://git.example/mcp", "scope": "a b"}
    ).at
    assert isinstance(at, Remote)
    assert at.exchange is not None
    assert (at.exchange.token_url, at.exchange.client_id.reveal()) == ("https://idp.example/token", "gateway")
    assert at.exchange.client_secret.reveal() == VARIABLES.text("KEY")
    assert (at.exchange.audience, at.exchange.resource, at.exchange.scope) == (
        "api",
        "https://git.example/mcp",
        "a b",
    )
    assert "hunter2" not in repr(at)


@pytest.mark.parametrize(
    ("upstream", "told"),
    [
        ({"exchange": {}}, ["exchange: needs token_url", "exchange: needs client_id", "exchange: needs client_secret"]),
        ({"exchange": []}, ["exchange: must be a mapping", *(f"exchange: needs {n}" for n in EXCHANGE)]),
        ({"exchange": {**EXCHANGE, "other": 1}}, ["exchange.other: unknown key"]),
        ({"exchange": {**EXCHANGE, "token_url": "http://idp.example/token"}}, ["exchange.token_url: must be https, or on loopback"]),
        ({"exchange": {**EXCHANGE, "token_url": "https://a:b@idp.example"}}, ["exchange.token_url: must be an address with a host, without user name, password or fragment"]),
        ({"exchange": {**EXCHANGE, "token_url": ""}}, ["exchange.token_url: must not be empty"]),
        ({"exchange": {**EXCHANGE, "client_secret": "plain"}}, ["exchange.client_secret: must not stand here"]),
        ({"exchange": {**EXCHANGE, "client_secret": {"from": "NONE"}}}, ["exchange.client_secret.from: the variable NONE is not set"]),
        ({"exchange": {**EXCHANGE, "scope": ["a"]}}, ["exchange.scope: must be text"]),
        ({"bearer": {"from": "TOKEN"}}, ["exchange: stands instead of bearer, or a header authorization"]),
        ({"header": {"Authorization": {"from": "TOKEN"}}}, ["exchange: stands instead of bearer, or a header authorization"]),
        ({"era": "legacy"}, ["era: an exchange needs a server of the modern era"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_exchange_is_told_with_its_place(upstream: dict[str, Any], told: list[str]):
    assert faults(**upstream) == [f"upstreams.git.{line}" for line in told]


def test_an_exchange_belongs_to_an_address():
    with pytest.raises(ConfigError, match=r"exchange: belongs to a url"):
        build({"upstreams": {"git": {"stdio": "server", "exchange": EXCHANGE}}}, "up.yaml", VARIABLES)


async def test_an_upstream_with_an_exchange_is_never_asked_in_nobodys_name(world: World):
    exchange = {**EXCHANGE, "token_url": world.provider.url}
    one = spec(url=world.server.url, exchange=exchange)
    opened = backs.open_one(one, {}, StillClock(), lambda _: None)
    opened.begin()
    await opened.ask(msgspec.structs.replace(asks(), era=Era.LEGACY))
    assert world.seen == [f"Bearer for-{SUBJECT}"]
    await opened.close()
