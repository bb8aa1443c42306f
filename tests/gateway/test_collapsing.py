"""One question for identical calls, whatever era their clients are of: asked in each client, executed once."""

from __future__ import annotations

import asyncio
from typing import Any

from airlock.core.limits import Rate
from airlock.gateway.settings import Rates
from tests.fakes.legacyclient import text
from tests.gateway.test_legacy_confirmation import ARGS, YES, Gated, asked

FORMS: dict[str, Any] = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}


def collapsing(
    mode: str = "inband", *, notified: bool = False, rate: Rate | None = None, **more: Any
) -> Gated:
    gated = Gated(mode, notified=notified, **more)
    gated.world.watch(collapse=True, rates=Rates(prompts=rate))
    return gated


async def test_two_older_clients_are_asked_the_same_question_and_one_yes_runs_it_once():
    gated = collapsing()
    one, other = await gated.session(elicitation={}), await gated.session(elicitation={})
    events, push = await asked(one)
    more, again = await asked(other)
    assert push["params"]["message"] == again["params"]["message"]
    await one.reply(push["id"], YES)
    assert text((await events.whole())[-1]) == "done"
    await other.reply(again["id"], YES)
    assert "mrtr.replay" in text((await more.whole())[-1])
    assert gated.executed == 1
    assert gated.rules.count("tier.L2.confirm") == 2
    await gated.rig.front.close()


async def test_an_older_client_joins_the_question_of_a_newer_one():
    gated = collapsing()
    world = gated.world
    state = (await world.call("drop", ARGS, meta=FORMS)).state
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    assert world.gate.prompts is not None
    assert (world.gate.prompts.asked, world.gate.prompts.collapsed) == (1, 1)
    await client.reply(push["id"], YES)
    assert text((await events.whole())[-1]) == "done"
    assert (await world.yes("drop", ARGS, state, meta=FORMS)).rule == "mrtr.replay"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_a_held_call_that_is_repeated_attaches_and_one_yes_by_the_link_releases_it():
    gated = collapsing("oob", notified=True, hold_s=5.0)
    client = await gated.session()
    gated.waits(await client.call("drop", ARGS))
    gated.waits(await client.call("drop", ARGS))
    assert gated.world.gate.prompts is not None
    assert gated.world.gate.prompts.asked == 1
    await gated.approve()
    assert text(await client.call("drop", ARGS)) == "done"
    assert gated.executed == 1
    # What was open is used up: the next one is asked anew.
    gated.waits(await client.call("drop", ARGS))
    assert gated.world.gate.prompts.asked == 2
    await gated.rig.front.close()


async def test_the_rounds_of_a_held_call_are_no_questions():
    gated = collapsing("oob", notified=True, hold_s=40.0, rate=Rate(1, 3600, 1))
    client = await gated.session()
    gated.waits(await client.call("drop", ARGS))
    assert len(gated.rig.pauses) > 10
    other = await client.call("drop", {"names": ["x2"]})
    assert "airlock: denied (prompt.limited)" in text(other)
    assert other["result"]["_meta"]["io.mcp-airlock/retry_after_s"] > 3000
    await gated.rig.front.close()


async def test_calls_of_both_eras_at_once_make_one_question():
    gated = collapsing("oob", notified=True, hold_s=5.0)
    world = gated.world
    client = await gated.session()
    modern, held = await asyncio.gather(world.call("drop", ARGS, meta=FORMS), client.call("drop", ARGS))
    gated.waits(held)
    assert modern.result["resultType"] == "input_required"
    assert world.gate.prompts is not None
    assert world.gate.prompts.asked == 1
    await gated.rig.front.close()
