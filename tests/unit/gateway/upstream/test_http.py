"""One exchange with a server over a real socket: what is heard before the answer, and what the answer is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from airlock.core.action import Action
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.secret import Secret
from airlock.core.wire import sse
from airlock.edge.httpc import ClientLimits, HttpClient, parse_target
from airlock.gateway.upstream import http
from airlock.gateway.upstream.http import HttpUpstream
from airlock.gateway.upstream.port import Answer, Outgoing
from tests.fakes import hostile
from tests.fakes.hostile import Hostile, Peer, Request

UNREACHABLE, TOO_LARGE, BAD_REPLY, ENCODED = (
    UpstreamFailure.UNREACHABLE,
    UpstreamFailure.TOO_LARGE,
    UpstreamFailure.BAD_REPLY,
    UpstreamFailure.ENCODED,
)
HEAD = hostile.http(
    length=None, content_type="text/event-stream; charset=utf-8", headers={"Transfer-Encoding": "chunked"}
)
END = b"0\r\n\r\n"
OURS: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "result": {"content": []}}
RESULT: dict[str, Any] = OURS["result"]
NOBODY = "the event stream holds no response to this request"
DROPPED = "the event stream ended without an answer"


def progress(number: int = 1) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": "t", "progress": number},
    }


LOGGED: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "notifications/message",
    "params": {"level": "info", "data": "x"},
}
CHANGED: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
ACKNOWLEDGED: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"}


class Ears:
    """Keeps what it hears; `count` lets a test wait for so much of it."""

    def __init__(self) -> None:
        self.messages: list[dict[str, object]] = []
        self._changed = asyncio.Event()

    def notify(self, message: dict[str, object]) -> None:
        self.messages.append(message)
        self._changed.set()

    async def count(self, number: int) -> None:
        while len(self.messages) < number:
            self._changed.clear()
            await self._changed.wait()


class Live:
    """A server's event stream that the test sends piece by piece."""

    def __init__(self) -> None:
        self.peer: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    async def __call__(self, peer: Peer, request: Request) -> None:
        peer.send(HEAD)
        self.peer.set_result(peer)
        await self.over.wait()

    async def raw(self, data: bytes) -> None:
        (await self.peer).send(data)

    async def send(self, *messages: object) -> None:
        await self.raw(chunk(b"".join(event(message) for message in messages)))

    async def close(self) -> None:
        (await self.peer).close()
        self.over.set()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(message: object) -> bytes:
    return sse.event(json.dumps(message).encode())


def stream(*parts: object) -> bytes:
    """A whole event stream of messages; bytes stand in it as they are."""
    data = b"".join(part if isinstance(part, bytes) else event(part) for part in parts)
    return HEAD + (chunk(data) if data else b"") + END


def outgoing(request_id: object = 7, method: str = "tools/call") -> Outgoing:
    body = json.dumps({"jsonrpc": "2.0", "id": request_id, "method": method, "params": {}}).encode()
    headers = b"mcp-method: " + method.encode() + b"\r\n"
    return Outgoing(request_id, headers, body, method, {}, "alice")


class World:
    """A server, the upstream that talks to it, and its ears. A test in it ends within its time."""

    def __init__(self, within: float = 30.0, **limits: Any) -> None:
        self.bound = asyncio.timeout(within)
        self.server = Hostile()
        self.limits = ClientLimits(**limits)
        self.ears = Ears()

    async def __aenter__(self) -> World:
        await self.bound.__aenter__()
        await self.server.__aenter__()
        self.client = HttpClient(parse_target(self.server.url), self.limits)
        self.upstream = HttpUpstream(self.client, Secret("Bearer up"), "http://up")
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.upstream.close()
        assert self.client._connections == set()
        await self.server.__aexit__(*error)
        await self.bound.__aexit__(*error)

    def ask(self, **how: Any) -> Awaitable[Answer]:
        return self.upstream.ask(outgoing(), heard=self.ears, **how)

    def listen(self) -> Awaitable[Answer]:
        return self.upstream.listen(outgoing(method="subscriptions/listen"), self.ears)


Ask = Callable[[World], Awaitable[Answer]]
BOTH = pytest.mark.parametrize("ask", [World.ask, World.listen], ids=["ask", "listen"])


async def fails(work: Awaitable[Answer], kind: UpstreamFailure, cause: str, status: int | None = 200) -> None:
    with pytest.raises(UpstreamError) as caught:
        await work
    error = caught.value
    assert (error.kind, error.cause, error.reached, error.status) == (kind, cause, True, status)


# What is sent


