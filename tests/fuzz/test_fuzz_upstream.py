"""Whatever an upstream sends, a call ends in a reply or an `UpstreamError`; only clean connections are kept.

A connection is driven directly, without sockets. A second, naive reader of HTTP answers (`read`) is the
oracle: wherever the client returned a reply, both must have seen the same answer end at the same byte.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.httpc import ClientLimits, HttpClient, Reply, parse_target
from airlock.edge.httpconn import Connection
from tests.fuzz.profile import fuzz_settings

LIMITS = ClientLimits(max_body_bytes=64, max_head_bytes=512, max_header_count=12)
ENDS = ("eof", "lost", "reset", "deadline")


class Line(asyncio.Transport):
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.written = b""

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Outcome:
    """What became of one call: its value, whether its connection was kept, what it was fed by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pieces: list[bytes], end: str) -> None:
        client = HttpClient(parse_target("http://upstream/"), LIMITS)
        line = Line()
        connection = Connection(loop, client)
        connection.connection_made(line)
        line.closed = False  # nobody waits yet, so it was dropped at once
        waiter = connection.begin(loop.time(), b"request")
        assert line.written == b"request"
        self.fed = b""
        self.kept = False
        for piece in pieces:
            if line.closed:
                break
            was_done = waiter.done()
            connection.data_received(piece)
            if was_done:
                assert line.closed  # unasked bytes
                break
            self.fed += piece
            if waiter.done():
                self.kept = client.idle == 1
                assert self.kept != line.closed
        if not waiter.done():
            if end == "deadline":
                connection._deadline = loop.time() - 1
                connection._expire()
            elif end == "eof":
                connection.eof_received()
            else:
                connection.connection_lost(None if end == "lost" else ConnectionResetError())
            assert client.idle == 0
        assert waiter.done()
        connection.connection_lost(None)
        assert client.idle == 0
        assert connection._timer is None
        self.value = waiter.result()


def read(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Read one final answer naively: status, body and what follows it; None when it is not whole."""
    while True:
        head, blank, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        match = re.fullmatch(rb"HTTP/1\.[01] (\d{3})(?: .*)?", first, re.DOTALL)
        if not blank or match is None:
            return None
        status = int(match[1])
        if status >= 200:
            break
        data = rest.lstrip(b"\r\n")  # the parser lets empty lines stand between two answers
    pairs = [
        (name.lower(), value.strip(b" \t")) for name, _, value in (line.partition(b":") for line in lines)
    ]
    codings = [value.lower() for name, value in pairs if name == b"transfer-encoding"]
    lengths = [value for name, value in pairs if name == b"content-length"]
    if len(codings) + len(lengths) > 1 or codings not in ([], [b"chunked"]):
        return None
    if status in (204, 304):
        return status, b"", rest
    if lengths:
        size = int(lengths[0])
        return None if len(rest) < size else (status, rest[:size], rest[size:])
    return read_chunks(status, rest) if codings else (status, rest, b"")


def read_chunks(status: int, rest: bytes) -> tuple[int, bytes, bytes] | None:
    body = b""
    while True:
        line, blank, rest = rest.partition(b"\r\n")
        match = re.fullmatch(rb"([0-9a-fA-F]+)(?:;.*)?", line, re.DOTALL)
        if not blank or match is None:
            return None
        size = int(match[1], 16)
        if not size:
            break
        body, rest = body + rest[:size], rest[size:]
        if rest[:2] != b"\r\n":
            return None
        rest = rest[2:]
    while True:
        line, blank, rest = rest.partition(b"\r\n")
        if not line:
            return (status, body, rest) if blank else None


def check(outcome: Outcome) -> None:
    value = outcome.value
    if isinstance(value, UpstreamError):
        assert value.reached
        assert not outcome.kept
        assert value.kind in (UpstreamFailure.UNREACHABLE, UpstreamFailure.ENCODED, UpstreamFailure.TOO_LARGE)
        return
    assert isinstance(value, Reply)
    assert len(value.body) <= LIMITS.max_body_bytes
    seen = read(outcome.fed)
    assert seen is not None
    status, body, rest = seen
    assert (value.status, value.body) == (status, body)
    if outcome.kept:
        assert outcome.fed.startswith(b"HTTP/1.1 ")
        assert rest.strip(b"\r\n") == b""


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Cut into pieces at the given places (taken modulo the length)."""
    edges = [0, *sorted({place % len(data) for place in places}), len(data)] if data else []
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]


