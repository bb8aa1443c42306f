"""A legacy client's calls get the headers that a modern server wants, looked up in the server's own list."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Tier
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant, by_policy
from airlock.core.rules import Rule
from airlock.gateway.upstream import mirrored
from airlock.gateway.upstream.mirrored import Mirrored
from airlock.gateway.upstream.port import Answer, Era, Outgoing
from tests.fakes.upstream_port import FakeUpstream, Script, error, result
from tests.fakes.world import CountingIds

LINES = b"content-type: application/json\r\nmcp-method: tools/call\r\nmcp-name: go\r\n"
REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "io.mcp-airlock/principal": "alice",
    "io.mcp-airlock/groups": ["ops"],
    "traceparent": "00-x",
    "progressToken": 3,
    "com.example/other": 1,
}


def grant() -> Grant:
    return by_policy(Action("go", {}, "prod", ""), Allow(Rule.L0_READ, Tier.L0))


def call(principal: str = "alice", name: object = "go", **arguments: Any) -> Outgoing:
    params = {"name": name, "arguments": arguments, "_meta": META}
    return Outgoing(5, LINES, b"{}", "tools/call", params, principal, Era.LEGACY)


class Server(FakeUpstream):
    """Refuses calls without the header it wants; lists its tools on `pages`."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        super().__init__()
        self.pages = list(pages)
        self.wanted = b"Mcp-Param-Region: "
        self.listing: Script | None = None
        self.script = self._go

    def _go(self, outgoing: Outgoing) -> Answer | Exception:
        if outgoing.method == "tools/list":
            if self.listing is not None:
                return self.listing(outgoing)
            return result(self.pages[int(str(outgoing.params.get("cursor", 0)))])(outgoing)
        return (result({}) if self.wanted in outgoing.headers else error(-32020, 400))(outgoing)

    @property
    def methods(self) -> list[str]:
        return [sent.method for sent in self.sent]


def page(*tools: Any, **more: Any) -> dict[str, Any]:
    return {"tools": list(tools), **more}


def tool(name: str = "go", schema: Any = REGION) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema}


async def go(server: Server, outgoing: Outgoing, via: Mirrored | None = None) -> Answer:
    return await (via or Mirrored(server, CountingIds())).call(grant(), outgoing, exact=False, heard=None)


async def test_a_call_that_misses_headers_is_sent_once_more_with_them():
    server = Server(page(tool()))
    answer = await go(server, call(region="north"))
    assert answer.result is not None
    assert server.methods == ["tools/call", "tools/list", "tools/call"]
    first, _, second = server.sent
    assert second.headers == LINES + b"Mcp-Param-Region: north\r\n"
    assert msgspec.structs.replace(second, headers=first.headers) == first


async def test_the_list_is_asked_for_in_the_name_of_who_calls():
    server = Server(page(tool()))
    await go(server, call(region="north"))
    listed = server.sent[1]
    assert listed.principal == "alice"
    assert listed.params == {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.mcp-airlock/principal": "alice",
            "io.mcp-airlock/groups": ["ops"],
            "traceparent": "00-x",
        }
    }
    assert json.loads(listed.body) == {
        "jsonrpc": "2.0",
        "id": listed.id,
        "method": "tools/list",
        "params": listed.params,
    }
    assert str(listed.id).startswith("airlock-params-")
    assert b"mcp-method: tools/list\r\n" in listed.headers
    assert b"mcp-name" not in listed.headers


async def test_what_was_found_serves_later_calls_of_the_same_principal():
    server = Server(page(tool()))
    via = Mirrored(server, CountingIds())
    await go(server, call(region="north"), via)
    server.sent.clear()
    await go(server, call(region="south"), via)
    assert server.methods == ["tools/call"]
    assert server.sent[0].headers.endswith(b"Mcp-Param-Region: south\r\n")
    server.sent.clear()
    await go(server, call("bob", region="south"), via)
    assert server.methods == ["tools/call", "tools/list", "tools/call"]


