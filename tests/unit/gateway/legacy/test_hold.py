"""Waiting for a person: the open confirmations of calls, the held call, and what is said in the end."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.approval.ticket import Keys
from airlock.core.principal import Source
from airlock.gateway.confirm import Settings
from airlock.gateway.legacy import hold
from airlock.gateway.legacy.hold import Confirmations, Message
from tests.fakes.world import StillClock

ALICE, BOB = ("alice", Source.TOKEN), ("bob", Source.TOKEN)
PENDING: Message = {
    "result": {"_meta": {"io.mcp-airlock/status": "pending", "io.mcp-airlock/idempotency_key": "k"}}
}
DONE: Message = {"result": {"content": [], "_meta": {"io.mcp-airlock/rule_id": "tier.L2.confirmed"}}}


class Held:
    """A clock, a pause that moves it, and answers one after another."""

    def __init__(self, *answers: Message) -> None:
        self.clock = StillClock()
        self.answers = list(answers)
        self.pauses: list[float] = []
        self.waited = 0

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.time += seconds

    async def poll(self) -> Message:
        return self.answers.pop(0) if self.answers else PENDING

    def waiting(self) -> None:
        self.waited += 1

    async def run(self, hold_s: float) -> Message | None:
        return await hold.held(self.poll, self.waiting, hold_s, self.clock, self.pause)


async def test_a_held_call_asks_until_a_person_has_answered():
    held = Held(PENDING, PENDING, DONE)
    assert await held.run(45.0) is DONE
    assert held.pauses == [1.0, 2.0, 2.0]
    assert held.waited == 3


async def test_a_held_call_gives_up_when_its_time_is_over_and_asks_a_last_time_then():
    held = Held()
    assert await held.run(4.0) is None
    assert held.pauses == [1.0, 2.0, 1.0]


async def test_no_time_is_no_waiting():
    held = Held(DONE)
    assert await held.run(0.0) is None
    assert held.pauses == []


def test_a_confirmation_is_found_by_its_owner_tool_and_arguments():
    kept = Confirmations(StillClock())
    kept.remember(ALICE, "drop", "d1", "s1")
    kept.remember(ALICE, "drop", "d2", "s2")
    assert kept.find(ALICE, "drop", "d1") == "s1"
    assert kept.find(ALICE, "drop", "d2") == "s2"
    assert kept.find(ALICE, "drop", "d3") is None
    assert kept.find(ALICE, "push", "d1") is None
    assert kept.find(BOB, "drop", "d1") is None
    assert kept.find(("alice", Source.HEADER), "drop", "d1") is None


def test_a_confirmation_lasts_as_long_as_its_ticket():
    clock = StillClock()
    kept = Confirmations(clock)
    kept.remember(ALICE, "drop", "d", "s")
    clock.time += 300
    kept.remember(ALICE, "drop", "d", "s")  # the same ticket does not last longer for being seen again
    clock.time += 299
    assert kept.find(ALICE, "drop", "d") == "s"
    clock.time += 1
    assert kept.find(ALICE, "drop", "d") is None
    assert len(kept) == 0
    kept.remember(ALICE, "drop", "d", "s")
    kept.remember(ALICE, "drop", "d", "s-2")
    assert kept.find(ALICE, "drop", "d") == "s-2"
    assert len(kept) == 1
    clock.time += 600
    kept.expire()
    assert len(kept) == 0
    assert kept._by_owner == {}


def test_a_confirmation_that_is_over_is_forgotten():
    kept = Confirmations(StillClock())
    kept.remember(ALICE, "drop", "d", "s")
    kept.forget(ALICE, "drop", "d")
    kept.forget(ALICE, "drop", "d")
    kept.forget(BOB, "drop", "d")
    assert (len(kept), kept.find(ALICE, "drop", "d")) == (0, None)


def test_one_principal_keeps_so_many_and_pushes_out_only_its_own():
    kept = Confirmations(StillClock())
    kept.remember(BOB, "drop", "d", "s")
    for number in range(hold.MOST_OPEN_EACH + 1):
        kept.remember(ALICE, "drop", str(number), "s")
    assert len(kept) == hold.MOST_OPEN_EACH + 1
    assert kept.find(ALICE, "drop", "0") is None
    assert kept.find(ALICE, "drop", "1") == "s"
    assert kept.find(BOB, "drop", "d") == "s"


def test_all_together_are_so_many_and_what_is_over_makes_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hold, "MOST_OPEN", 2)
    clock = StillClock()
    kept = Confirmations(clock)
    kept.remember(ALICE, "drop", "1", "s")
    kept.remember(ALICE, "drop", "2", "s")
    kept.remember(BOB, "drop", "d", "s")
    assert kept.find(BOB, "drop", "d") is None
    assert kept.find(ALICE, "drop", "1") == "s"
    assert BOB not in kept._by_owner
    clock.time += 600
    kept.remember(BOB, "drop", "d", "s")
    assert kept.find(BOB, "drop", "d") == "s"
    assert len(kept) == 1


@pytest.mark.parametrize(("mode", "notified", "waits"), [
    ("inband", False, False), ("inband", True, True), ("oob", True, True), ("oob", False, True), ("odd", False, True),
])  # fmt: skip
def test_waiting_makes_sense_where_somebody_outside_may_say_yes(mode: str, notified: bool, waits: bool):
    assert hold.out_of_band(Settings(Keys.derive(b"k"), mode, notified)) is waits


def test_a_text_of_silence_says_that_nothing_ran_and_nothing_was_refused():
    for attach in (True, False):
        text, own = hold.not_confirmed("dr\nop", PENDING, attach=attach, why="nobody has answered yet")
        assert "nothing was executed, and nothing was refused" in text
        assert r"call dr\nop again with the same arguments" in text
        assert "denied" not in text
        assert ("goes on waiting" in text) is attach
        assert own == {
            "io.mcp-airlock/verdict": "confirm", "io.mcp-airlock/rule_id": "mrtr.pending",
            "io.mcp-airlock/status": "pending", "io.mcp-airlock/idempotency_key": "k",
        }  # fmt: skip
    text, own = hold.not_asked({})
    assert "AIRLOCK_APPROVAL_WEBHOOK" in text
    assert "io.mcp-airlock/idempotency_key" not in own


@pytest.mark.parametrize(
    ("rule", "spent"),
    [("mrtr.expired", True), ("mrtr.replay", True), ("mrtr.mismatch", True), ("mrtr.bad_signature", True),
     ("mrtr.declined", False), ("store.unavailable", False), (None, False), ("allowlist.deny", False)],
)  # fmt: skip
def test_a_spent_state_is_told_by_its_rule(rule: Any, spent: bool):
    assert hold.is_spent({"result": {"_meta": {"io.mcp-airlock/rule_id": rule}}}) is spent


@pytest.mark.parametrize(
    "message", [{}, {"error": {}}, {"result": 5}, {"result": {}}, {"result": {"_meta": 5}}]
)
def test_odd_answers_are_neither_pending_nor_spent(message: Any):
    assert not hold.is_pending(message)
    assert not hold.is_spent(message)
    assert hold.rule_of(message) is None
