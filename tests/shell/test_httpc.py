"""The pooled upstream client against a real, hostile server, on both event loops."""

from __future__ import annotations

import asyncio
import gc
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpc import ClientLimits, HttpClient, Reply, header_line, parse_target
from airlock.edge.httpconn import Connection
from tests.fakes import hostile
from tests.fakes.hostile import Hostile

UNREACHABLE, ENCODED, TOO_LARGE = (
    UpstreamFailure.UNREACHABLE,
    UpstreamFailure.ENCODED,
    UpstreamFailure.TOO_LARGE,
)
HEADERS = header_line(b"content-type", b"application/json") + header_line(b"accept-encoding", b"identity")
BODY = b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}'
CHUNKED = {"Transfer-Encoding": "chunked"}
CHUNKED_TWICE = {**CHUNKED, "transfer-encoding": "chunked"}
LIMITS = ClientLimits(total_s=60.0, connect_s=30.0)
BRIEF = ClientLimits(total_s=0.25)

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
            runner.run(asyncio.wait_for(scenario(), 20))
            gc.collect()
        assert complaints == []

    return go


class Client:
    """A client for one server, closed at the end, with the checks every test wants."""

    def __init__(self, url: str, limits: ClientLimits = LIMITS, tls: ssl.SSLContext | None = None) -> None:
        self.http = HttpClient(parse_target(url), limits, ssl_context=tls)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        assert self.http.idle == 0

    async def post(self, body: bytes = BODY) -> Reply:
        return await self.http.post(HEADERS, body)

    async def fails(
        self, kind: UpstreamFailure, cause: str, *, reached: bool = True, status: int | None = None
    ) -> None:
        with pytest.raises(UpstreamError) as caught:
            await self.post()
        error = caught.value
        assert (error.kind, error.cause, error.reached, error.status) == (kind, cause, reached, status)
        assert self.http.idle == 0


# What is sent


def test_a_call_sends_one_whole_request_and_returns_the_whole_answer(run):
    async def scenario():
        async with Hostile() as server, Client(server.url + "?a=b") as client:
            reply = await client.post()
            assert reply.status == 200
            assert reply.content_type == "application/json"
            assert b'"id": 7' in reply.body
            (request,) = server.requests
            assert (request.method, request.path, request.version) == ("POST", "/mcp?a=b", "HTTP/1.1")
            assert request.body == BODY
            assert request.header_list == [
                ("host", f"127.0.0.1:{server.port}"),
                ("content-length", str(len(BODY))),
                ("content-type", "application/json"),
                ("accept-encoding", "identity"),
            ]

    run(scenario)


