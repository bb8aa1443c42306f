"""Whatever an upstream sends, a stream makes of it what a POST makes of it: the same body, or the same failure."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airlock.core.errors import UpstreamError
from airlock.edge.httpc import HttpClient, Reply, parse_target
from airlock.edge.httpconn import Connection
from airlock.edge.httpstream import Stream
from tests.fuzz.profile import fuzz_settings
from tests.fuzz.test_fuzz_upstream import LIMITS, Line, Outcome, cut, ends, hits, places, soups, valid

idles = st.sampled_from([60.0, None])


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class PausableLine(Line):
    """A transport that goes nowhere and can be stopped."""

    def resume_reading(self) -> None: ...


async def streamed(
    pieces: list[bytes], end: str, *, idle_s: float | None
) -> tuple[Reply | UpstreamError, bool]:
    """What a stream makes of `pieces`, and whether its connection was kept."""
    loop = asyncio.get_running_loop()
    client = HttpClient(parse_target("http://upstream/"), LIMITS)
    line = PausableLine()
    connection = Connection(loop, client)
    connection.connection_made(line)
    line.closed = False  # nobody waits yet, so it was dropped at once
    stream = Stream(loop, LIMITS, connection, idle_s)

    async def read() -> Reply | UpstreamError:
        try:
            await stream.begin(loop.time(), b"request", 60.0)
            body = await stream.whole()
        except UpstreamError as error:
            return error
        finally:
            stream.close()
        return Reply(stream.status, stream.content_type, body)

    reading = loop.create_task(read())
    await asyncio.sleep(0)
    assert line.written == b"request"
    for piece in pieces:
        if line.closed or client.idle:
            break
        connection.data_received(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    kept = client.idle == 1
    assert not (kept and line.closed)
    if not kept and not line.closed:
        if end == "deadline":
            connection.expect(0.0)
            connection._expire()
        elif end == "eof":
            connection.eof_received()
        else:
            connection.connection_lost(None if end == "lost" else ConnectionResetError())
    value = await reading
    connection.connection_lost(None)
    assert client.idle == 0
    assert connection._timer is None
    return value, kept


def check(
    loop: asyncio.AbstractEventLoop, data: bytes, places: list[int], end: str, idle_s: float | None
) -> None:
    pieces = cut(data, places)
    posted = Outcome(loop, pieces, end).value
    value, kept = loop.run_until_complete(streamed(pieces, end, idle_s=idle_s))
    if isinstance(posted, Reply):
        assert value == posted
    else:
        assert isinstance(value, UpstreamError)
        assert (value.kind, value.reached, value.status) == (posted.kind, posted.reached, posted.status)
        assert not kept


@given(valid(), places, ends)
@fuzz_settings
def test_a_valid_answer_is_streamed_as_it_is_posted(loop, answer, places, end):
    data, reply, kept, by_end = answer
    value, was_kept = loop.run_until_complete(
        streamed(cut(data, places), "eof" if by_end else end, idle_s=60.0)
    )
    assert (value, was_kept) == (reply, kept)


@given(valid(), st.lists(hits, max_size=4), places, ends, idles)
@fuzz_settings
def test_a_damaged_answer_is_streamed_as_it_is_posted(loop, answer, damage, places, end, idle_s):
    data = answer[0]
    for place, length, new in damage:
        at = place % (len(data) + 1)
        data = data[:at] + new + data[at + length :]
    check(loop, data, places, end, idle_s)


@given(soups | st.binary(max_size=200), places, ends, idles)
@fuzz_settings
def test_any_bytes_are_streamed_as_they_are_posted(loop, data, places, end, idle_s):
    check(loop, data, places, end, idle_s)
