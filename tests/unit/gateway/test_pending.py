"""Identical calls that wait share one question, nobody's agent asks too often, and what is settled is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from airlock.core.action import Action
from airlock.core.approval import ticket
from airlock.core.errors import StoreUnavailable, UpstreamError, UpstreamFailure
from airlock.core.limits import Rate
from airlock.gateway import pending
from airlock.gateway.outofband import Approvers
from airlock.gateway.pending import FRESH_S, Prompts
from airlock.gateway.settings import Rates
from tests.fakes.world import NO, World

ARGS: dict[str, object] = {"names": ["x1"], "region": "north"}
KEY = "io.mcp-airlock/collapsed"


def collapsing(rate: Rate | None = None, **more: Any) -> World:
    world = World(**more)
    world.watch(collapse=True, rates=Rates(prompts=rate))
    return world


def prompts(world: World) -> Prompts:
    assert world.gate.prompts is not None
    return world.gate.prompts


def counts(world: World) -> tuple[int, int, int, int]:
    found = prompts(world)
    return found.asked, found.collapsed, found.limited, found.open


class Chat:
    """Approvers whose posts are kept, and can be said to be lost."""

    def __init__(self, world: World) -> None:
        self.posts: list[tuple[str, Callable[[], None] | None]] = []
        keys, store = world.gate.confirmations.keys, world.store
        world.gate.approvers = Approvers(keys, store, self, "https://gate.example", world.gate.log)

    def post(self, text: str, link: str, lost: Callable[[], None] | None = None) -> None:
        self.posts.append((text, lost))

    async def close(self) -> None: ...


async def test_an_identical_call_gets_the_same_question_and_nobody_is_asked_anew():
    world = collapsing(notified=True)
    chat = Chat(world)
    first = await world.call("drop", ARGS)
    again = await world.call("drop", {"region": "north", "names": ["x1"]}, request_id="b")
    assert len(chat.posts) == 1
    assert len(world.client.sent) == 1  # one dry run
    assert KEY not in first.result["_meta"]
    assert again.message["id"] == "b"
    assert again.result.pop("_meta") == {**first.result["_meta"], KEY: True}
    assert {k: v for k, v in again.result.items() if k != "_meta"} == {
        k: v for k, v in first.result.items() if k != "_meta"
    }
    assert counts(world) == (1, 1, 0, 1)


async def test_a_collapsed_call_is_on_record_with_the_key_of_the_question():
    world = collapsing()
    first = await world.call("drop", ARGS)
    await world.call("drop", ARGS)
    intent, outcome = world.last_pair
    assert (outcome["verdict"], outcome["rule_id"], outcome["tier"]) == ("confirm", "tier.L2.confirm", "L2")
    assert outcome["detail"] == {"collapsed": first.ours["idempotency_key"]}
    assert intent["args"] == ARGS


async def test_a_yes_to_the_shared_question_runs_the_call_once_and_the_next_call_asks_anew():
    world = collapsing()
    await world.call("drop", ARGS)
    state = (await world.call("drop", ARGS)).state
    assert (await world.yes("drop", ARGS, state)).rule == "tier.L2.confirmed"
    assert counts(world)[3] == 0
    assert (await world.yes("drop", ARGS, state)).rule == "mrtr.replay"
    anew = await world.call("drop", ARGS)
    assert KEY not in anew.result["_meta"]
    assert anew.state != state
    assert counts(world) == (2, 1, 0, 1)


async def test_a_no_ends_the_question():
    world = collapsing()
    state = (await world.call("drop", ARGS)).state
    assert (await world.call("drop", ARGS, state=state, answer=NO)).rule == "mrtr.declined"
    assert counts(world)[3] == 0
    assert KEY not in (await world.call("drop", ARGS)).result["_meta"]


async def test_a_question_that_another_process_used_up_is_not_shown_again():
    world = collapsing()
    first = await world.call("drop", ARGS)
    claims = ticket.open_agent(world.gate.confirmations.keys, first.state)
    assert isinstance(claims, ticket.Claims)
    await world.store.burn(claims.k, claims.exp)
    assert (await world.call("drop", ARGS)).state != first.state
    assert counts(world) == (2, 0, 0, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"tool": "reboot", "arguments": ARGS},
        {"arguments": {"names": ["x2"], "region": "north"}},
        {"principal": "bob"},
        {"target": "http://other.example/mcp"},
    ],
)
async def test_a_call_that_differs_in_anything_is_asked_anew(other: dict[str, Any]):
    world = collapsing()
    await world.call("drop", ARGS)
    world.gate.target = other.pop("target", world.gate.target)
    await world.call(**{"tool": "drop", "arguments": ARGS, **other})
    assert counts(world) == (2, 0, 0, 2)


async def test_a_question_that_is_nearly_over_is_not_shown_again():
    world = collapsing()
    first = await world.call("drop", ARGS)
    world.clock.time += ticket.LIFETIME_S - FRESH_S
    assert (await world.call("drop", ARGS)).state == first.state
    world.clock.time += 1
    anew = await world.call("drop", ARGS)
    assert anew.state != first.state
    assert counts(world)[3] == 2
    assert (await world.yes("drop", ARGS, first.state)).rule == "tier.L2.confirmed"
    assert (await world.call("drop", ARGS)).state == anew.state
    world.clock.time += ticket.LIFETIME_S
    assert counts(world)[3] == 0


async def test_a_question_whose_message_was_lost_is_asked_again():
    world = collapsing(notified=True)
    chat = Chat(world)
    first = await world.call("drop", ARGS)
    ((_, lost),) = chat.posts
    assert lost is not None
    lost()
    lost()
    anew = await world.call("drop", ARGS)
    assert anew.state != first.state
    assert len(chat.posts) == 2
    assert prompts(world).lost == 2
    assert counts(world)[3] == 2


async def test_a_question_that_was_never_posted_because_its_caller_left_is_asked_again():
    world = collapsing(notified=True)
    chat = Chat(world)
    entered = asyncio.Event()

    async def slow(*_: object) -> None:
        entered.set()
        await asyncio.Event().wait()

    kept, world.store.save_prompt = world.store.save_prompt, slow  # type: ignore[method-assign, assignment]
    calling = asyncio.ensure_future(world.call("drop", ARGS))
    await entered.wait()
    calling.cancel()
    await asyncio.wait({calling})
    world.store.save_prompt = kept  # type: ignore[method-assign]
    assert chat.posts == []
    await world.call("drop", ARGS)
    assert (len(chat.posts), prompts(world).collapsed) == (1, 0)


async def test_calls_that_come_while_a_question_is_made_wait_for_it():
    world = collapsing()
    going, may = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> None:
        going.set()
        await may.wait()

    await world.call("drop", {"names": ["warm"], "region": "north"})  # the catalog is known now
    world.client.before = slow
    first = asyncio.ensure_future(world.call("drop", ARGS))
    await going.wait()
    others = [asyncio.ensure_future(world.call("drop", ARGS)) for _ in range(20)]
    await asyncio.sleep(0)
    may.set()
    states = {(await one).state for one in (first, *others)}
    assert len(states) == 1
    assert counts(world) == (2, 20, 0, 2)
    assert len(world.client.sent) == 2


async def test_when_a_question_cannot_be_made_the_next_call_makes_its_own():
    world = collapsing()
    kept, gone = world.client.script, UpstreamError(UpstreamFailure.UNREACHABLE, "down", reached=False)
    world.client.script = lambda sent: gone
    assert (await world.call("drop", ARGS)).rule == "upstream.unreachable"
    world.client.script = kept
    assert (await world.call("drop", ARGS)).verdict == "confirm"
    assert counts(world) == (1, 0, 0, 1)


async def test_a_call_does_not_wait_for_ever_for_the_question_of_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pending, "WAIT_S", 0.01)
    world = collapsing()
    found = prompts(world)
    action = Action("drop", ARGS, "prod", world.gate.target)
    with found.making(action, "alice"):
        assert await found.find(action, "alice") is None
        with found.making(action, "alice"):
            pass
        assert await found.find(action, "bob") is None
    assert await found.find(action, "alice") is None


async def test_of_two_questions_for_one_call_the_later_is_shown():
    world = collapsing()
    found = prompts(world)
    for key in ("k1", "k2"):
        claims = ticket.Claims(p="alice", t="drop", h="0", e="prod", u="u", k=key, exp=world.clock.time + 600)
        found.keep(claims, {"resultType": "input_required"})
    assert (list(found._at.values()), found.open, dict(found._each)) == (["k2"], 2, {"alice": 1})


async def test_a_store_that_does_not_answer_refuses_the_repeated_call():
    world = collapsing()
    await world.call("drop", ARGS)

    async def gone(*_: object) -> tuple[bool, bool]:
        raise StoreUnavailable("no answer")

    world.store.standing = gone  # type: ignore[method-assign, assignment]
    assert (await world.call("drop", ARGS)).rule == "store.unavailable"


async def test_a_question_that_is_settled_while_the_store_is_asked_is_not_shown():
    world = collapsing()
    first = await world.call("drop", ARGS)
    standing = world.store.standing

    async def late(key: str, now: float) -> tuple[bool, bool]:
        answer = await standing(key, now)
        prompts(world).settled(key)
        return answer

    world.store.standing = late  # type: ignore[method-assign]
    assert (await world.call("drop", ARGS)).state != first.state


async def test_without_collapsing_every_call_is_asked_anew_and_counted():
    world = World()
    world.watch()
    states = {(await world.call("drop", ARGS)).state for _ in range(3)}
    assert len(states) == 3
    assert counts(world) == (3, 0, 0, 3)


async def test_questions_to_people_are_limited_for_each_principal():
    world = collapsing(Rate(2, 60, 2), notified=True)
    chat = Chat(world)
    for name in ("a", "b"):
        await world.call("reboot", {"node": name})
    got = await world.call("reboot", {"node": "c"})
    assert (got.verdict, got.rule, got.ours["retry_after_s"]) == ("deny", "prompt.limited", 30)
    assert got.text == (
        "airlock: denied (prompt.limited): a person may be asked 2 in 60 s for one caller; try again in 30 s"
    )
    assert len(chat.posts) == 2
    assert counts(world) == (2, 0, 1, 2)
    assert world.last_pair[1]["rule_id"] == "prompt.limited"
    assert world.last_pair[1]["tier"] == "L2"
    # What is open is shown all the same, and somebody else may ask.
    assert (await world.call("reboot", {"node": "a"})).result["resultType"] == "input_required"
    assert (await world.call("reboot", {"node": "c"}, principal="bob")).verdict == "confirm"
    world.clock.time += 30
    assert (await world.call("reboot", {"node": "c"})).verdict == "confirm"


async def test_over_the_limit_no_dry_run_is_sent():
    world = collapsing(Rate(1, 60, 1))
    await world.call("drop", ARGS)
    sent = len(world.client.sent)
    assert (await world.call("drop", {**ARGS, "names": ["x2"]})).rule == "prompt.limited"
    assert len(world.client.sent) == sent


async def test_silence_of_a_client_that_asks_itself_shows_the_question_again():
    world = collapsing()
    first = await world.call("drop", ARGS)
    again = await world.call("drop", ARGS, state=first.state)
    assert (again.state, again.result["_meta"][KEY]) == (first.state, True)


async def test_a_question_waiting_for_the_link_is_pending_as_ever():
    world = collapsing(mode="oob", notified=True)
    Chat(world)
    first = await world.call("drop", ARGS)
    assert (await world.call("drop", ARGS, state=first.state)).ours["status"] == "pending"
    claims = ticket.open_agent(world.gate.confirmations.keys, first.state)
    assert isinstance(claims, ticket.Claims)
    await world.store.approve(claims.k, claims.exp)
    assert (await world.call("drop", ARGS)).state == first.state
    assert (await world.call("drop", ARGS, state=first.state)).rule == "tier.L2.confirmed"
    assert counts(world)[3] == 0


async def test_a_question_too_long_to_be_kept_is_asked_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pending, "MOST_BYTES", 100)
    world = collapsing()
    states = {(await world.call("drop", ARGS)).state for _ in range(2)}
    assert len(states) == 2


async def test_nobody_can_push_out_the_questions_of_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pending, "MOST_EACH", 2)
    world = collapsing()
    bobs = await world.call("reboot", {"node": 0}, principal="bob")
    for node in range(5):
        await world.call("reboot", {"node": node})
    assert (await world.call("reboot", {"node": 0}, principal="bob")).state == bobs.state
    assert KEY in (await world.call("reboot", {"node": 1})).result["_meta"]
    assert KEY not in (await world.call("reboot", {"node": 4})).result["_meta"]


async def test_what_is_kept_of_all_is_bounded_in_bytes_and_number(monkeypatch: pytest.MonkeyPatch):
    world = collapsing()
    await world.call("reboot", {"node": 0})
    monkeypatch.setattr(pending, "MOST_IN_ALL_BYTES", prompts(world)._bytes)
    await world.call("reboot", {"node": 1})
    assert KEY not in (await world.call("reboot", {"node": 1})).result["_meta"]
    monkeypatch.setattr(pending, "MOST_OPEN", counts(world)[3])
    got = await world.call("reboot", {"node": 2})
    assert got.result["resultType"] == "input_required"
    assert counts(world)[3] == 3
    assert (await world.yes("reboot", {"node": 2}, got.state)).rule == "tier.L2.confirmed"


async def test_memory_is_given_back_when_questions_end():
    world = collapsing()
    for node in range(4):
        await world.call("reboot", {"node": node})
    found = prompts(world)
    assert found._bytes > 0
    world.clock.time += ticket.LIFETIME_S
    assert found.open == 0
    assert (found._bytes, found._at, dict(found._each), found._making) == (0, {}, {}, {})


def test_a_state_that_is_no_ticket_of_ours_settles_nothing():
    world = collapsing()
    prompts(world).declined(world.gate.confirmations.keys, "al1.x.y")
    prompts(world).settled("unknown")
    assert counts(world)[3] == 0


async def test_a_question_that_is_being_made_is_waited_for_outside_a_task_too() -> None:
    """The HTTP server runs the beginning of a call outside a task, where a time-out cannot be set."""
    waiting = prompts(collapsing())
    action = Action("drop", ARGS, "prod", "up")
    found = waiting.find(action, "alice")
    went: asyncio.Future[object] = asyncio.get_running_loop().create_future()

    def step() -> None:
        try:
            went.set_result(found.send(None))
        except BaseException as error:
            went.set_exception(error)

    with waiting.making(action, "alice"):
        asyncio.get_running_loop().call_soon(step)
        assert await went is None  # it waits for a task of its own
        found.close()
