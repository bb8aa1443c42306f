"""The legacy HTTP transports against real sockets: what is sent, what arrives, and what a bad server can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire.sse import Events
from airlock.edge.httpc import ClientLimits, HttpClient, header_line, parse_target
from airlock.gateway.upstream import legacyhttp, legacysse
from airlock.gateway.upstream.legacyhttp import HttpDialer
from airlock.gateway.upstream.legacysse import SseDialer
from airlock.gateway.upstream.line import SESSION_GONE, Dialer, Line
from tests.fakes import hostile
from tests.fakes.hostile import Hostile, Peer, Request
from tests.fakes.legacy_http import LegacyHttp, LegacySse, event

UNREACHABLE, BAD_REPLY, TOO_LARGE = (
    UpstreamFailure.UNREACHABLE,
    UpstreamFailure.BAD_REPLY,
    UpstreamFailure.TOO_LARGE,
)
FIXED = header_line(b"authorization", b"Bearer mine")
LIMITS = ClientLimits(max_body_bytes=100_000)
INITIALIZE: dict[str, object] = {
    "jsonrpc": "2.0",
    "id": "i1",
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
INITIALIZED: dict[str, object] = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(key: object, name: str = "add", **arguments: object) -> dict[str, object]:
    params = {"name": name, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": params}


def listed(key: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": key, "method": "tools/list"}


class Ear:
    """Keeps what a line hands over."""

    def __init__(self) -> None:
        self.heard: list[tuple[dict[str, Any], object]] = []
        self.losses: list[str] = []
        self._more = asyncio.Event()

    def incoming(self, message: dict[str, Any], during: object) -> None:
        self.heard.append((message, during))
        self._more.set()

    def lost(self, cause: str) -> None:
        self.losses.append(cause)
        self._more.set()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for message, _ in self.heard]

    def answer(self, key: object) -> dict[str, Any]:
        (found,) = [m for m in self.messages if m.get("id") == key and "method" not in m]
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._more.clear()
            await self._more.wait()


Made = tuple[Line, Ear]


@pytest.fixture
async def connect() -> AsyncIterator[Callable[..., Any]]:
    """Makes lines, and closes them and their clients."""
    made: list[tuple[Line, HttpClient]] = []

    async def go(server: Hostile, *, sse: bool = False, limits: ClientLimits = LIMITS) -> Made:
        target = parse_target(server.url)
        client = HttpClient(target, limits)
        dialer: Dialer = SseDialer(client, FIXED, target) if sse else HttpDialer(client, FIXED)
        ear = Ear()
        try:
            line = await dialer.dial(ear.incoming, ear.lost)
        except UpstreamError:
            await client.close()
            raise
        made.append((line, client))
        return line, ear

    yield go
    for line, client in made:
        await line.close()
        await client.close()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that only spare the server."""
    monkeypatch.setattr(legacyhttp, "_FIRST_BACK_OFF_S", 0.001)
    monkeypatch.setattr(legacyhttp, "_RESUME_S", 0.0)
    monkeypatch.setattr(legacyhttp, "_SOONEST_S", 0.0)


@asynccontextmanager
async def fails(kind: UpstreamFailure, cause: str, *, reached: bool = True, status: int | None = None):
    with pytest.raises(UpstreamError) as caught:
        yield
    error = caught.value
    assert (error.kind, error.cause, error.reached, error.status) == (kind, cause, reached, status)


async def handshake(line: Line, version: str = "2025-11-25") -> None:
    await line.request(INITIALIZE)
    await line.post(INITIALIZED)
    line.opened(version)


# Streamable HTTP: the good ways


