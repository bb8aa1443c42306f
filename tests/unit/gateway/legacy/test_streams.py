"""Streams that outlive their connection: ids, replay, one reader, limits."""

from __future__ import annotations

import asyncio

import pytest

from airlock.core.wire import sse
from airlock.gateway.legacy import streams
from airlock.gateway.legacy.streams import Replay, Signal, Stream, place

LONG = 3600.0


class Reader:
    """A client that reads a stream."""

    def __init__(self, stream: Stream, after: int | None = None, keep_alive_s: float = LONG) -> None:
        self.chunks: list[bytes] = []
        self.gone = False
        self._came = asyncio.Event()
        self.task = asyncio.ensure_future(stream.serve(self._write, keep_alive_s, after))

    async def _write(self, chunk: bytes) -> None:
        if self.gone:
            raise ConnectionResetError
        self.chunks.append(chunk)
        self._came.set()

    @property
    def events(self) -> list[sse.Event]:
        return sse.Events().take(b"".join(self.chunks))

    @property
    def data(self) -> list[bytes]:
        return [event.data for event in self.events if event.data]

    async def until(self, count: int) -> list[bytes]:
        while len(self.data) < count:
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 5)
        return self.data

    async def chunk(self, count: int) -> None:
        while len(self.chunks) < count:
            self._came.clear()
            await asyncio.wait_for(self._came.wait(), 5)


def made(number: int = 1, *, priming: bool = False, replay: Replay | None = None) -> Stream:
    return Stream(number, {}, replay or Replay(), priming=priming)


async def test_what_is_said_before_and_after_the_reader_comes_arrives_in_order():
    stream = made()
    stream.add(b'{"a":1}')
    reader = Reader(stream)
    await reader.until(1)
    stream.add(b'{"a":2}')
    await reader.until(2)
    stream.add(b'{"a":3}')
    stream.end(0.0)
    await reader.task
    assert reader.data == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert [event.id for event in reader.events] == ["1-1", "1-2", "1-3"]
    assert not stream.attached


async def test_something_is_written_at_once_so_that_the_head_leaves():
    reader = Reader(made())
    await reader.chunk(1)
    assert reader.chunks == [b": open\n\n"]
    reader.task.cancel()


async def test_a_primed_client_gets_an_id_first_from_which_nothing_is_lost():
    stream = made(3, priming=True)
    stream.add(b"1")
    reader = Reader(stream)
    await reader.until(1)
    assert reader.chunks[0] == b"retry: 1000\nid: 3-0-1\ndata: \n\n"
    assert place(b"3-0-1") == (3, 0)
    reader.task.cancel()
    again = Reader(stream, after=0)
    assert await again.until(1) == [b"1"]
    again.task.cancel()


async def test_priming_ids_are_never_used_twice():
    stream = made(0, priming=True)
    seen = []
    for _ in range(3):
        reader = Reader(stream)
        await reader.chunk(1)
        seen.append(reader.events[0].id)
        reader.task.cancel()
    assert len(set(seen)) == 3


async def test_a_resumed_stream_goes_on_behind_the_named_event():
    stream = made()
    for number in range(5):
        stream.add(b"%d" % number)
    reader = Reader(stream, after=2)
    assert await reader.until(3) == [b"2", b"3", b"4"]
    reader.task.cancel()


async def test_a_place_that_was_never_reached_is_the_end_and_hides_nothing():
    stream = made()
    stream.add(b"1")
    reader = Reader(stream, after=10**9)
    await reader.chunk(1)
    stream.add(b"2")
    assert await reader.until(1) == [b"2"]
    reader.task.cancel()


async def test_a_new_reader_takes_the_place_of_the_old_one():
    stream = made()
    first = Reader(stream)
    await first.chunk(1)
    second = Reader(stream)
    await second.chunk(1)
    await first.task
    stream.add(b"1")
    assert await second.until(1) == [b"1"]
    assert first.data == []
    assert stream.attached
    second.task.cancel()


async def test_what_a_reader_did_not_take_waits_for_the_next_one():
    stream = made()
    reader = Reader(stream)
    await reader.chunk(1)
    reader.gone = True
    stream.add(b"1")
    await reader.task
    assert not stream.attached
    again = Reader(stream)
    assert await again.until(1) == [b"1"]
    again.task.cancel()