@BOTH
async def test_a_request_is_sent_with_our_headers_and_nothing_of_anybody_else(ask: Ask) -> None:
    async with World() as world:
        world.server.script(stream(OURS))
        assert await ask(world) == Answer(200, OURS, RESULT)
        (request,) = world.server.requests
        assert (request.method, request.path, request.id) == ("POST", "/mcp", 7)
        assert [name for name, _ in request.header_list] == [
            "host", "content-length", "accept", "accept-encoding", "authorization", "mcp-method",
        ]  # fmt: skip
        assert request.headers["accept"] == "application/json, text/event-stream"
        assert request.headers["authorization"] == "Bearer up"
        assert world.upstream.target("any") == "http://up"


async def test_a_call_spends_its_grant_and_hears_too() -> None:
    class Spent:
        spends = 0

        def spend(self) -> Action | None:
            self.spends += 1
            return None

    grant: Any = Spent()
    async with World() as world:
        world.server.script(stream(progress(), OURS), stream(progress(), OURS))
        waiting = world.upstream.call(grant, outgoing(), exact=True, heard=world.ears)
        assert grant.spends == 1
        assert (await waiting).result == RESULT
        assert world.ears.messages == [progress()]
        assert (await world.upstream.call(grant, outgoing(), exact=False)).result == RESULT
        assert world.ears.messages == [progress()]


# What is heard


async def test_progress_and_log_messages_are_heard_at_once_and_in_order() -> None:
    async with World() as world:
        live = Live()
        world.server.script(live)
        asking = asyncio.ensure_future(world.ask())
        for number in range(3):
            await live.send(progress(number))
            await world.ears.count(number + 1)
        await live.send(LOGGED, progress(4))
        await world.ears.count(5)
        assert not asking.done()
        assert world.ears.messages == [progress(0), progress(1), progress(2), LOGGED, progress(4)]
        await live.send(OURS)
        assert (await asking).result == RESULT
        live.over.set()


async def test_half_lines_and_split_events_are_put_together() -> None:
    async with World() as world:
        live = Live()
        world.server.script(live)
        asking = asyncio.ensure_future(world.ask())
        for byte in event(progress()):
            await live.raw(chunk(bytes((byte,))))
        await world.ears.count(1)
        whole = chunk(b": ping\r\rdata: " + json.dumps(OURS).encode() + b"\r\n\r\n")
        for at in range(0, len(whole), 5):
            await live.raw(whole[at : at + 5])
        assert (await asking).result == RESULT
        assert world.ears.messages == [progress()]
        live.over.set()


