"""JSON-RPC over a child's pipes: one JSON object a line, whatever else a server prints.

Knows lines and JSON; does not know methods, ids or which revision is spoken.
SPEC: mcp.md 17.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.wire import strict
from airlock.edge.child import Child, Command, Lines, readable

__all__ = ["MAX_LINE_BYTES", "MAX_UNSENT", "Garbage", "StdioProcess"]

MAX_LINE_BYTES: Final = 8 * 1024 * 1024
"""LIMIT: the longest line that is read as a message."""

MAX_UNSENT: Final = 4 * 1024 * 1024
"""LIMIT: bytes held for a process that does not read; with more, nothing is accepted for it."""

_SHOWN_CHARS = 200
_READ_BYTES = 8 * _SHOWN_CHARS
_SAY_EVERY = 100


class Garbage(StrEnum):
    """What is wrong with a line that somebody may be waiting for."""

    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"


def _parse(line: bytes) -> object:
    if strict.deeper_than(line, strict.MAX_DEPTH):
        raise strict.StrictError(strict.StrictKind.DEPTH)
    return strict.parse(line, unique=False)


class StdioProcess:
    """ONE run of a command that speaks JSON-RPC on its pipes.

    `on_message` takes every object it writes, in order; the objects of an array (a batch) one by one. While it
    runs, `line` holds the raw line, for a reader that wants it parsed again (refusing equal keys).
    `on_end` takes why the run is over ("the server process ended (exit status 1)"), once, after everything that was
    written before; its group is then taken down, and `stop` waits for that. After `stop` nothing is told any more.
    `on_garbage` takes a `Garbage`: TOO_LARGE for a line over `max_line_bytes`, as soon as it is (`line` holds its
    beginning), UNREADABLE for one that means to be JSON-RPC and is not JSON. Anything else (a banner) is dropped.
    `say` takes lines for the log: stderr, and the first and then every 100th line that was dropped.
    `parse` returns the value of a JSON text or raises `ValueError`.
    """

    def __init__(
        self,
        command: Command,
        *,
        on_message: Callable[[dict[str, object]], None],
        on_end: Callable[[str], None],
        say: Callable[[str], None],
        max_line_bytes: int = MAX_LINE_BYTES,
        on_garbage: Callable[[Garbage], None] | None = None,
        parse: Callable[[bytes], object] = _parse,
    ) -> None:
        self._on_message = on_message
        self._on_garbage = on_garbage
        self._say = say
        self._parse = parse
        self._lines = Lines(max_line_bytes)
        self._dropped = 0
        self._secrets = command.secrets
        self._child = Child(command, on_output=self._received, on_end=on_end, say=say)
        self.line = b""

    async def start(self) -> None:
        """Spawn it. Raises `UpstreamError` (UNREACHABLE, not reached) when it cannot be started."""
        await self._child.start()

    @property
    def alive(self) -> bool:
        """Whether a message can be sent to it."""
        return self._child.alive

    @property
    def pid(self) -> int | None:
        """Its process id; None before it started."""
        return self._child.pid

    def send(self, message: bytes) -> None:
        """Write one JSON text that holds no newline. Never blocks.

        Raises `UpstreamError` (UNREACHABLE, not reached) when the process is gone, or does not read.
        """
        # SECURITY: a newline inside would make two messages of one, the second judged by nobody.
        if b"\n" in message:
            raise ValueError("a message must be one line")
        if not self._child.alive:
            raise _unsent("the server process is not running")
        if self._child.unsent > MAX_UNSENT:
            raise _unsent("the server process does not read its input")
        self._child.write(message + b"\n")

    async def stop(self) -> None:
        """End it and its group, and reap it: stdin closed, 2 s, SIGTERM, 2 s, SIGKILL. Idempotent."""
        await self._child.stop()

    def _received(self, data: bytes) -> None:
        for line, whole in self._lines.feed(data):
            self.line = line
            if not whole:
                self._drop(line, Garbage.TOO_LARGE)
            elif line and not line.isspace():
                self._read(line)
        self.line = b""

    def _read(self, line: bytes) -> None:
        try:
            value = self._parse(line)
        except ValueError:
            # A number, a word or a broken object of its own log is a banner; this is more.
            meant = line.lstrip()[:1] in (b"{", b"[") and b'"jsonrpc"' in line
            self._drop(line, Garbage.UNREADABLE if meant else None)
            return
        entries = value if isinstance(value, list) else [value]
        messages = [entry for entry in entries if isinstance(entry, dict)]
        for message in messages:
            self._on_message(message)
        if not entries or len(messages) != len(entries):
            self._drop(line, None)

    def _drop(self, line: bytes, garbage: Garbage | None) -> None:
        self._dropped += 1
        if self._dropped % _SAY_EVERY == 1:
            too_large = garbage is Garbage.TOO_LARGE
            whole = len(line) <= _READ_BYTES and not too_large
            shown = readable(line[:_READ_BYTES], _SHOWN_CHARS, whole=whole, secrets=self._secrets)
            what = "is too long" if too_large else "is no JSON object"
            self._say(f"a line on stdout {what} ({self._dropped} dropped so far): {shown}")
        if garbage is not None and self._on_garbage is not None:
            self._on_garbage(garbage)


def _unsent(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=False)
