"""The short way of the HTTP server: plain POSTs to one target, and everything that must not take it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from contextlib import closing

import pytest

from airlock.edge.asgi import BodyTooLarge, ClientGone, read_body, respond
from airlock.edge.httpd import Direct, FrontLimits, bind, make_server
from tests.shell.test_httpd import one_answer, until_closed

LIMIT = 200_000
HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"


def post(body: bytes, *lines: bytes) -> bytes:
    more = b"".join(line + b"\r\n" for line in lines)
    return HEAD + more + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


class Front:
    """A running server whose answers tell which way a request came."""

    def __init__(self, loop: str, limits: FrontLimits) -> None:
        self.holding = threading.Event()
        self.release = threading.Event()
        self.bodies: list[bytes] = []
        direct = Direct(b"/mcp", LIMIT, self.answer, {401: (b"www-authenticate", b"Bearer")})
        self.server = make_server(self.app, limits, None, direct)
        self.server.loop = loop
        sock = bind("127.0.0.1", 0)
        self.address = sock.getsockname()
        self.thread = threading.Thread(target=self.server.run, args=(sock,), daemon=True)
        self.thread.start()

    async def answer(self, lines, body, peer) -> tuple[int, bytes]:
        assert type(body) is bytes
        self.bodies.append(body)
        if body == b"hold":
            self.holding.set()
            await asyncio.get_running_loop().run_in_executor(None, self.release.wait, 20)
        if body == b"break":
            raise RuntimeError("broken on purpose")
        if body == b"who":
            return 401, b"{}"
        if body == b"big":
            return 200, b"x" * 8_000_000
        told = {"way": "short", "length": len(body), "names": [name.decode() for name, _ in lines]}
        return 200, json.dumps(told).encode()

    async def app(self, scope, receive, send) -> None:
        try:
            body = await read_body(receive, LIMIT, None)
        except BodyTooLarge:
            await respond(send, 413, b'{"way":"long"}')
        except ClientGone:
            pass
        else:
            await respond(send, 200, json.dumps({"way": "long", "length": len(body)}).encode())

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def exchange(self, raw: bytes) -> bytes:
        with closing(self.connect()) as sock:
            sock.sendall(raw)
            return until_closed(sock)

    def stop(self) -> None:
        self.release.set()
        self.server.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def front(request):
    front = Front(request.param, FrontLimits(body_s=0.5, keep_alive_s=5))
    yield front
    front.stop()


def way(sock: socket.socket) -> dict:
    found: dict = json.loads(one_answer(sock)[1])
    return found


def test_a_plain_post_takes_the_short_way_and_the_connection_stays(front):
    with closing(front.connect()) as sock:
        for length in (1, 500, LIMIT):
            sock.sendall(post(b"x" * length, b"X-A: b"))
            head, body = one_answer(sock)
            assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
            assert json.loads(body) == {
                "way": "short",
                "length": length,
                "names": ["host", "x-a", "content-length"],
            }


def test_a_body_in_pieces_is_put_together_before_the_call_begins(front):
    with closing(front.connect()) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in post(b"abcdef"):
            sock.sendall(bytes([byte]))
        assert way(sock)["length"] == 6
        assert front.bodies[-1] == b"abcdef"


@pytest.mark.parametrize(
    "raw",
    [
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        HEAD + b"\r\n",
        HEAD + b"Content-Length: 0\r\n\r\n",
        HEAD.replace(b"/mcp", b"/mcp?x=1") + b"Content-Length: 3\r\n\r\nabc",
        HEAD.replace(b"/mcp", b"/%6dcp") + b"Content-Length: 3\r\n\r\nabc",
        HEAD.replace(b"POST", b"PUT") + b"Content-Length: 3\r\n\r\nabc",
        HEAD.replace(b"1.1", b"1.0") + b"Content-Length: 3\r\n\r\nabc",
        post(b"abc", b"Connection: close"),
        post(b"x" * (LIMIT + 1)),
    ],
)
def test_what_is_not_plain_goes_the_long_way(front, raw):
    with closing(front.connect()) as sock:
        sock.sendall(raw)
        assert way(sock)["way"] == "long"


def test_expect_is_answered_on_the_long_way(front):
    with closing(front.connect()) as sock:
        sock.sendall(HEAD + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert sock.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        assert way(sock) == {"way": "long", "length": 3}


def test_requests_of_both_ways_on_one_connection_are_answered_in_order(front):
    front.release.clear()
    front.holding.clear()
    with closing(front.connect()) as sock:
        sock.sendall(post(b"hold") + HEAD + b"Content-Length: 0\r\n\r\n" + post(b"22") + post(b"333")[:-1])
        assert front.holding.wait(10)
        front.release.set()
        assert way(sock)["length"] == 4
        assert way(sock) == {"way": "long", "length": 0}
        assert way(sock)["length"] == 2
        sock.sendall(b"3")
        assert way(sock)["length"] == 3


def test_a_call_that_breaks_is_a_500_without_a_word_and_ends_the_connection(front):
    raw = front.exchange(post(b"break"))
    assert raw.startswith(b"HTTP/1.1 500 ")
    assert b"purpose" not in raw
    assert b"connection: close" in raw


def test_an_answer_of_some_status_carries_its_line(front):
    with closing(front.connect()) as sock:
        sock.sendall(post(b"who"))
        head, body = one_answer(sock)
        assert head == (
            b"HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nwww-authenticate: Bearer\r\n"
            b"content-length: 2\r\n\r\n"
        )
        assert body == b"{}"


def test_a_slow_body_is_refused_and_its_call_never_begins(front):
    before = len(front.bodies)
    raw = front.exchange(post(b"abc")[:-1])
    assert raw.startswith(b"HTTP/1.1 408 ")
    assert len(front.bodies) == before


def test_a_client_that_leaves_in_its_body_begins_nothing(front):
    before = len(front.bodies)
    with closing(front.connect()) as sock:
        sock.sendall(post(b"abc")[:-1])
    with closing(front.connect()) as sock:
        sock.sendall(post(b"after"))
        assert way(sock)["length"] == 5
    assert front.bodies[before:] == [b"after"]


def test_a_client_that_leaves_its_call_gets_nothing_and_harms_nobody(front):
    front.release.clear()
    front.holding.clear()
    with closing(front.connect()) as sock:
        sock.sendall(post(b"hold"))
        assert front.holding.wait(10)
    front.release.set()
    with closing(front.connect()) as sock:
        sock.sendall(post(b"abc"))
        assert way(sock)["length"] == 3


def test_a_large_answer_waits_for_its_reader(front):
    with closing(front.connect()) as sock:
        sock.sendall(post(b"big"))
        assert len(one_answer(sock)[1]) == 8_000_000


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_stop_finishes_the_call_under_way_and_ends_its_connection(loop):
    front = Front(loop, FrontLimits())
    with closing(front.connect()) as sock:
        sock.sendall(post(b"hold"))
        assert front.holding.wait(10)
        front.server.stop()
        threading.Timer(0.2, front.release.set).start()
        raw = until_closed(sock)
        assert raw.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in raw
    front.stop()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_stop_while_a_body_comes_still_takes_the_call(loop):
    front = Front(loop, FrontLimits())
    with closing(front.connect()) as sock, closing(front.connect()) as other:
        sock.sendall(post(b"abc")[:-1])
        other.sendall(post(b"abc"))
        assert way(other)["length"] == 3
        front.server.stop()
        assert until_closed(other) == b""
        sock.sendall(b"c")
        raw = until_closed(sock)
        assert raw.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in raw
    front.stop()


def test_a_call_that_is_done_at_once_needs_no_task_and_one_that_waits_has_one(front):
    seen: list[object] = []

    async def answer(lines, body, peer) -> tuple[int, bytes]:
        seen.append(asyncio.current_task())
        if body == b"wait":
            await asyncio.sleep(0)
            seen.append(asyncio.current_task())
        return 200, b"{}"

    kept, front.server.state.direct = front.server.state.direct, Direct(b"/mcp", LIMIT, answer)
    try:
        with closing(front.connect()) as sock:
            sock.sendall(post(b"now"))
            one_answer(sock)
            sock.sendall(post(b"wait"))
            one_answer(sock)
            sock.sendall(post(b"now") + post(b"now") + post(b"now"))
            for _ in range(3):
                one_answer(sock)
    finally:
        front.server.state.direct = kept
    now, begun, went_on, first, second, third = seen
    assert (now, begun, first) == (None, None, None)
    assert went_on is not None
    assert second is not None
    assert third is not None


def test_what_a_call_waits_for_may_fail_and_the_call_is_told(front):
    async def answer(lines, body, peer) -> tuple[int, bytes]:
        loop = asyncio.get_running_loop()
        broken = loop.create_future()
        loop.call_soon(broken.set_exception, OSError("down"))
        try:
            await broken
        except OSError as error:
            return 200, str(error).encode()
        return 200, b"not told"

    kept, front.server.state.direct = front.server.state.direct, Direct(b"/mcp", LIMIT, answer)
    try:
        with closing(front.connect()) as sock:
            sock.sendall(post(b"abc"))
            assert one_answer(sock)[1] == b"down"
    finally:
        front.server.state.direct = kept