places = st.lists(st.integers(0, 2000), max_size=6)
ends = st.sampled_from(ENDS)
words = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\n", b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 204 No\r\n", b"HTTP/1.1 200\r\n",
        b"HTTP/1.1 100 Go\r\n\r\n", b"HTTP/1.1 101 Up\r\n", b"HTTP/2 200\r\n", b"ICE/1.0 200 OK\r\n",
        b"HTTP/", b"H", b"Content-Length: ", b"Content-Length: 2\r\n", b"content-length:5\r\n",
        b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip, chunked\r\n", b"Transfer-Encoding:\r\n",
        b"Content-Encoding: gzip\r\n", b"Content-Encoding: identity\r\n", b"Connection: close\r\n",
        b"Connection: keep-alive\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n", b"Trailer: x\r\n",
        b"Content-Type: application/json\r\n", b"X: y\r\n", b"X: " + b"y" * 300 + b"\r\n", b": ", b":",
        b" ", b"\t", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"{}", b"2\r\n{}\r\n", b"0\r\n", b"0\r\n\r\n",
        b"2;a=b\r\n", b"00000000000000000002\r\n", b"-1", b"2", b"ff", b"0", b"\x00", b"\xff", b"x" * 70,
    ]
)  # fmt: skip
hits = st.tuples(st.integers(0, 400), st.integers(0, 3), words | st.binary(max_size=2))
soups = st.lists(words | st.binary(max_size=3), max_size=14).map(b"".join)


@st.composite
def valid(draw: st.DrawFn) -> tuple[bytes, Reply, bool, bool]:
    """A valid answer: its bytes, what it says, whether its connection may be kept, whether it ends by EOF."""
    status = draw(st.sampled_from([200, 202, 400, 404, 500, 302, 599]))
    body = draw(st.binary(max_size=64))
    framing = draw(st.sampled_from(["length", "chunked", "eof"]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    close = draw(st.booleans())
    media = draw(st.sampled_from([b"", b"application/json", b"Text/Event-Stream"]))
    lines = [
        b"X-%d: %b" % (n, draw(st.sampled_from([b"", b"a", b"b: c"]))) for n in range(draw(st.integers(0, 5)))
    ]
    if media:
        lines.append(b"Content-Type: %b; charset=utf-8" % media)
    if draw(st.booleans()):
        lines.append(b"content-ENCODING: " + draw(st.sampled_from([b"", b"Identity", b" identity,identity"])))
    if close:
        lines.append(b"Connection: close")
    if framing == "length":
        lines.append(b"Content-Length: %d" % len(body))
        payload = body
    elif framing == "chunked":
        lines.append(b"Transfer-Encoding: Chunked")
        pieces = cut(body, draw(places))
        payload = b"".join(b"%X;e=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n"
        payload += draw(st.sampled_from([b"", b"X-Trailer: 1\r\n"])) + b"\r\n"
    else:
        payload = body
    lines = draw(st.permutations(lines))
    head = b"\r\n".join([b"HTTP/%b %d Some reason" % (version, status), *lines]) + b"\r\n\r\n"
    early = draw(
        st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nLink: x\r\n\r\n"])
    )
    kept = version == b"1.1" and not close and framing != "eof"
    return early + head + payload, Reply(status, media.decode().lower(), body), kept, framing == "eof"


@given(valid(), places)
@fuzz_settings
def test_a_valid_answer_is_read_however_it_is_cut(loop, answer, places):
    data, reply, kept, by_end = answer
    outcome = Outcome(loop, cut(data, places), "eof" if by_end else "lost")
    assert outcome.value == reply
    assert outcome.kept == kept
    check(outcome)


@given(valid(), places, st.data())
@fuzz_settings
def test_a_valid_answer_cut_short_is_never_taken_for_whole(loop, answer, places, data):
    raw, _, _, by_end = answer
    short = raw[: data.draw(st.integers(0, len(raw) - 1))]
    outcome = Outcome(loop, cut(short, places), "lost" if by_end else data.draw(ends))
    assert isinstance(outcome.value, UpstreamError)
    check(outcome)


@given(valid(), valid() | st.binary(min_size=1, max_size=20), places)
@fuzz_settings
def test_what_follows_an_answer_never_leaves_a_kept_connection_behind(loop, answer, more, places):
    data, reply, _, by_end = answer
    if by_end:
        return
    tail = more if isinstance(more, bytes) else more[0]
    outcome = Outcome(loop, cut(data + tail, places), "eof")
    assert outcome.value == reply
    check(outcome)


@given(valid(), st.lists(hits, max_size=4), places, ends)
@fuzz_settings
def test_a_damaged_answer_ends_the_call_one_way_or_the_other(loop, answer, damage, places, end):
    data = answer[0]
    for place, length, new in damage:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + length :]
    check(Outcome(loop, cut(data, places), end))


@given(soups | st.binary(max_size=200), places, ends)
@fuzz_settings
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n", [], "eof")
@example(b"HTTP/1.1 101 Up\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n{}", [], "eof")
def test_any_bytes_end_the_call_one_way_or_the_other(loop, data, places, end):
    check(Outcome(loop, cut(data, places), end))
