"""Answers as they go out: whole ones in one write, everything else as uvicorn writes it."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.edge.frontcycle import FrontCycle


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


class Event:
    def set(self) -> None: ...


class Silent:
    def info(self, *_: object) -> None: ...


def cycle(method: str = "POST", *, keep_alive: bool = True) -> tuple[FrontCycle, Wire, list[int]]:
    wire, done = Wire(), []
    made: Any = FrontCycle(
        scope={"method": method, "http_version": "1.1"},  # type: ignore[typeddict-item]
        transport=wire,  # type: ignore[arg-type]
        flow=Flow(),  # type: ignore[arg-type]
        logger=Silent(),  # type: ignore[arg-type]
        access_logger=Silent(),  # type: ignore[arg-type]
        access_log=False,
        default_headers=[],
        message_event=Event(),  # type: ignore[arg-type]
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: done.append(1),
    )
    return made, wire, done


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


@pytest.mark.parametrize(
    ("headers", "method"),
    [
        ([], "POST"),
        ([(b"content-length", b"3")], "POST"),
        ([SIZED], "HEAD"),
        ([SIZED, (b"connection", b"close")], "POST"),
    ],
)
async def test_anything_else_is_written_by_uvicorn(headers: list[tuple[bytes, bytes]], method: str) -> None:
    made, wire, _ = cycle(method)
    await made.send(start(200, *headers))
    if headers == [(b"content-length", b"3")]:
        with pytest.raises(RuntimeError, match="shorter"):
            await made.send(body(b"ok"))
        return
    await made.send(body(b"ok"))
    assert len(wire.writes) == (1 if method == "HEAD" else 2)


@pytest.mark.parametrize("value", [b"a\r\nx: y", b"a\nx: y", b"a\rx: y"])
async def test_a_line_break_in_a_header_is_refused(value: bytes) -> None:
    made, wire, _ = cycle()
    await made.send(start(200, SIZED, (b"x-name", value)))
    with pytest.raises(RuntimeError, match="header"):
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
    made.flow.write_paused = True
    await made.send(start(200, SIZED))
    await made.send(body(b"ok"))
    assert made.flow.drained == 1  # type: ignore[attr-defined]
    gone, quiet, _ = cycle()
    gone.disconnected = True
    await gone.send(start(200, SIZED))
    await gone.send(body(b"ok"))
    assert (quiet.writes, wire.writes != [], done) == ([], True, [1])
