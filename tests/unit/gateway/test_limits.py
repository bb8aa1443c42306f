"""Who is limited, how a refusal is told in each era, and how few records it leaves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airlock.core.limits import Rate, Tally
from airlock.gateway import methods
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.legacy.front import LegacyFront, LegacySettings
from airlock.gateway.limits import ScopePeer, source_of
from airlock.gateway.settings import Rates
from tests.fakes.world import Got, World

ONE = Rate(1, 60, 1)
TWO = Rate(2, 60, 2)


def limited(**rates: Rate) -> World:
    world = World()
    world.watch(rates=Rates(**rates))
    return world


def details(world: World) -> list[object]:
    return [
        record["detail"]
        for record in world.records
        if record["rule_id"] == "rate.limited" and record["phase"] == "outcome"
    ]


async def test_a_call_over_the_limit_is_refused_with_the_time_to_wait():
    world = limited(principal=TWO)
    assert [(await world.call("read")).verdict for _ in range(2)] == ["allow", "allow"]
    got = await world.call("read")
    assert (got.status, got.result["isError"], got.verdict, got.rule) == (200, True, "deny", "rate.limited")
    assert got.text == "airlock: denied (rate.limited): too many requests; try again in 30 s"
    assert got.ours["retry_after_s"] == 30
    assert len(world.client.sent) == 2
    intent, outcome = world.last_pair
    assert (outcome["principal"], outcome["tool"], outcome["method"]) == ("alice", "read", "tools/call")
    assert (intent["verdict"], outcome["rule_id"], outcome["args"]) == ("deny", "rate.limited", None)
    assert outcome["detail"] == "more than 2 in 60 s of one caller"


async def test_a_call_may_be_tried_again_when_that_time_has_passed():
    world = limited(principal=ONE)
    await world.call("read")
    wait = (await world.call("read")).ours["retry_after_s"]
    world.clock.time += wait - 1
    assert (await world.call("read")).rule == "rate.limited"
    world.clock.time += 1
    assert (await world.call("read")).verdict == "allow"


async def test_any_other_method_over_the_limit_gets_429_with_the_time_to_wait():
    world = limited(principal=ONE)
    await world.rpc("tools/list")
    got = await world.rpc("tools/list", request_id="b")
    assert (got.status, got.code, got.headers["retry-after"]) == (429, -32603, "60")
    assert got.message["id"] == "b"
    assert got.message["error"]["data"] == {"retryAfterSeconds": 60}
    assert got.message["error"]["message"] == "airlock: too many requests (rate.limited); try again in 60 s"
    assert len(world.client.listed) == 1


async def test_one_principal_does_not_use_up_what_another_may():
    world = limited(principal=ONE)
    await world.call("read")
    assert (await world.call("read", principal="bob")).verdict == "allow"
    assert (await world.call("read")).rule == "rate.limited"


async def test_each_tool_of_a_principal_has_a_limit_of_its_own():
    world = limited(tool=ONE)
    assert (await world.call("read")).verdict == "allow"
    assert (await world.call("scale", {"names": ["x"]})).verdict == "allow"
    got = await world.call("read")
    assert got.rule == "rate.limited"
    assert world.last_pair[1]["detail"] == "more than 1 in 60 s of one caller for one tool"
    assert (await world.rpc("tools/list")).status == 200


async def test_names_of_tools_that_do_not_exist_share_one_bucket():
    world = limited(tool=ONE)
    assert (await world.call("nothing-1")).rule == "allowlist.deny"
    assert (await world.call("nothing-2")).rule == "rate.limited"


async def test_a_flood_without_a_principal_leaves_one_record_a_minute():
    world = limited(address=TWO)
    statuses = [(await world.call("read", principal=None)).status for _ in range(50)]
    assert statuses == [401, 401] + [429] * 48
    assert len(world.records) == 2 * 3
    said = "more than 2 in 60 s without a principal from 192.0.2.1"
    assert details(world) == [said]
    world.clock.time += 61
    for _ in range(3):
        await world.call("read", principal=None)
    assert details(world) == [said, f"{said}; 47 more were refused", said]


async def test_an_address_that_is_over_says_so_with_429_and_the_time():
    world = limited(address=ONE)
    await world.call("read", principal=None)
    got = await world.call("read", principal=None, request_id=9)
    assert (got.status, got.code, got.headers["retry-after"]) == (429, -32603, "60")
    assert "www-authenticate" not in got.headers
    assert got.message["id"] == 9


async def test_addresses_are_counted_apart_and_principals_not_by_address():
    world = limited(address=ONE)
    await world.call("read", principal=None)
    assert (await world.call("read", principal=None, peer="192.0.2.2")).status == 401
    assert (await world.call("read", principal=None)).status == 429
    assert [(await world.call("read")).verdict for _ in range(3)] == ["allow"] * 3


@pytest.mark.parametrize(
    ("body", "principal"), [(b"{", "alice"), (b"{", None), (b"x" * 1_048_577, None), (b"[]", "alice")]
)
async def test_what_admission_refuses_counts_too(body: bytes, principal: str | None):
    world = limited(principal=ONE, address=ONE)
    head = [(b"content-length", b"%d" % len(body))]
    head += [(b"x-airlock-principal", principal.encode())] if principal else []
    assert (await world.http(body, head)).status in {400, 401, 413}
    written = len(world.records)
    again = [await world.http(body, head) for _ in range(20)]
    assert {got.status for got in again} == {429}
    assert len(world.records) == written + 2


async def test_a_refusal_that_cannot_be_recorded_is_an_internal_error():
    world = limited(principal=ONE)
    await world.call("read")
    world.sink.failing = True
    got = await world.call("read")
    assert (got.status, got.code) == (500, -32603)


async def test_every_further_refusal_of_one_kind_is_only_counted():
    world = limited(principal=ONE, tool=ONE)
    for _ in range(10):
        await world.call("read")
    await world.call("read", principal="bob")
    world.clock.time += 60
    await world.call("read")
    assert world.limits is not None
    assert world.limits.refused == {"principal": 9, "tool": 0, "address": 0}
    assert len(details(world)) == 1
    world.clock.time += 1
    await world.call("read")
    assert details(world) == [
        "more than 1 in 60 s of one caller",
        "more than 1 in 60 s of one caller; 8 more were refused",
        "more than 1 in 60 s of one caller",
    ]


async def test_a_flood_that_goes_on_is_told_once_a_minute_with_its_number():
    world = limited(principal=Rate(1, 3600, 1))
    for _ in range(4):
        await world.call("read")
        world.clock.time += 25
    said = "more than 1 in 3600 s of one caller"
    assert details(world) == [said]
    await world.call("read")
    assert details(world) == [said, f"{said}; 2 more were refused", said]


async def test_what_is_untold_at_the_stop_is_told_then():
    world = limited(address=ONE, tool=ONE)
    for _ in range(5):
        await world.call("read", principal=None)
        await world.call("read")
    assert world.limits is not None
    world.limits.close()
    last = [record for record in world.records if record["phase"] == "outcome"][-2:]
    assert [record["detail"] for record in last] == [
        "more than 1 in 60 s without a principal from 192.0.2.1; 3 more were refused",
        "more than 1 in 60 s of one caller for one tool; 3 more were refused",
    ]
    assert [(record["principal"], record["tool"]) for record in last] == [(None, None), ("alice", "read")]
    world.limits.close()
    assert world.records[-1] == last[-1]


async def test_more_addresses_than_are_remembered_leave_one_record_of_the_rest():
    world = limited(address=ONE)
    assert world.limits is not None
    world.limits._tally = Tally(most=1)
    for peer in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        for _ in range(3):
            await world.call("read", principal=None, peer=peer)
    assert len(details(world)) == 2
    world.limits.close()
    assert details(world)[2:] == [
        "more than 1 in 60 s without a principal from 192.0.2.1; 1 more were refused",
        "over a limit; 3 more were refused",
    ]


async def test_a_last_record_that_cannot_be_written_is_logged():
    world = limited(address=ONE)
    for _ in range(3):
        await world.call("read", principal=None)
    world.sink.failing = True
    assert world.limits is not None
    world.limits.close()
    assert world.logged[-1] == "the audit record could not be written: No space left on device"


async def test_without_limits_nothing_is_refused():
    world = limited()
    assert {(await world.call("read", principal=None)).status for _ in range(200)} == {401}
    assert {(await world.call("read")).verdict for _ in range(200)} == {"allow"}


# The older eras


def older(**rates: Rate) -> World:
    world = World()

    async def govern(request: Any, principal: Any, trace: Any) -> Answer:
        return await methods.govern(world.gate, request, principal, trace)

    world.watch(
        rates=Rates(**rates), legacy=LegacyFront(govern, govern, world.gate, LegacySettings(hold_s=1.0))
    )
    return world


async def said(world: World, message: Any, session: str | None = None, **more: Any) -> Got:
    body = json.dumps(message).encode()
    head = [(b"accept", b"application/json"), (b"content-length", b"%d" % len(body))]
    if more.pop("known", True):
        head.append((b"x-airlock-principal", b"alice"))
    if session is not None:
        head.append((b"mcp-session-id", session.encode()))
    return await world.http(body, head, **more)


def asked(method: str, params: Any = None, request_id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params or {}}


INIT = asked("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {}})
CALL = asked("tools/call", {"name": "read", "arguments": {}}, "c")


async def opened(world: World) -> str:
    got = await said(world, INIT)
    assert got.status == 200, got.raw
    return got.headers["mcp-session-id"]


async def test_an_older_client_over_the_limit_gets_its_errors_with_200():
    world = older(principal=TWO)
    session = await opened(world)
    assert (await said(world, CALL, session)).result["content"][0]["text"] == "done"
    call = await said(world, CALL, session)
    assert (call.status, call.message["id"], call.result["isError"]) == (200, "c", True)
    assert (call.rule, call.ours["retry_after_s"]) == ("rate.limited", 30)
    assert "resultType" not in call.result
    listed = await said(world, asked("tools/list"), session)
    assert (listed.status, listed.code) == (200, -32603)
    assert listed.message["error"]["data"] == {"retryAfterSeconds": 30}
    again = await said(world, INIT)
    assert (again.status, again.code) == (200, -32603)
    assert len(details(world)) == 1


async def test_answers_and_pings_of_an_older_client_are_not_starved_by_its_calls():
    world = older(principal=TWO)
    session = await opened(world)
    for _ in range(5):
        await said(world, CALL, session)
    assert (await said(world, asked("ping"), session)).result == {}
    told = {"jsonrpc": "2.0", "id": "p-1", "result": {"action": "accept"}}
    assert (await said(world, told, session)).status == 202


async def test_what_is_no_request_has_a_limit_too():
    world = older(principal=TWO)
    session = await opened(world)
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    got = [await said(world, note, session) for _ in range(3)]
    assert [one.status for one in got] == [202, 202, 429]
    assert (got[2].code, got[2].message["id"], got[2].headers["retry-after"]) == (-32603, None, "30")
    lost = [await said(world, note, "nowhere") for _ in range(3)]
    assert {one.status for one in lost} == {429}


async def test_without_a_limit_on_principals_what_is_no_request_passes():
    world = older(address=ONE)
    session = await opened(world)
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    assert {(await said(world, note, session)).status for _ in range(5)} == {202}


async def test_a_batch_counts_each_of_its_requests_and_is_refused_as_a_whole():
    world = older(principal=Rate(4, 60, 4))
    first = asked("initialize", {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {}})
    session = (await said(world, first)).headers["mcp-session-id"]
    got = await said(world, [CALL, asked("tools/list", None, 2)], session)
    assert len(got.message) == 2
    note = {"jsonrpc": "2.0", "method": "notifications/x"}
    got = await said(world, [note, CALL, asked("tools/list", None, True), 7], session)
    assert got.status == 200
    call, listed = json.loads(got.raw)
    assert (call["id"], call["result"]["isError"]) == ("c", True)
    assert (listed["id"], listed["error"]["code"]) == (None, -32603)
    refused = [await said(world, [note, note], session) for _ in range(3)]
    assert refused[-1].status == 429


async def test_an_older_client_without_a_principal_is_limited_by_address():
    world = older(address=ONE)
    assert (await said(world, INIT, known=False)).status == 401
    assert (await said(world, INIT, known=False)).status == 429
    assert (await said(world, INIT)).status == 200
    got = await world.http(b"", [(b"mcp-session-id", b"x")], method="GET")
    assert (got.status, got.headers["retry-after"]) == (429, "60")


async def test_streams_and_ends_of_sessions_count_too():
    world = older(principal=TWO)
    session = await opened(world)
    head = [(b"x-airlock-principal", b"alice"), (b"mcp-session-id", b"nowhere")]
    assert (await world.http(b"", head, method="DELETE")).status == 404
    got = await world.http(b"", head, method="DELETE")
    assert (got.status, got.code, got.headers["retry-after"]) == (429, -32603, "30")
    assert (await world.http(b"", head, method="GET")).status == 429
    assert session


async def test_a_refusal_of_an_older_message_that_cannot_be_recorded_is_an_internal_error():
    world = older(principal=ONE)
    session = await opened(world)
    world.sink.failing = True
    got = await said(world, CALL, session)
    assert (got.status, got.code) == (500, -32603)


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::ffff", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("not an address", "not an address"),
    ],
)
def test_an_ipv6_address_counts_as_its_network(address: str, source: str):
    assert source_of(address) == source


@pytest.mark.parametrize(
    ("scope", "address"),
    [
        ({"client": ("192.0.2.7", 1)}, "192.0.2.7"),
        ({"client": None}, ""),
        ({}, ""),
        ({"client": ["::1", 2]}, "::1"),
    ],
)
def test_the_address_of_an_asgi_request_is_the_one_of_its_scope(scope: dict[str, Any], address: str):
    assert ScopePeer(scope).peer() == address


async def test_a_limited_request_makes_a_span_like_any_other():
    spans: list[Any] = []

    class Tracer:
        def record(self, span: Any) -> None:
            spans.append(span)

    world = limited(principal=ONE)
    world.gate.tracer = Tracer()  # type: ignore[assignment]
    await world.call("read")
    await world.call("read")
    await world.call("read", principal=None)
    facts = [dict(span.attributes) for span in spans]
    assert [fact["airlock.rule_id"] for fact in facts] == [
        "tier.L0.read",
        "rate.limited",
        "principal.missing",
    ]
    assert facts[1]["enduser.id"] == "alice"
    assert isinstance(world.gate, Gate)
