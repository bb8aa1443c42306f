"""Fuzz of the HTTP front: whatever bytes come, in whatever pieces, nothing escapes and no framing slips."""

from __future__ import annotations

import asyncio
import sys
from functools import cache
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from airlock.edge.asgi import BodyTooLarge, ClientGone, read_body, respond
from airlock.edge.front import FrontProtocol
from airlock.edge.frontlimits import Direct, FrontLimits, FrontState, Refused
from tests.fuzz.profile import fuzz_settings

TIGHT = FrontLimits(max_headers=12, max_head_bytes=700, max_target_bytes=60)
WIDE = FrontLimits(max_headers=12, max_target_bytes=60)
BODY_LIMIT = 2000


class Watched(FrontProtocol):
    """The protocol, telling of exceptions that the parser would hide behind a 400."""

    def _refuse(self, status: int) -> None:
        fault = sys.exc_info()[1]
        if fault is not None:
            assert fault.__context__ is None or isinstance(fault.__context__, Refused), repr(
                fault.__context__
            )
        super()._refuse(status)


class Wire(asyncio.Transport):
    """A transport in memory that keeps the rules of a real one."""

    protocol: FrontProtocol

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.loop = loop
        self.written = bytearray()
        self.closing = self.ended = self.paused = False

    def write(self, data):
        assert not self.ended, "written after the end"
        if not self.closing:
            self.written += data

    def write_eof(self):
        self.ended = True

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.closing

    def close(self):
        if not self.closing:
            self.closing = True
            self.loop.call_soon(self.protocol.connection_lost, None)

    abort = close

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def get_extra_info(self, name, default=None):
        return default


class Front:
    """One loop for all examples; one connection and one list of served requests for each."""

    def __init__(self, limits: FrontLimits, *, short: bool = False) -> None:
        self.direct = Direct(b"/mcp", BODY_LIMIT, self.answer) if short else None
        self.loop = asyncio.new_event_loop()
        self.faults: list[dict] = []
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.limits = limits
        self.served: list[tuple[dict, bytes]] = []

    async def app(self, scope, receive, send) -> None:
        if scope["path"].endswith("unread"):
            await respond(send, 413, b"unread")
            return
        try:
            body = await read_body(receive, BODY_LIMIT, None)
        except ClientGone:
            return
        except BodyTooLarge:
            await respond(send, 413, b"large")
            return
        await asyncio.sleep(0)
        self.served.append((dict(scope), body))
        await respond(send, 200, b"%d" % len(self.served))

    async def answer(self, lines, body, peer) -> tuple[int, bytes]:
        await asyncio.sleep(0)
        scope = {"raw_path": b"/mcp", "query_string": b"", "headers": lines, "http_version": "1.1"}
        self.served.append((scope, body))
        return 200, b"%d" % len(self.served)

    def feed(self, chunks) -> bytes:
        """Give the chunks to a new connection as a client would, then leave; return what was answered."""
        self.served.clear()
        state = FrontState(self.app, self.limits, lambda _: None, self.direct)
        try:
            return self.loop.run_until_complete(self._feed(state, chunks))
        finally:
            for task in state.tasks:
                task.cancel()

    async def _feed(self, state, chunks) -> bytes:
        protocol, wire = Watched(state, self.loop), Wire(self.loop)
        wire.protocol = protocol
        protocol.connection_made(wire)
        for chunk in chunks:
            for _ in range(2000):
                if not wire.paused or wire.closing:
                    break
                await asyncio.sleep(0)
            if wire.closing:
                break
            assert not wire.paused, "reading stays paused while nothing runs"
            protocol.data_received(chunk)
            await asyncio.sleep(0)
        for _ in range(200):  # a call that waits for bytes that never come stays open
            if not state.tasks:
                break
            await asyncio.sleep(0)
        wire.close()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not state.tasks
        assert not state.connections
        assert self.faults == []
        return bytes(wire.written)


@cache
def front(limits: FrontLimits = TIGHT, *, short: bool = False) -> Front:
    return Front(limits, short=short)


def assert_framed(served) -> None:
    """Every served request had one Host (none only in HTTP/1.0) and just the body that its head declared."""
    for scope, body in served:
        headers = scope["headers"]
        names = [name for name, _ in headers]
        assert names.count(b"host") == 1 or (scope["http_version"] == "1.0" and b"host" not in names)
        assert scope["http_version"] in ("1.0", "1.1")
        assert len(headers) <= TIGHT.max_headers
        assert sum(len(name) + len(value) + 4 for name, value in headers) <= 2 * TIGHT.max_head_bytes
        assert len(scope["raw_path"]) + len(scope["query_string"]) <= TIGHT.max_target_bytes
        assert all(name == name.lower() and not set(name + value) & set(b"\r\n\0") for name, value in headers)
        lengths = [value for name, value in headers if name == b"content-length"]
        codings = [value for name, value in headers if name == b"transfer-encoding"]
        assert len(lengths) + len(codings) <= 1
        if lengths:
            assert len(body) == int(lengths[0])
        elif not codings:
            assert body == b""


def cut(raw: bytes, random) -> list[bytes]:
    """Cut bytes in random places into pieces that are not empty."""
    ends = sorted({random.randint(0, len(raw)) for _ in range(random.randint(0, 6))} | {0, len(raw)})
    return [raw[start:end] for start, end in pairwise(ends)]


