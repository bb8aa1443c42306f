from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, ClassVar

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.child import Command, minimal_environment
from airlock.edge.stdio import Garbage
from airlock.gateway.upstream import legacystdio
from airlock.gateway.upstream.legacy import LegacyUpstream
from airlock.gateway.upstream.legacystdio import MOST_PROCESSES, StdioDialer
from tests.fakes.legacy_server import PEOPLE, CountedIds, Heard, Message, outgoing, settle, text

COMMAND = Command(("server",), {})


class Process:
    """Stands in for `StdioProcess`: a test plays the server."""

    made: ClassVar[list[Process]] = []
    refusal: UpstreamError | None = None

    def __init__(
        self, command: Command, *, on_message: Any, on_end: Any, say: Any, on_garbage: Any, parse: Any
    ):
        self.on_message, self.on_end, self.on_garbage, self.parse = on_message, on_end, on_garbage, parse
        self.sent: list[bytes] = []
        self.stopped = 0
        self.alive = True
        Process.made.append(self)

    async def start(self) -> None:
        if Process.refusal is not None:
            raise Process.refusal

    def send(self, message: bytes) -> None:
        self.sent.append(message)

    async def stop(self) -> None:
        self.stopped += 1


class Here:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.said: list[str] = []
        self.messages: list[Message] = []
        self.lost: list[str] = []
        self.dialer = StdioDialer(COMMAND, say=self.said.append, monotonic=lambda: self.now, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def dial(self) -> Any:
        def incoming(message: Message, during: object | None) -> None:
            assert during is None
            self.messages.append(message)

        return self.dialer.dial(incoming, self.lost.append)

    async def crash(self) -> None:
        line = await self.dial()
        Process.made[-1].on_end("the server process ended (exit status 1)")
        await line.close()


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    Process.made, Process.refusal = [], None
    monkeypatch.setattr(legacystdio, "StdioProcess", Process)
    return Here()


def _begun(work: Any) -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(work)


REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
RESPONSE = {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_request_is_over_when_its_response_has_passed(here):
    line = await here.dial()
    assert not line.tells_streams
    line.opened("2025-11-25")
    task = _begun(line.request(REQUEST))
    await settle()
    process = Process.made[0]
    assert process.sent == [b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}']
    others: list[Message] = [
        {"id": 1, "method": "ping"},
        {"id": 2, "result": {}},
        {"id": "1", "result": {}},
        {"id": []},
    ]
    for other in others:
        process.on_message(other)
    await settle()
    assert not task.done()
    process.on_message(RESPONSE)
    process.on_message(RESPONSE)
    await task
    assert here.messages[-2:] == [RESPONSE, RESPONSE]
    await line.close()


async def test_other_messages_are_one_line_each(here):
    line = await here.dial()
    await line.post({"jsonrpc": "2.0", "method": "notifications/x", "params": {"text": "a\nb\ud800"}})
    (sent,) = Process.made[0].sent
    assert b"\n" not in sent
    await line.close()


async def test_the_end_of_the_process_fails_what_is_open_and_is_told(here):
    line = await here.dial()
    task = _begun(line.request(REQUEST))
    await settle()
    assert line.alive
    Process.made[0].alive = False
    assert not line.alive
    Process.made[0].on_end("the server process ended (exit status 1)")
    with pytest.raises(UpstreamError, match="exit status 1") as caught:
        await task
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, True)
    assert here.lost == ["the server process ended (exit status 1)"]
    assert here.said == here.lost
    await line.close()


async def test_closing_ends_the_process_once_and_fails_what_is_open(here):
    line = await here.dial()
    task = _begun(line.request(REQUEST))
    await settle()
    await asyncio.gather(line.close(), line.close())
    with pytest.raises(UpstreamError, match="was stopped"):
        await task
    assert Process.made[0].stopped == 1
    assert not here.lost


@pytest.mark.parametrize(
    ("garbage", "kind"),
    [(Garbage.TOO_LARGE, UpstreamFailure.TOO_LARGE), (Garbage.UNREADABLE, UpstreamFailure.BAD_REPLY)],
)
async def test_a_line_that_cannot_be_read_fails_the_one_request_that_waits(here, garbage, kind):
    line = await here.dial()
    task = _begun(line.request(REQUEST))
    await settle()
    Process.made[0].on_garbage(garbage)
    Process.made[0].on_garbage(garbage)
    with pytest.raises(UpstreamError) as caught:
        await task
    assert (caught.value.kind, caught.value.reached) == (kind, True)
    await line.close()


async def test_of_two_requests_neither_is_failed_by_a_line_that_cannot_be_read(here):
    line = await here.dial()
    tasks = [_begun(line.request({**REQUEST, "id": number})) for number in (1, 2)]
    await settle()
    Process.made[0].on_garbage(Garbage.UNREADABLE)
    await settle()
    assert not any(task.done() for task in tasks)
    await line.close()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    "line", [b'{"id":1,"id":2}', b'{"a":NaN}', b'{"a":"\xff"}', b"[" * 65 + b"]" * 65, b"banner"]
)
async def test_answers_are_read_as_strictly_as_requests(here, line):
    opened = await here.dial()
    with pytest.raises(ValueError):
        Process.made[0].parse(line)
    assert Process.made[0].parse(b'{"id":1}') == {"id": 1}
    await opened.close()