@pytest.mark.parametrize("as_json", [False, True])
async def test_a_session_is_opened_used_and_ended(connect, as_json: bool):
    async with LegacyHttp(as_json=as_json) as server:
        line, ear = await connect(server)
        assert line.tells_streams
        await handshake(line)
        await server.told(lambda: bool(server.streams))
        await line.request(call("c1", a=2, b=3))
        assert ear.answer("c1")["result"]["content"][0]["text"] == "5"
        assert "c1" in [during for _, during in ear.heard]
        assert ear.heard[-1][1] == "c1"
        await line.close()
        assert server.ended == ["session-0"]
        first, second, *later = server.requests
        assert "mcp-session-id" not in first.headers
        assert "mcp-protocol-version" not in first.headers
        assert second.headers["mcp-session-id"] == "session-0"
        assert "mcp-protocol-version" not in second.headers
        assert [request.method for request in later] == ["GET", "POST", "DELETE"]
        for request in later:
            assert request.headers["mcp-session-id"] == "session-0"
            assert request.headers["mcp-protocol-version"] == "2025-11-25"
        for request in server.requests:
            assert request.headers["authorization"] == "Bearer mine"
            assert request.headers["accept-encoding"] == "identity"
        assert first.headers["accept"] == "application/json, text/event-stream"
        assert first.headers["content-type"] == "application/json"
        assert later[0].headers["accept"] == "text/event-stream"


@pytest.mark.parametrize(
    ("version", "named"),
    [
        ("2024-11-05", False),
        ("2025-03-26", False),
        ("2025-06-18", True),
        ("2025-11-25", True),
        ("x\r\ny", False),
    ],
)
async def test_the_version_header_is_sent_from_the_revision_on_that_has_it(
    connect, version: str, named: bool
):
    async with LegacyHttp(offers_get=False) as server:
        line, _ = await connect(server)
        await handshake(line, version)
        await line.request(listed(1))
        assert server.requests[-1].headers.get("mcp-protocol-version") == (version if named else None)