def test_a_large_request_arrives_whole(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            body = b"x" * (1 << 20)
            await client.post(body)
            assert server.requests[0].body == body

    run(scenario)


def test_proxy_variables_of_the_environment_are_ignored(run, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")

    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            assert (await client.post()).status == 200

    run(scenario)


def test_nagle_is_off(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            await client.post()
            connection = client.http._idle[0]
            assert connection.transport is not None
            sock = connection.transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    run(scenario)


# What comes back


def test_a_redirect_is_an_answer_and_is_never_followed(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for code in (301, 302, 303, 307, 308):
                server.script(hostile.status(code, headers={"Location": server.url}))
                assert (await client.post()).status == code
            assert len(server.requests) == 5

    run(scenario)


def test_any_status_is_an_answer(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for code in (202, 204, 304, 400, 404, 500, 503):
                body = b"" if code in (204, 304) else b"no"
                server.script(hostile.status(code, body, length=None if code in (204, 304) else -1))
                assert await client.post() == Reply(code, "application/json", body)
            assert server.connections == 1

    run(scenario)


@pytest.mark.parametrize(
    ("raw", "media"),
    [
        ("Application/JSON; charset=utf-8", "application/json"),
        (" text/event-stream ;x", "text/event-stream"),
        ("", ""),
        (None, ""),
    ],
)
def test_the_media_type_is_lower_case_and_without_parameters(run, raw, media):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.http(b"{}", content_type=raw))
            assert (await client.post()).content_type == media

    run(scenario)


def test_chunked_answers_are_put_together(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(
                hostile.chunked({"a": "b" * 100}, size=1),
                hostile.chunked(trailer=b"X-Sum: 1\r\nContent-Encoding: gzip\r\n", extension=b";x=y"),
            )
            assert b"b" * 100 in (await client.post()).body
            assert b"done" in (await client.post()).body
            assert server.connections == 1

    run(scenario)


def test_an_answer_may_end_with_the_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            for version in ("1.1", "1.0"):
                server.script(hostile.until_close(version=version))
                assert b"done" in (await client.post()).body
                assert client.http.idle == 0
            assert server.connections == 2

    run(scenario)


def test_an_http_1_0_answer_is_read_and_its_connection_is_not_kept(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.json_answer(version="1.0", headers={"Connection": "keep-alive"}))
            assert (await client.post()).status == 200
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


def test_informational_answers_are_skipped_up_to_a_bound(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.interim(count=8), hostile.interim(count=9))
            server.script(hostile.interim(code=101))
            assert (await client.post()).status == 200
            await client.fails(UNREACHABLE, "not HTTP")
            await client.fails(UNREACHABLE, "not HTTP")

    run(scenario)


def test_nothing_of_an_informational_answer_sticks_to_the_final_one(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            early = b"HTTP/1.1 103 Early\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n"
            server.script(early + hostile.http(b"{}", content_type="application/json"))
            assert await client.post() == Reply(200, "application/json", b"{}")

    run(scenario)


# Failures before anything was sent


@pytest.mark.case("T25")
def test_a_refused_connection_reached_nobody(run):
    async def scenario():
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            async with Client(f"http://127.0.0.1:{port}/") as client:
                await client.fails(UNREACHABLE, "ConnectionRefusedError", reached=False)

    run(scenario)


def test_calls_that_could_not_connect_leave_nothing_behind(run):
    async def scenario():
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = sock.getsockname()[1]
            async with Client(f"http://127.0.0.1:{port}/") as client:
                for _ in range(5):
                    await client.fails(UNREACHABLE, "ConnectionRefusedError", reached=False)
                await asyncio.sleep(0)
                gc.collect()
                left = [item for item in gc.get_objects() if isinstance(item, Connection)]
                # The frames of this test may hold the last one; a timer that was left would hold them all.
                assert len(left) <= 1
                assert all(item._timer is None and item._request == b"" for item in left)

    run(scenario)


@pytest.mark.case("T25")
def test_an_unknown_name_reached_nobody_and_is_not_repeated(run):
    async def scenario():
        async with Client("http://no-such-host.invalid:1/") as client:
            await client.fails(UNREACHABLE, "gaierror", reached=False)

    run(scenario)


def full_backlog() -> tuple[socket.socket, list[socket.socket]]:
    """A listener whose queue is full: further connections hang."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(0)
    fillers = []
    for _ in range(4):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(listener.getsockname())
        fillers.append(sock)
    return listener, fillers


@pytest.mark.case("T25")
@pytest.mark.parametrize("limits", [ClientLimits(connect_s=0.05), ClientLimits(total_s=0.05)])
def test_a_connection_that_does_not_come_about_in_time_reached_nobody(run, limits):
    async def scenario():
        listener, fillers = full_backlog()
        async with Client(f"http://127.0.0.1:{listener.getsockname()[1]}/", limits) as client:
            await client.fails(UNREACHABLE, "TimeoutError", reached=False)
        for sock in (listener, *fillers):
            sock.close()

    run(scenario)


@pytest.mark.case("T25")
def test_a_call_after_close_reached_nobody(run):
    async def scenario():
        async with Hostile() as server:
            async with Client(server.url) as client:
                await client.post()
            await client.fails(UNREACHABLE, "client closed", reached=False)
            assert len(server.requests) == 1

    run(scenario)


# Failures after something was sent


@pytest.mark.case("T26")
@pytest.mark.parametrize(
    ("answer", "status"),
    [(hostile.silence, None), (hostile.drip(inside="head"), None), (hostile.drip(), 200)],
    ids=["silence", "drip in the head", "drip in the body"],
)
def test_the_deadline_is_total_and_what_was_sent_may_have_run(run, answer, status):
    async def scenario():
        async with Hostile() as server, Client(server.url, BRIEF) as client:
            server.script(answer)
            await client.fails(UNREACHABLE, "TimeoutError", status=status)
            assert len(server.requests) == 1
            await server.empty()

    run(scenario)


@pytest.mark.case("T26")
def test_the_deadline_holds_on_a_kept_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url, BRIEF) as client:
            server.script(hostile.json_answer(), hostile.silence)
            await client.post()
            await client.fails(UNREACHABLE, "TimeoutError")
            assert server.connections == 1

    run(scenario)


def test_a_connect_limit_that_passes_after_the_request_was_sent_ends_nothing(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:

            async def late(peer, request):
                (connection,) = client.http._connections
                connection._expire()
                assert connection._timer is not None
                assert connection._timer.when() > asyncio.get_running_loop().time() + LIMITS.connect_s
                await hostile.act(hostile.json_answer(), peer, request)

            server.script(late)
            assert (await client.post()).status == 200

    run(scenario)


@pytest.mark.case("T26")
@pytest.mark.parametrize(
    ("answer", "cause", "status"),
    [
        (hostile.torn(), "torn answer", 200),
        (hostile.close_after(b""), "torn answer", None),
        (hostile.close_after(b"HTTP/1.1 200 OK\r\nConte"), "torn answer", None),
        (hostile.close_after(hostile.http(b"2\r\n{}\r\n", length=None, headers=CHUNKED)), "torn answer", 200),
        (hostile.reset, "ConnectionResetError", None),
        (hostile.garbage(), "not HTTP", None),
        (hostile.garbage(b"RTSP/1.0 200 OK\r\n\r\n"), "not HTTP", None),
        (hostile.garbage(b"HTTP/1.1 tea\r\n\r\n"), "not HTTP", None),
        (hostile.http(b"{}", version="2.0"), "not HTTP", None),
        (hostile.http(b"{}", version="0.9"), "not HTTP", None),
        (hostile.http(b"{}", status=99), "not HTTP", None),
        (hostile.bad_chunk(), "not HTTP", 200),
        (hostile.bad_chunk(b"fffffffffffffffff"), "not HTTP", 200),
        (hostile.http(b"{}", headers={"Content-Length": "3"}), "not HTTP", None),
        (hostile.http(b"{}", headers=CHUNKED), "not HTTP", None),
        (hostile.http(b"{}", length=None, headers={"Transfer-Encoding": "chunked, chunked"}), "coded", 200),
        (hostile.http(b"0\r\n\r\n", length=None, headers=CHUNKED_TWICE), "not HTTP", None),
        (hostile.http(b"{}", length=-5), "not HTTP", None),
        (hostile.http(b"{}", headers={"X": "a\r\n folded"}), "not HTTP", None),
    ],
)  # fmt: skip
def test_a_torn_or_broken_answer_means_that_the_call_may_have_run(run, answer, cause, status):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(answer)
            if cause == "coded":
                await client.fails(ENCODED, "compressed answer", status=status)
            else:
                await client.fails(UNREACHABLE, cause, status=status)
            assert len(server.requests) == 1
            await server.empty()

    run(scenario)


@pytest.mark.case("T26")
def test_a_kept_connection_that_dies_after_the_request_left_is_never_tried_again(run):
    async def scenario():
        for death, cause in (
            (hostile.close_after(b""), "torn answer"),
            (hostile.reset, "ConnectionResetError"),
        ):
            async with Hostile() as server, Client(server.url) as client:
                server.script(hostile.json_answer(), death)
                await client.post()
                await client.fails(UNREACHABLE, cause)
                assert (server.connections, len(server.requests)) == (1, 2)

    run(scenario)


@pytest.mark.case("T26")
def test_a_connection_that_dies_on_accept_counts_as_reached_once_the_request_was_written(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:

            async def die(peer):
                peer.reset()

            server.on_accept = die
            with pytest.raises(UpstreamError) as caught:
                await client.post()
            assert caught.value.kind is UNREACHABLE
            assert caught.value.reached
            assert server.connections == 1

    run(scenario)


# Limits


def test_exactly_the_byte_limit_passes_and_one_more_is_too_large(run):
    async def scenario():
        limits = ClientLimits(total_s=60.0, max_body_bytes=1000)
        bodies = {"exact": b"x" * 1000, "over": b"x" * 1001}
        framings = {
            "length": lambda body: hostile.http(body),
            "chunked": lambda body: hostile.http(
                b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body), length=None, headers=CHUNKED
            ),
            "close": lambda body: hostile.close_after(hostile.http(body, length=None)),
        }  # fmt: skip
        for frame in framings.values():
            async with Hostile() as server, Client(server.url, limits) as client:
                server.script(frame(bodies["exact"]))
                assert (await client.post()).body == bodies["exact"]
                server.script(frame(bodies["over"]))
                await client.fails(TOO_LARGE, "answer too large", status=200)
                await server.empty()

    run(scenario)


def test_a_declared_size_over_the_limit_is_refused_unread(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.declared())
            await client.fails(TOO_LARGE, "answer too large", status=200)
            await server.empty()

    run(scenario)


def test_an_undeclared_flood_is_cut_at_the_limit(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.huge(9 * 1024 * 1024))
            await client.fails(TOO_LARGE, "answer too large", status=200)

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (hostile.endless_headers(), None),
        (hostile.endless_headers(b"x", start=b"HTTP/1.1 200 OK\r\nX: "), None),
        (hostile.endless_headers(b"x", start=b"HTTP/1.1 200 "), None),
        (hostile.endless_headers(b"x", start=hostile.http(b"2;", length=None,
                                                          headers=CHUNKED)), 200),
        (hostile.endless_headers(start=hostile.http(b"2\r\n{}\r\n0\r\n", length=None,
                                                    headers=CHUNKED)), 200),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 129 + b"Content-Length: 0\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 65536 + b"\r\nContent-Length: 0\r\n\r\n", None),
    ],
    ids=["headers", "one header", "reason", "chunk extension", "trailers", "129 headers", "64 KiB header"],
)  # fmt: skip
def test_a_head_without_end_is_cut_off(run, answer, status):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(answer)
            await client.fails(UNREACHABLE, "answer head too large", status=status)
            await server.empty()

    run(scenario)


def test_a_head_within_its_bounds_passes(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.json_answer(headers={f"x-{n}": "y" * 450 for n in range(126)}))
            assert (await client.post()).status == 200

    run(scenario)


@pytest.mark.case("T63")
@pytest.mark.parametrize(
    "codings",
    [["gzip"], ["GZIP"], ["br"], ["identity, gzip"], ["identity", "deflate"], ["", "zstd"], ["x-unheard-of"]],
)
def test_a_compressed_answer_is_refused_before_its_body_is_read(run, codings):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.encoded(*codings))
            await client.fails(ENCODED, "compressed answer", status=200)
            await server.empty()

    run(scenario)


@pytest.mark.case("T63")
def test_a_compressed_answer_is_refused_unread_whatever_size_it_claims(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.declared(headers={"Content-Encoding": "gzip"}))
            await client.fails(ENCODED, "compressed answer", status=200)
            server.script(hostile.http(b"", length=None, headers={"Transfer-Encoding": "gzip"}))
            await client.fails(ENCODED, "compressed answer", status=200)

    run(scenario)


@pytest.mark.case("T63")
@pytest.mark.parametrize(
    "codings", [["identity"], ["Identity"], [""], ["identity , IDENTITY"], ["", "identity"]]
)
def test_an_answer_encoded_as_identity_is_fine(run, codings):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.encoded(*codings))
            assert b"done" in (await client.post()).body

    run(scenario)


# The pool


def test_connections_are_reused_the_last_one_first(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            await asyncio.gather(*(client.post() for _ in range(3)))
            assert (server.connections, client.http.idle) == (3, 3)
            last = client.http._idle[-1]
            for _ in range(3):
                await client.post()
                assert client.http._idle[-1] is last
            assert server.connections == 3

    run(scenario)


def test_no_more_than_the_limit_are_kept(run):
    async def scenario():
        limits = ClientLimits(total_s=60.0, max_idle=2)
        async with Hostile() as server, Client(server.url, limits) as client:
            await asyncio.gather(*(client.post() for _ in range(5)))
            assert client.http.idle == 2
            await server.open(2)

    run(scenario)


def test_a_connection_unused_for_too_long_is_closed_instead_of_used(run):
    async def scenario():
        limits = ClientLimits(total_s=60.0, idle_s=30.0)
        async with Hostile() as server, Client(server.url, limits) as client:
            await asyncio.gather(*(client.post() for _ in range(3)))
            for connection in client.http._idle:
                connection.idle_since -= 31.0
            await client.post()
            assert server.connections == 4
            await server.open(1)
            await asyncio.gather(*(client.post() for _ in range(2)))
            client.http._idle[0].idle_since -= 31.0
            await client.post()
            assert client.http.idle == 1
            await server.open(1)

    run(scenario)


@pytest.mark.case("T25")
def test_a_kept_connection_the_upstream_closed_is_not_taken_for_a_call_that_may_have_run(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            await client.post()
            (peer,) = server.peers
            # The close is in the socket, but the loop has not run since: only asking the socket can tell.
            sock = socket.socket(fileno=socket.dup(peer.transport.get_extra_info("socket").fileno()))
            with sock:
                sock.shutdown(socket.SHUT_WR)
            assert client.http.idle == 1
            assert (await client.post()).status == 200
            assert (server.connections, len(server.requests)) == (2, 2)

    run(scenario)


def test_unasked_bytes_on_a_kept_connection_never_answer_the_next_call(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            await client.post()
            sock = socket.socket(
                fileno=socket.dup(server.peers[0].transport.get_extra_info("socket").fileno())
            )
            with sock:
                sock.send(hostile.http(b"poison"))
            assert b"done" in (await client.post()).body
            assert server.connections == 2
            server.peers[-1].send(hostile.http(b"poison"))
            await server.empty()
            assert client.http.idle == 0
            assert b"done" in (await client.post()).body

    run(scenario)


@pytest.mark.parametrize("second", [None, b"junk", b"H", b"HTTP/1.1 200 OK\r\n", b"\x00"])
def test_a_second_answer_to_one_request_kills_the_connection_and_not_the_first_answer(run, second):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.two_answers(second))
            reply = await client.post()
            assert b"done" in reply.body
            assert b"smuggled" not in reply.body
            assert client.http.idle == 0
            assert b"done" in (await client.post()).body
            assert server.connections == 2

    run(scenario)


def test_a_body_where_none_may_be_kills_the_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.status(204, b"body"))
            assert await client.post() == Reply(204, "application/json", b"")
            assert client.http.idle == 0

    run(scenario)


def test_a_connection_the_answer_closes_is_not_kept(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            server.script(hostile.json_answer(headers={"Connection": "close"}))
            await client.post()
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


def test_an_answer_that_comes_before_the_request_was_read_does_not_lead_to_reuse(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:

            async def answer_at_once(peer):
                peer.transport.pause_reading()
                peer.send(hostile.http(b"early"))
                await peer.gone.wait()

            server.on_accept = answer_at_once
            reply = await client.post(b"x" * (64 << 20))
            assert reply.body == b"early"
            assert client.http.idle == 0
            assert server.requests == []

    run(scenario)


def test_a_cancelled_call_closes_its_connection(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            await client.post()
            server.script(hostile.silence)
            call = asyncio.ensure_future(client.post())
            await server.arrived(2)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


def test_an_answer_that_meets_a_cancelled_call_leaves_its_connection_out_of_the_pool(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:
            started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

            async def behave(peer, request):
                started.set_result(peer)
                await peer.gone.wait()

            server.script(behave)
            call = asyncio.ensure_future(client.post())
            (await started).send(hostile.http(b"{}"))
            (connection,) = client.http._connections
            call.cancel()
            connection.data_received(hostile.http(b"{}"))
            with pytest.raises(asyncio.CancelledError):
                await call
            assert client.http.idle == 0
            await server.empty()

    run(scenario)


@pytest.mark.parametrize("ticks", range(6))
def test_a_call_cancelled_while_connecting_leaves_nothing_behind(run, ticks):
    async def scenario():
        async with Hostile(default=hostile.silence) as server, Client(server.url) as client:
            call = asyncio.ensure_future(client.post())
            for _ in range(ticks):
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert client.http.idle == 0

    run(scenario)


class Line(asyncio.Transport):
    """A transport that goes nowhere."""

    written = b""
    aborted = False

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_that_comes_about_after_its_call_was_given_up_sends_nothing(run):
    async def scenario():
        loop = asyncio.get_running_loop()
        for wait in (True, False):
            line = Line()
            connection = Connection(loop, HttpClient(parse_target("http://h/"), LIMITS))
            waiter = connection.begin(loop.time(), b"request")
            if not wait:
                waiter.cancel()
                connection.leave(waiter)
            connection.connection_made(line)
            assert line.written == (b"request" if wait else b"")
            assert line.aborted is not wait
            connection.leave(waiter)

    run(scenario)


def test_closing_ends_the_calls_under_way_and_says_what_was_sent(run):
    async def scenario():
        listener, fillers = full_backlog()
        unreachable = Client(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        connecting = asyncio.ensure_future(unreachable.fails(UNREACHABLE, "client closed", reached=False))
        async with Hostile() as server:
            client = Client(server.url)
            server.script(hostile.silence)
            active = asyncio.ensure_future(client.fails(UNREACHABLE, "client closed"))
            await server.arrived(1)
            await asyncio.gather(unreachable.http.close(), client.http.close())
            await asyncio.gather(connecting, active)
            await server.empty()
            await client.http.close()
        for sock in (listener, *fillers):
            sock.close()

    run(scenario)


def test_closing_in_the_same_moment_as_a_call_starts_does_not_hang(run):
    async def scenario():
        async with Hostile() as server:
            client = Client(server.url)
            call = asyncio.ensure_future(client.fails(UNREACHABLE, "client closed", reached=False))
            await asyncio.sleep(0)
            await client.http.close()
            await call

    run(scenario)


def test_many_calls_at_once_each_get_their_own_answer(run):
    async def scenario():
        async with Hostile() as server, Client(server.url) as client:

            async def one(number: int) -> None:
                reply = await client.post(b'{"id":%d}' % number)
                assert b'"id": %d,' % number in reply.body

            for _ in range(3):
                await asyncio.gather(*(one(number) for number in range(50)))
            assert server.connections == 50

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
    return server, cert


def trusting(certificate: Any) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


def local(server: Hostile) -> str:
    return server.url.replace("127.0.0.1", "localhost")


def test_tls_works_with_a_trusted_certificate_and_names_the_host(run, certificates):
    context, certificate = certificates
    names: list[str | None] = []
    context.sni_callback = lambda sock, name, _: names.append(name)

    async def scenario():
        async with Hostile(tls=context) as server, Client(local(server), tls=trusting(certificate)) as client:
            for _ in range(3):
                assert b"done" in (await client.post()).body
            assert server.connections == 1
            server.script(hostile.until_close(), hostile.json_answer(headers={"Connection": "close"}))
            assert b"done" in (await client.post()).body
            assert b"done" in (await client.post()).body
            server.script(hostile.torn())
            await client.fails(UNREACHABLE, "torn answer", status=200)
            await server.empty()

    run(scenario)
    assert set(names) == {"localhost"}


def test_a_certificate_nobody_vouches_for_stops_the_call_before_it_is_sent(run, certificates):
    async def scenario():
        async with Hostile(tls=certificates[0]) as server, Client(local(server)) as client:
            await client.fails(UNREACHABLE, "SSLCertVerificationError", reached=False)
            assert server.requests == []

    run(scenario)


def test_a_certificate_for_another_name_stops_the_call_before_it_is_sent(run, certificates):
    context, certificate = certificates

    async def scenario():
        async with Hostile(tls=context) as server, Client(server.url, tls=trusting(certificate)) as client:
            await client.fails(UNREACHABLE, "SSLCertVerificationError", reached=False)
            assert server.requests == []

    run(scenario)


@pytest.mark.case("T25")
def test_a_handshake_that_does_not_end_in_time_reached_nobody(run, certificates):
    async def scenario():
        limits = ClientLimits(total_s=60.0, connect_s=0.1)
        async with Hostile() as server:
            url = local(server).replace("http:", "https:")
            async with Client(url, limits, trusting(certificates[1])) as client:
                await client.fails(UNREACHABLE, "TimeoutError", reached=False)
                await server.empty()

    run(scenario)


def test_a_cancelled_and_a_late_call_over_tls_close_their_connections(run, certificates):
    context, certificate = certificates

    async def scenario():
        limits = ClientLimits(total_s=0.5)
        async with (
            Hostile(tls=context) as server,
            Client(local(server), limits, tls=trusting(certificate)) as client,
        ):
            server.script(hostile.silence, hostile.silence)
            call = asyncio.ensure_future(client.post())
            await server.arrived(1)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await client.fails(UNREACHABLE, "TimeoutError")
            await server.empty()

    run(scenario)
