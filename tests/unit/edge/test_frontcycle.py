"""Answers as they go out: whole ones in one write, streams in chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airlock.edge.frontcycle import AsgiCycle, DirectCycle
from airlock.edge.frontlimits import Direct, FrontLimits, FrontState


class Wire:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.closed = True


class Flow:
    write_paused = False

    def __init__(self) -> None:
        self.drained = 0

    async def drain(self) -> None:
        self.drained += 1


class Front:
    def __init__(self, wire: Wire) -> None:
        self.transport, self.flow = wire, Flow()
        self.done: list[int] = []

    def on_response_complete(self) -> None:
        self.done.append(1)


def cycle(method: str = "POST", *, keep_alive: bool = True) -> tuple[AsgiCycle, Wire, list[int]]:
    wire = Wire()
    front = Front(wire)
    scope = {"method": method, "http_version": "1.1"}
    made = AsgiCycle(front, scope, keep_alive=keep_alive, expects_100=False)  # type: ignore[arg-type]
    return made, wire, front.done


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


SIZED = (b"content-length", b"2")


async def test_a_whole_answer_goes_out_in_one_write() -> None:
    made, wire, done = cycle()
    await made.send(start(200, (b"content-type", b"a/b"), SIZED))
    assert wire.writes == []
    await made.send(body(b"ok"))
    assert wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\n\r\nok"]
    assert (made.response_started, made.response_complete, done, wire.closed) == (True, True, [1], False)
    with pytest.raises(RuntimeError):
        await made.send(body(b"again"))


async def test_the_last_answer_of_a_connection_says_so_and_closes() -> None:
    made, wire, _ = cycle(keep_alive=False)
    await made.send(start(404, SIZED))
    await made.send(body(b"no"))
    assert wire.writes == [b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\nconnection: close\r\n\r\nno"]
    assert wire.closed


async def test_an_answer_without_a_length_is_chunked_and_one_to_head_has_no_body() -> None:
    made, wire, _ = cycle()
    await made.send(start(200))
    await made.send(body(b"ok"))
    assert wire.writes == [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"]
    made, wire, _ = cycle("HEAD")
    await made.send(start(200, SIZED))
    await made.send(body(b"ok"))
    assert wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"]
    made, wire, _ = cycle()
    await made.send(start(204))
    await made.send(body(b""))
    assert wire.writes == [b"HTTP/1.1 204 No Content\r\n\r\n"]


async def test_an_application_may_end_the_connection_but_not_choose_the_framing() -> None:
    made, wire, _ = cycle()
    await made.send(start(200, SIZED, (b"connection", b"close")))
    await made.send(body(b"ok"))
    assert wire.closed
    assert wire.writes[0].count(b"connection: close") == 1
    made, _, _ = cycle()
    await made.send(start(200, (b"transfer-encoding", b"chunked")))
    with pytest.raises(RuntimeError, match="framing"):
        await made.send(body(b"ok"))


@pytest.mark.parametrize("data", [b"o", b"okk"])
async def test_a_body_that_is_not_as_long_as_declared_is_a_bug(data: bytes) -> None:
    made, _, _ = cycle()
    await made.send(start(200, SIZED))
    with pytest.raises(RuntimeError, match="shorter"):
        await made.send(body(data))


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nx: y", b"a\rx: y"])
async def test_a_line_break_in_a_header_is_refused(value: bytes) -> None:
    made, wire, _ = cycle()
    await made.send(start(200, SIZED, (b"x-name", value)))
    with pytest.raises(RuntimeError, match="not a header"):
        await made.send(body(b"ok"))
    assert b"".join(wire.writes) == b""


async def test_a_body_in_pieces_is_streamed() -> None:
    made, wire, done = cycle()
    await made.send(start(200))
    await made.send(body(b"one", more=True))
    await made.send(body(b"two"))
    assert b"".join(wire.writes).endswith(b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert done == [1]


async def test_a_client_that_is_gone_gets_nothing_and_a_full_pipe_is_waited_for() -> None:
    made, wire, done = cycle()
    made.front.flow.write_paused = True
    await made.send(start(200, SIZED))
    await made.send(body(b"ok"))
    assert made.front.flow.drained == 1  # type: ignore[attr-defined]
    gone, quiet, _ = cycle()
    gone.disconnected = True
    await gone.send(start(200, SIZED))
    await gone.send(body(b"ok"))
    assert (quiet.writes, wire.writes != [], done) == ([], True, [1])


async def test_a_call_whose_task_is_cancelled_before_its_first_step_is_told() -> None:
    told: list[type[BaseException]] = []

    async def answer(lines: Any, body: bytes, peer: Any) -> tuple[int, bytes]:
        try:
            await asyncio.get_running_loop().create_future()
        except BaseException as error:
            told.append(type(error))
            raise
        return 200, b""

    state = FrontState(lambda *_: None, FrontLimits(), lambda _: None, Direct(b"/mcp", 9, answer))  # type: ignore[arg-type]
    made = DirectCycle(Front(Wire()), [], keep_alive=True)  # type: ignore[arg-type]
    made.start(state, asyncio.get_running_loop(), at_once=True)
    (task,) = state.tasks
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == [asyncio.CancelledError]
    assert state.tasks == set()


async def test_a_head_is_made_only_when_it_can_be_written() -> None:
    made, wire, _ = cycle(keep_alive=False)

    class Held(Flow):
        write_paused = True

        async def drain(self) -> None:
            made.keep_alive = True  # the rest of the request came meanwhile

    made.front.flow = Held()  # type: ignore[assignment]
    await made.send(start(200, SIZED))
    await made.send(body(b"ok"))
    assert wire.writes == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]
    assert not wire.closed


@pytest.mark.parametrize(
    ("name", "address"),
    [(("192.0.2.1", 5000), "192.0.2.1"), (("::1", 5000, 0, 0), "::1"), ("", ""), (None, "")],
)
def test_a_call_tells_the_address_it_came_from(name: Any, address: str) -> None:
    class Named(Wire):
        def get_extra_info(self, what: str) -> Any:
            assert what == "peername"
            return name

    made = DirectCycle(Front(Named()), [], keep_alive=True)  # type: ignore[arg-type]
    assert made.peer() == address