async def test_what_comes_on_the_stream_of_a_call_is_known_to_belong_to_it(connect):
    async with LegacyHttp() as server:
        server.tools["ask"] = server.asking()
        line, ear = await connect(server)
        await handshake(line)
        asked = asyncio.create_task(line.request(call(7, "ask")))
        await ear.until(lambda: any("method" in message for message in ear.messages))
        question, during = ear.heard[-1]
        assert (question["method"], during) == ("elicitation/create", 7)
        await server.push({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await ear.until(lambda: ear.heard[-1][1] is None)
        assert ear.heard[-1][0]["method"] == "notifications/tools/list_changed"
        await line.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        await asked
        assert json.loads(ear.answer(7)["result"]["content"][0]["text"]) == {"action": "accept"}
        assert ear.heard[-1][1] == 7


async def test_messages_arrive_while_the_call_still_runs(connect):
    go = asyncio.Event()

    async def slowly(peer: Peer, request: Request) -> None:
        progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}
        peer.send(hostile.http(event(progress), content_type="text/event-stream", length=None))
        await go.wait()
        peer.send(event(json.loads(hostile.result(request))))
        peer.close()

    async with Hostile(default=slowly) as server:
        line, ear = await connect(server)
        asked = asyncio.create_task(line.request(call(1)))
        await ear.until(lambda: bool(ear.heard))
        assert not asked.done()
        go.set()
        await asked
        assert [m.get("method", "response") for m in ear.messages] == ["notifications/progress", "response"]


async def test_a_stream_that_stays_open_after_its_response_is_left(connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(legacyhttp, "_TAIL_S", 0.01)
    raw = {}

    async def lingers(peer: Peer, request: Request) -> None:
        raw["peer"] = peer
        peer.send(
            hostile.http(
                event(json.loads(hostile.result(request))), content_type="text/event-stream", length=None
            )
        )
        await peer.gone.wait()

    async with Hostile(default=lingers) as server:
        line, ear = await connect(server)
        await line.request(call(1))
        assert ear.answer(1)["result"]
        await raw["peer"].gone.wait()


async def test_an_array_is_split(connect):
    batch = [
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {}},
        7,
        {"jsonrpc": "2.0", "id": 1, "result": {}},
    ]
    async with Hostile() as server:
        server.script(
            hostile.http(json.dumps(batch).encode()),
            hostile.http(event(batch), content_type="text/event-stream"),
        )
        line, ear = await connect(server)
        await line.request(call(1))
        await line.request(call(1))
        assert ear.heard == [(batch[0], 1), (batch[2], 1)] * 2


async def test_events_of_other_names_and_broken_ones_are_no_messages(connect):
    good = {"jsonrpc": "2.0", "id": 1, "result": {}}
    stream = (
        event(good, name="ping")
        + event(b'{"jsonrpc":"2.0","id":1,"result":{},"result":{}}')
        + event(b'{"jsonrpc":"2.0","id":1,"result":NaN}')
        + event(b"\xff")
        + b": keep-alive\n\n"
        + event(None, key="1x")
        + event(good, name="message")
    )
    async with Hostile(default=hostile.http(stream, content_type="text/event-stream")) as server:
        line, ear = await connect(server)
        await line.request(call(1))
        assert ear.heard == [(good, 1)]


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_notifications_may_be_acknowledged_in_three_ways(connect, status: int):
    ack = hostile.http(b"", status=status, length=None if status == 204 else -1)
    async with Hostile(default=ack) as server:
        line, _ = await connect(server)
        await line.post(INITIALIZED)
        await line.post(INITIALIZED)
        assert server.connections == 1


async def test_a_long_acknowledgement_is_not_read_to_its_end(connect):
    async with Hostile(default=hostile.http(b"x" * 90_000, status=202, length=99_999)) as server:
        line, _ = await connect(server)
        await line.post(INITIALIZED)
        await server.empty()


async def test_an_event_stream_to_a_notification_is_not_waited_for(connect):
    async with Hostile(default=hostile.http(b"", content_type="text/event-stream", length=None)) as server:
        line, _ = await connect(server)
        await line.post(INITIALIZED)


# Sessions


@pytest.mark.parametrize("value", ["", "a b", "a\tb", "é", "x" * 513])
async def test_a_session_id_that_is_not_visible_ascii_is_refused(connect, value: str):
    headers = {"Mcp-Session-Id": value}
    async with Hostile(default=hostile.json_answer({}, headers=headers)) as server:
        line, ear = await connect(server)
        async with fails(BAD_REPLY, "the session id is not visible ASCII of at most 512 bytes", status=200):
            await line.request(INITIALIZE)
        assert ear.heard == []


async def test_the_longest_session_id_is_taken_and_only_from_the_answer_to_initialize(connect):
    async with Hostile(default=hostile.json_answer({}, headers={"Mcp-Session-Id": "other"})) as server:
        server.script(hostile.json_answer({}, headers={"Mcp-Session-Id": "x" * 512}))
        line, _ = await connect(server)
        await line.request(INITIALIZE)
        await line.request(call(1))
        await line.request(call(2))
        assert [r.headers.get("mcp-session-id") for r in server.requests] == [None, "x" * 512, "x" * 512]


async def test_a_session_that_its_server_forgot_is_told_once(connect):
    async with LegacyHttp() as server:
        line, ear = await connect(server)
        await handshake(line)
        server.forget()
        async with fails(UNREACHABLE, SESSION_GONE, reached=False, status=404):
            await line.request(call(1))
        assert ear.losses == [SESSION_GONE]
        count = len(server.requests)
        async with fails(UNREACHABLE, SESSION_GONE, reached=False):
            await line.request(call(2))
        async with fails(UNREACHABLE, SESSION_GONE, reached=False):
            await line.post(INITIALIZED)
        await line.close()
        # Nothing more is sent for it, no DELETE either.
        assert {r.method for r in server.requests[count:]} <= {"GET"}
        assert ear.losses == [SESSION_GONE]


async def test_of_two_requests_that_find_the_session_gone_one_tells(connect):
    async with LegacyHttp() as server:
        line, ear = await connect(server)
        await line.request(INITIALIZE)
        server.forget()
        ends = await asyncio.gather(*(line.request(call(n)) for n in range(2)), return_exceptions=True)
        assert [str(end) for end in ends] == ["upstream.unreachable: session gone"] * 2
        assert ear.losses == [SESSION_GONE]


async def test_a_notification_can_find_the_session_gone_too(connect):
    async with LegacyHttp() as server:
        line, ear = await connect(server)
        await line.request(INITIALIZE)
        server.forget()
        async with fails(UNREACHABLE, SESSION_GONE, reached=False, status=404):
            await line.post(INITIALIZED)
        assert ear.losses == [SESSION_GONE]


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        ({"code": -32000, "message": "Bad Request: No valid session ID provided"}, True),
        ({"code": -32001, "message": "Session not found"}, True),
        ({"code": -32602, "message": "no such session of yours"}, False),
        ({"code": -32000, "message": "out of paper"}, False),
        ({"code": -32000, "message": 7}, False),
    ],
)
async def test_a_400_about_the_session_ends_it_like_a_404(connect, error: dict[str, Any], gone: bool):
    answer = hostile.http(json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), status=400)
    async with Hostile(default=answer) as server:
        server.script(hostile.json_answer({}, headers={"Mcp-Session-Id": "s"}))
        line, ear = await connect(server)
        await line.request(INITIALIZE)
        if gone:
            async with fails(UNREACHABLE, SESSION_GONE, reached=False, status=404):
                await line.request(call(1))
            assert ear.losses == [SESSION_GONE]
        else:
            await line.request(call(1))
            assert ear.answer(1)["error"] == error
            assert ear.losses == []


