"""What real sockets show only by luck: slow readers, bytes that we hold back, a client gone in the middle."""

from __future__ import annotations

import asyncio

import pytest

from airlock.edge.asgi import respond
from airlock.edge.front import FrontProtocol
from airlock.edge.frontlimits import REFUSALS, FrontLimits, FrontState

GET = b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n"


class Clock:
    """A loop whose timers fire when told; tasks run on the real one."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, Timer]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay, callback, *args):
        timer = Timer(callback, args)
        self.timers.append((self.now + delay, timer))
        return timer

    def create_task(self, coroutine):
        return asyncio.get_running_loop().create_task(coroutine)

    def waiting(self) -> list[str]:
        return [timer.callback.__name__ for _, timer in self.timers if not timer.cancelled]

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((at for at, timer in self.timers if not timer.cancelled and at <= end)):
            self.now = due[0]
            for entry in [entry for entry in self.timers if entry[0] <= self.now]:
                self.timers.remove(entry)
                if not entry[1].cancelled:
                    entry[1].callback(*entry[1].args)
        self.now = end


class Timer:
    def __init__(self, callback, args) -> None:
        self.callback, self.args, self.cancelled = callback, args, False

    def cancel(self) -> None:
        self.cancelled = True


class Wire(asyncio.Transport):
    """A transport in memory; `unsent` is what the client has not taken yet."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.unsent = 0
        self.closing = self.aborted = self.ended = self.paused = False
        self.broken: OSError | None = None

    def write(self, data):
        self.written += data

    def write_eof(self):
        if self.broken is not None:
            raise self.broken
        self.ended = True

    def get_write_buffer_size(self):
        return self.unsent

    def is_closing(self):
        return self.closing

    def close(self):
        self.closing = True

    def abort(self):
        self.closing = self.aborted = True

    def pause_reading(self):
        self.paused = True

    def resume_reading(self):
        self.paused = False

    def get_extra_info(self, name, default=None):
        return default


class Front:
    def __init__(self, limits: FrontLimits = FrontLimits()) -> None:  # noqa: B008 - frozen
        self.clock, self.wire = Clock(), Wire()
        self.said: list[str] = []
        self.release = asyncio.Event()
        self.release.set()
        self.state = FrontState(self.app, limits, self.said.append)
        self.protocol = FrontProtocol(self.state, self.clock)  # type: ignore[arg-type]
        self.protocol.connection_made(self.wire)

    async def app(self, scope, receive, send):
        await self.release.wait()
        await respond(send, 200, b"ok", b"text/plain")

    async def settle(self):
        for _ in range(10):
            await asyncio.sleep(0)


async def test_a_request_that_comes_whole_sets_no_timer_but_the_idle_one():
    front = Front()
    assert front.clock.waiting() == ["_too_slow"]
    for _ in range(5):
        front.protocol.data_received(GET)
        await front.settle()
        assert front.clock.waiting() == ["_rested"]
    assert front.wire.written.count(b"HTTP/1.1 200 OK") == 5


async def test_the_idle_time_starts_anew_with_each_answer():
    front = Front(FrontLimits(keep_alive_s=10))
    for _ in range(3):
        front.protocol.data_received(GET)
        await front.settle()
        front.clock.pass_time(9)
        assert not front.wire.closing
    front.clock.pass_time(0.9)
    assert not front.wire.closing
    front.clock.pass_time(0.2)
    assert front.wire.closing


async def test_a_call_is_not_cut_off_by_the_idle_time():
    front = Front(FrontLimits(keep_alive_s=10))
    front.protocol.data_received(GET)
    await front.settle()
    front.release.clear()
    front.protocol.data_received(GET)
    await front.settle()
    front.clock.pass_time(1000)
    assert not front.wire.closing
    front.release.set()
    await front.settle()
    front.clock.pass_time(11)
    assert front.wire.closing


