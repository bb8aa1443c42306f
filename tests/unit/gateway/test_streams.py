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
from airlock.gateway.upstream.many import ManyUpstreams
from airlock.gateway.upstream.watch import Watch
from tests.fakes.legacy_server import settle as settled
from tests.fakes.members import FakeMember, member, outgoing
from tests.fakes.world import StillClock


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
        return events(self.body)


def events(stream: bytes) -> list[Any]:
    lines = [line for line in stream.decode().split("\n") if line.startswith("data: ")]
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
    assert [message["params"]["progressToken"] for message in events(told.taken())] == [token, "another"]


async def test_keys_of_ours_that_an_upstream_puts_into_a_notification_are_gone() -> None:
    told = Told()
    told.notify(
        {"method": "notifications/message", "params": {"_meta": {"io.mcp-airlock/verdict": "allow", "x": 1}}}
    )
    assert events(told.taken())[0]["params"] == {"_meta": {"x": 1}}


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


@pytest.mark.parametrize(("chars", "kept"), [(8 * 2**20, 1), (4 * 2**20, 1), (2**20, 3), (2**19, 7)])
async def test_long_notifications_of_a_slow_client_wait_up_to_a_number_of_bytes(
    chars: int, kept: int
) -> None:
    told = Told()
    for _ in range(2):
        for step in range(20):
            told.notify(progress(step, "x" * chars))
        assert [message["params"]["progress"] for message in events(told.taken())] == list(range(kept))
    assert told.lost == 2 * (20 - kept)


async def test_a_short_notification_still_waits_behind_one_that_was_too_long() -> None:
    told = Told()
    for token in ("first", "x" * 5 * 2**20, "last"):
        told.notify(progress(1, token))
    assert [message["params"]["progressToken"] for message in events(told.taken())] == ["first", "last"]
    assert (told.lost, told.held, len(told.waiting)) == (1, 0, 0)


async def test_what_is_queued_is_what_was_said_then() -> None:
    told, message = Told(), progress(1)
    told.notify(message)
    message["method"] = "another"
    assert events(told.taken()) == [progress(1)]


# What comes before an acknowledgement waits too, at every place within the same number of bytes.

LONG = [(2**20, 3), (2**19, 7), (5 * 2**20, 0), (10, 20)]


class Hearing:
    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def notify(self, message: dict[str, Any]) -> None:
        self.messages.append(message)

    def changes(self) -> list[str]:
        found = [message["method"].rpartition("/")[2] for message in self.messages]
        return found[found.index("acknowledged") + 1 :]


@pytest.mark.parametrize(("chars", "kept"), LONG)
async def test_long_events_of_several_servers_wait_up_to_a_number_of_bytes(chars: int, kept: int) -> None:
    fakes = FakeMember("git"), FakeMember("time")
    many = ManyUpstreams({fake.name: member(fake) for fake in fakes}, StillClock(), lambda _: None)
    heard = Hearing()
    sent = outgoing("subscriptions/listen", 42, notifications={"toolsListChanged": True})
    task = asyncio.ensure_future(many.listen(sent, heard))
    await settled()
    git, time = (fake.listens[0] for fake in fakes)
    git.acknowledge()
    for _ in range(20):
        git.say("tools/list_changed", vendor="x" * chars)
    git.say("tools/list_changed", vendor="short")
    assert heard.messages == []
    time.acknowledge()
    await settled()
    assert heard.changes() == ["list_changed"] * (kept + 1)
    git.say("tools/list_changed", vendor="x" * chars)
    assert heard.changes() == ["list_changed"] * (kept + 2)
    task.cancel()
    await asyncio.wait({task})


class Eager:
    """A legacy server that tells of changes while it is being subscribed to."""

    def __init__(self, params: list[dict[str, object]]) -> None:
        self.watch = Watch(self)
        self._params = params

    def declares(self, capability: str, feature: str) -> bool:
        return True

    async def request(self, method: str, params: dict[str, object]) -> dict[str, object]:
        if params["uri"] == "b":
            for told in self._params:
                self.watch.notified("notifications/resources/updated", told)
        return {"result": {}}

    def background(self, work: Any) -> None:
        work.close()

    def eased(self) -> None: ...


async def early(params: list[dict[str, object]]) -> list[str]:
    heard = Hearing()
    task = asyncio.ensure_future(Eager(params).watch.listen({"resourceSubscriptions": ["a", "b"]}, 1, heard))
    await settled()
    assert len(heard.changes()) + 1 == len(heard.messages)
    task.cancel()
    await asyncio.wait({task})
    return [message["params"]["uri"] for message in heard.messages[1:]]


@pytest.mark.parametrize(("chars", "kept"), LONG)
async def test_long_changes_of_a_legacy_server_wait_up_to_a_number_of_bytes(chars: int, kept: int) -> None:
    params: list[dict[str, object]] = [{"uri": f"a/{step}", "more": "x" * chars} for step in range(20)]
    found = await early([*params, {"uri": "a/short"}])
    assert found == [*(f"a/{step}" for step in range(kept)), "a/short"]


async def test_a_change_told_again_counts_once() -> None:
    same: dict[str, object] = {"uri": "a/1", "more": "x" * 2**20}
    found = await early(
        [*[same] * 10, {**same, "uri": "a/2"}, {**same, "uri": "a/3"}, {**same, "uri": "a/4"}]
    )
    assert found == ["a/1", "a/2", "a/3"]
