"""A modern client that dismisses our question, as Claude Code does where nobody sits: held, settled, never a denial."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from airlock.gateway.pending import Prompts
from tests.fakes.legacyclient import DISCOVERED, Rig
from tests.fakes.world import NO, POLICY, YES, Got, World, result_of, text_result

ARGS = {"names": ["x1"]}
CANCEL = {"airlock-confirm": {"action": "cancel"}}


def world(
    mode: str = "oob", *, notified: bool = True, collapse: bool = True, hold_s: float | None = 45.0
) -> World:
    made = World(mode=mode, notified=notified)
    gate = made.gate
    gate.confirmations = msgspec.structs.replace(gate.confirmations, hold_s=hold_s)
    gate.prompts = Prompts(made.store, made.clock, collapse=collapse, rate=None)
    made.client.script = text_result("done")
    return made


def executed(made: World) -> int:
    return sum(sent.arguments.get("dry_run") is not True for sent in made.client.sent)


def silently(got: Got) -> str:
    """Check that an answer says that nobody answered, and return its text."""
    assert got.result["resultType"] == "complete"
    assert got.result["isError"] is True
    assert (got.verdict, got.rule, got.ours["status"]) == ("confirm", "mrtr.pending", "pending")
    told: str = got.result["content"][0]["text"]
    assert told.startswith("airlock: not confirmed: ")
    assert "nothing was executed, and nothing was refused" in told
    assert "denied" not in told
    return told


def passing(made: World, monkeypatch: pytest.MonkeyPatch, then: Any = None, at: int = 0) -> list[float]:
    """Each pause moves the clock; before the pause of number `at` something happens."""
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)
        made.clock.time += seconds
        if len(waited) == at:
            await then()

    monkeypatch.setattr("airlock.gateway.waiting.asyncio.sleep", pause)
    return waited


@pytest.mark.parametrize("mode", ["oob", "inband"])
async def test_it_is_held_then_settled_and_the_same_call_finds_its_question_again(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world(mode)
    waited = passing(made, monkeypatch)
    asked = await made.call("drop", ARGS)
    got = await made.call("drop", ARGS, state=asked.state, answer=CANCEL)
    assert "goes on waiting for the same approval" in silently(got)
    assert sum(waited) == 45.0
    assert got.ours["idempotency_key"] == asked.ours["idempotency_key"]
    assert executed(made) == 0
    again = await made.call("drop", ARGS)
    assert again.state == asked.state
    await made.store.approve(asked.ours["idempotency_key"], made.clock.time + 600)
    done = await made.call("drop", ARGS, state=again.state, answer=CANCEL)
    assert done.rule == "tier.L2.confirmed"
    assert (await made.call("drop", ARGS, state=again.state, answer=CANCEL)).rule == "mrtr.replay"
    assert executed(made) == 1


@pytest.mark.parametrize("more", [{}, {"answer": YES}])
async def test_whoever_comes_back_with_the_state_is_held_and_told_to_come_again(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world()
    waited = passing(made, monkeypatch)
    asked = await made.call("drop", ARGS)
    got = await made.call("drop", ARGS, state=asked.state, **more)
    assert (got.result["resultType"], got.rule, got.state) == ("input_required", "mrtr.pending", asked.state)
    assert ("was ignored" in got.ours["message"]) is bool(more)
    assert sum(waited) == 45.0
    assert executed(made) == 0


async def test_a_yes_by_the_link_releases_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    asked = await made.call("drop", ARGS)

    async def press() -> None:
        await made.store.approve(asked.ours["idempotency_key"], made.clock.time + 600)

    waited = passing(made, monkeypatch, press, at=2)
    assert (await made.call("drop", ARGS, state=asked.state, answer=CANCEL)).rule == "tier.L2.confirmed"
    assert waited == [1.0, 2.0]
    assert executed(made) == 1


async def test_the_policy_of_now_decides_when_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    asked = await made.call("drop", ARGS)

    async def press() -> None:
        await made.store.approve(asked.ours["idempotency_key"], made.clock.time + 600)
        tools = {name: rule for name, rule in POLICY["tools"].items() if name != "drop"}
        made.gate.snapshot = World({**POLICY, "tools": tools}).gate.snapshot

    passing(made, monkeypatch, press, at=1)
    assert (await made.call("drop", ARGS, state=asked.state, answer=CANCEL)).rule == "allowlist.deny"
    assert executed(made) == 0


async def test_without_anybody_elsewhere_it_settles_at_once_and_stays_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world("inband", notified=False)
    waited = passing(made, monkeypatch)
    asked = await made.call("drop", ARGS)
    told = silently(await made.call("drop", ARGS, state=asked.state, answer=CANCEL))
    assert "a person is then asked once more" in told
    assert waited == []
    assert (await made.call("drop", ARGS, state=asked.state, answer=YES)).rule == "tier.L2.confirmed"
    assert executed(made) == 1


async def test_a_no_is_a_no_all_the_same() -> None:
    made = world()
    asked = await made.call("drop", ARGS)
    assert (await made.call("drop", ARGS, state=asked.state, answer=NO)).rule == "mrtr.declined"


async def test_it_is_held_no_longer_than_its_ticket_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    asked = await made.call("drop", ARGS)
    made.clock.time += 590
    waited = passing(made, monkeypatch)
    silently(await made.call("drop", ARGS, state=asked.state, answer=CANCEL))
    assert sum(waited) == pytest.approx(10.0)


async def test_the_seeds_own_door_takes_a_cancel_for_a_no() -> None:
    made = world(hold_s=None)
    asked = await made.call("drop", ARGS)
    assert (await made.call("drop", ARGS, state=asked.state, answer=CANCEL)).rule == "mrtr.declined"


async def test_a_request_of_an_older_client_is_not_held_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world()
    rig = Rig(world=made, real=True, hold_s=3.0)
    waited = passing(made, monkeypatch)
    made.client.script = result_of(DISCOVERED)
    client = await rig.session()
    made.client.script = text_result("done")
    for number in range(2):
        message = await client.call("drop", ARGS, request_id=number)
        assert "not confirmed: nobody has answered yet" in message["result"]["content"][0]["text"]
    assert not any(waited)
    await rig.front.close()