async def test_a_body_that_we_hold_back_ourselves_is_not_too_slow():
    front = Front()
    front.release.clear()
    front.protocol.data_received(GET + b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
    await front.settle()
    assert front.wire.paused
    front.clock.pass_time(1000)
    front.protocol.data_received(b"bc")
    front.release.set()
    await front.settle()
    assert front.wire.written.count(b"HTTP/1.1 200 OK") == 2
    assert not front.wire.closing


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off():
    front = Front(FrontLimits(keep_alive_s=10))
    front.wire.unsent = 1000
    front.protocol.pause_writing()
    front.clock.pass_time(9)
    assert not front.wire.aborted
    front.clock.pass_time(2)
    assert front.wire.aborted


async def test_a_client_that_takes_some_of_its_answer_is_waited_for():
    front = Front(FrontLimits(keep_alive_s=10, head_s=1000))
    front.wire.unsent = 1000
    front.protocol.pause_writing()
    for _ in range(20):
        front.wire.unsent -= 40
        front.clock.pass_time(10)
    assert not front.wire.aborted
    front.protocol.resume_writing()
    front.wire.unsent = 0
    front.clock.pass_time(100)
    assert not front.wire.aborted


async def test_a_closed_connection_does_not_wait_for_ever_for_a_client_that_reads_nothing():
    front = Front(FrontLimits(keep_alive_s=10))
    front.protocol.data_received(GET)
    await front.settle()
    front.wire.unsent = 5
    front.clock.pass_time(10)
    assert front.wire.closing
    assert not front.wire.aborted
    front.protocol.resume_writing()
    front.clock.pass_time(11)
    assert front.wire.aborted


async def test_a_lost_connection_leaves_no_timer_and_tells_the_running_call():
    front = Front()
    front.release.clear()
    front.protocol.data_received(GET + GET + b"GET")
    front.wire.unsent = 5
    front.protocol.pause_writing()
    await front.settle()
    front.protocol.connection_lost(ConnectionResetError())
    assert front.clock.waiting() == []
    assert not front.protocol.pipeline
    front.release.set()
    await front.settle()
    assert front.wire.written == b""
    assert not front.state.tasks


async def test_a_refusal_to_a_client_that_is_gone_is_given_up():
    front = Front()
    front.wire.broken = OSError(107, "not connected")
    front.protocol.data_received(b"rubbish\r\n")
    assert front.wire.aborted


async def test_a_body_refused_after_its_answer_began_ends_the_connection_without_a_second_answer():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if begun:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})
        await receive()
        await receive()

    for begun in (True, False):
        front = Front()
        front.state.app = app
        front.protocol.data_received(
            b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
        )
        await front.settle()
        front.protocol.data_received(b"zz\r\n")
        await front.settle()
        assert front.wire.closing or front.wire.ended
        assert front.wire.written.count(b"HTTP/1.1") == 1
        assert front.wire.written.startswith(b"HTTP/1.1 200" if begun else b"HTTP/1.1 400")


@pytest.mark.case("T62")
async def test_a_client_that_sends_on_after_its_refusal_costs_no_memory_and_is_cut_off():
    front = Front()
    front.protocol.data_received(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n")
    await front.settle()
    assert front.wire.ended
    assert b"connection: close" in front.wire.written
    for _ in range(16):
        front.protocol.data_received(b"x" * (1 << 20))
    assert not front.wire.aborted
    assert front.protocol.cycle is not None
    assert front.protocol.cycle.body == b""
    front.protocol.data_received(b"x")
    assert front.wire.aborted


async def test_the_newest_of_the_pipelined_requests_closes_after_a_shutdown():
    front = Front()
    front.release.clear()
    front.protocol.data_received(GET + b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\na")
    await front.settle()
    front.protocol.shutdown()
    front.protocol.data_received(b"bc")
    front.release.set()
    await front.settle()
    answers = bytes(front.wire.written).split(b"HTTP/1.1 200 OK")
    assert [b"connection: close" in answer for answer in answers[1:]] == [False, True]
    assert front.wire.closing


async def test_a_refusal_never_carries_bytes_of_the_request():
    front = Front()
    front.protocol.data_received(b"GET /\x01secret HTTP/1.1\r\n\r\n")
    assert front.wire.written == REFUSALS[400]
    assert all(answer.count(b"\r\n\r\n") == 1 for answer in REFUSALS.values() if answer)


async def test_crowding_is_told_once_a_minute():
    front = Front()
    for now in (0.0, 1.0, 59.9, 60.0, 61.0, 130.0):
        front.state.crowded(now)
    assert front.said == ["all 1024 connections are taken; closing new ones"] * 3


async def test_a_connection_that_comes_while_the_server_stops_is_closed_without_a_word_in_the_log():
    front = Front()
    front.state.stopping = True
    late = Wire()
    FrontProtocol(front.state, front.clock).connection_made(late)  # type: ignore[arg-type]
    assert late.closing
    assert front.said == []
    assert len(front.state.connections) == 1
