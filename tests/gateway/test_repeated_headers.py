"""Arguments that headers repeat, through the whole app: step 9 of admission where no server behind does it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway import catalog, repeated
from airlock.gateway.catalog import Catalog
from airlock.gateway.eras import Era, Heard
from airlock.gateway.meta import ISOLATED
from airlock.gateway.upstream.evidence import Finding
from airlock.gateway.upstream.many import UNAVAILABLE, MergedAnswer
from airlock.gateway.upstream.negotiate import Negotiated
from airlock.gateway.upstream.port import Answer, Outgoing
from tests.fakes.upstream_port import FakeUpstream
from tests.fakes.world import TOOLS, Got, World, result_of

REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
BROKEN = {"type": "object", "properties": {"region": {"type": "array", "x-mcp-header": "Region"}}}
NORTH = (b"mcp-param-region", b"north")
SOUTH = (b"mcp-param-region", b"south")


def tools(schema: object = REGION, name: str = "read") -> list[dict[str, Any]]:
    return [{**tool, "inputSchema": schema} if tool["name"] == name else dict(tool) for tool in TOOLS]


class Server(FakeUpstream):
    """A server that looks at no header: of an older revision, or started here. `listed` is what it lists."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: dict[str, Any] | Exception = {"tools": tools()}
        self.script = self._answer

    def _answer(self, outgoing: Outgoing) -> Answer | Exception:
        if outgoing.method != "tools/list":
            value: dict[str, Any] = {"resultType": "complete", "content": []}
        elif isinstance(self.listed, Exception):
            return self.listed
        else:
            value = {"resultType": "complete", **msgspec.json.decode(msgspec.json.encode(self.listed))}
        return Answer(200, {"jsonrpc": "2.0", "id": outgoing.id, "result": value}, value)

    @property
    def lists(self) -> int:
        return [outgoing.method for outgoing in self.sent].count("tools/list")

    @property
    def calls(self) -> int:
        return [outgoing.method for outgoing in self.sent].count("tools/call")


class Wide(World):
    """A gateway for every client before such a server."""

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.gate.upstream = self.server
        self.gate.catalog = Catalog(self.server, self.clock, self.ids)
        self.gate.snapshot = msgspec.structs.replace(self.gate.snapshot, wide=True)

    async def read(self, *lines: tuple[bytes, bytes], region: object = "north", **more: Any) -> Got:
        arguments = {} if region is None else {"region": region}
        return await self.call("read", arguments, extra=list(lines), **more)


@pytest.fixture
async def world() -> AsyncIterator[Wide]:
    yield Wide()
    # Nothing is left running.
    assert len(asyncio.all_tasks()) == 1


def refused(got: Got) -> str:
    assert (got.status, got.code, got.message["id"]) == (400, -32020, 1)
    text: str = got.message["error"]["message"]
    return text


async def test_a_header_that_says_what_the_body_says_lets_the_call_pass(world: Wide) -> None:
    assert (await world.read(NORTH)).rule == "tier.L0.read"
    assert (await world.read(NORTH, (b"mcp-param-unknown", b"x"))).rule == "tier.L0.read"
    assert (world.server.lists, world.server.calls) == (1, 2)


async def test_a_header_that_contradicts_the_body_ends_the_call_and_is_on_record(world: Wide) -> None:
    said = refused(await world.read(SOUTH, region="secret value"))
    assert said == "airlock: the Mcp-Param-Region header must equal its argument"
    assert world.server.calls == 0
    intent, outcome = world.last_pair
    assert (intent["verdict"], intent["rule_id"], intent["principal"]) == ("deny", "protocol.-32020", "alice")
    assert (intent["method"], intent["tool"], intent["args"]) == ("tools/call", "read", None)
    assert outcome["detail"] == "the Mcp-Param-Region header must equal its argument"
    assert b"secret value" not in b"".join(world.sink.lines)


async def test_a_header_without_an_argument_and_one_that_stands_twice_are_refused(world: Wide) -> None:
    assert "no argument" in refused(await world.read(NORTH, region=None))
    assert "more than once" in refused(await world.read(NORTH, NORTH))


async def test_a_plain_call_costs_the_server_nothing_more(world: Wide) -> None:
    for name in ("read", "suggest"):
        await world.call(name, {"region": "north"})
    assert world.server.lists == 1  # for the dry run of `suggest`
    assert world.gate.catalog.annotated == set()