async def test_there_are_so_many_processes_and_no_more(here):
    lines = [await here.dial() for _ in range(MOST_PROCESSES)]
    with pytest.raises(UpstreamError, match="as many server processes run as may") as caught:
        await here.dial()
    assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, False)
    await lines.pop().close()
    lines.append(await here.dial())
    assert len(Process.made) == MOST_PROCESSES + 1
    for line in lines:
        await line.close()


async def test_a_process_that_cannot_start_leaves_its_place(here):
    Process.refusal = UpstreamError(UpstreamFailure.UNREACHABLE, "not found", reached=False)
    for _ in range(MOST_PROCESSES + 2):
        with pytest.raises(UpstreamError, match="not found"):
            await here.dial()
        here.now += 60
    Process.refusal = None
    await (await here.dial()).close()


async def test_a_start_that_is_cancelled_leaves_its_place(here, monkeypatch):
    async def slow(self: Process) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(Process, "start", slow)
        for _ in range(MOST_PROCESSES + 1):
            task = _begun(here.dial())
            await settle()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
    assert all(process.stopped for process in Process.made)
    await (await here.dial()).close()
    assert not here.slept


async def test_a_process_that_keeps_ending_is_started_ever_more_seldom(here):
    for _ in range(5):
        await here.crash()
    assert here.slept == pytest.approx([0.2, 0.4, 0.8, 1.6])
    with pytest.raises(UpstreamError, match="keeps ending; it is started again in 3 s") as caught:
        await here.dial()
    assert not caught.value.reached
    assert len(Process.made) == 5
    for _ in range(6):
        here.now += 30
        await here.crash()
    here.now += 27
    with pytest.raises(UpstreamError, match="again in 3 s"):
        await here.dial()


async def test_a_process_that_lasted_is_started_again_soon(here):
    for _ in range(5):
        await here.crash()
        here.now += 30
    line = await here.dial()
    here.now += 30
    Process.made[-1].on_end("the server process ended")
    await line.close()
    here.slept.clear()
    await (await here.dial()).close()
    assert here.slept == pytest.approx([0.2])


async def test_a_process_that_was_stopped_may_be_started_at_once(here):
    for _ in range(3):
        await (await here.dial()).close()
    assert not here.slept


# A real process.

SERVER = r"""
import json, sys
print("a banner")
print("listening", file=sys.stderr)
def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
waiting = None
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        say({"id": message["id"], "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
             "serverInfo": {"name": "real", "version": "1"}}})
    elif method == "tools/call" and params["name"] == "ask":
        waiting = message["id"]
        say({"id": "q", "method": "elicitation/create",
             "params": {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}})
    elif method == "tools/call" and params["name"] == "die":
        sys.exit(3)
    elif method == "tools/call":
        token = params["_meta"].get("progressToken")
        if token is not None:
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        say({"id": message["id"], "result": {"content": [{"type": "text", "text": json.dumps(params["arguments"])}]}})
    elif method is None and message["id"] == "q":
        say({"id": waiting, "result": {"content": [{"type": "text", "text": json.dumps(message["result"])}]}})
"""


@pytest.fixture
def real() -> tuple[LegacyUpstream, list[str]]:
    said: list[str] = []
    command = Command((sys.executable, "-c", SERVER), minimal_environment(os.environ))
    return LegacyUpstream(StdioDialer(command, say=said.append), CountedIds(), version="1", most=4), said


async def test_a_real_process_answers_tells_asks_dies_and_comes_back(real):
    upstream, said = real
    heard = Heard()
    answer = await upstream.ask(outgoing(name="echo", arguments={"a": 1}, token="p"), heard=heard)
    assert text(answer.result) == {"a": 1}
    assert [message["params"]["progressToken"] for message in heard.messages] == ["p"]
    asked = (await upstream.ask(outgoing(name="ask", client=PEOPLE))).result
    yes = {"action": "accept", "content": {}}
    answers = dict.fromkeys(asked["inputRequests"], yes)
    retry = outgoing(name="ask", client=PEOPLE, requestState=asked["requestState"], inputResponses=answers)
    assert text((await upstream.ask(retry)).result) == yes
    with pytest.raises(UpstreamError, match="exit status 3") as caught:
        await upstream.ask(outgoing(name="die"))
    assert caught.value.reached
    assert text((await upstream.ask(outgoing(name="echo", arguments={"a": 2}))).result) == {"a": 2}
    await upstream.close()
    assert "listening" in said
