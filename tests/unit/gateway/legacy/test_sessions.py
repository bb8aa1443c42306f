"""Sessions: bound to who opened them, limited, and expired when nobody uses them."""

from __future__ import annotations

import asyncio
from typing import Any

from airlock.core.principal import Principal, Source
from airlock.gateway.legacy.sessions import Session, Sessions, key_of
from airlock.gateway.legacy.streams import Replay
from tests.fakes.world import CountingIds, StillClock

ALICE, BOB = Principal("alice"), Principal("bob")


class Running:
    def __init__(self) -> None:
        self.cancelled = False
        self.closed = False

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        self.closed = True


class Made:
    def __init__(self, **limits: Any) -> None:
        self.clock = StillClock()
        self.sessions = Sessions(CountingIds(), self.clock, **limits)
        self.replay = Replay()

    def open(self, principal: Principal = ALICE) -> Session:
        session = self.sessions.open(principal, "2025-11-25", self.replay)
        assert session is not None
        return session

    def full(self, principal: Principal = ALICE) -> bool:
        return self.sessions.open(principal, "2025-11-25", self.replay) is None


def test_an_id_is_256_bits():
    assert len(Made().open().id) == 64


def test_a_stolen_session_id_is_worthless_without_its_owner():
    made = Made()
    session = made.open()
    assert made.sessions.find(session.id, ALICE) is session
    assert made.sessions.find(session.id, BOB) is None
    assert made.sessions.find(session.id, Principal("alice", (), Source.HEADER)) is None
    assert made.sessions.find(session.id, Principal("alice", ("sre",))) is session
    assert made.sessions.find(session.id.upper() + "x", ALICE) is None


def test_an_ended_session_is_not_found_and_everything_in_it_is_stopped():
    made = Made()
    session = made.open()
    call, subscription = Running(), Running()
    session.calls[key_of(1)] = call
    session.subscription = subscription
    stream = session.new_stream()
    made.sessions.end(session)
    made.sessions.end(session)
    assert made.sessions.find(session.id, ALICE) is None
    assert (call.cancelled, subscription.closed, stream.ended, session.ended) == (True, True, True, True)
    assert len(made.sessions) == 0
    assert made.sessions._by_owner == {}


def test_what_is_said_in_an_ended_session_is_kept_nowhere():
    made = Made()
    session = made.open()
    made.sessions.end(session)
    session.standalone.add(b"x" * 100)
    session.new_stream().add(b"x" * 100)
    assert made.replay.used == 0


def test_the_owners_least_recently_used_idle_session_makes_room():
    made = Made(most_each=3)
    first, second, third = made.open(), made.open(), made.open()
    first.calls[key_of(1)] = Running()
    made.sessions.find(second.id, ALICE)
    fourth = made.open()
    assert third.ended
    assert [session.ended for session in (first, second, fourth)] == [False, False, False]


async def test_sessions_in_use_are_never_pushed_out():
    made = Made(most_each=2)
    busy, read = made.open(), made.open()
    busy.calls[key_of(1)] = Running()

    async def write(_chunk: bytes) -> None: ...

    reading = asyncio.ensure_future(read.standalone.serve(write, 3600.0))
    await asyncio.sleep(0)
    assert read.listening is read.standalone
    assert made.full()
    reading.cancel()


def test_nobody_can_push_out_the_session_of_another():
    made = Made(most=2)
    made.open()
    theirs = made.open()
    assert made.full(BOB)
    assert not theirs.ended
    assert made.sessions._by_owner.keys() == {theirs.owner}
    made.open()  # but one's own can go
    assert len(made.sessions) == 2


def test_one_place_is_enough_to_open_again():
    made = Made(most=1, most_each=1)
    first = made.open()
    second = made.open()
    assert first.ended
    assert made.sessions.find(second.id, ALICE) is second


def test_unused_sessions_expire_and_used_ones_do_not():
    made = Made(idle_s=100.0)
    unused, used, busy = made.open(), made.open(), made.open()
    busy.calls[key_of(1)] = Running()
    made.clock.time += 60
    made.sessions.find(used.id, ALICE)
    made.clock.time += 60
    made.sessions.expire()
    assert (unused.ended, used.ended, busy.ended) == (True, False, False)
    busy.calls.clear()
    made.clock.time += 50
    made.sessions.expire()
    assert not busy.ended  # its time begins when its last call ended
    made.clock.time += 100
    made.sessions.expire()
    assert len(made.sessions) == 0


def test_the_stream_of_a_get_is_one_and_those_of_calls_are_counted():
    session = Made().open()
    assert session.listening is None
    assert session.standalone is session.standalone
    assert session.standalone.number == 0
    assert [session.new_stream().number for _ in range(2)] == [1, 2]
    assert [session.new_push() for _ in range(2)] == ["p-1", "p-2"]


def test_ids_of_requests_are_known_by_type_and_value():
    assert key_of(1) != key_of("1")
    assert key_of(1) == key_of(1)