async def test_a_list_that_changed_is_read_again():
    server = Server(page(tool()))
    via = Mirrored(server, CountingIds())
    await go(server, call(region="north"), via)
    server.wanted = b"Mcp-Param-Zone: "
    server.pages = [page(tool(schema={"properties": {"region": {"type": "string", "x-mcp-header": "Zone"}}}))]
    server.sent.clear()
    assert (await go(server, call(region="north"), via)).result is not None
    assert server.methods == ["tools/call", "tools/list", "tools/call"]
    assert b"Region" not in server.sent[-1].headers


async def test_a_server_that_is_never_content_is_asked_twice_and_no_more():
    server = Server(page(tool()))
    server.wanted = b"never"
    answer = await go(server, call(region="north"))
    assert answer.message["error"]["code"] == -32020  # type: ignore[index]
    assert server.methods == ["tools/call", "tools/list", "tools/call"]


async def test_the_tool_is_looked_for_on_every_page():
    server = Server(page(tool("other"), nextCursor="1"), page(7, {}, nextCursor="2"), page(tool()))
    assert (await go(server, call(region="north"))).result is not None
    assert [sent.params.get("cursor") for sent in server.sent] == [None, None, "1", "2", None]


@pytest.mark.parametrize(
    "pages",
    [
        [page()],
        [page(tool("other"))],
        [{"tools": "none"}],
        [page(nextCursor=7)],
        [page(tool(schema={"properties": {"region": {"type": "number", "x-mcp-header": "Region"}}}))],
        [page(tool(schema={}))],
        [page(tool(schema=None))],
        [page(tool(schema={"properties": {"absent": {"type": "string", "x-mcp-header": "A"}}}))],
    ],
)
async def test_without_a_header_to_add_the_refusal_stands(pages: list[dict[str, Any]]):
    server = Server(*pages)
    answer = await go(server, call(region="north"))
    assert (answer.status, answer.result) == (400, None)
    assert server.methods == ["tools/call", "tools/list"]


@pytest.mark.parametrize(
    "script", [error(-32603), lambda _: UpstreamError(UpstreamFailure.UNREACHABLE, "gone", reached=False)]
)
async def test_without_a_list_the_refusal_stands(script: Script):
    server = Server()
    server.listing = script
    assert (await go(server, call(region="north"))).status == 400
    assert server.methods == ["tools/call", "tools/list"]


async def test_an_endless_list_is_not_read_to_its_end():
    server = Server()
    server.listing = result(page(nextCursor="0"))
    assert (await go(server, call(region="north"))).status == 400
    assert server.methods == ["tools/call", *["tools/list"] * mirrored.MAX_PAGES]


@pytest.mark.parametrize("code", [-32602, -32022, -32000])
async def test_other_errors_are_passed_on(code: int):
    server = Server()
    server.script = error(code, 400)
    assert (await go(server, call(region="north"))).status == 400
    assert server.methods == ["tools/call"]


async def test_a_call_without_a_name_is_passed_on():
    server = Server()
    assert (await go(server, call(name=7))).status == 400
    assert server.methods == ["tools/call"]


async def test_a_failure_is_the_callers():
    server = Server()
    server.script = lambda _: UpstreamError(UpstreamFailure.UNREACHABLE, "gone", reached=True)
    with pytest.raises(UpstreamError, match="gone"):
        await go(server, call())


async def test_the_grant_is_spent_once():
    server = Server(page(tool()))
    spent = grant()
    await Mirrored(server, CountingIds()).call(spent, call(region="n"), exact=True, heard=None)
    with pytest.raises(RuntimeError):
        spent.spend()


async def test_so_many_tools_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mirrored, "MAX_KEPT", 2)
    server = Server(page(tool()))
    via = Mirrored(server, CountingIds())
    for principal in ("a", "b", "a", "c", "a"):
        await go(server, call(principal, region="n"), via)
    assert server.methods.count("tools/list") == 3
    await go(server, call("b", region="n"), via)
    assert server.methods.count("tools/list") == 4


async def test_params_without_an_envelope_do_no_harm():
    server = Server(page(tool()))
    bare = Outgoing(5, LINES, b"{}", "tools/call", {"name": "go"}, "alice", Era.LEGACY)
    assert (await go(server, bare)).status == 400
