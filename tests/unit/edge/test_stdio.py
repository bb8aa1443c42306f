"""JSON-RPC on the pipes of a process: what is a message, what is garbage, what is sent."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import strict
from airlock.edge import child
from airlock.edge import stdio as module
from airlock.edge.child import Command, minimal_environment, spellings
from airlock.edge.stdio import Garbage, StdioProcess
from tests.fakes import stdio_server


class Dialogue:
    """A process of the fake server, and everything that was heard of it."""

    def __init__(self, *flags: str, secrets: tuple[str, ...] = (), **more: Any) -> None:
        self.messages: list[dict[str, Any]] = []
        self.raw: list[bytes] = []
        self.garbage: list[tuple[Garbage, bytes]] = []
        self.ends: list[str] = []
        self.said: list[str] = []
        self._changed = asyncio.Event()
        self.process = StdioProcess(
            Command(stdio_server.command(*flags), minimal_environment(os.environ), secrets=secrets),
            **{
                "on_message": self._message,
                "on_end": self._note(self.ends.append),
                "say": self._note(self.said.append),
                "on_garbage": self._note(lambda what: self.garbage.append((what, self.process.line))),
                **more,
            },
        )

    def _note(self, take: Callable[[Any], object]) -> Callable[[Any], None]:
        def noted(value: Any) -> None:
            take(value)
            self._changed.set()

        return noted

    def _message(self, message: dict[str, object]) -> None:
        self.messages.append(message)
        self.raw.append(self.process.line)
        self._changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def call(self, name: str, **arguments: Any) -> None:
        params = {"name": name, "arguments": arguments}
        self.process.send(
            json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        )

    async def told(self, *lines: str) -> None:
        """Have the server write these lines, and wait until they were read."""
        before = len(self.messages)
        self.call("raw", lines=[*lines, '{"fence":true}\n'])
        await self.until(lambda: {"fence": True} in self.messages[before:])
        self.messages.remove({"fence": True})


@asynccontextmanager
async def dialogue(*flags: str, **more: Any) -> AsyncIterator[Dialogue]:
    opened = Dialogue(*flags, **more)
    await opened.process.start()
    try:
        yield opened
    finally:
        await opened.process.stop()
    assert not opened.process.alive


async def test_every_object_arrives_in_order_with_the_line_that_held_it():
    async with dialogue() as heard:
        assert heard.process.alive
        assert heard.process.pid
        await heard.told('{"a":1}\n{"a":', '2}\n  {"a":3, "a":4}\r\n{"a":"\\ud800"}\n')
        assert heard.messages == [{"a": 1}, {"a": 2}, {"a": 4}, {"a": "\ud800"}]
        assert heard.raw[:3] == [b'{"a":1}', b'{"a":2}', b'  {"a":3, "a":4}']
        assert heard.process.line == b""
    assert (heard.ends, heard.said, heard.garbage) == ([], [], [])


async def test_an_array_of_a_legacy_server_is_split():
    async with dialogue() as heard:
        await heard.told('[{"a":1},{"b":2}]\n', '[{"c":3},4]\n', "[]\n")
        assert heard.messages == [{"a": 1}, {"b": 2}, {"c": 3}]
        assert heard.said == ['a line on stdout is no JSON object (1 dropped so far): [{"c":3},4]']


async def test_a_banner_on_stdout_is_dropped_and_told_once():
    async with dialogue("--banner") as heard:
        await heard.told('"text"\n', "null\n", '{"broken": \n', "\n", " \n")
        assert heard.messages == []
        assert heard.said == ["a line on stdout is no JSON object (1 dropped so far): Welcome to the server"]
        await heard.told("x\n" * 100)
        assert len(heard.said) == 2
        assert heard.said[1] == "a line on stdout is no JSON object (101 dropped so far): x"
        assert heard.garbage == []


async def test_a_banner_in_our_log_holds_no_credential_and_is_short():
    secret = "gh" + "p_" + "x" * 36
    async with dialogue() as heard:
        await heard.told(f"\x1b[2Jkey {secret} {'y' * 300}\n")
        assert secret not in heard.said[0]
        assert heard.said[0].startswith(
            "a line on stdout is no JSON object (1 dropped so far): key [REDACTED] yyy"
        )
        assert len(heard.said[0].partition(": ")[2]) == 200


@pytest.mark.parametrize(
    "line",
    ["{}", "key {}", '["{}"]', '{{"jsonrpc":"2.0","id":1,"result":"{}"', "y" * 180 + "{}", "y " * 790 + "{}"],
)
async def test_what_was_given_to_a_process_is_masked_in_its_dropped_lines_whatever_it_looks_like(line: str):
    value = "correct horse battery staple"
    async with dialogue(secrets=spellings([value])) as heard:
        await heard.told(line.format(value) + "\n")
    assert len(heard.said) == 1
    assert "horse" not in heard.said[0]


@pytest.mark.parametrize("secret", ["correct horse battery staple", "gh" + "p_" + "x" * 36])
async def test_a_line_given_up_in_the_middle_of_a_credential_shows_no_half_of_it(secret: str):
    async with dialogue(secrets=spellings(["correct horse battery staple"]), max_line_bytes=100) as heard:
        heard.call("raw", lines=["y" * 80 + " " + secret + "z" * 200 + "\n"])
        await heard.until(lambda: heard.said)
    assert heard.said == [
        "a line on stdout is too long (1 dropped so far): "
        + ("y" * 80 + " " if secret[0] == "g" else "")
        + "\u2026"
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":1,"result":NaN}',
        '{"jsonrpc":"2.0","id":1,"result":1e999}',
        '{"jsonrpc":"2.0","id":1,"result":{',
        '{"jsonrpc":"2.0","id":1,"result":' + "[" * 64 + "]" * 64 + "}",
        '[{"jsonrpc":"2.0","id":1,"result":{}},]',
        '{"jsonrpc":"2.0","id":1,"result":"\udcff"}',
    ],
)
async def test_a_message_that_is_not_strict_json_is_told_as_garbage(line: str):
    async with dialogue() as heard:
        await heard.told(line + "\n")
        assert heard.messages == []
        assert [what for what, _ in heard.garbage] == [Garbage.UNREADABLE]
        assert heard.garbage[0][1].startswith(line[:20].encode())


async def test_a_line_over_the_limit_is_told_at_once_and_the_next_one_is_read():
    async with dialogue(max_line_bytes=1000) as heard:
        heard.call("raw", lines=['{"jsonrpc":"2.0","id":7,"result":"' + "x" * 2000])
        await heard.until(lambda: heard.garbage)
        await heard.told("y" * 3000 + '"}\n')
        assert heard.garbage == [(Garbage.TOO_LARGE, b'{"jsonrpc":"2.0","id":7,"result":"' + b"x" * 966)]
        assert heard.messages == []
        assert heard.said[0].startswith("a line on stdout is too long (1 dropped so far): ")


async def test_a_two_megabyte_line_is_one_message():
    async with dialogue() as heard:
        heard.call("big", bytes=2_000_000)
        await heard.until(lambda: heard.messages)
        assert len(heard.messages[0]["result"]["padding"]) == 2_000_000


async def test_garbage_without_a_taker_is_dropped():
    async with dialogue(on_garbage=None) as heard:
        await heard.told('{"jsonrpc":"2.0",\n')
        assert heard.messages == []


async def test_another_reader_can_be_stricter():
    async with dialogue(parse=strict.parse) as heard:
        await heard.told('{"a":1,"a":2}\n')
        assert heard.messages == []


async def test_what_was_half_written_when_the_process_ended_is_no_message():
    async with dialogue() as heard:
        heard.call("die", last='{"a":1}\n{"b":2}', status=5)
        await heard.until(lambda: heard.ends)
        assert heard.messages == [{"a": 1}]
        assert heard.ends == ["the server process ended (exit status 5)"]
        assert not heard.process.alive
        with pytest.raises(UpstreamError) as caught:
            heard.process.send(b"{}")
        assert (caught.value.kind, caught.value.reached) == (UpstreamFailure.UNREACHABLE, False)


async def test_nothing_is_heard_after_a_stop():
    async with dialogue() as heard:
        heard.call("raw", lines=['{"a":1}\n'])
        stopping = asyncio.ensure_future(heard.process.stop())
        await asyncio.sleep(0)
        assert not heard.process.alive
        await stopping
    assert (heard.messages, heard.ends) == ([], [])


async def test_a_message_with_a_newline_is_never_two_messages():
    async with dialogue() as heard:
        with pytest.raises(ValueError, match="one line"):
            heard.process.send(b'{"a":1}\n{"b":2}')


async def test_a_process_that_does_not_read_is_told_to_the_sender_and_holds_little(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(module, "MAX_UNSENT", 100_000)
    monkeypatch.setattr(child, "EOF_S", 0.05)
    async with dialogue() as heard:
        heard.call("stop_reading")
        await heard.until(lambda: heard.messages)
        sent = 0

        def fill() -> None:
            nonlocal sent
            while sent < 10_000_000:
                heard.process.send(b"x" * 50_000)
                sent += 50_000

        with pytest.raises(UpstreamError) as caught:
            fill()
        assert caught.value.cause == "the server process does not read its input"
        assert not caught.value.reached
        assert sent < 1_000_000


async def test_stderr_is_told_line_by_line_and_bounded():
    async with dialogue("--chatty") as heard:
        await heard.told()
        await heard.until(lambda: len(heard.said) >= 100)
    assert heard.said[:2] == ["line 0", "line 1"]
    assert heard.said[100:] == ["50 more lines on stderr were left out"]


async def test_a_process_never_started_sends_nothing():
    heard = Dialogue()
    with pytest.raises(UpstreamError):
        heard.process.send(b"{}")
    await heard.process.stop()
