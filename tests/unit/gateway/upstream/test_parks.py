from __future__ import annotations

import pytest

from airlock.gateway.upstream import parks
from airlock.gateway.upstream.parks import Parks, bind
from tests.fakes.legacy_server import CountedIds, HandTime


class Waiting:
    def __init__(self) -> None:
        self.forgotten = 0

    def forget(self) -> None:
        self.forgotten += 1


MINE = bind("alice", "tools/call", {"name": "t", "arguments": {"a": 1}})


@pytest.fixture
def time():
    return HandTime()


@pytest.fixture
def kept(time):
    held: Parks[Waiting] = Parks(CountedIds(), time.later)
    return held


def test_a_handle_finds_what_waits_until_it_is_taken(kept):
    waiting = Waiting()
    state = kept.park(MINE, waiting)
    assert state == "park1." + "0" * 31 + "1"
    assert kept.find(state, MINE) is waiting
    assert kept.find(state, MINE) is waiting
    kept.take(state)
    assert kept.find(state, MINE) is None
    assert not waiting.forgotten
    assert len(kept) == 0


@pytest.mark.parametrize(
    "other",
    [
        bind("bob", "tools/call", {"name": "t", "arguments": {"a": 1}}),
        bind("alice", "prompts/get", {"name": "t", "arguments": {"a": 1}}),
        bind("alice", "tools/call", {"name": "u", "arguments": {"a": 1}}),
        bind("alice", "tools/call", {"name": "t", "arguments": {"a": 2}}),
        bind("alice", "tools/call", {"name": "t", "arguments": {"a": 1.5}}),
        bind("alice", "tools/call", {"uri": "t", "arguments": {"a": 1}}),
        bind("alice", "tools/call", {"name": "t"}),
    ],
)
def test_a_handle_is_good_for_its_own_request_only(kept, other):
    state = kept.park(MINE, Waiting())
    assert kept.find(state, other) is None
    assert kept.find(state, MINE) is not None


def test_absent_arguments_are_empty_ones():
    assert bind("a", "tools/call", {"name": "t"}) == bind("a", "tools/call", {"name": "t", "arguments": {}})


@pytest.mark.parametrize("state", [None, 3, [], {}, "park1.unknown", ""])
def test_an_unknown_state_is_nothing(kept, state):
    assert kept.find(state, MINE) is None
    kept.abandon(state)
    kept.take(state)


def test_an_unanswered_question_is_forgotten_after_its_time(kept, time):
    waiting = Waiting()
    state = kept.park(MINE, waiting)
    time.advance(599)
    assert kept.find(state, MINE) is waiting
    time.advance(1)
    assert waiting.forgotten == 1
    assert kept.find(state, MINE) is None
    kept.abandon(state)
    assert waiting.forgotten == 1


def test_a_taken_question_does_not_expire(kept, time):
    waiting = Waiting()
    kept.take(kept.park(MINE, waiting))
    assert time.waiting == 0
    time.advance(700)
    assert not waiting.forgotten


def test_abandoning_forgets_at_once(kept, time):
    waiting = Waiting()
    kept.abandon(kept.park(MINE, waiting))
    assert waiting.forgotten == 1
    assert time.waiting == 0


def test_one_principal_cannot_have_more_questions_than_his_share(kept):
    states = [kept.park(MINE, Waiting()) for _ in range(parks.MOST_EACH)]
    assert None not in states
    refused = Waiting()
    assert kept.park(MINE, refused) is None
    assert not refused.forgotten
    # The older ones wait on, and others have their own share.
    assert all(kept.find(state, MINE) is not None for state in states)
    assert kept.park(bind("bob", "tools/call", {"name": "t"}), Waiting()) is not None
    kept.take(states[0])
    assert kept.park(MINE, Waiting()) is not None


def test_there_is_a_limit_for_all_principals_together(kept):
    for number in range(parks.MOST):
        assert kept.park(bind(f"p{number}", "tools/call", {"name": "t"}), Waiting()) is not None
    assert kept.park(bind("late", "tools/call", {"name": "t"}), Waiting()) is None


def test_closing_forgets_everything(kept, time):
    waiting = [Waiting(), Waiting()]
    for one in waiting:
        kept.park(MINE, one)
    kept.close()
    assert [one.forgotten for one in waiting] == [1, 1]
    assert time.waiting == 0
