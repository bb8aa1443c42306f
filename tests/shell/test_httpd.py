"""The HTTP server over real sockets: every limit, framing attacks, order, ends of connections, signals."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from airlock.edge.asgi import BodyTooLarge, ClientGone, read_body, respond
from airlock.edge.httpd import FrontLimits, bind, make_server

BODY_LIMIT = 1_000_000
BIG = 8_000_000
HOST = b"Host: localhost\r\n"
POST = b"POST /echo HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"


class Front:
    """A running server with an application that tells what reached it."""

    def __init__(self, loop: str, limits: FrontLimits) -> None:
        self.seen: list[dict] = []
        self.said: list[str] = []
        self.gone = threading.Event()
        self.cancelled = threading.Event()
        self.holding = threading.Event()
        self.release = threading.Event()
        self.server = make_server(self.app, limits, self.said.append)
        self.server.loop = loop
        sock = bind("127.0.0.1", 0)
        self.address = sock.getsockname()
        self.thread = threading.Thread(target=self.server.run, args=(sock,), daemon=True)
        self.thread.start()

    async def app(self, scope, receive, send) -> None:
        headers = scope["headers"]
        declared = next((int(value) for name, value in headers if name == b"content-length"), None)
        try:
            if scope["path"] == "/hold":
                self.holding.set()
                await asyncio.get_running_loop().run_in_executor(None, self.release.wait, 20)
            if scope["path"] == "/forever":
                self.holding.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    self.cancelled.set()
            if scope["path"] == "/big":
                await respond(send, 200, b"x" * BIG, b"text/plain")
                return
            body = await read_body(receive, BODY_LIMIT, declared)
        except ClientGone:
            self.gone.set()
            return
        except BodyTooLarge:
            await respond(send, 413, b"too large", b"text/plain")
            return
        if scope["path"] == "/break":
            raise RuntimeError("broken on purpose")
        self.seen.append({"path": scope["path"], "headers": headers, "body": body})
        told = {
            "method": scope["method"],
            "path": scope["path"],
            "query": scope["query_string"].decode(),
            "names": [name.decode() for name, _ in headers],
            "length": len(body),
        }
        await respond(send, 200, json.dumps(told).encode())

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=10)

    def exchange(self, *parts: bytes) -> bytes:
        """Send and read until the server closes."""
        with closing(self.connect()) as sock:
            for part in parts:
                sock.sendall(part)
            return until_closed(sock)

    def stop(self) -> None:
        self.release.set()
        self.server.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()


def until_closed(sock: socket.socket) -> bytes:
    got = bytearray()
    while True:
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            return bytes(got)
        if not part:
            return bytes(got)
        got += part


def one_answer(sock: socket.socket, *, head_only: bool = False) -> tuple[bytes, bytes]:
    """Read one answer with a content-length from a connection that stays open."""
    got = bytearray()
    while b"\r\n\r\n" not in got:
        part = sock.recv(1)
        assert part, f"closed after {bytes(got)!r}"
        got += part
    head = bytes(got)
    length = 0 if head_only else int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    body = bytearray()
    while len(body) < length:
        body += sock.recv(length - len(body))
    return head, bytes(body)


def assert_refused(raw: bytes, status: int) -> None:
    head, _, words = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), raw[:200]
    lines = head.lower().split(b"\r\n")[1:]
    assert b"connection: close" in lines
    assert b"content-type: text/plain; charset=utf-8" in lines
    assert b"content-length: %d" % len(words) in lines
    assert words.decode().endswith(".")
    assert raw.count(b"HTTP/1.1 ") == 1 or b"are served" in words


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def loop(request) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def shared(loop):
    front = Front(loop, FrontLimits(max_headers=20, max_head_bytes=4096, max_target_bytes=256))
    yield front
    front.stop()


@pytest.fixture
def front(shared):
    shared.seen.clear()
    shared.gone.clear()
    shared.holding.clear()
    shared.release.clear()
    yield shared
    shared.release.set()


@pytest.fixture(scope="module")
def hasty(loop):
    front = Front(loop, FrontLimits(head_s=0.3, body_s=0.3, keep_alive_s=0.3))
    yield front
    front.stop()


# Requests that pass


def test_a_request_is_served_and_the_connection_kept(front):
    with closing(front.connect()) as sock:
        for number in range(3):
            sock.sendall(POST + b"Content-Length: 3\r\n\r\nabc")
            head, body = one_answer(sock)
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nserver:" not in head.lower()
            assert b"\r\ndate:" not in head.lower()
            assert json.loads(body)["length"] == 3
            assert len(front.seen) == number + 1


def test_head_is_answered_without_a_body(front):
    with closing(front.connect()) as sock:
        for _ in range(2):
            sock.sendall(b"HEAD /echo HTTP/1.1\r\n" + HOST + b"\r\n")
            head, _ = one_answer(sock, head_only=True)
            assert head.startswith(b"HTTP/1.1 200 ")


def test_a_request_in_single_bytes_is_put_together(front):
    with closing(front.connect()) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in CHUNKED + b"\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n":
            sock.sendall(bytes([byte]))
        assert json.loads(one_answer(sock)[1])["length"] == 5


def test_the_target_is_split_and_decoded(front):
    raw = front.exchange(b"GET /a%20b?c=%20d HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    told = json.loads(raw.partition(b"\r\n\r\n")[2])
    assert (told["path"], told["query"]) == ("/a b", "c=%20d")


def test_pipelined_requests_are_answered_in_order(front):
    count = 100
    raw = b"".join(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in range(count))
    with closing(front.connect()) as sock:
        sock.sendall(raw)
        paths = [json.loads(one_answer(sock)[1])["path"] for _ in range(count)]
    assert paths == [f"/{number}" for number in range(count)]


def test_a_request_behind_a_held_call_waits_for_it(front):
    with closing(front.connect()) as sock:
        sock.sendall(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n" + POST + b"Content-Length: 3\r\n\r\na")
        assert front.holding.wait(10)
        sock.sendall(b"bc")
        front.release.set()
        assert json.loads(one_answer(sock)[1])["path"] == "/hold"
        assert json.loads(one_answer(sock)[1])["length"] == 3


def test_http_1_0_is_served_without_a_host_and_closed(front):
    raw = front.exchange(b"GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert raw.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in raw


@pytest.mark.parametrize(
    "upgrade",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    ],
)
def test_an_upgrade_is_not_taken_and_what_follows_is_not_read_as_a_request(front, upgrade):
    raw = front.exchange(
        b"GET /up HTTP/1.1\r\n" + HOST + upgrade + b"\r\nGET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    )
    assert raw.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in raw
    assert [seen["path"] for seen in front.seen] == ["/up"]


def test_an_upgrade_with_a_body_is_served_with_its_body(front):
    raw = front.exchange(POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 4\r\n\r\nab", b"cd")
    assert json.loads(raw.partition(b"\r\n\r\n")[2])["length"] == 4


def test_nothing_is_read_behind_a_request_that_closes(front):
    raw = front.exchange(b"GET /last HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n" + POST + b"\r\n")
    assert raw.count(b"HTTP/1.1 200 ") == 1
    assert [seen["path"] for seen in front.seen] == ["/last"]


def test_expect_100_continue_is_answered_when_the_body_is_read(front):
    with closing(front.connect()) as sock:
        sock.sendall(POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        head, _ = one_answer(sock, head_only=True)
        assert head == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"abc")
        head, body = one_answer(sock)
        assert head.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" not in head
        assert json.loads(body)["length"] == 3


# Limits of the head


def test_a_head_of_exactly_the_limit_passes_and_one_byte_more_does_not(front):
    start = b"GET /x HTTP/1.1\r\n" + HOST + b"Connection: close\r\nA: "
    exact = start + b"x" * (4096 - len(start) - 4) + b"\r\n\r\n"
    assert len(exact) == 4096
    assert front.exchange(exact).startswith(b"HTTP/1.1 200 ")
    assert front.exchange(exact[:1000], exact[1000:]).startswith(b"HTTP/1.1 200 ")
    assert_refused(front.exchange(exact[:-4] + b"x\r\n\r\n"), 431)
    assert_refused(front.exchange(exact[:1000], exact[1000:-4], b"x\r\n\r\n"), 431)


def test_the_head_limit_does_not_count_the_body_nor_other_requests(front):
    body = b"x" * 300_000
    many = POST + b"Content-Length: 300000\r\n\r\n" + body
    last = b"GET /x HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    assert front.exchange(many * 2 + last).count(b"HTTP/1.1 200 ") == 3


def test_blanks_inside_a_header_count_for_the_head(front):
    assert_refused(front.exchange(b"GET /x HTTP/1.1\r\n" + HOST + b"A:" + b" " * 5000 + b"b\r\n\r\n"), 431)


def test_a_head_of_ten_megabytes_is_refused_and_the_client_gets_to_see_it(front):
    assert_refused(front.exchange(b"GET /x HTTP/1.1\r\n" + HOST + b"A: " + b"x" * 10_000_000), 431)


def test_twenty_thousand_headers_are_refused(loop):
    front = Front(loop, FrontLimits())
    try:
        raw = b"GET /x HTTP/1.1\r\n" + HOST + b"Connection: close\r\n"
        assert_refused(front.exchange(raw + b"A: b\r\n" * 20_000 + b"\r\n"), 431)
        assert_refused(front.exchange(raw + b"A: b\r\n" * 99 + b"\r\n"), 431)
        assert front.exchange(raw + b"A: b\r\n" * 98 + b"\r\n").startswith(b"HTTP/1.1 200 ")
        assert len(front.seen) == 1
    finally:
        front.stop()


def test_endless_blank_lines_before_a_request_are_refused(front):
    assert front.exchange(
        b"\r\n\r\n" + b"GET /x HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
    ).startswith(b"HTTP/1.1 200 ")
    assert_refused(front.exchange(b"\r\n" * 3000), 431)


def test_a_target_that_is_too_long_is_refused(front):
    def ask(length):
        return front.exchange(
            b"GET /" + b"a" * (length - 1) + b" HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n"
        )

    assert ask(256).startswith(b"HTTP/1.1 200 ")
    assert_refused(ask(257), 414)


@pytest.mark.parametrize(
    "target", [b"*", b"http://localhost/x", b"/a#b", b"localhost:80", b"//\xe9", b"/\x01"]
)
def test_a_target_that_is_not_a_path_is_refused(front, target):
    assert_refused(front.exchange(b"OPTIONS " + target + b" HTTP/1.1\r\n" + HOST + b"\r\n"), 400)
    assert front.seen == []


def test_connect_is_refused(front):
    assert_refused(front.exchange(b"CONNECT localhost:80 HTTP/1.1\r\n" + HOST + b"\r\nxyz"), 400)
    assert front.seen == []


@pytest.mark.parametrize("version", [b"HTTP/0.9", b"HTTP/2.0"])
def test_another_version_is_refused(front, version):
    assert_refused(front.exchange(b"GET /x " + version + b"\r\n" + HOST + b"\r\n"), 505)
    assert_refused(front.exchange(b"GET /x\r\n\r\n"), 505)
    assert front.seen == []


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /x HTTP/1.1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET /x HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n",
        b"GET /x HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
    ],
    ids=["missing", "doubled equal", "doubled different", "doubled in 1.0"],
)
def test_a_missing_or_doubled_host_is_refused(front, raw):
    assert_refused(front.exchange(raw), 400)
    assert front.seen == []


# Two readings of one stream

SMUGGLING = {
    "CL.TE": POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
    "TE.CL": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\nG",
    "doubled CL, equal": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "doubled CL, different": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "CL list": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "CL with sign": POST + b"Content-Length: +3\r\n\r\nabc",
    "CL empty": POST + b"Content-Length: \r\n\r\nabc",
    "CL hex": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "CL overflow": POST + b"Content-Length: 18446744073709551619\r\n\r\nabc",
    "folded header": POST + b"X: a\r\n b\r\n\r\n",
    "folded first header": b"POST /echo HTTP/1.1\r\n Host: a\r\n\r\n",
    "folded framing": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "blank before colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "blank before Host's colon": b"POST /echo HTTP/1.1\r\nHost : a\r\n\r\n",
    "bare LF": b"POST /echo HTTP/1.1\nHost: a\n\n",
    "bare LF in the headers": b"POST /echo HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare CR": b"POST /echo HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    "NUL in a value": POST + b"X: a\0b\r\n\r\n",
    "NUL in a name": POST + b"X\0Y: a\r\n\r\n",
    "no colon": POST + b"XY\r\n\r\n",
    "no name": POST + b": a\r\n\r\n",
    "chunk size overflow": CHUNKED + b"\r\nfffffffffffffffff\r\nabc",
    "chunk size negative": CHUNKED + b"\r\n-1\r\nabc",
    "chunk size with 0x": CHUNKED + b"\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size with a blank": CHUNKED + b"\r\n3 \r\nabc\r\n0\r\n\r\n",
    "chunk with bare LF": CHUNKED + b"\r\n3\nabc\n0\n\n",
    "chunk longer than said": CHUNKED + b"\r\n2\r\nabc\r\n0\r\n\r\n",
    "LF in a chunk extension": CHUNKED + b"\r\n3;a\nb\r\nabc\r\n0\r\n\r\n",
    "xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "identity, chunked": POST + b"Transfer-Encoding: identity, chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "TE twice": CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "TE twice, then identity": CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "TE with a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "TE in HTTP/1.0": b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "unknown method": b"get /echo HTTP/1.1\r\n" + HOST + b"\r\n",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("raw", SMUGGLING.values(), ids=SMUGGLING)
def test_an_ambiguous_request_is_refused_and_never_served(front, raw):
    assert_refused(front.exchange(raw), 400)
    assert front.seen == []


def test_chunk_extensions_are_ignored_up_to_a_bound(front):
    raw = front.exchange(CHUNKED + b"Connection: close\r\n\r\n3;a=b\r\nabc\r\n0;c\r\n\r\n")
    assert json.loads(raw.partition(b"\r\n\r\n")[2])["length"] == 3
    front.seen.clear()
    assert_refused(front.exchange(CHUNKED + b"\r\n3;" + b"a" * 500_000), 400)
    assert front.seen == []


def test_trailers_never_join_the_headers_and_are_bounded(front):
    trailers = b"Host: evil\r\nAuthorization: evil\r\n"
    raw = front.exchange(CHUNKED + b"Connection: close\r\n\r\n3\r\nabc\r\n0\r\n" + trailers + b"\r\n")
    assert raw.startswith(b"HTTP/1.1 200 ")
    assert [name for name, _ in front.seen[0]["headers"]] == [b"host", b"transfer-encoding", b"connection"]
    with closing(front.connect()) as sock:
        sock.sendall(CHUNKED + b"\r\n0\r\n" + trailers)
        sock.sendall(b"\r\n" + b"GET /next HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert until_closed(sock).count(b"HTTP/1.1 200 ") == 2
    assert all(value != b"evil" for seen in front.seen for _, value in seen["headers"])
    assert_refused(front.exchange(CHUNKED + b"\r\n0\r\nA: " + b"a" * 500_000), 400)
    assert_refused(front.exchange(CHUNKED + b"\r\n0\r\n" + b"A: b\r\n" * 100_000), 400)


def test_a_bad_request_behind_a_held_call_is_refused_after_its_answer(front):
    with closing(front.connect()) as sock:
        sock.sendall(
            b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\nGET /next HTTP/1.1\r\n" + HOST + b"\r\nrubbish\r\n"
        )
        assert front.holding.wait(10)
        front.release.set()
        assert json.loads(one_answer(sock)[1])["path"] == "/hold"
        assert json.loads(one_answer(sock)[1])["path"] == "/next"
        assert_refused(until_closed(sock), 400)


def test_a_bad_body_behind_a_held_call_is_refused_after_its_answer_and_never_served(front):
    with closing(front.connect()) as sock:
        sock.sendall(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n" + CHUNKED + b"\r\nzz\r\n")
        assert front.holding.wait(10)
        front.release.set()
        assert json.loads(one_answer(sock)[1])["path"] == "/hold"
        assert_refused(until_closed(sock), 400)
    assert [seen["path"] for seen in front.seen] == ["/hold"]


def test_too_many_requests_behind_a_held_call_are_refused(front):
    with closing(front.connect()) as sock:
        sock.sendall(
            b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n" + (b"GET /n HTTP/1.1\r\n" + HOST + b"\r\n") * 200
        )
        assert front.holding.wait(10)
        front.release.set()
        for _ in range(129):
            assert one_answer(sock)[0].startswith(b"HTTP/1.1 200 ")
        assert_refused(until_closed(sock), 503)


# Bodies


@pytest.mark.case("T62")
def test_a_body_declared_too_large_is_refused_unread_and_the_connection_closed(front):
    with closing(front.connect()) as sock:
        sock.sendall(POST + b"Content-Length: 1000001\r\n\r\n" + b"x" * 100_000)
        raw = until_closed(sock)
    assert raw.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in raw


@pytest.mark.case("T62")
def test_a_declared_body_refused_unread_gets_no_100_continue(front):
    raw = front.exchange(POST + b"Content-Length: 1000001\r\nExpect: 100-continue\r\n\r\n")
    assert raw.startswith(b"HTTP/1.1 413 ")


@pytest.mark.case("T62")
def test_a_client_that_sends_for_ever_after_the_413_is_cut_off(front):
    piece, sent = b"x" * (1 << 20), 0
    with closing(front.connect()) as sock:
        sock.sendall(POST + b"Content-Length: 1000000000000\r\n\r\n")
        assert one_answer(sock)[0].startswith(b"HTTP/1.1 413 ")
        try:
            while sent < 200 << 20:
                sock.sendall(piece)
                sent += len(piece)
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert sent < 64 << 20


@pytest.mark.case("T62")
def test_a_chunked_body_over_the_limit_is_refused_while_it_comes(front):
    chunk = b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n"
    with closing(front.connect()) as sock:
        sock.sendall(CHUNKED + b"\r\n" + chunk * 20)
        assert until_closed(sock).startswith(b"HTTP/1.1 413 ")
    assert front.seen == []


@pytest.mark.case("T62")
def test_bytes_beyond_the_declared_length_are_another_request_and_refused_as_such(front):
    raw = front.exchange(POST + b"Content-Length: 3\r\n\r\nabcdef\r\n\r\n")
    assert raw.startswith(b"HTTP/1.1 200 ")
    assert front.seen[0]["body"] == b"abc"
    assert b"HTTP/1.1 400 " in raw


def test_a_client_that_leaves_in_the_middle_of_its_body_leaves_no_traceback(front, capfd, caplog):
    with caplog.at_level(logging.DEBUG), closing(front.connect()) as sock:
        sock.sendall(POST + b"Content-Length: 100\r\n\r\nabc")
        sock.shutdown(socket.SHUT_WR)
        assert until_closed(sock) == b""
        assert front.gone.wait(10)
    assert capfd.readouterr() == ("", "")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_an_application_that_breaks_answers_500_without_a_word_on_stderr(front, capfd):
    raw = front.exchange(b"GET /break HTTP/1.1\r\n" + HOST + b"\r\n")
    assert raw.startswith(b"HTTP/1.1 500 ")
    assert b"purpose" not in raw
    assert capfd.readouterr() == ("", "")


# Time


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def emptied(front: Front) -> None:
    """Wait until the server has let go of every connection."""
    for _ in range(1000):
        if not front.server.state.connections:
            return
        pause(0.01)
    raise AssertionError("still connected")


def drip(sock: socket.socket, head: bytes) -> bytes:
    """Send one byte at a time with pauses until the server answers or the bytes run out."""
    sock.settimeout(0.04)
    for byte in head:
        sock.sendall(bytes([byte]))
        try:
            got = sock.recv(65536)
        except TimeoutError:
            continue
        sock.settimeout(10)
        return got + until_closed(sock)
    raise AssertionError("never refused")


def test_a_connection_on_which_nothing_comes_is_closed(hasty):
    with closing(hasty.connect()) as sock:
        assert until_closed(sock) == b""


def test_a_slow_head_is_refused(hasty):
    with closing(hasty.connect()) as sock:
        assert_refused(drip(sock, b"GET /x HTTP/1.1\r\nA: " + b"x" * 1000), 408)


def test_a_slow_body_is_refused_and_its_call_told(hasty):
    hasty.gone.clear()
    with closing(hasty.connect()) as sock:
        sock.sendall(POST + b"Content-Length: 1000\r\n\r\n")
        assert_refused(drip(sock, b"x" * 999), 408)
    assert hasty.gone.wait(10)


def test_blank_lines_do_not_keep_a_connection_open(hasty):
    with closing(hasty.connect()) as sock:
        assert drip(sock, b"\r\n" * 500) == b""


def test_an_idle_connection_is_closed_after_its_time(hasty):
    with closing(hasty.connect()) as sock:
        for _ in range(3):
            sock.sendall(POST + b"\r\n")
            assert one_answer(sock)[0].startswith(b"HTTP/1.1 200 ")
        assert until_closed(sock) == b""


def test_a_call_may_take_longer_than_every_limit_of_the_connection(hasty):
    hasty.holding.clear()
    hasty.release.clear()
    with closing(hasty.connect()) as sock, closing(hasty.connect()) as other:
        sock.sendall(b"GET /hold HTTP/1.1\r\n" + HOST + b"\r\n")
        assert hasty.holding.wait(10)
        assert until_closed(other) == b""  # the limits have passed
        hasty.release.set()
        assert one_answer(sock)[0].startswith(b"HTTP/1.1 200 ")


def test_a_client_that_never_reads_its_answer_is_cut_off(hasty):
    with closing(hasty.connect()) as sock:
        sock.sendall(b"GET /big HTTP/1.1\r\n" + HOST + b"\r\n")
        assert sock.recv(1) == b"H"
        emptied(hasty)
        assert len(until_closed(sock)) < BIG


def test_a_refused_client_that_does_not_close_is_closed(hasty, monkeypatch):
    monkeypatch.setattr("airlock.edge.front._LINGER_S", 0.1)
    with closing(hasty.connect()) as sock:
        sock.sendall(b"rubbish\r\n")
        assert_refused(until_closed(sock), 400)
        emptied(hasty)


# Room


def test_connections_above_the_limit_are_closed_at_once_with_one_line(loop):
    front = Front(loop, FrontLimits(max_connections=2))
    try:
        with closing(front.connect()) as first, closing(front.connect()) as second:
            for sock in (first, second):
                sock.sendall(POST + b"\r\n")
                assert one_answer(sock)[0].startswith(b"HTTP/1.1 200 ")
            for _ in range(3):
                with closing(front.connect()) as third:
                    assert until_closed(third) == b""
            first.sendall(POST + b"Connection: close\r\n\r\n")
            assert until_closed(first).startswith(b"HTTP/1.1 200 ")
            assert front.exchange(POST + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert front.said == ["all 2 connections are taken; closing new ones"]
    finally:
        front.stop()


# Listening and stopping


def test_a_taken_port_is_an_error_in_the_systems_words():
    with bind("127.0.0.1", 0) as sock, pytest.raises(OSError, match="Address already in use") as caught:
        bind("127.0.0.1", sock.getsockname()[1])
    assert caught.value.strerror == os.strerror(caught.value.errno or 0)


def test_names_and_ipv6_literals_can_be_bound():
    with bind("localhost", 0) as sock:
        assert sock.getsockname()[0] in ("127.0.0.1", "::1")
    if socket.has_ipv6:
        with bind("::1", 0) as sock:
            assert sock.getsockname()[0] == "::1"


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 300, ""])
def test_a_host_that_does_not_resolve_is_an_os_error(host):
    with pytest.raises(OSError, match=r".") as caught:
        bind(host, 0)
    assert caught.value.strerror


PROGRAM = """
import asyncio, os, sys
from airlock.edge import httpd
from airlock.edge.asgi import read_body, respond

