"""Modern clients that show no forms: told what can be done, attached to what they left open, never denied by silence."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.approval import ticket
from airlock.core.errors import StoreUnavailable
from airlock.gateway import methods
from airlock.gateway.confirm import Settings
from airlock.gateway.gate import Snapshot
from tests.fakes.world import Got, World, text_result

ARGS = {"names": ["x1"]}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
FORMS: dict[str, Any] = {CAPABILITIES: {"elicitation": {}}}


def wide(mode: str = "inband", *, notified: bool = False) -> World:
    world = World()
    world.gate.snapshot = Snapshot.of(world.gate.snapshot.policy, wide=True)
    world.gate.confirmations = Settings(world.gate.confirmations.keys, mode, notified)
    world.app._govern = methods.entry(world.gate)  # it was made for the seed's door
    world.client.script = text_result("done")
    return world


def said(got: Got) -> str:
    text: str = got.result["content"][0]["text"]
    return text


@pytest.mark.parametrize(
    "declared", [{}, {"elicitation": {"url": {}}}, {"elicitation": None}, {"sampling": {}}]
)
async def test_a_client_without_forms_is_told_what_would_help(declared: dict[str, Any]) -> None:
    world = wide()
    got = await world.call("drop", ARGS, meta={CAPABILITIES: declared})
    assert got.result["isError"] is True
    assert got.result["resultType"] == "complete"
    assert said(got).startswith("airlock: not confirmed: ")
    assert "denied" not in said(got)
    assert "inputRequests" not in got.result
    assert "requestState" not in got.result


@pytest.mark.parametrize(
    "declared", [{"elicitation": {}}, {"elicitation": {"form": {}}}, {"elicitation": {"form": {}, "url": {}}}]
)
async def test_a_client_with_forms_is_asked(declared: dict[str, Any]) -> None:
    got = await wide().call("drop", ARGS, meta={CAPABILITIES: declared})
    assert got.result["resultType"] == "input_required"


async def test_the_seeds_door_asks_whoever_calls() -> None:
    world = World()
    world.client.script = text_result("done")
    got = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    assert got.result["resultType"] == "input_required"


async def test_the_same_call_again_is_released_by_the_yes_of_somebody_outside_and_runs_once() -> None:
    world = wide("oob")
    first = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    assert "call drop again with the same arguments" in said(first)
    again = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    key = first.result["_meta"]["io.mcp-airlock/idempotency_key"]
    assert again.result["_meta"]["io.mcp-airlock/idempotency_key"] == key  # one question, not two
    await world.gate.store.approve(key, world.gate.clock.now() + ticket.LIFETIME_S)
    done = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    assert (said(done), done.rule) == ("done", "tier.L2.confirmed")
    new = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    assert new.result["_meta"]["io.mcp-airlock/idempotency_key"] != key


@pytest.mark.parametrize(("who", "arguments"), [("bob", ARGS), ("alice", {"names": ["x2"]})])
async def test_nobody_else_and_no_other_call_is_released_by_it(who: str, arguments: dict[str, Any]) -> None:
    world = wide("oob")
    first = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    key = first.result["_meta"]["io.mcp-airlock/idempotency_key"]
    await world.gate.store.approve(key, world.gate.clock.now() + ticket.LIFETIME_S)
    other = await world.call("drop", arguments, principal=who, meta={CAPABILITIES: {}})
    assert said(other).startswith("airlock: not confirmed: ")


async def test_a_call_that_nobody_gates_goes_its_way() -> None:
    world = wide()
    got = await world.call("read", {}, meta={CAPABILITIES: {}})
    assert (said(got), got.rule) == ("done", "tier.L0.read")


async def test_a_refusal_stays_a_refusal() -> None:
    got = await wide().call("nothing_like_it", {}, meta={CAPABILITIES: {}})
    assert got.rule == "allowlist.deny"


async def test_an_answer_to_a_question_that_the_client_never_saw_is_no_yes() -> None:
    world = wide("inband", notified=True)
    await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    yes = {ticket.ANSWER_KEY: {"action": "accept", "content": {"confirm": True}}}
    got = await world.call("drop", ARGS, answer=yes, meta={CAPABILITIES: {}})
    assert said(got).startswith("airlock: not confirmed: ")
    assert all(sent.body["params"]["arguments"].get("dry_run") is True for sent in world.client.sent)


async def test_a_store_that_was_away_leaves_the_approval_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world = wide("oob")
    first = await world.call("drop", ARGS, meta={CAPABILITIES: {}})
    key = first.result["_meta"]["io.mcp-airlock/idempotency_key"]
    await world.gate.store.approve(key, world.gate.clock.now() + ticket.LIFETIME_S)

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.gate.store, "standing", away)
        assert (await world.call("drop", ARGS, meta={CAPABILITIES: {}})).rule == "store.unavailable"
    assert said(await world.call("drop", ARGS, meta={CAPABILITIES: {}})) == "done"


@pytest.mark.parametrize("token", [{"a": 1}, True, None, [1], 1.5])
async def test_a_progress_token_of_another_type_is_refused(token: object) -> None:
    got = await wide().call("read", {}, meta={"progressToken": token, **FORMS})
    assert (got.status, got.code) == (400, -32602)


@pytest.mark.parametrize("level", ["bogus", {"a": 1}, None, 3, "INFO"])
async def test_a_log_level_that_is_not_known_is_refused(level: object) -> None:
    got = await wide().call("read", {}, meta={"io.modelcontextprotocol/logLevel": level, **FORMS})
    assert (got.status, got.code) == (400, -32602)
