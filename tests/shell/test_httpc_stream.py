"""Answers read while they arrive, against a real, hostile server, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpc import ClientLimits, HttpClient, Stream, header_line
from airlock.edge.httpconn import Connection
from airlock.edge.httpstream import Incoming
from airlock.edge.httpurl import parse_upstream
from tests.fakes import hostile
from tests.fakes.faultproxy import FaultProxy, half_close, stall, truncate
from tests.fakes.hostile import Hostile, Peer, Request

UNREACHABLE, ENCODED, TOO_LARGE = (
    UpstreamFailure.UNREACHABLE,
    UpstreamFailure.ENCODED,
    UpstreamFailure.TOO_LARGE,
)
ACCEPT = header_line(b"accept", b"text/event-stream")
LIMITS = ClientLimits(total_s=60.0, connect_s=30.0)
UNREAD = 64 * 1024
SSE_HEAD = hostile.http(
    length=None, content_type="text/event-stream", headers={"Transfer-Encoding": "chunked", "X-Own": "1"}
)
JSON_HEAD = hostile.http(length=None, headers={"Transfer-Encoding": "chunked"})
END = b"0\r\n\r\n"

Scenario = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module", autouse=True)
def frozen():
    """Leave what exists already out of the collections below, which are many."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """Run a scenario on one kind of loop; anything the loop has to complain about fails the test."""
    complaints: list[dict[str, Any]] = []

    def go(scenario: Scenario) -> None:
        factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.get_loop().set_exception_handler(lambda loop, context: complaints.append(context))
            runner.run(asyncio.wait_for(scenario(), 30))
            gc.collect()
        assert complaints == []

    return go


class Client:
    """A client for one server, closed at the end, which then holds nothing."""

    def __init__(self, url: str, limits: ClientLimits = LIMITS, tls: ssl.SSLContext | None = None) -> None:
        self.http = HttpClient(parse_upstream(url), limits, ssl_context=tls)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        assert self.http.idle == 0
        assert self.http._connections == set()

    async def open(self, method: bytes = b"POST", body: bytes | None = b"{}", **how: Any) -> Stream:
        return await self.http.open(method, ACCEPT, body, **how)

    async def post(self) -> bytes:
        return (await self.http.post(ACCEPT, b"{}")).body


async def fails(
    work: Coroutine[Any, Any, object],
    kind: UpstreamFailure,
    cause: str,
    *,
    reached: bool = True,
    status: int | None = 200,
) -> None:
    with pytest.raises(UpstreamError) as caught:
        await work
    error = caught.value
    assert (error.kind, error.cause, error.reached, error.status) == (kind, cause, reached, status)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Live:
    """A server's answer that the test sends piece by piece."""

    def __init__(self, head: bytes = SSE_HEAD) -> None:
        self.head = head
        self.peer: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()

    async def __call__(self, peer: Peer, request: Request) -> None:
        peer.send(self.head)
        self.peer.set_result(peer)
        await self.over.wait()

    async def send(self, data: bytes) -> None:
        (await self.peer).send(data)

    async def end(self) -> None:
        await self.send(END)
        self.over.set()


# What is sent


