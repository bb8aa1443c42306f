"""Confirmation for legacy clients, through the real flows: asked, held, attached, never told as denial when it is silence."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import Any

import pytest

from airlock.core.approval import ticket
from airlock.core.errors import StoreUnavailable
from airlock.gateway.legacy import exchange
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.upstream.port import Answer, Heard, Outgoing
from tests.fakes.legacyclient import DISCOVERED, Client, Events, Rig, params, text, whole
from tests.fakes.world import World, result_of

ARGS = {"names": ["x1"]}
KEY = r"Idempotency key: ([0-9a-f]+)"
YES = {"action": "accept", "content": {"confirm": True}}


class Whole(HttpUpstream):
    """The scripted upstream says nothing before its answers."""

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        return await super().ask(outgoing, exact=exact)


class Gated:
    """A rig whose inside is the real one."""

    def __init__(self, mode: str = "inband", *, notified: bool = False, **settings: Any) -> None:
        self.world = World(mode=mode, notified=notified)
        self.world.gate.upstream = Whole(self.world.client, None)  # type: ignore[arg-type]
        self.rig = Rig(world=self.world, real=True, **settings)

    async def session(self, name: str = "alice", version: str = "2025-11-25", **capabilities: Any) -> Client:
        self.world.client.script, kept = self._discovery, self.world.client.script
        try:
            return await self.rig.session(name, version, **capabilities)
        finally:
            self.world.client.script = kept
            self.world.client.sent.clear()

    def _discovery(self, sent: Any) -> Any:
        return result_of(DISCOVERED)(sent)

    @property
    def executed(self) -> int:
        """How often the upstream was asked for the real thing."""
        return sum(sent.arguments.get("dry_run") is not True for sent in self.world.client.sent)

    @property
    def rules(self) -> list[str]:
        return [record["rule_id"] for record in self.world.records if record["phase"] == "outcome"]

    def open_key(self) -> str:
        """The key of the confirmation that a later call would attach to."""
        ((_, own),) = self.rig.front._confirmations._by_owner.items()
        ((state, _),) = own.values()
        claims = ticket.open_agent(self.world.gate.confirmations.keys, state)
        assert isinstance(claims, ticket.Claims)
        return claims.k

    async def approve(self, push: dict[str, Any] | None = None) -> None:
        """A person says yes by the link: to what a form shows, else to what a later call would attach to."""
        key = self.open_key() if push is None else re.findall(KEY, push["params"]["message"])[-1]
        await self.world.store.approve(key, self.world.clock.time + 600)

    def when_held(self, polls: int, then: Any) -> None:
        """Let `then` happen before the poll of that number."""
        count = 0

        async def before() -> None:
            nonlocal count
            count += 1
            if count == polls:
                await then()

        self.rig.before_poll = before

    def waits(self, message: dict[str, Any]) -> str:
        """Check that a message says that nobody answered, and return its text."""
        result = message["result"]
        assert result["isError"] is True
        assert result["_meta"]["io.mcp-airlock/rule_id"] == "mrtr.pending"
        assert result["_meta"]["io.mcp-airlock/verdict"] == "confirm"
        told = text(message)
        assert told.startswith("airlock: not confirmed: ")
        assert "nothing was executed, and nothing was refused" in told
        assert "denied" not in told
        return told


async def asked(client: Client, **more: Any) -> tuple[Events, dict[str, Any]]:
    events = await client.stream("tools/call", params("drop", ARGS), **more)
    return events, (await events.until(1))[0]


@pytest.mark.parametrize(("version", "moded"), [("2025-06-18", False), ("2025-11-25", True)])
async def test_a_yes_in_the_client_runs_the_call_once(version: str, moded: bool):
    gated = Gated()
    client = await gated.session(version=version, elicitation={})
    events, push = await asked(client)
    assert push["method"] == "elicitation/create"
    assert push["params"]["message"].startswith("[prod] drop: drop things (tier L2).")
    assert push["params"]["requestedSchema"]["required"] == ["confirm"]
    assert ("mode" in push["params"]) is moded
    assert gated.executed == 0
    await client.reply(push["id"], YES)
    last = (await events.whole())[-1]
    assert (text(last), last["id"]) == ("done", 1)
    assert last["result"]["_meta"]["io.mcp-airlock/rule_id"] == "tier.L2.confirmed"
    assert "resultType" not in last["result"]
    assert gated.executed == 1
    assert len(gated.world.client.sent) == 2
    await gated.rig.front.close()


async def test_a_no_in_the_client_is_a_denial():
    gated = Gated()
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    await client.reply(push["id"], {"action": "decline"})
    last = (await events.whole())[-1]
    assert "airlock: denied (mrtr.declined)" in text(last)
    assert gated.executed == 0
    await gated.rig.front.close()


@pytest.mark.parametrize(
    "content", [None, {}, {"confirm": False}, {"confirm": "true"}, {"confirm": 1}, {"other": True}]
)  # fmt: skip
async def test_a_form_that_was_accepted_without_a_yes_is_a_no(content: Any):
    gated = Gated()
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    answer = {"action": "accept"} if content is None else {"action": "accept", "content": content}
    await client.reply(push["id"], answer)
    assert "airlock: denied (mrtr.declined)" in text((await events.whole())[-1])
    assert gated.executed == 0
    await gated.rig.front.close()


@pytest.mark.parametrize(
    "answer",
    [{"result": {"action": "cancel"}}, {"result": {}}, {"result": {"action": "yes", "content": {"confirm": True}}},
     {"result": 5}, {"error": {"code": -32601, "message": "no"}}, {"error": 5}],
)  # fmt: skip
async def test_what_is_neither_yes_nor_no_is_never_told_as_a_denial_and_burns_nothing(answer: Any):
    gated = Gated()
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    await client.post({"jsonrpc": "2.0", "id": push["id"], **answer})
    told = gated.waits((await events.whole())[-1])
    assert "a person is then asked once more" in told
    assert gated.executed == 0
    assert gated.rules[-1] == "tier.L2.confirm"
    again, push = await asked(client, request_id=2)
    await client.reply(push["id"], YES)
    assert text((await again.whole())[-1]) == "done"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_silence_is_never_told_as_a_denial():
    gated = Gated(answer_s=0.01)
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    messages = await events.whole()
    gated.waits(messages[-1])
    assert messages[-2]["params"]["requestId"] == push["id"]
    await client.reply(push["id"], YES)
    assert (gated.executed, gated.rig.front.counts.strays) == (0, 1)
    await gated.rig.front.close()


async def test_a_client_that_cannot_ask_is_told_at_once_what_would_help():
    gated = Gated()
    client = await gated.session()
    told = gated.waits(whole(await client.send("tools/call", params("drop", ARGS))))
    assert "AIRLOCK_APPROVAL_WEBHOOK" in told
    assert gated.rig.pauses == []
    assert gated.executed == 0
    await gated.rig.front.close()


async def test_a_client_without_a_stream_is_told_the_same():
    gated = Gated()
    client = await gated.session(elicitation={})
    got = await client.send("tools/call", params("drop", ARGS), accept="application/json")
    assert "cannot ask a person" in gated.waits(whole(got))
    await gated.rig.front.close()


@pytest.mark.parametrize("mode", ["oob", "inband"])
async def test_a_call_is_held_and_a_yes_by_the_link_releases_it(mode: str):
    gated = Gated(mode, notified=True)
    client = await gated.session()
    gated.when_held(3, gated.approve)
    events = await client.stream("tools/call", params("drop", ARGS))
    last = (await events.whole())[-1]
    assert text(last) == "done"
    assert last["result"]["_meta"]["io.mcp-airlock/rule_id"] == "tier.L2.confirmed"
    assert gated.rig.pauses == [1.0, 2.0, 2.0]
    assert gated.executed == 1
    assert len(gated.world.client.sent) == 2  # one dry run, one real one: no poll reached the upstream
    assert gated.rig.front.counts.confirmations == 0
    pairs = [record for record in gated.world.records if record["method"] == "tools/call"]
    assert len(pairs) == 4  # the question and the run: looking whether somebody has decided leaves no record
    await gated.rig.front.close()


async def test_a_held_call_tells_its_progress_and_goes_on_counting_when_it_runs():
    gated = Gated("oob", notified=True)
    client = await gated.session()
    gated.when_held(2, gated.approve)
    events = await client.stream("tools/call", params("drop", ARGS, 7))
    messages = await events.whole()
    told = [message["params"] for message in messages if message.get("method") == "notifications/progress"]
    assert told == [
        {"progressToken": 7, "progress": number, "message": "waiting for a person to approve drop"}
        for number in (1, 2)
    ]
    assert text(messages[-1]) == "done"
    await gated.rig.front.close()


async def test_a_held_call_settles_before_the_clients_patience_ends():
    gated = Gated("oob", notified=True, hold_s=45.0)
    client = await gated.session()
    began = gated.world.clock.time
    last = (await (await client.stream("tools/call", params("drop", ARGS))).whole())[-1]
    told = gated.waits(last)
    assert "call drop again with the same arguments within 10 minutes" in told
    assert "same approval" in told
    assert gated.world.clock.time - began == 45.0
    assert gated.executed == 0
    assert gated.rig.front.counts.confirmations == 1
    await gated.rig.front.close()


async def test_a_held_call_of_a_client_that_takes_only_json_is_answered_in_the_end():
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    got = await client.send("tools/call", params("drop", ARGS, 7), accept="application/json")
    gated.waits(whole(got))
    await gated.rig.front.close()


async def test_the_same_call_again_attaches_to_the_same_approval_in_another_session_too():
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    await client.call("drop", ARGS)
    key = gated.open_key()
    later = await gated.session()
    first = gated.waits(await later.call("drop", {"names": ["x1"]}))
    assert "same approval" in first
    assert gated.open_key() == key
    assert len(gated.world.client.sent) == 0  # the preview of the first call was enough
    await gated.approve()
    assert text(await later.call("drop", ARGS)) == "done"
    assert gated.executed == 1
    assert gated.rules.count("tier.L2.confirm") == 1
    assert gated.rig.front.counts.confirmations == 0
    await gated.rig.front.close()


async def test_an_approval_runs_one_call_and_the_next_is_asked_about_anew():
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    await client.call("drop", ARGS)
    key = gated.open_key()
    await gated.approve()
    assert text(await client.call("drop", ARGS)) == "done"
    gated.waits(await client.call("drop", ARGS))
    assert gated.open_key() != key
    assert gated.executed == 1
    await gated.rig.front.close()


@pytest.mark.parametrize(
    "arguments", [{"names": ["x2"]}, {"names": ["x1", "x2"]}, {"names": ["x1"], "region": "north"}]
)
async def test_another_call_does_not_attach(arguments: dict[str, Any]):
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    await client.call("drop", ARGS)
    await gated.approve()
    gated.waits(await client.call("drop", arguments))
    assert gated.executed == 0
    await gated.rig.front.close()


async def test_another_principal_does_not_attach():
    gated = Gated("oob", notified=True, hold_s=3.0)
    alice, bob = await gated.session(), await gated.session("bob")
    await alice.call("drop", ARGS)
    await gated.approve()
    gated.waits(await bob.call("drop", ARGS))
    assert gated.executed == 0
    assert text(await alice.call("drop", ARGS)) == "done"
    await gated.rig.front.close()


async def test_a_dry_run_of_the_clients_own_uses_no_approval_up():
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    await client.call("drop", ARGS)
    await gated.approve()
    dry = await client.call("drop", {**ARGS, "dry_run": True})
    assert dry["result"]["_meta"]["io.mcp-airlock/rule_id"] == "tier.L2.dry_run"
    assert text(await client.call("drop", ARGS)) == "done"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_an_approval_that_was_used_up_or_ran_out_meanwhile_is_asked_for_anew():
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    await client.call("drop", ARGS)
    key = gated.open_key()
    await gated.world.store.burn(key, gated.world.clock.time + 600)
    gated.waits(await client.call("drop", ARGS))
    second = gated.open_key()
    assert second != key
    gated.world.clock.time += 601
    gated.waits(await client.call("drop", ARGS))
    assert gated.open_key() != second
    assert gated.rules.count("tier.L2.confirm") == 3
    await gated.rig.front.close()


async def test_an_approval_that_runs_out_while_the_call_is_held_is_no_denial():
    gated = Gated("oob", notified=True, hold_s=45.0)
    client = await gated.session()

    async def much_later() -> None:
        gated.world.clock.time += 700

    gated.when_held(1, much_later)
    told = gated.waits(await client.call("drop", ARGS))
    assert "within the time an approval is good" in told
    assert gated.rig.front.counts.confirmations == 0
    assert gated.executed == 0
    await gated.rig.front.close()


async def test_a_no_from_elsewhere_while_the_call_is_held_is_a_denial():
    gated = Gated("oob", notified=True)
    client = await gated.session()

    async def burned() -> None:
        await gated.world.store.burn(gated.open_key(), gated.world.clock.time + 600)

    gated.when_held(2, burned)
    assert "airlock: denied (mrtr.replay)" in text(await client.call("drop", ARGS))
    assert gated.executed == 0
    await gated.rig.front.close()


async def test_two_held_calls_run_one_approval_once():
    gated = Gated("oob", notified=True)
    client = await gated.session()
    gated.when_held(6, gated.approve)
    answers = await asyncio.gather(*(client.call("drop", ARGS, request_id=number) for number in range(2)))
    assert gated.executed == 1
    assert sorted(text(answer) == "done" for answer in answers) == [False, True]
    await gated.rig.front.close()


async def test_no_form_is_shown_where_only_the_link_approves():
    # Where nobody sits, Codex and Hermes answer every form with a decline.
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session(elicitation={})
    events = await client.stream("tools/call", params("drop", ARGS))
    (only,) = await events.whole()
    gated.waits(only)
    assert gated.executed == 0
    await gated.approve()
    assert text(await client.call("drop", ARGS, request_id=2)) == "done"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_a_cancelled_form_is_held_for_whoever_holds_the_link():
    gated = Gated("inband", notified=True)
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    gated.when_held(2, partial(gated.approve, push))
    await client.reply(push["id"], {"action": "cancel"})
    assert text((await events.whole())[-1]) == "done"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_a_decline_in_the_client_is_a_denial_there_too():
    gated = Gated("inband", notified=True)
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    await client.reply(push["id"], {"action": "decline"})
    assert "airlock: denied (mrtr.declined)" in text((await events.whole())[-1])
    assert gated.rig.front.counts.confirmations == 0
    await gated.rig.front.close()


async def test_a_yes_by_the_link_takes_the_open_form_back(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exchange, "_ASKING_POLL_S", 0.001)
    gated = Gated("inband", notified=True, answer_s=1.0)
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    await gated.approve(push)
    messages = await events.whole()
    assert messages[-2]["params"]["requestId"] == push["id"]
    assert text(messages[-1]) == "done"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_a_form_is_shown_again_where_its_answer_counts():
    gated = Gated("inband", notified=True, hold_s=3.0)
    client = await gated.session(elicitation={})
    for number in range(2):
        events, push = await asked(client, request_id=number)
        await client.reply(push["id"], {"action": "cancel"} if number == 0 else YES)
        last = (await events.whole())[-1]
    assert text(last) == "done"
    assert gated.executed == 1
    await gated.rig.front.close()


async def test_a_cancelled_held_call_leaves_its_approval_open():
    gated = Gated("oob", notified=True)
    client = await gated.session()
    never = asyncio.Event()
    held = asyncio.Event()

    async def stop() -> None:
        held.set()
        await never.wait()

    gated.when_held(1, stop)
    events = await client.stream("tools/call", params("drop", ARGS))
    await held.wait()
    await client.tell("cancelled", {"requestId": 1})
    assert await events.whole() == []
    gated.rig.before_poll = None
    await gated.approve()
    assert text(await client.call("drop", ARGS)) == "done"
    await gated.rig.front.close()


async def test_a_state_that_a_legacy_client_repeats_is_never_consent():
    gated = Gated()
    client = await gated.session(elicitation={})
    events, push = await asked(client)
    sent = gated.rig.inside.requests[-1]
    assert sent.name == "drop"
    claims = ticket.Claims(
        p="alice", t="drop", h="0" * 64, e="prod", u="", k="0" * 32, exp=gated.world.clock.time + 600, m="inband"
    )  # fmt: skip
    forged = {
        **params("drop", ARGS), "requestState": ticket.mint(gated.world.gate.confirmations.keys, claims),
        "inputResponses": {"airlock-confirm": YES},
    }  # fmt: skip
    second = await client.stream("tools/call", forged, request_id=2)
    assert (await second.until(1))[0]["method"] == "elicitation/create"
    assert gated.executed == 0
    await gated.rig.front.close()
    await events.whole()
    assert push["id"] == "p-1"


async def test_a_store_that_does_not_answer_keeps_the_approval_for_later(monkeypatch: pytest.MonkeyPatch):
    gated = Gated("oob", notified=True, hold_s=3.0)
    client = await gated.session()
    await client.call("drop", ARGS)
    key = gated.open_key()

    async def gone(*_: Any) -> Any:
        raise StoreUnavailable("down")

    with monkeypatch.context() as patched:
        patched.setattr(gated.world.store, "standing", gone)
        assert "airlock: denied (store.unavailable)" in text(await client.call("drop", ARGS))
    assert gated.open_key() == key
    await gated.approve()
    assert text(await client.call("drop", ARGS)) == "done"
    await gated.rig.front.close()


async def test_ungated_calls_are_not_held_or_asked_about():
    gated = Gated("oob", notified=True)
    client = await gated.session(elicitation={})
    assert text(whole(await client.send("tools/call", params("read")))) == "done"
    denied = whole(await client.send("tools/call", params("unknown")))
    assert "airlock: denied (allowlist.deny)" in text(denied)
    listed = whole(await client.send("tools/list"))["result"]
    assert {"resultType", "ttlMs", "cacheScope"}.isdisjoint(listed)
    assert "hidden" not in [tool["name"] for tool in listed["tools"]]
    assert gated.rig.pauses == []
    await gated.rig.front.close()
