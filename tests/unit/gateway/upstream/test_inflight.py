"""The table of requests under way: who is found by what, and whose time is over."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream.inflight import InFlight, Open, StdioLimits
from tests.fakes.stdio_upstream import Ear, call

LEVEL: dict[str, Any] = {"io.modelcontextprotocol/logLevel": "info"}


def an_open(own: int, *, listens: bool = False, **meta: Any) -> Open:
    return Open(own, call("t", **meta), Ear(), lambda message, line: message, listens=listens)


def an_error(cause: str = "x") -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=True)


class Table:
    def __init__(self, *opened: Open, total_s: float = 60.0, hard_s: float = 600.0) -> None:
        self.expired: list[Open] = []
        self.requests = InFlight(StdioLimits(total_s=total_s, hard_s=hard_s), self.expired.append)
        for one in opened:
            self.requests.enter(one)


async def test_a_request_is_found_by_its_own_id_alone():
    one, ear = an_open(1), an_open(2, listens=True)
    requests = Table(one, ear).requests
    assert len(requests) == 2
    assert (requests.with_id(1), requests.with_id(2)) == (one, ear)
    assert (requests.listening(1), requests.listening(2)) == (None, ear)
    odd: list[object] = [True, 1.0, "1", None, [1], {}, 3]
    assert [requests.with_id(own) for own in odd] == [None] * 7
    requests.leave(one)
    requests.leave(one)
    requests.leave(ear)
    assert (len(requests), requests.with_id(1)) == (0, None)


@pytest.mark.parametrize("token", [True, 1.0, None, [1], {"a": 1}])
async def test_an_odd_progress_token_finds_nobody(token: object):
    one = an_open(1, progressToken=token)
    other = an_open(2, progressToken=1)
    requests = Table(one, other).requests
    assert one.token is None
    assert requests.progressed(token) is None
    assert requests.progressed(1) is other
    requests.fail_all(an_error)
    assert requests.progressed(1) is None
    for opened in (one, other):
        assert isinstance(opened.future.exception(), UpstreamError)


async def test_a_token_that_was_taken_over_is_not_lost_with_its_first_owner():
    first, second = an_open(1, progressToken="t"), an_open(2, progressToken="t")
    requests = Table(first, second).requests
    requests.leave(first)
    assert requests.progressed("t") is second
    requests.leave(second)


async def test_progress_moves_the_deadline_but_not_beyond_the_hard_one():
    opened = an_open(1, progressToken="t")
    table = Table(opened, total_s=50.0, hard_s=80.0)
    begun = opened.hard - 80.0
    assert opened.deadline == pytest.approx(begun + 50.0)
    opened.deadline = begun
    assert table.requests.progressed("t") is opened
    assert begun + 50.0 <= opened.deadline < opened.hard
    opened.hard = begun + 10.0
    table.requests.progressed("t")
    assert opened.deadline == begun + 10.0
    table.requests.leave(opened)


async def test_a_total_beyond_the_hard_limit_is_cut_to_it():
    opened = an_open(1)
    table = Table(opened, total_s=900.0, hard_s=80.0)
    assert opened.deadline == opened.hard
    table.requests.leave(opened)


async def test_a_deadline_that_was_moved_is_looked_at_again_and_one_that_was_not_is_over():
    opened = an_open(1, progressToken="t")
    table = Table(opened)
    first = opened.timer
    table.requests._look(opened)
    assert opened.timer is not first
    assert table.expired == []
    opened.deadline = asyncio.get_running_loop().time() - 1.0
    table.requests._look(opened)
    assert table.expired == [opened]
    assert len(table.requests) == 0
    assert first is not None
    first.cancel()


async def test_who_listens_has_no_deadline_and_gets_no_logs():
    ear = an_open(1, listens=True, **LEVEL)
    requests = Table(ear).requests
    assert (ear.timer, ear.logs, requests.logging()) == (None, False, None)
    requests.leave(ear)


async def test_only_one_who_asked_alone_is_told_a_log_message():
    quiet, one, other = an_open(1), an_open(2, **LEVEL), an_open(3, **LEVEL)
    table = Table(quiet, one)
    assert table.requests.logging() is one
    table.requests.enter(other)
    assert table.requests.logging() is None
    table.requests.leave(one)
    assert table.requests.logging() is other
    table.requests.fail_all(an_error)
    assert table.requests.logging() is None
    for opened in (quiet, other):
        opened.future.exception()


async def test_the_only_request_fails_and_of_several_the_oldest_or_none():
    ear, old, new = an_open(1, listens=True), an_open(2), an_open(3)
    requests = Table(ear, old, new).requests
    requests.fail_only(an_error())
    assert len(requests) == 3
    requests.fail_only(an_error("oldest"), or_oldest=True)
    assert str(old.future.exception()) == "upstream.unreachable: oldest"
    requests.fail_only(an_error("only"))
    assert str(new.future.exception()) == "upstream.unreachable: only"
    requests.fail_only(an_error(), or_oldest=True)
    assert len(requests) == 1
    requests.leave(ear)


async def test_what_is_settled_is_settled_once():
    opened = an_open(1)
    requests = Table(opened).requests
    requests.settle(opened, {"a": 1}, b"")
    requests.settle(opened, {"a": 2}, b"")
    requests.fail(opened, an_error())
    assert opened.future.result() == {"a": 1}


async def test_an_answer_that_is_none_fails_its_request():
    def read(message: dict[str, object], line: bytes) -> object:
        raise an_error("none")

    opened = Open(1, call("t"), None, read, listens=False)
    opened.notify({"nobody": "listens"})
    requests = Table(opened).requests
    requests.settle(opened, {}, b"")
    assert str(opened.future.exception()) == "upstream.unreachable: none"


async def test_a_request_without_an_envelope_has_neither_token_nor_logs():
    outgoing = call("t")
    outgoing.params["_meta"] = 7
    opened = Open(1, outgoing, None, lambda message, line: message, listens=False)
    assert (opened.token, opened.logs) == (None, False)
