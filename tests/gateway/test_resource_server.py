"""The endpoint as an OAuth resource server: who gets which refusal when, what is public, and how streams end."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from typing import Any

import msgspec
import pytest

from airlock.core.principal import Principal
from airlock.edge.headers import Headers
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import Identity
from airlock.edge.settings import Environment
from airlock.gateway.app import App, Fronts
from airlock.gateway.door import Door
from airlock.gateway.legacy.replies import Plain, Streaming
from airlock.gateway.oauth import resource_server
from tests.fakes.upstream_port import FakeUpstream
from tests.fakes.world import Got, World

URL = "https://gw.example/mcp"
ROOT = "/.well-known/oauth-protected-resource"
KEY = b"k" * 32
POINTER = f'Bearer resource_metadata="https://gw.example{ROOT}/mcp"'
JSON = (b"content-type", b"application/json")
BOTH = (b"accept", b"application/json, text/event-stream")


class Session:
    """A front of the older eras: it notes who comes, and its stream has no end of its own."""

    def __init__(self) -> None:
        self.came: list[tuple[str, Principal]] = []
        self.streams = 0

    async def post(self, lines: Headers, raw: bytes, message: object, principal: Principal) -> Plain:
        self.came.append(("POST", principal))
        return Plain(200, b"{}")

    async def get(self, lines: Headers, principal: Principal) -> Streaming:
        self.came.append(("GET", principal))
        return Streaming(200, (), self._stream)

    async def delete(self, lines: Headers, principal: Principal) -> Plain:
        self.came.append(("DELETE", principal))
        return Plain(200)

    async def _stream(self, write: Any) -> None:
        self.streams += 1
        try:
            await write(b": open\n\n")
            await asyncio.Event().wait()
        finally:
            self.streams -= 1


class Server(World):
    """A world whose endpoint is a resource server."""

    def __init__(
        self, *, legacy: Session | None = None, door: Door | None = None, configured: bool = True, **env: str
    ) -> None:
        super().__init__()
        settings = {
            "AIRLOCK_RESOURCE_URL": URL,
            "AIRLOCK_JWT_SECRET": "x",
            "AIRLOCK_JWT_ISSUER": "https://idp.example",
        }
        oauth = resource_server(Environment({**settings, **env})) if configured else None
        identity = Identity(hs256=Hs256(KEY, issuer=None, audience=URL), trust_header=False)
        fronts = Fronts(door, legacy, oauth)  # type: ignore[arg-type]  # a front in all that the app asks of it
        self.app = App(self.gate, identity, 4096, fronts)

    def token(self, lives_s: float = 60, **claims: Any) -> bytes:
        def part(value: Any) -> bytes:
            return base64.urlsafe_b64encode(
                value if isinstance(value, bytes) else json.dumps(value).encode()
            ).rstrip(b"=")

        whole = {"sub": "alice", "exp": self.clock.time + lives_s, "aud": URL, **claims}
        signed = part({"alg": "HS256"}) + b"." + part(whole)
        return signed + b"." + part(hmac.digest(KEY, signed, "sha256"))

    def bearer(self, *more: Any, **claims: Any) -> tuple[bytes, bytes]:
        return b"authorization", b"Bearer " + self.token(*more, **claims)

    async def read(self, *lines: tuple[bytes, bytes]) -> Got:
        return await self.call("read", {}, principal=None, extra=list(lines))


def challenge(got: Got) -> str:
    assert got.status in (401, 403)
    return got.headers["www-authenticate"]


# --- 401


async def test_who_has_no_token_is_told_where_to_get_one_before_any_protocol_error() -> None:
    world = Server()
    for body in (b"{", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}'):
        got = await world.http(body, [])
        assert challenge(got) == POINTER
        assert (got.code, got.message["id"]) == (-32011, None)
        intent, outcome = world.last_pair
        assert intent["rule_id"] == outcome["rule_id"] == "principal.missing"
        assert intent["principal"] is None
    assert world.client.sent == []


async def test_without_a_resource_the_order_and_the_challenge_stay_as_they_were() -> None:
    world = Server(configured=False)
    assert (await world.http(b"{", [])).status == 400
    got = await world.read()
    assert (challenge(got), got.message["id"]) == ("Bearer", 1)
    assert (await world.http(b"", [], method="GET")).status == 405
    for path in (ROOT, f"{ROOT}/mcp", "/.well-known/oauth-authorization-server"):
        assert (await world.http(b"", [], path=path, method="GET")).status == 404


async def test_size_and_door_come_before_the_token() -> None:
    world = Server(door=Door(frozenset({b"gw.example"}), None, kinds=True))
    host = (b"host", b"gw.example")
    assert (await world.http(b"{}", [(b"host", b"evil.example"), JSON, BOTH])).status == 403
    assert (await world.http(b"{}", [host, (b"content-type", b"text/plain"), BOTH])).status == 415
    assert (await world.http(b"{}", [host, JSON, (b"mcp-protocol-version", b"2026-07-28")])).status == 406
    assert (await world.http(b"x" * 4097, [host, JSON, BOTH, (b"content-length", b"4097")])).status == 413
    assert (await world.http(b"{}", [host, JSON, BOTH])).status == 401


async def test_a_bad_token_is_told_what_is_wrong_and_the_audit_knows_it_too() -> None:
    world = Server()
    for line, why in [
        (world.bearer(aud="https://other.example/mcp"), "the token is for another audience"),
        (world.bearer(0), "the token has expired"),
        ((b"authorization", b"Bearer opaque"), "the token is no JWT that a trusted key signed"),
        ((b"authorization", b"Bearer"), "the token is empty"),
    ]:
        got = await world.read(line)
        assert challenge(got) == f'{POINTER}, error="invalid_token", error_description="{why}"'
        assert world.last_pair[0]["detail"] == f"no principal: {why}"
    assert challenge(await world.read((b"authorization", b"Basic eDp5"))) == POINTER
    assert "more than once" in challenge(await world.read(world.bearer(), world.bearer()))
    assert world.client.sent == []


async def test_a_token_for_the_resource_is_good() -> None:
    world = Server()
    assert (await world.read(world.bearer())).rule == "tier.L0.read"
    assert (await world.read(world.bearer(aud=["x", URL]))).rule == "tier.L0.read"


async def test_a_refusal_that_cannot_be_recorded_sends_nobody_for_a_token() -> None:
    world = Server()
    world.sink.failing = True
    got = await world.read()
    assert (got.status, got.code) == (500, -32603)
    assert "www-authenticate" not in got.headers


# --- 403


async def test_a_good_token_without_a_scope_is_told_all_that_are_needed() -> None:
    world = Server(AIRLOCK_SCOPES="mcp:use mcp:more")
    got = await world.read(world.bearer(scope="mcp:use other"))
    assert got.status == 403
    assert got.code == -32012
    assert challenge(got) == (
        f'Bearer error="insufficient_scope", scope="mcp:use mcp:more", resource_metadata="https://gw.example{ROOT}/mcp"'
    )
    intent, outcome = world.last_pair
    assert intent["rule_id"] == outcome["rule_id"] == "scope.missing"
    assert (intent["principal"], intent["verdict"]) == ("alice", "deny")
    assert world.client.sent == []
    assert (await world.read(world.bearer(scope="mcp:more mcp:use"))).rule == "tier.L0.read"
    assert (await world.read(world.bearer(scp=["mcp:more", "mcp:use"]))).rule == "tier.L0.read"
    assert challenge(await world.read()) == f'{POINTER}, scope="mcp:use mcp:more"'


# --- GET and DELETE


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("lines", [[], [(b"mcp-session-id", b"s")]])
@pytest.mark.parametrize("older", [True, False])
async def test_every_verb_needs_the_token(method: str, lines: list[tuple[bytes, bytes]], older: bool) -> None:
    session = Session()
    world = Server(legacy=session if older else None, AIRLOCK_SCOPES="mcp:use")
    assert challenge(await world.http(b"", lines, method=method)) == f'{POINTER}, scope="mcp:use"'
    assert (await world.http(b"", [*lines, world.bearer()], method=method)).status == 403
    assert session.came == []


async def test_with_the_token_a_verb_that_is_not_served_is_405() -> None:
    world = Server()
    got = await world.http(b"", [world.bearer()], method="GET")
    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert (await world.http(b"", [], method="PUT")).status == 405
    wide = Server(legacy=Session())
    assert (await wide.http(b"", [wide.bearer()], method="GET")).status == 405


async def test_a_foreign_page_is_refused_before_its_token_is_looked_at() -> None:
    world = Server(legacy=Session(), door=Door(frozenset({b"gw.example"}), None))
    got = await world.http(b"", [(b"host", b"evil.example")], method="GET")
    assert got.status == 403
    assert "www-authenticate" not in got.headers


async def test_a_session_of_the_older_eras_is_reached_with_the_token_on_every_request() -> None:
    session = Session()
    world = Server(legacy=session)
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert challenge(await world.http(body, [JSON])) == POINTER
    assert (await world.http(body, [JSON, world.bearer()])).status == 200
    assert (await world.http(b"", [world.bearer(), (b"mcp-session-id", b"s")], method="DELETE")).status == 200
    assert session.came == [("POST", Principal("alice")), ("DELETE", Principal("alice"))]


# --- streams end with the token


async def test_a_stream_of_the_older_eras_ends_when_the_token_does() -> None:
    session = Session()
    world = Server(legacy=session)
    async with asyncio.timeout(10):
        got = await world.http(b"", [world.bearer(0.05), (b"mcp-session-id", b"s")], method="GET")
    assert (got.status, got.raw, session.streams) == (200, b": open\n\n", 0)


async def test_a_subscription_ends_in_order_when_the_token_does() -> None:
    world = Server()
    upstream = world.gate.upstream = FakeUpstream()
    snapshot = world.gate.snapshot
    world.gate.snapshot = msgspec.structs.replace(
        snapshot, methods=snapshot.methods | {"subscriptions/listen"}, wide=True
    )
    async with asyncio.timeout(10):
        got = await world.rpc(
            "subscriptions/listen",
            {"notifications": {"toolsListChanged": True}},
            principal=None,
            request_id="s1",
            extra=[world.bearer(0.05)],
        )
    subscription = upstream.opened.get_nowait()
    assert subscription.left
    assert world.records[-1]["detail"]["ended"] == "the caller's token expired"
    assert got.result == {"resultType": "complete", "_meta": {"io.modelcontextprotocol/subscriptionId": "s1"}}


# --- what is public


@pytest.mark.parametrize("path", [ROOT, f"{ROOT}/mcp"])
async def test_the_metadata_is_for_anybody_and_leaves_no_record(path: str) -> None:
    world = Server(door=Door(frozenset({b"gw.example"}), frozenset()), AIRLOCK_SCOPES="mcp:use")
    got = await world.http(b"", [(b"origin", b"https://page.example")], path=path, method="GET")
    assert got.status == 200
    assert got.message["resource"] == URL
    assert got.headers["content-type"] == "application/json"
    assert got.headers["access-control-allow-origin"] == "*"
    assert "cache-control" in got.headers
    assert world.records == []
    assert (await world.http(b"", [], path=path)).status == 405
    assert (await world.http(b"", [], path=path + "/x", method="GET")).status == 404


async def test_the_oldest_clients_are_sent_on() -> None:
    got = await Server().http(b"", [], path="/.well-known/oauth-authorization-server", method="GET")
    assert (got.status, got.headers["location"]) == (
        307,
        "https://idp.example/.well-known/oauth-authorization-server",
    )


async def test_nothing_but_the_metadata_may_be_read_by_a_page_of_another_site() -> None:
    world = Server()
    for got in (
        await world.read(),
        await world.read(world.bearer()),
        await world.http(b"", [], path="/healthz", method="GET"),
    ):
        assert not [name for name in got.headers if name.startswith("access-control")]


# --- no token passes through


@pytest.mark.parametrize("method", ["tools/call", "tools/list", "server/discover"])
async def test_the_clients_token_never_goes_upstream(method: str) -> None:
    world = Server()
    line = world.bearer()
    got = await world.rpc(
        method, {"name": "read"} if method == "tools/call" else {}, principal=None, extra=[line]
    )
    assert got.status == 200
    sent = world.client.sent + world.client.listed
    assert len(sent) == 1
    parts = [part.decode() for part in (line[1], *line[1].removeprefix(b"Bearer ").split(b"."))]
    for text in (str(sent[0].header_list), sent[0].raw.decode()):
        assert not [part for part in parts if part in text]
    assert "authorization" not in sent[0].headers