@pytest.mark.parametrize(
    "other",
    [
        CHANGED,
        ACKNOWLEDGED,
        {"jsonrpc": "2.0", "method": "notifications/cancelled"},
        {"jsonrpc": "2.0", "method": "tools/list"},
        {**progress(), "id": 1},
        {**progress(), "id": 7},
        {**progress(), "id": None},
        {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": {}},
        {"jsonrpc": "2.0", "id": 8, "result": {}},
        {"jsonrpc": "2.0", "id": "7", "result": {}},
        {"jsonrpc": "2.0", "id": 7, "result": {}, "error": {}},
        {"jsonrpc": "2.0", "id": 7, "method": "notifications/progress", "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "x"}},
        {"jsonrpc": "2.0", "method": ["notifications/progress"]},
        [progress()],
        [OURS],
        "x",
        None,
        b"data: {\n\n",
        b"data: NaN\n\n",
        b"data:\n\n",
        b"event: message\n\n",
        b"data: " + b"[" * 100 + b"]" * 100 + b"\n\n",
    ],
)  # fmt: skip
async def test_nothing_else_is_heard_during_a_call_or_taken_for_its_answer(other: object) -> None:
    async with World() as world:
        world.server.script(stream(other, LOGGED, other, OURS), stream(other))
        assert (await world.ask()).message == OURS
        assert world.ears.messages == [LOGGED]
        await fails(world.ask(), BAD_REPLY, NOBODY)


async def test_a_listener_hears_every_notification_and_nothing_else() -> None:
    async with World() as world:
        live = Live()
        world.server.script(live)
        listening = asyncio.ensure_future(world.listen())
        await live.send(ACKNOWLEDGED)
        await world.ears.count(1)
        request = {"jsonrpc": "2.0", "id": 1, "method": "notifications/progress"}
        other = {"jsonrpc": "2.0", "id": "7", "result": {}}
        await live.send(request, other, CHANGED, {"jsonrpc": "2.0", "method": "ping"}, progress())
        await world.ears.count(3)
        assert world.ears.messages == [ACKNOWLEDGED, CHANGED, progress()]
        assert not listening.done()
        await live.send(OURS)
        assert await listening == Answer(200, OURS, RESULT)
        live.over.set()


@BOTH
async def test_the_answer_ends_it_and_nothing_is_heard_behind_it(ask: Ask) -> None:
    async with World() as world:
        late = {**OURS, "result": {"late": True}}
        world.server.script(HEAD + chunk(event(progress()) + event(OURS) + event(progress(2)) + event(late)))
        assert (await ask(world)).result == RESULT
        assert world.ears.messages == [progress()]
        await world.server.empty()  # nobody waited for the end of the stream


@BOTH
async def test_a_stream_that_ended_with_its_answer_leaves_its_connection_to_the_next(ask: Ask) -> None:
    async with World() as world:
        for _ in range(3):
            world.server.script(stream(progress(), OURS))
            assert (await ask(world)).result == RESULT
            assert (await world.upstream.ask(outgoing())).status == 200
        assert world.server.connections == 1


async def test_a_listener_who_fails_ends_the_call() -> None:
    class Deaf:
        def notify(self, message: dict[str, object]) -> None:
            raise LookupError

    async with World() as world:
        world.server.script(HEAD + chunk(event(progress())))
        with pytest.raises(LookupError):
            await world.upstream.ask(outgoing(), heard=Deaf())
        await world.server.empty()


# What the answer is


@BOTH
async def test_an_answer_in_one_piece_is_read_as_ever(ask: Ask) -> None:
    async with World() as world:
        error: dict[str, Any] = {"jsonrpc": "2.0", "id": 7, "error": {"code": -32601, "message": "no"}}
        for code, message in ((200, OURS), (404, error), (400, error)):
            world.server.script(hostile.http(json.dumps(message).encode(), status=code))
            assert await ask(world) == Answer(code, message, message.get("result"))
        assert world.server.connections == 1
        assert world.ears.messages == []


@BOTH
@pytest.mark.parametrize(
    ("answer", "kind", "cause", "status"),
    [
        (hostile.wrong_id(), BAD_REPLY, "the response carries another id", 200),
        (hostile.http(b"[]"), BAD_REPLY, "not a JSON object", 200),
        (hostile.http(b"", status=202), BAD_REPLY, "not a JSON-RPC response: ", 202),
        (hostile.http(b'{"id":7,"result":[]}'), BAD_REPLY, "the result is not an object", 200),
        (stream({"id": 7, "result": []}), BAD_REPLY, "the result is not an object", 200),
        (hostile.gzipped(), ENCODED, "compressed answer", 200),
        (hostile.torn(), UNREACHABLE, "torn answer", 200),
        (hostile.silence, UNREACHABLE, "TimeoutError", None),
        (hostile.drip(inside="head"), UNREACHABLE, "TimeoutError", None),
        (hostile.drip(), UNREACHABLE, "TimeoutError", 200),
        (hostile.declared(), TOO_LARGE, "answer too large", 200),
        (hostile.close_after(HEAD + chunk(event(OURS)[:-1])), UNREACHABLE, "torn answer", 200),
        (hostile.close_after(HEAD), UNREACHABLE, "torn answer", 200),
    ],
)  # fmt: skip
async def test_an_answer_that_is_none_is_told_apart(
    ask: Ask, answer: hostile.Answer, kind: UpstreamFailure, cause: str, status: int | None
) -> None:
    async with World(total_s=0.3 if cause == "TimeoutError" else 60.0) as world:
        world.server.script(answer)
        with pytest.raises(UpstreamError) as caught:
            await ask(world)
        error = caught.value
        assert (error.kind, error.reached, error.status) == (kind, True, status)
        assert error.cause.startswith(cause)
        await world.server.empty() if kind is not BAD_REPLY else None


async def test_an_event_stream_without_an_answer_is_a_bad_reply_to_a_call_and_a_drop_to_a_listener() -> None:
    async with World() as world:
        for answer in (stream(progress()), stream(), stream(progress(), event(OURS)[:-1])):
            world.server.script(answer, answer)
            await fails(world.ask(), BAD_REPLY, NOBODY)
            await fails(world.listen(), UNREACHABLE, DROPPED)
        assert world.server.connections == 1


async def test_an_exact_answer_with_equal_keys_is_none() -> None:
    async with World() as world:
        twice = b'data: {"id":7,"result":{},"result":{"n":1}}\n\n'
        world.server.script(stream(twice), stream(twice), stream(twice, OURS))
        assert (await world.ask()).result == {"n": 1}
        await fails(world.ask(exact=True), BAD_REPLY, NOBODY)
        assert (await world.ask(exact=True)).result == RESULT


# Bounds


@BOTH
async def test_an_event_of_two_mebibytes_passes(ask: Ask) -> None:
    async with World() as world:
        large = {**OURS, "result": {"content": [{"type": "text", "text": "x" * (2 << 20)}]}}
        world.server.script(stream(progress(), large))
        assert (await ask(world)).message == large


@BOTH
async def test_an_event_above_its_limit_ends_the_stream_at_once(ask: Ask) -> None:
    async with World(max_event_bytes=1000) as world:
        live = Live()
        world.server.script(live)
        asking = asyncio.ensure_future(ask(world))
        await live.send(LOGGED)
        await world.ears.count(1)
        await live.raw(chunk(b"data: " + b"x" * 1001))
        await fails(asking, TOO_LARGE, "event too large")
        live.over.set()
        await world.server.empty()


async def test_comments_without_end_do_not_hold_a_call() -> None:
    async def comments(peer: Peer, request: Request) -> None:
        peer.send(HEAD)
        while not peer.gone.is_set():
            peer.send(chunk(b": still here\n\n"))
            await asyncio.sleep(0.01)

    async with World(total_s=0.2) as world:
        world.server.script(comments)
        await fails(world.ask(), UNREACHABLE, "TimeoutError")
        await world.server.empty()


async def test_a_flood_of_comments_is_too_large_for_a_call_and_nothing_to_a_listener() -> None:
    flood = b": still here\n\n" * 1000
    async with World(max_body_bytes=2000) as world:
        world.server.script(stream(flood, OURS), stream(flood, OURS))
        await fails(world.ask(), TOO_LARGE, "answer too large")
        assert (await world.listen()).result == RESULT


async def test_progress_gives_a_call_new_time_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    late = 0.0
    monkeypatch.setattr(loop, "time", lambda: start + late)
    async with World(within=1000.0, total_s=100.0) as world:
        live = Live()
        world.server.script(live)
        asking = asyncio.ensure_future(world.ask())
        await live.send(progress(1))
        await world.ears.count(1)
        for at, message in ((90.0, progress(2)), (180.0, progress(3)), (270.0, LOGGED)):
            late = at
            await live.raw(chunk(b": ping\n\n"))
            await live.send(message)
            await world.ears.count(len(world.ears.messages) + 1)
        assert not asking.done()
        late = 281.0
        for _ in range(50):
            await asyncio.sleep(0)
        assert asking.done()
        await fails(asking, UNREACHABLE, "TimeoutError")
        live.over.set()


async def test_no_progress_takes_a_call_beyond_its_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_CALL_S", 0.2)

    async def busy(peer: Peer, request: Request) -> None:
        peer.send(HEAD)
        while not peer.gone.is_set():
            peer.send(chunk(event(progress())))
            await asyncio.sleep(0.01)

    async with World(total_s=60.0) as world:
        world.server.script(busy)
        await fails(world.ask(), UNREACHABLE, "TimeoutError")
        assert world.ears.messages
        await world.server.empty()


# Cancellation


@BOTH
async def test_cancelling_closes_the_connection(ask: Ask) -> None:
    async with World() as world:
        for answer in (hostile.silence, HEAD + chunk(event(LOGGED))):
            world.server.script(answer)
            task = asyncio.ensure_future(ask(world))
            await world.server.arrived(len(world.server.requests) + 1)
            if isinstance(answer, bytes):
                await world.ears.count(1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await world.server.empty()
        assert world.client.idle == 0


async def test_a_thousand_aborted_listens_leave_no_connection() -> None:
    async with World() as world:
        world.server.default = HEAD + chunk(event(ACKNOWLEDGED))
        for batch in range(1, 11):
            tasks = [asyncio.ensure_future(world.listen()) for _ in range(100)]
            await world.ears.count(100 * batch)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await world.server.empty()
        assert world.server.connections == 1000
        assert world.client._connections == set()


async def test_closing_the_upstream_ends_its_listeners() -> None:
    async with World() as world:
        world.server.script(HEAD + chunk(event(ACKNOWLEDGED)))
        listening = asyncio.ensure_future(world.listen())
        await world.ears.count(1)
        await world.upstream.close()
        await fails(listening, UNREACHABLE, "client closed")


async def test_a_question_of_the_server_leaves_nothing_to_abandon() -> None:
    async with World() as world:
        world.upstream.abandon("state")
        await world.upstream.close()
        with pytest.raises(UpstreamError) as caught:
            await world.listen()
        assert not caught.value.reached
