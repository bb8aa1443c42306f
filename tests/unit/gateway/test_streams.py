"""A modern answer that may be an event stream: plain when nothing comes first, unbuffered when something does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airlock.gateway import streams
from airlock.gateway.eras import Heard
from airlock.gateway.gate import Answer
from airlock.gateway.streams import Told, streamed


class Client:
    """The other end of one answer, as an ASGI application sees it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self.came = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        self.came.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    def events(self) -> list[Any]:
        lines = [line for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]


def progress(step: int, token: object = "ours") -> dict[str, object]:
    params: dict[str, object] = {"progressToken": token, "progress": step}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


ANSWER = Answer(200, b'{"jsonrpc":"2.0","id":1,"result":{}}')
Work = Callable[[Heard], Awaitable[Answer]]


async def run(work: Work, told: Told | None = None) -> Client:
    client = Client()
    await streamed(work, told or Told())(client.receive, client.send)
    return client


async def test_nothing_before_the_answer_is_one_json_with_its_status() -> None:
    async def work(_heard: Heard) -> Answer:
        return Answer(404, b"{}")

    client = await run(work)
    assert client.sent[0]["status"] == 404
    assert (b"content-type", b"application/json") in client.sent[0]["headers"]
    assert client.body == b"{}"


async def test_what_comes_first_goes_out_before_the_answer_is_there() -> None:
    go = asyncio.Event()

    async def work(heard: Heard) -> Answer:
        heard.notify(progress(1))
        await go.wait()
        heard.notify(progress(2))
        return ANSWER

    client = Client()
    running = asyncio.ensure_future(streamed(work, Told("ours", 7))(client.receive, client.send))
    while not client.events():
        await client.came.wait()
        client.came.clear()
    assert client.events() == [progress(1, 7)]
    assert client.sent[0]["headers"] == streams.HEADERS
    go.set()
    await running
    assert client.events() == [progress(1, 7), progress(2, 7), json.loads(ANSWER.body)]
    assert client.sent[-1].get("more_body", False) is False


@pytest.mark.parametrize("token", [7, "7", 0, ""])
async def test_a_client_hears_its_own_token_with_its_type(token: object) -> None:
    told = Told("ours", token)
    told.notify(progress(1))
    told.notify(progress(2, "another"))
    assert [message["params"]["progressToken"] for message in told.waiting] == [token, "another"]  # type: ignore[index]


async def test_keys_of_ours_that_an_upstream_puts_into_a_notification_are_gone() -> None:
    told = Told()
    told.notify(
        {"method": "notifications/message", "params": {"_meta": {"io.mcp-airlock/verdict": "allow", "x": 1}}}
    )
    assert told.waiting[0]["params"] == {"_meta": {"x": 1}}


async def test_a_client_that_leaves_cancels_the_work_at_once() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(_heard: Heard) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ANSWER

    client = Client()
    running = asyncio.ensure_future(streamed(work, Told())(client.receive, client.send))
    await begun.wait()
    client.gone.set()
    await running
    assert ended.is_set()
    assert client.sent == []


async def test_cancelling_the_answer_cancels_the_work() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work(_heard: Heard) -> Answer:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ANSWER

    client = Client()
    running = asyncio.ensure_future(streamed(work, Told())(client.receive, client.send))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_quiet_upstream_is_covered_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "KEEP_ALIVE_S", 0.01)
    go = asyncio.Event()

    async def work(_heard: Heard) -> Answer:
        await go.wait()
        return ANSWER

    client = Client()
    running = asyncio.ensure_future(streamed(work, Told())(client.receive, client.send))
    while client.body.count(streams.KEEP_ALIVE) < 2:
        await client.came.wait()
        client.came.clear()
    go.set()
    await running
    assert client.events() == [json.loads(ANSWER.body)]


async def test_a_client_that_reads_slowly_loses_notifications_and_not_the_answer() -> None:
    told = Told()
    for step in range(5000):
        told.notify(progress(step))
    assert len(told.waiting) == 1024
    assert told.lost == 5000 - 1024
