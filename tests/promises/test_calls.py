"""What the documents promise about a call and no other test says whole: identity, the example policy, `where`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from airlock.core.secret import Secret
from airlock.edge import yamlfile
from airlock.edge.httpanswer import ClientLimits
from airlock.edge.identity.jwt import Hs256
from airlock.edge.identity.resolve import Identity
from airlock.gateway.app import App
from airlock.gateway.upstream.http import HttpUpstream
from tests.fakes.processes import JWT_SECRET, bearer
from tests.fakes.world import OURS, POLICY, REVISION, World, result_of

EXAMPLE = """
version: 1
environment: prod
output:       { max_chars: 16000, chars_per_token: 4 }
blast_radius: { max_per_call: 50, max_per_principal: 500, window_s: 3600 }
tools:
  get_service:
    tiers: { dev: L0, staging: L0, prod: L0 }
    output: { max_chars: 5000 }
  set_replicas:
    description: scale services up/down (reversible)
    tiers: { dev: L3, staging: L1, prod: L2 }
    principals:
      "group:oncall": { prod: L3 }
    count_arg: names
    blast_radius: { max_per_call: 3, max_per_principal: 5, window_s: 3600 }
  delete_service:
    description: permanently delete a service (irreversible)
    tiers: { dev: L2, prod: L2 }