async def test_a_server_without_sessions_is_asked_without_one_and_a_404_of_it_is_no_lost_session(connect):
    async with LegacyHttp(stateless=True, offers_get=False) as server:
        line, ear = await connect(server)
        await handshake(line)
        await line.request(call(1))
        server.script(hostile.status(404))
        async with fails(BAD_REPLY, "HTTP 404", status=404):
            await line.request(call(2))
        await line.close()
        assert ear.losses == []
        assert all("mcp-session-id" not in r.headers and r.method != "DELETE" for r in server.requests)


async def test_the_end_of_a_session_is_not_waited_for_long(connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(legacyhttp, "_BYE_S", 0.01)
    async with Hostile(default=hostile.silence) as server:
        server.script(hostile.json_answer({}, headers={"Mcp-Session-Id": "s"}))
        line, _ = await connect(server)
        await line.request(INITIALIZE)
        await line.close()
        await line.close()
        assert [r.method for r in server.requests] == ["POST", "DELETE"]


# Failures of one exchange


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (hostile.status(202), "HTTP 202"),
        (hostile.status(204, length=None), "HTTP 204"),
        (hostile.status(405), "HTTP 405"),
        (hostile.status(500, b"<p>broken"), "HTTP 500"),
        (hostile.status(403, b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}'), "HTTP 403"),
        (hostile.status(400, b'{"jsonrpc":"2.0","id":1,"result":{}}'), "HTTP 400"),
        (hostile.status(400, b'{"error":'), "HTTP 400"),
        (hostile.status(400, b'{"error":"text"}'), "HTTP 400"),
        (hostile.http(b"{}", content_type="text/html"), "neither JSON nor an event stream"),
        (hostile.http(b"{"), "not a JSON-RPC message: the text is not JSON"),
        (hostile.http(b'{"id":1,"id":1}'), "not a JSON-RPC message: an object has the same key twice"),
        (hostile.http(b"7"), "no response to this request"),
        (hostile.http(b"[]"), "no response to this request"),
        (hostile.http(b'{"jsonrpc":"2.0","id":"1","result":{}}'), "no response to this request"),
        (hostile.http(b'{"jsonrpc":"2.0","id":true,"result":{}}'), "no response to this request"),
        (hostile.http(b"", content_type="text/event-stream"), "the event stream ended without a response"),
        (
            hostile.http(event({"jsonrpc": "2.0", "id": 2, "result": {}}), content_type="text/event-stream"),
            "the event stream ended without a response",
        ),
        (
            hostile.http(event(None, key="é", retry=0), content_type="text/event-stream"),
            "the event stream ended without a response",
        ),
    ],
)
async def test_what_is_no_response_is_a_bad_reply(connect, answer: bytes, cause: str):
    async with Hostile(default=answer) as server:
        line, ear = await connect(server)
        status = int(answer.split(b" ", 2)[1])
        async with fails(BAD_REPLY, cause, status=status):
            await line.request(call(1))
        assert ear.losses == []
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_a_failure_and_is_not_followed(connect, status: int):
    async with Hostile() as other, Hostile() as server:
        server.default = hostile.status(status, b'{"error":{}}', headers={"Location": other.url})
        line, _ = await connect(server)
        async with fails(BAD_REPLY, f"HTTP {status}", status=status):
            await line.request(call(1))
        async with fails(BAD_REPLY, f"HTTP {status}", status=status):
            await line.post(INITIALIZED)
        assert other.connections == 0