if sys.argv[1] == "asyncio":
    httpd.importlib.util.find_spec = lambda name: None

async def app(scope, receive, send):
    await read_body(receive, 10, None)
    if scope["path"] == "/hold":
        print("holding", flush=True)
        loop = asyncio.get_running_loop()
        released = loop.create_future()
        loop.add_reader(0, lambda: released.done() or released.set_result(None))
        try:
            await released
        except asyncio.CancelledError:
            print("cancelled", flush=True)
            raise
    await respond(send, 200, b"done", b"text/plain")

async def stopped():
    print("stopped", flush=True)

sock = httpd.bind("127.0.0.1", 0)
port = sock.getsockname()[1]
httpd.run(app, sock, httpd.FrontLimits(), on_ready=lambda: print(port, flush=True), on_stop=stopped)
print("returned", flush=True)
"""


class Process:
    def __init__(self, loop: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, loop],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.port = int(self.line())

    def line(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def connect(self, path: bytes) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        sock.sendall(b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"\r\n")
        return sock


@pytest.fixture
def process(loop):
    process = Process(loop)
    yield process
    process.process.kill()
    process.process.communicate()


def test_sigterm_finishes_the_open_call_closes_the_idle_and_refuses_the_new(process):
    with closing(process.connect(b"/idle")) as idle, closing(process.connect(b"/hold")) as held:
        one_answer(idle)
        assert process.line() == b"holding"
        process.process.send_signal(signal.SIGTERM)
        assert until_closed(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            process.connect(b"/new")
        process.process.stdin.write(b"\n")
        process.process.stdin.flush()
        raw = until_closed(held)
        assert raw.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" in raw
    out, err = process.process.communicate(timeout=10)
    assert (process.process.returncode, out, err) == (0, b"stopped\nreturned\n", b"")


def test_a_second_sigterm_cuts_the_drain_short(process):
    with closing(process.connect(b"/idle")) as idle, closing(process.connect(b"/hold")) as held:
        one_answer(idle)
        assert process.line() == b"holding"
        process.process.send_signal(signal.SIGTERM)
        assert until_closed(idle) == b""
        process.process.send_signal(
            signal.SIGTERM
        )  # a service manager tells a supervisor and its workers alike
        pause(0.7)
        process.process.send_signal(signal.SIGTERM)
        until_closed(held)
    out, err = process.process.communicate(timeout=10)
    assert (process.process.returncode, out, err) == (143, b"cancelled\nstopped\n", b"")


def test_ctrl_c_stops_with_status_130(process):
    process.process.send_signal(signal.SIGINT)
    out, err = process.process.communicate(timeout=10)
    assert (process.process.returncode, out, err) == (130, b"stopped\n", b"")


def test_a_call_that_outlasts_the_drain_is_cancelled(loop):
    front = Front(loop, FrontLimits(drain_s=0.2))
    with closing(front.connect()) as sock:
        sock.sendall(b"GET /forever HTTP/1.1\r\n" + HOST + b"\r\n")
        assert front.holding.wait(10)
        front.stop()
        assert front.cancelled.is_set()
