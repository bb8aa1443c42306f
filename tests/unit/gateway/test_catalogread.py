"""Reading everything a server lists, from servers good and bad (gateway.md 16)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airlock.core.policy.diff import Listed, listed
from airlock.core.secret import Secret
from airlock.edge.httpc import ClientLimits, HttpClient
from airlock.edge.httpurl import parse_target
from airlock.edge.ids import SystemIds
from airlock.gateway import catalogread
from airlock.gateway.catalog import CatalogUnavailable
from airlock.gateway.upstream.http import HttpUpstream
from tests.fakes import hostile
from tests.fakes.hostile import Hostile, Request, http, json_answer

READ = {"name": "read", "title": "Reader", "inputSchema": {"type": "object", "properties": {"id": {}}}}
SECRET = "gh" + "p_" + "x" * 36


async def read(server: Hostile, principal: str = "airlock-policy", **limits: Any) -> dict[str, Listed]:
    client = HttpClient(parse_target(server.url), ClientLimits(**limits))
    upstream = HttpUpstream(client, Secret("Bearer up"))
    try:
        return await catalogread.read(upstream, principal, SystemIds())
    finally:
        await upstream.close()


async def refused(*answers: hostile.Answer, **limits: Any) -> str:
    async with Hostile() as server:
        server.script(*answers)
        with pytest.raises(CatalogUnavailable) as caught:
            await read(server, **limits)
    assert "\n" not in caught.value.reason
    return caught.value.reason


def page(*tools: Any, **more: Any) -> hostile.Answer:
    return json_answer({"tools": list(tools), "resultType": "complete", **more})


async def test_the_server_is_asked_with_the_envelope_a_principal_and_our_own_credential() -> None:
    async with Hostile() as server:
        server.script(page(READ))
        assert await read(server, "алиса") == {"read": listed(READ)}
        (request,) = server.requests
    head, body = request.headers, request.json
    assert (head["mcp-method"], head["mcp-protocol-version"]) == ("tools/list", "2026-07-28")
    assert head["x-airlock-principal"].encode("latin-1").decode() == "алиса"
    assert head["authorization"] == "Bearer up"
    assert head["accept-encoding"] == "identity"
    assert body["method"] == "tools/list"
    meta = body["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["io.mcp-airlock/principal"] == "алиса"


async def test_pages_are_followed_to_the_last_one() -> None:
    async with Hostile() as server:
        server.script(
            page({"name": "a"}, nextCursor="1"), page(nextCursor=""), page({"name": "b"}, nextCursor=None)
        )
        assert list(await read(server)) == ["a", "b"]
        assert [request.json["params"].get("cursor") for request in server.requests] == [None, "1", ""]


async def test_a_hundred_pages_are_read_and_no_more() -> None:
    def endless(request: Request) -> bytes:
        n = int(request.json["params"].get("cursor", "0"))
        more = {"nextCursor": str(n + 1)} if n + 1 < last else {}
        return http(hostile.result(request, {"tools": [{"name": f"t{n}"}], **more}))

    async with Hostile(default=endless) as server:
        last = 100
        assert len(await read(server)) == 100
        last = 101
        with pytest.raises(CatalogUnavailable, match="more than 100 pages"):
            await read(server)
        assert len(server.requests) == 200


async def test_a_list_without_end_on_one_page_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogread, "MAX_TOOLS", 2)
    async with Hostile() as server:
        server.script(page({"name": "a"}, {"name": "b"}))
        assert len(await read(server)) == 2
    assert "more than 2 tools" in await refused(page({"name": "a"}, {"name": "b"}, {"name": "c"}))


async def test_a_tool_listed_twice_is_one_tool_unless_the_two_differ() -> None:
    async with Hostile() as server:
        server.script(page(READ, nextCursor="1"), page({**READ, "icons": []}))
        assert await read(server) == {"read": listed(READ)}
    assert "lists read twice" in await refused(page(READ, {**READ, "title": "Other"}))
    assert "lists read twice" in await refused(page(READ, nextCursor="1"), page({"name": "read"}))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (http(b"<html>"), "not a JSON-RPC response"),
        (http(b"[]"), "not a JSON object"),
        (http(b""), "not a JSON-RPC response"),
        (hostile.wrong_id(), "another id"),
        (hostile.nan(), "not a JSON-RPC response"),
        (hostile.deep(), "not a JSON-RPC response"),
        (hostile.gzipped(), "upstream.encoded"),
        (hostile.torn(), "upstream.unreachable"),
        (hostile.sse(own=False), "no response to this request"),
        (json_answer([]), "the result is not an object"),
        (json_answer({}), "no list of tools"),
        (json_answer({"tools": {"read": READ}}), "no list of tools"),
        (page("read"), "a tool without a name"),
        (page({"title": "x"}), "a tool without a name"),
        (page({"name": 5}), "a tool without a name"),
        (page({"name": ""}), "a tool without a name"),
        (page(READ, nextCursor=5), "nextCursor is not a string"),
        (json_answer({"tools": [READ]}, status=500), "it answered with HTTP 500"),
        (hostile.status(404, b"not found"), "it answered with HTTP 404"),
        (hostile.status(401, b"{}"), "HTTP 401, is AIRLOCK_UPSTREAM_AUTH right?"),
        (hostile.status(307, headers={"Location": "http://127.0.0.1:1/"}), "it answered with HTTP 307"),
    ],
)
async def test_what_is_no_list_of_tools_is_refused_in_our_words(answer: hostile.Answer, words: str) -> None:
    assert words in await refused(answer)


async def test_a_key_given_twice_in_the_list_is_refused() -> None:
    def twice(request: Request) -> bytes:
        body = hostile.result(request, {"tools": [{"name": "read", "title": "@"}]})
        return http(body.replace(b'"@"', b'"reviewed", "title": "shown"'))

    assert "not a JSON-RPC response" in await refused(twice)


@pytest.mark.parametrize(("status", "hint"), [(200, ""), (403, "is AIRLOCK_UPSTREAM_AUTH right?")])
async def test_a_servers_own_refusal_is_quoted_scrubbed_and_on_one_line(status: int, hint: str) -> None:
    def error(request: Request) -> bytes:
        message = {"code": -32000, "message": f"no\x1b[2J key {SECRET}"}
        whole = {"jsonrpc": "2.0", "id": request.id, "error": message}
        return http(json.dumps(whole).encode(), status=status)

    said = await refused(error)
    assert r"the server refused tools/list: no\u001b[2J key [REDACTED]" in said
    assert said.endswith(hint)


@pytest.mark.parametrize("error", ["no", {"code": 1}, {"message": 5}, None])
async def test_an_error_without_words_is_a_refusal_too(error: object) -> None:
    def answer(request: Request) -> bytes:
        return http(json.dumps({"jsonrpc": "2.0", "id": request.id, "error": error}).encode())

    assert await refused(answer) == "the server refused tools/list"


async def test_an_event_stream_is_read() -> None:
    async with Hostile() as server:
        server.script(hostile.sse({"jsonrpc": "2.0", "method": "notifications/x"}, value={"tools": [READ]}))
        assert list(await read(server)) == ["read"]


async def test_the_whole_of_it_runs_a_loop_of_its_own_and_gives_up_on_a_silent_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert catalogread.PAGE_S == 10.0
    monkeypatch.setattr(catalogread, "PAGE_S", 0.2)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1/")
    async with Hostile() as server:
        server.script(page(READ), hostile.silence)
        assert list(await asyncio.to_thread(catalogread.ask, server.url, "bob", None)) == ["read"]
        assert "authorization" not in server.requests[0].headers
        with pytest.raises(CatalogUnavailable, match=r"upstream\.unreachable: "):
            await asyncio.to_thread(catalogread.ask, server.url, "bob", None)


@pytest.mark.parametrize("name", ["a\nb", "a\x7f", "\ud800"])
def test_a_principal_that_cannot_stand_in_a_header_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        catalogread.principal_line(name)