EXTRAS = [
    [],
    [b"X-A: b"],
    [b"X-A:", b"x-a:   a  b  ", b"Accept: */*"],
    [b"Authorization: \xff\xfe", b"Accept: a, b"],
]
HOSTILE = [
    b"\r\n",
    b"\r\n\r\n",
    b"\n",
    b"\r",
    b"\0",
    b" ",
    b"\t",
    b":",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b";x\r\n",
    b"Host: b\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Content-Length: 99999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: xchunked\r\n",
    b"Transfer-Encoding : chunked\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b" folded\r\n",
    b"A: b\r\n" * 12,
    b"x" * 700,
    b"GET /unread HTTP/1.1\r\nHost: b\r\n\r\n",
    b"POST /unread HTTP/1.1\r\nHost: b\r\nContent-Length: 100\r\n\r\n",
    b"GET /old HTTP/1.0\r\n\r\n",
    b"CONNECT a:1 HTTP/1.1\r\nHost: b\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: b\r\n\r\n",
    b"GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n",
]


def valid_request(random) -> tuple[bytes, bytes, bytes]:
    """Make a well-formed request: its bytes, its path, its body."""
    path = random.choice([b"/", b"/a", b"/mcp", b"/a/b"])
    body = random.randbytes(random.choice([0, 1, 10, 300]))
    lines = list(random.choice(EXTRAS))
    lines.insert(random.randint(0, len(lines)), b"hOst: here")
    match random.choice(["none", "length", "chunked"]):
        case "length":
            lines.append(b"Content-Length: %d" % len(body))
            sent = body
        case "chunked":
            lines.append(b"Transfer-Encoding: chunked")
            extension = random.choice([b"", b";a=b", b";c"])
            sent = b"".join(b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in cut(body, random))
            trailer = random.choice([b"", b"Host: evil\r\n", b"Authorization: evil\r\nA: b\r\n"])
            sent += b"0\r\n" + trailer + b"\r\n"
        case _:
            body = sent = b""
    blank = random.choice([b"", b"", b"\r\n"])
    return blank + b"POST " + path + b" HTTP/1.1\r\n" + b"\r\n".join(lines) + b"\r\n\r\n" + sent, path, body


def mutated_stream(random) -> bytes:
    """Make well-formed requests, then put hostile bytes in, cut bytes out and change bytes."""
    raw = bytearray(b"".join(valid_request(random)[0] for _ in range(random.randint(1, 3))))
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(raw))
        match random.randint(0, 3):
            case 0:
                raw[at:at] = random.choice(HOSTILE)
            case 1:
                ends = [i + 2 for i in range(len(raw) - 1) if raw[i : i + 2] == b"\r\n"]
                at = random.choice(ends or [0])
                raw[at:at] = random.choice(HOSTILE)
            case 2:
                del raw[at : at + random.randint(1, 20)]
            case _:
                raw[at : at + 1] = random.randbytes(1)
    return bytes(raw)


RANDOMS = st.randoms(use_true_random=True)  # streams are made from a seed: ten times as many for the time


@fuzz_settings
@given(st.lists(st.binary(max_size=400), max_size=8))
def test_random_bytes_do_no_harm(chunks):
    front().feed([chunk for chunk in chunks if chunk])
    assert_framed(front().served)


@fuzz_settings
@given(RANDOMS)
def test_a_mutated_stream_never_slips_its_framing(random):
    front().feed(cut(mutated_stream(random), random))
    assert_framed(front().served)


@fuzz_settings
@given(RANDOMS)
def test_where_a_stream_is_cut_does_not_change_what_is_served(random):
    # A call answered unread ends its connection only when its body was still on the way: let all be read.
    raw, wide = mutated_stream(random).replace(b"/unread", b"/read"), front(WIDE)
    wide.feed([raw[at : at + 3] for at in range(0, len(raw), 3)])
    slowly = [(scope["raw_path"], scope["headers"], body) for scope, body in wide.served]
    wide.feed(cut(raw, random))
    assert [(scope["raw_path"], scope["headers"], body) for scope, body in wide.served] == slowly


@fuzz_settings
@given(RANDOMS)
def test_well_formed_requests_are_served_whole_in_order_and_answered_in_order(random):
    requests = [valid_request(random) for _ in range(random.randint(1, 5))]
    answered = front().feed(cut(b"".join(raw for raw, _, _ in requests), random))
    assert [(scope["raw_path"], body) for scope, body in front().served] == [
        (path, body) for _, path, body in requests
    ]
    assert all(b"evil" not in value for scope, _ in front().served for _, value in scope["headers"])
    assert_framed(front().served)
    numbers = [part.partition(b"\r\n\r\n")[2] for part in answered.split(b"HTTP/1.1 200 OK\r\n")[1:]]
    assert numbers == [b"%d" % number for number in range(1, len(requests) + 1)]


@fuzz_settings
@given(RANDOMS)
def test_the_short_way_serves_what_the_long_way_serves(random):
    raw = mutated_stream(random).replace(b"/unread", b"/mcp")
    told = []
    for ways in (front(WIDE), front(WIDE, short=True)):
        ways.feed(cut(raw, random))
        told.append([(scope["raw_path"], scope["headers"], body) for scope, body in ways.served])
    assert told[0] == told[1]