async def test_whoever_has_seen_the_list_must_send_the_header(world: Wide) -> None:
    listed = await world.rpc("tools/list")
    assert listed.result["tools"][0]["inputSchema"] == REGION
    assert world.gate.catalog.annotated == {"read", "drop"}
    assert "is missing" in refused(await world.read())
    assert (await world.read(region=None)).rule == "tier.L0.read"
    assert (await world.call("suggest", {})).rule == "tier.L1.dry_run"


async def test_the_list_is_asked_for_once_a_minute_whatever_the_server_says(world: Wide) -> None:
    world.server.listed = {"tools": tools(), "ttlMs": 0}
    for _ in range(3):
        await world.read(NORTH)
    world.clock.time += catalog.FLOOR_S - 1
    await world.read(NORTH)
    assert world.server.lists == 1
    world.clock.time += 1
    world.server.listed = {"tools": tools(), "ttlMs": 600_000}
    await world.read(NORTH)
    world.clock.time += 599
    await world.read(NORTH)
    assert world.server.lists == 2


async def test_each_caller_has_a_list_of_its_own(world: Wide) -> None:
    await world.read(NORTH)
    await world.read(NORTH, principal="bob")
    await world.read(NORTH, groups="sre")
    asked = [outgoing.params["_meta"] for outgoing in world.server.sent if outgoing.method == "tools/list"]
    assert [meta["io.mcp-airlock/principal"] for meta in asked if isinstance(meta, dict)] == [
        "alice",
        "bob",
        "alice",
    ]