async def test_a_quiet_stream_is_kept_alive():
    reader = Reader(made(), keep_alive_s=0.001)
    await reader.chunk(3)
    assert reader.chunks[1:3] == [b": keep-alive\n\n"] * 2
    reader.gone = True
    await reader.task


async def test_a_cancelled_reader_leaves_the_stream_alone():
    stream = made()
    reader = Reader(stream)
    await reader.chunk(1)
    reader.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader.task
    assert not stream.attached
    stream.add(b"1")
    again = Reader(stream)
    assert await again.until(1) == [b"1"]
    again.task.cancel()


async def test_a_line_break_in_a_message_does_not_begin_another_event():
    stream = made()
    stream.add(b'{"a":\n1}\r\n')
    stream.end(0.0)
    reader = Reader(stream)
    await reader.task
    assert len(reader.data) == 1


def test_only_so_many_events_and_bytes_are_remembered_but_always_the_newest():
    replay = Replay()
    stream = made(replay=replay)
    for _ in range(streams.MOST_EVENTS + 10):
        stream.add(b"x")
    assert len(stream._events) == streams.MOST_EVENTS
    stream.add(b"y" * streams.MOST_BYTES)
    assert len(stream._events) == 1
    assert replay.used == stream._size == len(stream._events[0][1])


def test_all_streams_together_have_a_limit_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(streams, "MOST_BYTES_IN_ALL", 1000)
    replay, home = Replay(), dict[int, Stream]()
    finished = Stream(1, home, replay, priming=False)
    finished.add(b"x" * 600)
    finished.end(60.0)
    open_one = Stream(2, home, replay, priming=False)
    open_one.add(b"y" * 600)
    assert list(home) == [2]  # the finished one made room
    open_one.add(b"z" * 600)
    assert len(open_one._events) == 1
    assert replay.used < 1000


def test_a_finished_stream_is_forgotten_at_its_time():
    replay, home = Replay(), dict[int, Stream]()
    stream = Stream(1, home, replay, priming=False)
    stream.add(b"x")
    stream.end(60.0)
    stream.end(999.0)
    replay.expire(59.0)
    assert home == {1: stream}
    replay.expire(60.0)
    assert (home, replay.used) == ({}, 0)
    stream.add(b"late")
    assert replay.used == 0


async def test_a_stream_that_is_forgotten_lets_its_reader_go():
    stream = made()
    reader = Reader(stream)
    await reader.chunk(1)
    stream.forget()
    await reader.task


def test_a_finished_stream_is_exhausted_behind_its_last_event():
    stream = made()
    stream.add(b"x")
    assert not stream.exhausted(1)
    stream.end(0.0)
    assert stream.exhausted(1)
    assert not stream.exhausted(0)


@pytest.mark.parametrize(("event_id", "found"), [(b"3-17", (3, 17)), (b"0-0-4", (0, 0)), (b"0-5-1", (0, 5))])
def test_our_ids_are_read(event_id: bytes, found: tuple[int, int]):
    assert place(event_id) == found


@pytest.mark.parametrize(
    "event_id",
    [b"", b"3", b"3-", b"-3", b"a-1", b"1-a", b"1-2-3-4", b"1--2", b"+1-2", b"1-" + b"9" * 50, b"\xb2-1"],
)
def test_other_ids_are_not(event_id: bytes):
    assert place(event_id) is None


async def test_a_signal_that_was_given_before_ends_the_wait_at_once_and_is_used_up():
    signal = Signal()
    signal.tell()
    signal.tell()
    assert await signal.wait(LONG)
    assert not await signal.wait(0.001)


async def test_a_signal_ends_a_wait_without_an_end():
    signal = Signal()
    waiting = asyncio.ensure_future(signal.wait(None))
    await asyncio.sleep(0)
    signal.tell()
    assert await waiting


async def test_a_cancelled_wait_leaves_the_signal_usable():
    signal = Signal()
    waiting = asyncio.ensure_future(signal.wait(LONG))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    signal.tell()
    assert await signal.wait(None)