@pytest.mark.parametrize("status", [200, 400, 404, 500])
@pytest.mark.parametrize("key", [None, ...])
async def test_an_error_without_an_id_answers_what_was_posted(connect, status: int, key: object):
    error = {"code": -32601, "message": "no"}
    message: dict[str, Any] = {"jsonrpc": "2.0", "error": error}
    if key is None:
        message["id"] = None
    async with Hostile(default=hostile.http(json.dumps(message).encode(), status=status)) as server:
        line, ear = await connect(server)
        await line.request(call("mine"))
        assert ear.heard == [({"jsonrpc": "2.0", "id": "mine", "error": error}, "mine")]


async def test_an_error_of_another_id_answers_only_with_a_status_that_says_so(connect):
    body = b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"no"}}'
    async with Hostile() as server:
        server.script(hostile.http(body, status=400), hostile.http(body))
        line, ear = await connect(server)
        await line.request(call(1))
        assert ear.answer(1)["error"]["message"] == "no"
        async with fails(BAD_REPLY, "no response to this request", status=200):
            await line.request(call(2))


async def test_nothing_is_kept_of_more_than_the_limit(connect):
    large = b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"x" * 100_000 + b'"}}'
    async with Hostile() as server:
        server.script(
            hostile.http(large),
            hostile.http(b"data: " + large, content_type="text/event-stream", length=None),
        )
        line, ear = await connect(server)
        async with fails(TOO_LARGE, "answer too large", status=200):
            await line.request(call(1))
        async with fails(TOO_LARGE, "event too large", status=200):
            await line.request(call(1))
        assert ear.heard == []


async def test_a_long_stream_of_small_events_is_no_large_answer(connect):
    note = event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 900}})

    async def chatty(peer: Peer, request: Request) -> None:
        peer.send(hostile.http(b"", content_type="text/event-stream", length=None))
        for _ in range(300):
            peer.send(note)
        peer.send(event(json.loads(hostile.result(request))))
        peer.close()

    async with Hostile(default=chatty) as server:
        line, ear = await connect(server)
        await line.request(call(1))
        assert len(ear.heard) == 301


async def test_a_connection_that_breaks_tells_whether_anything_arrived(connect):
    async with Hostile(default=hostile.reset) as server:
        line, _ = await connect(server)
        with pytest.raises(UpstreamError) as caught:
            await line.request(call(1))
        assert (caught.value.kind, caught.value.reached) == (UNREACHABLE, True)
    with pytest.raises(UpstreamError) as caught:
        await line.request(call(1))
    assert (caught.value.kind, caught.value.reached) == (UNREACHABLE, False)


async def test_closing_ends_what_is_under_way(connect):
    async with Hostile(default=hostile.silence) as server:
        server.script(hostile.silence, hostile.http(b": \n\n", content_type="text/event-stream", length=None))
        line, ear = await connect(server)
        waits = [asyncio.create_task(line.request(call(n))) for n in range(2)]
        await server.arrived(2)
        await line.close()
        for wait in waits:
            async with fails(UNREACHABLE, "the line is closed"):
                await wait
        async with fails(UNREACHABLE, "the line is closed", reached=False):
            await line.request(call(3))
        async with fails(UNREACHABLE, "the line is closed", reached=False):
            await line.post(INITIALIZED)
        await server.empty()
        assert ear.losses == []


async def test_to_cancel_the_wait_ends_its_stream_only(connect):
    async with LegacyHttp() as server:
        server.tools["ask"] = server.asking()
        line, ear = await connect(server)
        await handshake(line)
        asked = asyncio.create_task(line.request(call(1, "ask")))
        await ear.until(lambda: ear.messages[-1].get("method") == "elicitation/create")
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await line.request(call(2))
        assert ear.answer(2)["result"]
        assert [m["method"] for m in server.posted] == ["notifications/initialized"]


# Streams that end early and are resumed