async def test_calls_at_the_same_time_share_one_look_and_one_that_leaves_takes_it_from_nobody(
    world: Wide,
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slowly(outgoing: Outgoing, _: Heard | None) -> None:
        if outgoing.method == "tools/list":
            asked.set()
            await go.wait()

    world.server.before = slowly
    first = asyncio.create_task(world.read(NORTH))
    await asked.wait()
    others = [asyncio.create_task(world.read(line)) for line in (NORTH, SOUTH)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go.set()
    good, bad = await asyncio.gather(*others)
    assert good.rule == "tier.L0.read"
    refused(bad)
    with pytest.raises(asyncio.CancelledError):
        await first
    assert world.server.lists == 1


async def test_before_a_call_is_refused_by_an_old_list_the_server_is_asked_again(world: Wide) -> None:
    await world.read(NORTH)
    world.server.listed = {"tools": TOOLS}
    world.clock.time += repeated.RECENT_S + 1
    assert (await world.read(SOUTH)).rule == "tier.L0.read"
    assert world.server.lists == 2


async def test_refusals_do_not_make_the_server_list_each_time(world: Wide) -> None:
    for _ in range(5):
        refused(await world.read(SOUTH))
    assert world.server.lists == 1


@pytest.mark.parametrize("kind", ["down", "odd", "slow"])
async def test_headers_that_cannot_be_checked_do_not_pass(
    world: Wide, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "down":
        world.server.listed = UpstreamError(UpstreamFailure.UNREACHABLE, "refused", reached=False)
    elif kind == "odd":
        world.server.listed = {"tools": 5}
    else:
        monkeypatch.setattr(catalog, "FETCH_S", 0.0)
        world.server.before = lambda *_: asyncio.sleep(3600)
    got = await world.read(NORTH)
    assert (got.status, got.code, world.server.calls) == (502, -32603, 0)
    text = got.message["error"]["message"]
    assert text.startswith("airlock: the Mcp-Param headers cannot be checked: ")
    assert world.last_pair[0]["rule_id"] == "catalog.unavailable"
    world.server.before = None
    assert (await world.call("read", {})).rule == "tier.L0.read"


async def test_a_tool_that_the_caller_may_not_call_is_denied_as_one_that_is_not_there(world: Wide) -> None:
    world.server.listed = {"tools": tools(name="hidden")}
    hidden = await world.call("hidden", {"region": "north"}, extra=[SOUTH])
    nowhere = await world.call("nowhere", {"region": "north"}, extra=[SOUTH])
    assert (hidden.rule, hidden.status) == (nowhere.rule, nowhere.status)
    assert world.server.sent == []


async def test_a_tool_listed_twice_in_other_words_or_not_well_wants_nothing(world: Wide) -> None:
    for listed in ([*tools(), TOOLS[0]], tools(BROKEN), [5, {"name": 5}], TOOLS):
        world.server.listed = {"tools": listed}
        world.gate.catalog = Catalog(world.server, world.clock, world.ids)
        assert (await world.read(SOUTH)).rule == "tier.L0.read"


async def test_a_list_in_which_a_server_is_missing_is_not_kept(world: Wide) -> None:
    whole = world.server.script

    def partly(outgoing: Outgoing) -> Answer | Exception:
        answer = whole(outgoing)
        if not isinstance(answer, Answer) or outgoing.method != "tools/list":
            return answer
        return MergedAnswer(answer.status, answer.message, answer.result, {UNAVAILABLE: ["git"]})

    world.server.script = partly
    for _ in range(2):
        assert (await world.read(NORTH)).rule == "tier.L0.read"
    assert world.server.lists == 2


async def test_with_a_progress_token_the_refusal_is_plain_json_too(world: Wide) -> None:
    refused(await world.read(SOUTH, meta={"progressToken": 1}))


async def test_the_narrow_front_and_a_server_that_looks_itself_are_left_alone(world: Wide) -> None:
    narrow = World()
    got = await narrow.call("read", {"region": "north"}, extra=[SOUTH])
    assert (got.rule, narrow.client.listed) == ("tier.L0.read", [])
    assert narrow.client.sent[0].headers["mcp-param-region"] == "south"
    narrow.gate.snapshot = msgspec.structs.replace(narrow.gate.snapshot, wide=True)
    narrow.client.catalog = lambda _: UpstreamError(UpstreamFailure.UNREACHABLE, "down", reached=False)
    assert (await narrow.call("read", {}, extra=[SOUTH])).rule == "tier.L0.read"


async def test_what_a_server_speaks_may_be_found_out_by_the_look(
    world: Wide, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first request nobody knows; the list is the first."""

    class Probe:
        legacy_is_cheap = False

        async def find(self, known: Finding | None) -> Finding:
            return Finding(frozenset({Era.MODERN}), "server/discover", "2026-07-28")

        async def legacy(self) -> Finding:
            raise AssertionError

        async def close(self) -> None: ...

    for http, rule in ((False, None), (True, "tier.L0.read")):
        upstream = Negotiated(
            world.server, None, probe=Probe(), clock=world.clock, ids=world.ids, say=world.logged.append
        )
        monkeypatch.setattr("airlock.gateway.upstream.http.HttpUpstream", Server if http else World)
        world.gate.upstream = upstream
        world.gate.catalog = Catalog(upstream, world.clock, world.ids)
        got = await world.read(SOUTH)
        if rule is None:
            refused(got)
        else:
            assert got.rule == rule
            lists = world.server.lists
            await world.read(SOUTH)
            assert world.server.lists == lists  # known now


# Tools that cannot be used over HTTP


async def test_a_tool_whose_annotation_is_not_valid_is_left_out_for_modern_clients_and_counted(
    world: Wide,
) -> None:
    world.server.listed = {"tools": [*tools(BROKEN), 5]}
    for _ in range(2):  # the second answer is remembered
        got = await world.rpc("tools/list")
        assert [tool["name"] for tool in got.result["tools"]] == [
            "suggest",
            "drop",
            "reboot",
            "scale",
            "push",
        ]
        assert (got.ours["isolated"], got.ours["hidden_tools"]) == (1, 2)
    narrow = World()
    narrow.client.catalog = result_of({"tools": tools(BROKEN)})
    assert (await narrow.rpc("tools/list")).result["tools"][0]["name"] == "read"
    assert narrow.gate.catalog.annotated == set()


async def test_an_older_client_still_sees_it(world: Wide) -> None:
    found = repeated.sifted({"tools": 5}, world.gate.catalog, Era.MODERN, {"x": 1})
    assert found == {"x": 1}
    listed: dict[str, object] = {"tools": tools(BROKEN)}
    assert repeated.sifted(listed, world.gate.catalog, Era.LEGACY, None) is None
    assert len(listed["tools"]) == len(TOOLS)  # type: ignore[arg-type]
    assert repeated.sifted(listed, world.gate.catalog, Era.MODERN, {"x": 1, ISOLATED: 2}) == {
        "x": 1,
        ISOLATED: 3,
    }
    assert len(listed["tools"]) == len(TOOLS) - 1  # type: ignore[arg-type]


async def test_only_so_many_names_are_remembered(world: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_ANNOTATED", 2)
    for name in "abc":
        world.gate.catalog.note(name)
    assert world.gate.catalog.annotated == {"a", "b"}


async def test_only_so_many_callers_are_remembered(world: Wide, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MAX_KEPT", 2)
    for name in ("a", "b", "a", "c", "a", "b"):
        await world.read(NORTH, principal=name)
    assert world.server.lists == 4