def test_any_method_is_sent_and_only_a_body_has_a_length(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for method, body, path in (
                (b"GET", None, None),
                (b"DELETE", None, None),
                (b"POST", b"", "/messages?session=1"),
                (b"POST", b"{}", None),
            ):
                stream = await client.open(method, body, path=path)
                assert b"done" in await stream.whole()
                stream.close()
                request = server.requests[-1]
                assert (request.method, request.path) == (method.decode(), path or "/mcp")
                length = [] if body is None else [("content-length", str(len(body)))]
                assert request.body == (body or b"")
                assert request.header_list == [
                    ("host", f"127.0.0.1:{server.port}"),
                    *length,
                    ("accept", "text/event-stream"),
                ]
            assert server.connections == 1

    run(scenario)


def test_a_path_of_the_servers_own_cannot_start_a_second_request(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for path in ("/x HTTP/1.1\r\nHost: other\r\n\r\n", "http://other/", "/a b", ""):
                with pytest.raises(ValueError, match="begins with /"):
                    await client.open(path=path)
            assert server.connections == 0

    run(scenario)


# What comes back


def test_the_head_comes_before_the_body_and_each_piece_when_it_arrives(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            live = Live()
            server.script(live)
            stream = await client.open()
            assert (stream.status, stream.content_type) == (200, "text/event-stream")
            for piece in (b"da", b"ta: a\n", b"\n", b": ping\n\n"):
                await live.send(chunk(piece))
                assert await stream.read() == piece
            await live.send(b"3\r\nab")
            assert await stream.read() == b"ab"
            await live.send(b"c\r\n")
            assert await stream.read() == b"c"
            assert client.http.idle == 0
            await live.end()
            assert await stream.read() == b""
            assert await stream.read() == b""
            assert client.http.idle == 1

    run(scenario)


def test_the_first_value_of_every_header_is_there_by_its_lower_case_name(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            early = b"HTTP/1.1 103 Early\r\nX-Early: 1\r\nMcp-Session-Id: early\r\n\r\n"
            head = b"HTTP/1.1 202 OK\r\nMcp-Session-Id: \t s1 \r\nmcp-session-id: s2\r\nX-Empty:\r\n"
            framing = b"Transfer-Encoding: chunked\r\n\r\n"
            server.script(early + head + framing + b"0\r\nX-Trailer: 1\r\n\r\n")
            stream = await client.open()
            assert await stream.whole() == b""
            assert stream.status == 202
            assert stream.headers == {
                b"mcp-session-id": b"s1",
                b"x-empty": b"",
                b"transfer-encoding": b"chunked",
            }

    run(scenario)


@pytest.mark.parametrize(
    "answer",
    [
        hostile.json_answer(),
        hostile.chunked(size=1),
        hostile.chunked(size=7, trailer=b"X: y\r\n", extension=b";a=b"),
        hostile.until_close(),
        hostile.until_close(version="1.0"),
        hostile.interim(count=8),
        hostile.json_answer(headers={"Connection": "close"}),
        hostile.two_answers(),
    ],
    ids=["length", "bytes", "chunks", "until close", "1.0", "interim", "close", "two answers"],
)
def test_a_whole_answer_is_what_a_post_returns(run, answer):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(answer, answer)
            stream = await client.open()
            body = await stream.whole()
            idle = client.http.idle
            assert body == await client.post()
            assert client.http.idle == idle
            stream.close()

    run(scenario)


@pytest.mark.parametrize("code", [202, 204, 304, 400, 404, 500])
def test_any_status_is_an_answer(run, code):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            body = b"" if code in (204, 304) else b"no"
            server.script(hostile.status(code, body, length=None if code in (204, 304) else -1))
            stream = await client.open()
            assert (stream.status, await stream.whole()) == (code, body)
            assert client.http.idle == 1

    run(scenario)


def test_a_piece_of_two_mebibytes_comes_whole_and_unchanged(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            data = os.urandom(2 << 20)
            server.script(SSE_HEAD + chunk(data) + END)
            stream = await client.open(idle_s=60.0)
            assert await stream.whole() == data
            assert client.http.idle == 1

    run(scenario)


# The pool


def test_streams_and_posts_share_connections(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for _ in range(5):
                stream = await client.open(idle_s=5.0)
                await stream.whole()
                stream.close()
                assert b"done" in await client.post()
            assert (server.connections, client.http.idle) == (1, 1)

    run(scenario)


def test_a_finished_answer_can_be_read_while_another_call_has_its_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"first") + END)
            first = await client.open()
            live = Live()
            server.script(live)
            second = await client.open()
            assert server.connections == 1
            assert await first.read() == b"first"
            assert await first.read() == b""
            first.close()
            await live.send(chunk(b"second"))
            assert await second.read() == b"second"
            await live.end()
            assert await second.read() == b""

    run(scenario)


def test_a_stream_leaves_no_deadline_of_its_own_to_the_next_call(run):
    async def scenario():
        loop = asyncio.get_running_loop()
        async with Hostile() as server, Client(server.url) as client:
            await client.post()
            (connection,) = client.http._connections
            assert connection._timer is not None
            connection._timer.cancel()
            connection._expire()
            stream = await client.open(head_s=5000.0, idle_s=5000.0)
            await stream.whole()
            server.script(hostile.silence)
            call = asyncio.ensure_future(client.post())
            await server.arrived(3)
            assert client.http._connections == {connection}
            assert connection._timer is not None
            assert connection._timer.when() <= loop.time() + LIMITS.total_s + 1.0
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    run(scenario)


def test_a_stream_that_ends_while_it_is_paused_leaves_a_connection_that_reads(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"a"))
            stream = await client.open()
            assert await stream.read() == b"a"
            (connection,) = client.http._connections
            stream._paused = True
            connection.pause()
            # Over TLS what was decrypted before the pause still arrives after it.
            connection.data_received(chunk(b"b") + END)
            assert client.http.idle == 1
            assert connection.transport is not None
            assert connection.transport.is_reading()
            server.script(hostile.silence)
            other = asyncio.ensure_future(client.post())
            await server.arrived(2)
            connection.pause()
            assert await stream.whole() == b"b"
            assert not connection.transport.is_reading()  # a finished stream has no say any more
            other.cancel()

    run(scenario)


def test_bytes_behind_an_answer_keep_its_connection_out_of_the_pool(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"a") + END + b"HTTP/1.1 200 OK\r\n")
            stream = await client.open()
            assert await stream.whole() == b"a"
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


# Failures


def test_a_refused_connection_reached_nobody(run):
    async def scenario():
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            async with Client(f"http://127.0.0.1:{sock.getsockname()[1]}/") as client:
                await fails(client.open(), UNREACHABLE, "ConnectionRefusedError", reached=False, status=None)
                await client.http.close()
                await fails(client.open(), UNREACHABLE, "client closed", reached=False, status=None)

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "kind", "cause", "status"),
    [
        (hostile.close_after(b""), UNREACHABLE, "torn answer", None),
        (hostile.close_after(b"HTTP/1.1 200 OK\r\nConte"), UNREACHABLE, "torn answer", None),
        (hostile.reset, UNREACHABLE, "ConnectionResetError", None),
        (hostile.garbage(), UNREACHABLE, "not HTTP", None),
        (hostile.interim(code=101), UNREACHABLE, "not HTTP", None),
        (hostile.endless_headers(), UNREACHABLE, "answer head too large", None),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 129 + b"\r\n", UNREACHABLE, "answer head too large", None),
        (hostile.gzipped(), ENCODED, "compressed answer", 200),
        (hostile.declared(), TOO_LARGE, "answer too large", 200),
    ],
)
def test_a_head_that_is_wrong_fails_the_opening(run, answer, kind, cause, status):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(answer)
            await fails(client.open(), kind, cause, status=status)
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("answer", [hostile.silence, hostile.drip(inside="head")], ids=["silence", "drip"])
def test_a_slow_head_has_its_time(run, kept, answer):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            if kept:
                await client.post()
            server.script(answer)
            await fails(client.open(head_s=0.3), UNREACHABLE, "TimeoutError", status=None)
            assert server.connections == 1
            await server.empty()

    run(scenario)