def streamed(*parts: bytes) -> bytes:
    return hostile.http(b"".join(parts), content_type="text/event-stream")


async def test_a_stream_that_was_cut_is_resumed_where_it_ended(connect):
    done = {"jsonrpc": "2.0", "id": 1, "result": {}}
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}

    async def torn(peer: Peer, request: Request) -> None:
        peer.send(hostile.http(event(note, key="e-2"), content_type="text/event-stream", length=10_000))
        peer.close()

    async with Hostile() as server:
        server.script(
            streamed(event(None, key="e-1", retry=0)), torn, hostile.status(503), hostile.reset, streamed(),
            streamed(event(done, key="e-3")),
        )  # fmt: skip
        line, ear = await connect(server)
        await line.request(call(1))
        assert ear.heard == [(note, 1), (done, 1)]
        assert [r.method for r in server.requests] == ["POST", *["GET"] * 5]
        assert [r.headers.get("last-event-id") for r in server.requests] == [None, "e-1", *["e-2"] * 4]


async def test_a_connection_that_breaks_in_the_middle_is_resumed_too(connect):
    async def torn(peer: Peer, request: Request) -> None:
        peer.send(hostile.http(event(None, key="e-1"), content_type="text/event-stream", length=10_000))
        peer.close()

    async with Hostile() as server:
        server.script(torn, streamed(event({"jsonrpc": "2.0", "id": 1, "result": {}})))
        line, ear = await connect(server)
        await line.request(call(1))
        assert ear.answer(1) == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_server_that_cuts_for_ever_is_given_up(connect):
    async with Hostile(default=streamed(event(None, key="e", retry=0))) as server:
        line, _ = await connect(server)
        async with fails(BAD_REPLY, "the event stream ended without a response", status=200):
            await line.request(call(1))
        assert len(server.requests) == 11


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (hostile.status(405), "HTTP 405 instead of an event stream"),
        (hostile.http(b"{}"), "HTTP 200 instead of an event stream"),
    ],
)
async def test_a_resumption_that_is_not_offered_is_a_bad_reply(connect, answer: bytes, cause: str):
    async with Hostile(default=answer) as server:
        server.script(streamed(event(None, key="e")))
        line, _ = await connect(server)
        async with fails(BAD_REPLY, cause, status=int(answer.split(b" ", 2)[1])):
            await line.request(call(1))


async def test_a_session_that_ends_between_cut_and_resumption_may_have_run_the_call(connect):
    async with Hostile(default=hostile.status(404)) as server:
        server.script(
            hostile.json_answer({}, headers={"Mcp-Session-Id": "s"}), streamed(event(None, key="e"))
        )
        line, ear = await connect(server)
        await line.request(INITIALIZE)
        async with fails(UNREACHABLE, SESSION_GONE, reached=True, status=404):
            await line.request(call(1))
        assert ear.losses == [SESSION_GONE]


@pytest.mark.parametrize(("retry", "pause"), [(None, 1.0), (0, 0.1), (2500, 2.5), (999_999_999, 30.0)])
def test_the_pause_is_as_the_server_wishes_within_bounds(
    monkeypatch: pytest.MonkeyPatch, retry: int | None, pause: float
):
    monkeypatch.undo()
    reader = Events()
    reader.retry_ms = retry
    assert legacyhttp._pause(reader) == pause


# The stream of its own


@pytest.mark.parametrize("how", ["cut", "end"])
async def test_the_get_stream_is_opened_again_where_it_broke(connect, how: str):
    note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    async with LegacyHttp() as server:
        line, ear = await connect(server)
        await handshake(line)
        await server.push(raw=event(note, key="g-1"))
        await ear.until(lambda: (note, None) in ear.heard)
        server.script(hostile.status(503), hostile.reset)
        if how == "cut":
            await server.cut()
        else:
            server.chunk(server.streams[0], b"")
            server.streams[0].close()
            await server.told(lambda: not server.streams)
        await server.push(note)
        await ear.until(lambda: ear.heard.count((note, None)) == 2)
        gets = [r for r in server.requests if r.method == "GET"]
        assert len(gets) >= 2
        assert gets[0].headers.get("last-event-id") is None
        assert gets[-1].headers["last-event-id"] == "g-1"


