from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream.poster import MAX_UNSENT, Poster
from tests.fakes.legacy_server import Message, settle


class Line:
    """A line that takes messages as a test lets it."""

    tells_streams = False
    alive = True

    def __init__(self) -> None:
        self.posted: list[Message] = []
        self.go = asyncio.Event()
        self.go.set()

    async def post(self, message: Message) -> None:
        await self.go.wait()
        if message.get("fails"):
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "x", reached=False)
        self.posted.append(message)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


async def test_messages_are_posted_in_order_and_functions_called_between_them():
    line = Line()
    poster = Poster(line, 10.0)
    called: list[int] = []
    assert poster.soon({"n": 1}, {"fails": True}, lambda: called.append(len(line.posted)), {"n": 2})
    assert not line.posted
    await settle()
    assert line.posted == [{"n": 1}, {"n": 2}]
    assert called == [1]
    assert poster.soon({"n": 3})
    await settle()
    assert line.posted[-1] == {"n": 3}
    await poster.close()


async def test_too_many_messages_that_wait_are_refused_whole():
    line = Line()
    line.go.clear()
    poster = Poster(line, 10.0)
    assert poster.soon(*[{} for _ in range(MAX_UNSENT - 1)])
    assert not poster.soon({}, {})
    assert poster.soon({})
    assert not poster.soon({})
    await poster.close()
    line.go.set()
    await settle()
    assert not line.posted


async def test_a_message_that_is_not_taken_is_given_up_in_time():
    line = Line()
    line.go.clear()
    poster = Poster(line, 0.0)
    with pytest.raises(UpstreamError, match="TimeoutError") as caught:
        await poster.post({})
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, True)
    await poster.close()