@pytest.mark.parametrize(
    ("rest", "cause"),
    [(b"", "torn answer"), (b"5\r\nab", "torn answer"), (b"zz\r\n", "not HTTP"), (b"0\r\n", "torn answer")],
)
def test_what_came_before_a_tear_is_read_and_then_the_tear_is_told(run, rest, cause):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"whole") + rest, close=True)
            stream = await client.open()
            got = []

            async def read() -> None:
                while True:
                    got.append(await stream.read())

            await fails(read(), UNREACHABLE, cause)
            assert b"".join(got) in (b"whole", b"wholeab")
            await fails(stream.read(), UNREACHABLE, cause)
            assert client.http.idle == 0
            stream.close()

    run(scenario)


def test_a_reset_in_the_middle_is_told(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            live = Live()
            server.script(live)
            stream = await client.open()
            (await live.peer).reset()
            await fails(stream.read(), UNREACHABLE, "ConnectionResetError")
            live.over.set()

    run(scenario)


def test_the_network_may_break_a_stream_in_its_own_ways(run):
    async def scenario():
        async with Hostile() as server:
            with FaultProxy(("127.0.0.1", server.port)) as proxy:
                async with Client(f"http://127.0.0.1:{proxy.port}/mcp") as client:
                    for fault, idle_s, cause in (
                        (truncate(len(SSE_HEAD) + 8), 30.0, "torn answer"),
                        (half_close(len(SSE_HEAD) + 8), 30.0, "torn answer"),
                        (stall(len(SSE_HEAD) + 8), 0.1, "TimeoutError"),
                    ):
                        proxy.fault = fault
                        server.script(SSE_HEAD + chunk(b"abcdefgh"))
                        stream = await client.open(idle_s=idle_s)
                        await fails(stream.whole(), UNREACHABLE, cause)

    run(scenario)


# Time


@pytest.mark.parametrize("kept", [False, True])
def test_a_body_that_falls_silent_ends_after_its_time(run, kept):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            if kept:
                await client.post()
            server.script(SSE_HEAD + chunk(b"a"))
            stream = await client.open(idle_s=0.05)
            assert await stream.read() == b"a"
            await fails(stream.read(), UNREACHABLE, "TimeoutError")
            await server.empty()

    run(scenario)


def test_every_byte_gives_a_stream_new_time(run):
    async def scenario():
        loop = asyncio.get_running_loop()
        async with Hostile() as server, Client(server.url) as client:
            live = Live()
            server.script(live)
            stream = await client.open(head_s=9.0, idle_s=500.0)
            (connection,) = client.http._connections
            connection._deadline = loop.time() - 1.0
            await live.send(b"1")
            while connection._deadline < loop.time():
                await asyncio.sleep(0)
            connection._expire()
            assert connection._timer is not None
            assert connection._timer.when() > loop.time() + 400.0
            await live.send(b"\r\na\r\n")
            assert await stream.read() == b"a"
            stream.close()

    run(scenario)


def test_a_stream_may_be_silent_for_ever(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            live = Live()
            server.script(live)
            stream = await client.open(head_s=5.0)
            (connection,) = client.http._connections
            assert connection._deadline == math.inf
            connection._expire()
            assert connection._timer is None
            await live.send(chunk(b"late"))
            assert await stream.read() == b"late"
            assert connection._timer is None
            await live.end()
            assert await stream.read() == b""
            assert b"done" in await client.post()

    run(scenario)


def test_a_peer_that_may_be_silent_for_ever_is_probed(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for idle_s, probed in ((60.0, 0), (None, 1)):
                server.script(SSE_HEAD)
                stream = await client.open(idle_s=idle_s)
                assert stream._connection.transport is not None
                sock = stream._connection.transport.get_extra_info("socket")
                assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == probed
                stream.close()

    run(scenario)


# Size


def test_a_body_is_bounded_except_an_event_stream_that_may_last_for_ever(run):
    async def scenario():
        limits = ClientLimits(max_body_bytes=1000)
        async with Hostile() as server, Client(server.url, limits) as client:
            for head, idle_s, bounded in (
                (SSE_HEAD, 60.0, True),
                (JSON_HEAD, 60.0, True),
                (JSON_HEAD, None, True),
                (SSE_HEAD, None, False),
            ):
                for body in (b"x" * 1000, b"x" * 1001):
                    server.script(head + chunk(body) + END)
                    stream = await client.open(idle_s=idle_s)
                    if len(body) > 1000 and bounded:
                        await fails(stream.read(), TOO_LARGE, "answer too large")
                    else:
                        assert await stream.read() == body
                        assert await stream.read() == b""
                    stream.close()

    run(scenario)


def test_a_whole_body_is_bounded_even_of_a_stream_that_may_last_for_ever(run):
    async def scenario():
        limits = ClientLimits(max_body_bytes=1000)
        async with Hostile() as server, Client(server.url, limits) as client:
            for limit, size, fits in ((None, 1000, True), (None, 1001, False), (5, 5, True), (5, 6, False)):
                server.script(SSE_HEAD + chunk(b"x" * size) + END * fits)
                stream = await client.open()
                if fits:
                    assert await stream.whole(limit) == b"x" * size
                else:
                    await fails(stream.whole(limit), TOO_LARGE, "answer too large")
                    await server.empty()

    run(scenario)


def test_the_limit_of_one_event_is_that_of_a_body_unless_it_is_set():
    assert ClientLimits(max_body_bytes=7).max_event_bytes == 7
    assert ClientLimits(max_body_bytes=7, max_event_bytes=3).max_event_bytes == 3
    assert ClientLimits().max_event_bytes == 8 * 1024 * 1024


def test_a_reader_that_does_not_read_stops_the_sender(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            data = os.urandom(1 << 20)
            flood = chunk(data) * 32
            server.script(SSE_HEAD + flood + END)
            stream = await client.open()
            (connection,) = client.http._connections
            while not stream._paused:
                await asyncio.sleep(0)
            for _ in range(50):
                await asyncio.sleep(0)
            assert connection.transport is not None
            assert not connection.transport.is_reading()
            assert UNREAD <= len(stream._buffer) <= UNREAD + (1 << 19)
            (peer,) = server.peers
            assert peer.transport.get_write_buffer_size() > 16 << 20
            got = 0
            while piece := await stream.read():
                assert len(piece) <= UNREAD + (1 << 19)
                assert data[got % len(data) :].startswith(piece[: len(data) - got % len(data)])
                got += len(piece)
            assert got == 32 << 20
            assert client.http.idle == 1
            assert b"done" in await client.post()
            assert server.connections == 1

    run(scenario)


def test_the_time_of_a_slow_reader_is_not_the_senders_silence(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            live = Live()
            server.script(live)
            stream = await client.open(idle_s=9.0)
            (connection,) = client.http._connections
            await live.send(chunk(b"x" * 4 * UNREAD))
            while not stream._paused:
                await asyncio.sleep(0)
            assert connection._deadline == math.inf
            connection._expire()
            left = 4 * UNREAD
            while left:
                left -= len(await stream.read())
            assert connection._deadline < math.inf
            assert connection._timer is not None
            await live.end()
            assert await stream.read() == b""

    run(scenario)


def test_small_pieces_weigh_what_they_hold(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"x") * 1000)
            stream = await client.open()
            while len(stream._buffer) < 1000:
                await asyncio.sleep(0)
            assert isinstance(stream._buffer, bytearray)
            assert await stream.read() == b"x" * 1000
            stream.close()

    run(scenario)


# The end


def test_closing_an_unfinished_stream_closes_its_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"a"))
            stream = await client.open()
            stream.close()
            stream.close()
            await fails(stream.read(), UNREACHABLE, "stream closed")
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


def test_closing_a_finished_stream_leaves_its_connection_to_others(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            stream = await client.open()
            assert b"done" in await stream.read()
            live = Live()
            server.script(live)
            other = await client.open()
            stream.close()
            stream.close()
            await fails(stream.read(), UNREACHABLE, "stream closed")
            await live.send(chunk(b"a"))
            assert await other.read() == b"a"
            assert server.connections == 1
            other.close()

    run(scenario)


def test_closing_a_paused_stream_closes_its_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD + chunk(b"x" * (8 << 20)))
            stream = await client.open()
            while not stream._paused:
                await asyncio.sleep(0)
            stream.close()
            assert stream._buffer == b""
            await server.empty()

    run(scenario)


def test_closing_from_elsewhere_wakes_the_reader(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(SSE_HEAD)
            stream = await client.open()
            reading = asyncio.ensure_future(fails(stream.read(), UNREACHABLE, "stream closed"))
            while stream._waker is None:
                await asyncio.sleep(0)
            stream.close()
            await reading
            await server.empty()

    run(scenario)


def test_closing_the_client_ends_its_streams(run):
    async def scenario():
        async with Hostile() as server:
            client = Client(server.url)
            server.script(SSE_HEAD)
            stream = await client.open()
            reading = asyncio.ensure_future(fails(stream.read(), UNREACHABLE, "client closed"))
            await asyncio.sleep(0)
            await client.http.close()
            await reading
            await server.empty()

    run(scenario)


def test_a_reader_that_is_cancelled_closes_the_connection_at_once(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for answer in (hostile.silence, SSE_HEAD):
                server.script(answer)

                async def work() -> None:
                    await (await client.open()).read()

                task = asyncio.ensure_future(work())
                before = len(server.requests)
                await server.arrived(before + 1)
                for _ in range(20):
                    await asyncio.sleep(0)
                (connection,) = client.http._connections
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert connection.transport is not None
                assert connection.transport.is_closing()
                await server.empty()
                assert client.http._connections == set()

    run(scenario)


@pytest.mark.parametrize("ticks", range(6))
def test_an_opening_cancelled_while_it_connects_leaves_nothing_behind(run, ticks):
    async def scenario():
        async with Hostile(default=SSE_HEAD) as server, Client(server.url) as client:
            call = asyncio.ensure_future(client.open())
            for _ in range(ticks):
                await asyncio.sleep(0)
            call.cancel()
            try:
                (await call).close()
            except asyncio.CancelledError:
                pass
            assert client.http.idle == 0

    run(scenario)


def test_a_cancelled_opening_whose_head_has_just_come_closes_its_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.silence)
            call = asyncio.ensure_future(client.open())
            await server.arrived(1)
            (connection,) = client.http._connections
            while connection._answer is None:
                await asyncio.sleep(0)
            connection.data_received(SSE_HEAD)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await server.empty()

    run(scenario)


def test_a_thousand_aborted_listens_leave_no_connection_and_no_stream(run):
    async def scenario():
        async with Hostile(default=SSE_HEAD + chunk(b": hello\n\n")) as server, Client(server.url) as client:

            async def listen(ready: asyncio.Event) -> None:
                stream = await client.open(b"GET", None)
                try:
                    while await stream.read():
                        ready.set()
                finally:
                    stream.close()

            for _ in range(10):
                ready = [asyncio.Event() for _ in range(100)]
                tasks = [asyncio.ensure_future(listen(each)) for each in ready]
                await asyncio.gather(*(each.wait() for each in ready))
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await server.empty()
            assert server.connections == 1000
            assert client.http._connections == set()
            del tasks, task
            gc.collect()
            kinds = (Connection, Stream, Incoming)
            assert [item for item in gc.get_objects() if isinstance(item, kinds)] == []

    run(scenario)


def test_streams_are_freed_without_the_garbage_collector(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            gc.collect()
            gc.disable()
            try:
                server.script(SSE_HEAD + chunk(b"a") + END, SSE_HEAD)
                for whole in (True, False):
                    stream = await client.open()
                    if whole:
                        assert await stream.whole() == b"a"
                    stream.close()
                    await asyncio.sleep(0)
                    del stream
                await server.empty()
                kinds = (Stream, Incoming)
                assert [item for item in gc.get_objects() if isinstance(item, kinds)] == []
            finally:
                gc.enable()

    run(scenario)


# Unix sockets


def test_a_unix_socket_is_an_upstream_like_any_other(run, tmp_path):
    async def scenario():
        path = tmp_path / "s"
        async with Hostile() as server:
            unix = await asyncio.get_running_loop().create_unix_server(lambda: Peer(server), str(path))
            async with Client(f"unix:{path}") as client:
                assert b"done" in await client.post()
                stream = await client.open(b"GET", None)
                assert b"done" in await stream.whole()
                server.script(SSE_HEAD)
                (await client.open(b"GET", None)).close()
                assert [(each.path, each.headers["host"]) for each in server.requests] == [
                    ("/mcp", "localhost")
                ] * 3
                assert server.connections == 1
            async with Client(f"unix:{path}:/other?x=y") as client:
                assert b"done" in await client.post()
                assert server.requests[-1].path == "/other?x=y"
            unix.close()
            await server.empty()

    run(scenario)


def test_a_unix_socket_that_nobody_listens_on_reached_nobody(run, tmp_path):
    async def scenario():
        path = tmp_path / "s"
        async with Client(f"unix:{path}") as client:
            await fails(client.open(), UNREACHABLE, "FileNotFoundError", reached=False, status=None)
            with socket.socket(socket.AF_UNIX) as sock:
                sock.bind(str(path))
            await fails(client.open(), UNREACHABLE, "ConnectionRefusedError", reached=False, status=None)

    run(scenario)


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """A self-signed certificate for localhost, made now."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command (package openssl) to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-keyout", str(key), "-out", str(cert), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))


def test_over_tls_a_flood_waits_for_its_reader_and_the_connection_is_used_again(run, certificates):
    context, trusting = certificates

    async def scenario():
        async with Hostile(tls=context) as server:
            url = server.url.replace("127.0.0.1", "localhost")
            async with Client(url, tls=trusting) as client:
                server.script(SSE_HEAD + chunk(b"x" * (8 << 20)) + END)
                stream = await client.open()
                while not stream._paused:
                    await asyncio.sleep(0)
                for _ in range(50):
                    await asyncio.sleep(0)
                assert len(stream._buffer) < 2 << 20
                got = 0
                while piece := await stream.read():
                    got += len(piece)
                assert got == 8 << 20
                assert b"done" in await client.post()
                assert server.connections == 1
                server.script(SSE_HEAD)
                (await client.open()).close()
                await server.empty()

    run(scenario)