@pytest.mark.parametrize("status", [400, 404, 405, 200])
async def test_a_server_without_a_get_stream_is_not_asked_again(connect, status: int):
    async with Hostile() as server:
        server.script(
            hostile.json_answer({}, headers={"Mcp-Session-Id": "s"}),
            hostile.status(202),
            hostile.status(status),
        )
        line, ear = await connect(server)
        await handshake(line)
        await server.arrived(3)
        await asyncio.wait([line._listener])
        await line.request(call(1))
        assert [r.method for r in server.requests] == ["POST", "POST", "GET", "POST"]
        assert ear.losses == []


async def test_a_405_to_a_get_holds_for_all_sessions():
    async with LegacyHttp(offers_get=False) as server:
        client = HttpClient(parse_target(server.url), LIMITS)
        dialer = HttpDialer(client, b"")
        for _ in range(3):
            line = await dialer.dial(Ear().incoming, Ear().lost)
            await handshake(line)
            while dialer.offers_get:
                await asyncio.sleep(0)
            await line.close()
        assert [r.method for r in server.requests].count("GET") == 1
        await client.close()


async def test_a_line_that_is_closed_opens_no_stream(connect):
    async with LegacyHttp() as server:
        line, _ = await connect(server)
        await line.request(INITIALIZE)
        await line.close()
        line.opened("2025-11-25")
        assert line._listener is None


async def test_a_get_stream_that_ends_with_the_session_is_not_opened_again(connect):
    async with LegacyHttp() as server:
        line, ear = await connect(server)
        await handshake(line)
        await server.told(lambda: bool(server.streams))
        server.forget()
        with pytest.raises(UpstreamError):
            await line.request(call(1))
        await server.cut()
        await asyncio.wait([line._listener])
        assert ear.losses == [SESSION_GONE]


async def test_an_event_over_the_limit_costs_the_get_stream_its_connection_only(connect):
    note = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
    async with LegacyHttp() as server:
        line, ear = await connect(server)
        await handshake(line)
        await server.push(raw=b"data: " + b"x" * 200_000)
        await server.told(lambda: not server.streams)
        await server.push(note)
        await ear.until(lambda: (note, None) in ear.heard)


# HTTP+SSE


async def test_an_old_server_is_spoken_to_over_its_two_channels(connect):
    async with LegacySse() as server:
        server.tools["ask"] = server.asking()
        line, ear = await connect(server, sse=True)
        assert not line.tells_streams
        await line.request(INITIALIZE)
        await ear.until(lambda: bool(ear.heard))
        line.opened("2024-11-05")
        await line.post(INITIALIZED)
        await line.request(call(1, "ask"))
        await ear.until(lambda: "method" in ear.messages[-1])
        question, during = ear.heard[-1]
        assert during is None
        await line.post({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}})
        await ear.until(lambda: ear.messages[-1].get("id") == 1)
        assert json.loads(ear.answer(1)["result"]["content"][0]["text"]) == {"action": "decline"}
        await line.close()
        await server.told(lambda: not server.streams)
        assert ear.losses == []
        first, *rest = server.requests
        assert (first.method, first.path) == ("GET", "/mcp")
        assert {(r.method, r.path) for r in rest} == {("POST", "/messages?session=1")}
        assert {r.headers["authorization"] for r in server.requests} == {"Bearer mine"}


@pytest.mark.parametrize("whole", [False, True])
async def test_the_address_to_post_to_may_be_relative_or_whole(connect, whole: bool):
    async with LegacySse() as server:
        server.endpoint = (
            f"http://127.0.0.1:{server.port}/messages?session=1" if whole else "messages?session=1"
        )
        line, ear = await connect(server, sse=True)
        await line.request(INITIALIZE)
        await ear.until(lambda: bool(ear.heard))