"""


def example(environment: str) -> World:
    policy = yamlfile.load("policy.yaml", EXAMPLE)
    assert isinstance(policy, dict)
    world = World({**policy, "environment": environment})
    schema = {"type": "object", "properties": {"dry_run": {"type": "boolean"}}}
    names = ("get_service", "set_replicas", "delete_service")
    world.client.catalog = result_of({"tools": [{"name": name, "inputSchema": schema} for name in names]})
    return world


ROWS = [
    ("dev", None, ["tier.L0.read", "tier.L3.auto", "tier.L2.confirm"]),
    ("staging", None, ["tier.L0.read", "tier.L1.dry_run", "tier.unassigned"]),
    ("prod", None, ["tier.L0.read", "tier.L2.confirm", "tier.L2.confirm"]),
    ("prod", "oncall", ["tier.L0.read", "tier.L3.auto", "tier.L2.confirm"]),
    ("prod", "other", ["tier.L0.read", "tier.L2.confirm", "tier.L2.confirm"]),
]


@pytest.mark.parametrize(("environment", "groups", "rules"), ROWS)
async def test_the_example_policy_gives_each_tool_its_tier_per_environment_and_group(
    environment: str, groups: str | None, rules: list[str]
) -> None:
    world = example(environment)
    got = [
        (await world.call(tool, {"names": ["a"]}, groups=groups)).rule
        for tool in ("get_service", "set_replicas", "delete_service")
    ]
    assert got == rules


async def test_the_limits_of_a_tool_replace_the_general_ones() -> None:
    world = example("dev")
    four = {"names": ["a", "b", "c", "d"]}
    assert (await world.call("set_replicas", four)).rule == "blast_radius.per_call"
    world.client.script = result_of({"content": [{"type": "text", "text": "x" * 6000}]})
    assert (await world.call("get_service", {})).ours["output"]["max_chars"] == 5000
    assert "output" not in (await world.call("set_replicas", {"names": ["a"]})).ours


@pytest.mark.parametrize("claimed", [{OURS + "principal": "alice"}, {"principal": "alice"}, {"sub": "alice"}])
async def test_a_principal_in_the_body_is_nobody(claimed: dict[str, Any]) -> None:
    world = World()
    got = await world.rpc(
        "tools/call", {"name": "read", "arguments": dict(claimed), **claimed}, principal=None, meta=claimed
    )
    assert (got.status, got.code) == (401, -32011)
    assert world.client.sent == []
    assert world.last_pair[0]["principal"] is None


@pytest.mark.parametrize("subject", ["", "   ", " alice", "alice ", "\talice"])
async def test_a_padded_subject_of_a_good_token_makes_no_call(subject: str) -> None:
    world = World()
    world.app = App(
        world.gate,
        Identity(hs256=Hs256(JWT_SECRET.encode(), issuer=None, audience=None), trust_header=True),
        1_048_576,
    )
    world.clock.time = 1.0
    for name, status in ((subject, 401), ("alice", 200)):
        token = bearer(name, exp=1000)
        got = await world.rpc(
            "tools/call", {"name": "read"}, principal="root",
            extra=[(b"authorization", f"Bearer {token}".encode())],
        )  # fmt: skip
        assert got.status == status
    assert [sent.params["_meta"][OURS + "principal"] for sent in world.client.sent] == ["alice"]


async def test_only_our_own_credential_goes_upstream_with_calls_and_look_ups() -> None:
    world = World()
    world.gate.upstream = HttpUpstream(world.client, Secret("Bearer our-own"))  # type: ignore[arg-type]
    world.gate.catalog._upstream = world.gate.upstream
    theirs = [(b"authorization", b"Basic dGhlaXJz")]
    await world.call("read", {}, extra=theirs)
    await world.call("suggest", {}, extra=theirs)
    await world.rpc("tools/list", extra=theirs)
    sent = [*world.client.sent, *world.client.listed]
    assert len(sent) == 4
    assert [[v for n, v in one.header_list if n == "authorization"] for one in sent] == [
        ["Bearer our-own"]
    ] * 4
    assert "our-own" not in json.dumps(world.records) + "".join(world.logged)


WHERE = {**POLICY, "tools": {**POLICY["tools"], "drop": {
    "description": "drop things", "tiers": {"prod": "L2"},
    "where": [{"arg": "names", "in": ["x1"]}, {"arg": "names", "equals": "nothing", "env": ["dev"]}],
}}}  # fmt: skip


@pytest.mark.case("T71")
async def test_argument_rules_hold_for_dry_runs_and_for_the_confirmed_call_too() -> None:
    world = World({**WHERE, "tools": {"drop": {**WHERE["tools"]["drop"], "where": []}}})
    state = (await world.call("drop", {"names": ["x2"]})).state
    sent = len(world.client.sent)
    world.gate.snapshot = World(WHERE).gate.snapshot
    assert (await world.yes("drop", {"names": ["x2"]}, state)).rule == "args.violation"
    assert (await world.call("drop", {"names": ["x2"], "dry_run": True})).rule == "args.violation"
    assert len(world.client.sent) == sent
    # the rule for another environment is not asked, and what the rules allow goes its way
    assert (await world.call("drop", {"names": ["x1"]})).rule == "tier.L2.confirm"


async def test_an_argument_rule_is_judged_after_the_allowlist_and_before_the_tier() -> None:
    world = World(
        {
            "environment": "prod",
            "tools": {"t": {"tiers": {"dev": "L3"}, "where": [{"arg": "a", "equals": 1}]}},
        }
    )
    assert (await world.call("t", {"a": 2})).rule == "args.violation"
    assert (await world.call("t", {"a": 1})).rule == "tier.unassigned"
    assert (await world.call("u", {"a": 2})).rule == "allowlist.deny"


async def test_a_store_failure_stands_in_the_record_and_leaves_reads_alone() -> None:
    world = World()
    await world.store.close()
    denied = await world.call("push", {})
    intent, outcome = world.last_pair
    assert (denied.result["isError"], denied.rule) == (True, "store.unavailable")
    assert (intent["verdict"], outcome["verdict"], outcome["tier"]) == ("deny", "deny", "L3")
    assert outcome["detail"]
    assert [line for line in world.logged if "\n" in line] == []
    assert len(world.logged) == 1
    assert (await world.call("read", {})).verdict == "allow"


async def test_every_result_of_a_call_carries_its_verdict_and_its_rule() -> None:
    world = World()
    state = (await world.call("drop", {"names": ["a"]})).state
    got = [
        await world.call("read", {}),
        await world.call("nowhere", {}),
        await world.call("suggest", {}),
        await world.call("drop", {"names": ["a"]}),
        await world.yes("drop", {"names": ["a"]}, state),
        await world.yes("drop", {"names": ["a"]}, state),
        await world.call("scale", {"names": list("abcdefg")}),
    ]
    assert [(g.verdict, g.rule, g.status) for g in got] == [
        ("allow", "tier.L0.read", 200),
        ("deny", "allowlist.deny", 200),
        ("allow", "tier.L1.dry_run", 200),
        ("confirm", "tier.L2.confirm", 200),
        ("allow", "tier.L2.confirmed", 200),
        ("deny", "mrtr.replay", 200),
        ("deny", "blast_radius.per_call", 200),
    ]
    assert [g.result.get("isError", False) for g in got] == [False, True, False, False, False, True, True]
    # two records each, whatever happened, with one call_id
    assert len(world.records) == 2 * (len(got) + 1)


def test_the_upstream_has_sixty_seconds_and_eight_mebibytes() -> None:
    limits = ClientLimits()
    assert limits.total_s == 60
    assert limits.max_body_bytes == 8_388_608


async def test_asking_again_and_again_costs_a_new_question_each_time() -> None:
    world = World()
    asked = await asyncio.gather(*(world.call("drop", {"names": ["a"]}) for _ in range(5)))
    assert len({got.state for got in asked}) == 5
    assert {got.rule for got in asked} == {"tier.L2.confirm"}


async def test_a_question_leaves_nothing_in_the_store() -> None:
    world = World()
    touched: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            touched.append(name)
            return getattr(world.store, name)

    world.gate.store = Watched()
    assert (await world.call("drop", {"names": ["a"]})).rule == "tier.L2.confirm"
    assert set(touched) <= {"used"}  # the window is looked at, nothing is written


@pytest.mark.case("T28", "T29")
@pytest.mark.parametrize(
    ("value", "code"),
    [("NaN", -32700), ("Infinity", -32700), ("-Infinity", -32700), ("1e400", -32700), ("-1e400", -32700),
     ("[" * 61 + "]" * 61, None), ("[" * 62 + "]" * 62, -32600)],
    ids=["nan", "infinity", "minus infinity", "1e400", "minus 1e400", "64 levels", "65 levels"],
)  # fmt: skip
async def test_numbers_that_are_not_json_and_deep_bodies_have_their_codes_and_records(
    value: str, code: int | None
) -> None:
    world = World()
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = json.dumps({"name": "read", "_meta": meta, "arguments": {"a": "@"}}).replace('"@"', value)
    body = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {params}}}'
    lines = [(b"content-type", b"application/json"), (b"mcp-protocol-version", REVISION.encode()),
             (b"mcp-method", b"tools/call"), (b"mcp-name", b"read"), (b"x-airlock-principal", b"alice")]  # fmt: skip
    got = await world.http(body.encode(), lines)
    if code is None:
        assert got.rule == "tier.L0.read"
        return
    assert (got.status, got.code) == (400, code)
    intent, outcome = world.last_pair
    assert {(r["verdict"], r["rule_id"], r["args"] is None) for r in (intent, outcome)} == {
        ("deny", f"protocol.{code}", True)
    }
    assert world.client.sent == []


async def test_a_refusal_for_want_of_a_principal_asks_for_a_bearer_token() -> None:
    world = World()
    got = await world.rpc("tools/list", principal=None)
    assert (got.status, got.headers["www-authenticate"].startswith("Bearer")) == (401, True)
    assert "www-authenticate" not in (await world.rpc("tools/list")).headers
    assert {status: value.decode() for status, (_, value) in world.app.direct.also.items()} == {
        401: got.headers["www-authenticate"]
    }