@pytest.mark.parametrize(
    ("endpoint", "cause"),
    [
        ("http://127.0.0.1:1/messages", "the endpoint event names another origin"),
        ("https://127.0.0.1:{port}/messages", "the endpoint event names another origin"),
        ("http://localhost:{port}/messages", "the endpoint event names another origin"),
        ("//evil.example/messages", "the endpoint event names another origin"),
        ("http://x@127.0.0.1:{port}/messages", "the endpoint event holds no address"),
        ("ftp://127.0.0.1:{port}/messages", "the endpoint event holds no address"),
        ("/mess ages", "the endpoint event holds no address"),
        ("/messages\\..", "the endpoint event holds no address"),
        ("/messages#x", "the endpoint event holds no address"),
        ("/messages\rHost: x", "the endpoint event holds no address"),
        ("/" + "x" * 2048, "the endpoint event holds no address"),
        ("", "the endpoint event holds no address"),
        ("/é", "the endpoint event holds no address"),
    ],
)  # fmt: skip
async def test_an_address_of_another_origin_or_with_a_line_break_is_refused(
    connect, endpoint: str, cause: str
):
    async with Hostile() as server:
        data = endpoint.replace("{port}", str(server.port)).encode()
        # Two data lines are one value with a line break.
        data = data.replace(b"\r", b"\ndata: ")
        server.default = hostile.http(
            event(data, name="endpoint"), content_type="text/event-stream", length=None
        )
        async with fails(UNREACHABLE, cause, reached=False):
            await connect(server, sse=True)
        await server.empty()
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "cause", "status"),
    [
        (hostile.status(404), "HTTP 404 instead of an event stream", 404),
        (hostile.status(200), "HTTP 200 instead of an event stream", 200),
        (streamed(event({"a": 1})), "the event stream does not begin with an endpoint event", None),
        (streamed(b": hello\n\n"), "the event stream does not begin with an endpoint event", None),
        (
            hostile.http(b"data: " + b"x" * 200_000, content_type="text/event-stream", length=None),
            "event too large",
            200,
        ),
    ],
)
async def test_what_is_no_such_server_is_not_connected_to(
    connect, answer: bytes, cause: str, status: int | None
):
    async with Hostile(default=answer) as server, fails(UNREACHABLE, cause, reached=False, status=status):
        await connect(server, sse=True)


async def test_the_endpoint_event_is_not_waited_for_for_ever(connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(legacysse, "_OPEN_S", 0.05)
    async with Hostile(
        default=hostile.http(b": \n\n", content_type="text/event-stream", length=None)
    ) as server:
        async with fails(UNREACHABLE, "no endpoint event in time", reached=False):
            await connect(server, sse=True)
        await server.empty()


async def test_what_follows_the_endpoint_event_at_once_is_not_lost(connect):
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
    answer = hostile.http(
        event(b"/m", name="endpoint") + event(note), content_type="text/event-stream", length=None
    )
    async with Hostile(default=answer) as server:
        _, ear = await connect(server, sse=True)
        await ear.until(lambda: bool(ear.heard))
        assert ear.heard == [(note, None)]


@pytest.mark.parametrize("how", ["cut", "end"])
async def test_the_end_of_the_stream_is_the_end_of_the_line(connect, how: str):
    async with LegacySse() as server:
        line, ear = await connect(server, sse=True)
        if how == "cut":
            await server.cut()
        else:
            await server.told(lambda: bool(server.streams))
            server.chunk(server.streams[0], b"")
        await ear.until(lambda: bool(ear.losses))
        assert len(ear.losses) == 1
        assert how == "cut" or ear.losses == ["the event stream ended"]
        await line.close()
        assert len(ear.losses) == 1


async def test_a_post_that_is_refused_fails(connect):
    async with LegacySse() as server:
        line, _ = await connect(server, sse=True)
        server.script(hostile.status(404), hostile.status(400))
        async with fails(BAD_REPLY, "HTTP 404", status=404):
            await line.request(call(1))
        async with fails(BAD_REPLY, "HTTP 400", status=400):
            await line.post(INITIALIZED)


async def test_closing_the_old_transport_ends_what_is_under_way(connect):
    async with LegacySse() as server:
        line, ear = await connect(server, sse=True)
        server.script(hostile.silence)
        wait = asyncio.create_task(line.request(call(1)))
        await server.arrived(2)
        await line.close()
        async with fails(UNREACHABLE, "the line is closed"):
            await wait
        await server.empty()
        assert ear.losses == []
