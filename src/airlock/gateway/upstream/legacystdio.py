"""Lines to a legacy server that is spawned: one process for each dialogue, so many and no more, started with care.

Knows processes and their ends; does not know the handshake or what a message means. SPEC: mcp.md 17, 20c.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge.child import Command
from airlock.edge.stdio import Garbage, StdioProcess
from airlock.gateway import body
from airlock.gateway.upstream.line import Incoming, Lost

__all__ = ["MOST_PROCESSES", "StdioDialer"]

# SECURITY: clients choose principal and capabilities, so they choose how many processes are wanted.
MOST_PROCESSES: Final = 16
"""LIMIT: processes of one upstream at a time, those that are being ended included."""

FIRST_WAIT_S: Final = 0.2
LONGEST_WAIT_S: Final = 30.0
"""Between the end of a process and the next start: twice as long each time, until one has lasted as long."""

PATIENCE_S: Final = 2.0
"""How much of that a request waits for; with more to wait it is refused."""


class StdioDialer:
    """Starts a process of `command` for each line. `say` takes lines for the log."""

    def __init__(
        self,
        command: Command,
        *,
        say: Callable[[str], None],
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._command = command
        self._say = say
        self._monotonic = monotonic
        self._sleep = sleep
        self._running = 0
        self._wait_s = 0.0
        self._not_before = 0.0

    async def dial(self, incoming: Incoming, lost: Lost) -> _StdioLine:
        """Start a process. Raises UpstreamError (UNREACHABLE, `reached=False`)."""
        if self._running >= MOST_PROCESSES:
            raise _none("as many server processes run as may")
        self._running += 1
        try:
            await self._turn()
        except BaseException:
            self._running -= 1
            raise
        line = _StdioLine(self._command, incoming, lost, self._ended, self._say)
        try:
            await line.start()
        except BaseException as error:
            if isinstance(error, UpstreamError):
                self._failed()
            await line.close()
            raise
        line.since = self._monotonic()
        return line

    async def _turn(self) -> None:
        """Wait until a process may be started again."""
        left = self._not_before - self._monotonic()
        if left > PATIENCE_S:
            raise _none(f"the server process keeps ending; it is started again in {left:.0f} s")
        if left > 0:
            await self._sleep(left)

    def _failed(self) -> None:
        self._wait_s = min(max(2 * self._wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)
        self._not_before = self._monotonic() + self._wait_s

    def _ended(self, line: _StdioLine, cause: str | None) -> None:
        """A process is gone for good (cause None), or it ended by itself."""
        if cause is None:
            self._running -= 1
            return
        self._say(cause)
        if self._monotonic() - line.since >= LONGEST_WAIT_S:
            self._wait_s = 0.0
        self._failed()


class _StdioLine:
    """One process. It sees responses pass, so that a line that cannot be read ends the one request that waits."""

    def __init__(
        self,
        command: Command,
        incoming: Incoming,
        lost: Lost,
        ended: Callable[[_StdioLine, str | None], None],
        say: Callable[[str], None],
    ) -> None:
        self.since = 0.0
        self._incoming = incoming
        self._lost = lost
        self._ended = ended
        self._waiting: dict[object, asyncio.Future[None]] = {}
        self._closing: asyncio.Task[None] | None = None
        self._process = StdioProcess(
            command,
            on_message=self._received,
            on_end=self._over,
            say=say,
            on_garbage=self._garbage,
            parse=_parsed,
        )

    async def start(self) -> None:
        await self._process.start()

    @property
    def tells_streams(self) -> bool:
        """All messages come on one stream."""
        return False

    @property
    def alive(self) -> bool:
        """Whether the process may still read a request."""
        return self._process.alive

    def opened(self, version: str) -> None:
        """There are no headers to write a version in."""

    async def request(self, message: dict[str, object]) -> None:
        """Send a request and wait for its response to pass."""
        passed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request_id = message["id"]
        self._waiting[request_id] = passed
        try:
            self._process.send(body.encode(message))
            await passed
        finally:
            del self._waiting[request_id]

    async def post(self, message: dict[str, object]) -> None:
        self._process.send(body.encode(message))

    async def close(self) -> None:
        """End the process and its group; goes on when the caller is cancelled."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._fail(UpstreamFailure.UNREACHABLE, "the server process was stopped")
        try:
            await self._process.stop()
        finally:
            self._ended(self, None)

    def _received(self, message: dict[str, object]) -> None:
        self._incoming(message, None)
        if "method" not in message:
            request_id = message.get("id")
            passed = self._waiting.get(request_id) if type(request_id) is int else None
            if passed is not None and not passed.done():
                passed.set_result(None)

    def _over(self, cause: str) -> None:
        self._ended(self, cause)
        self._lost(cause)
        self._fail(UpstreamFailure.UNREACHABLE, cause)

    def _garbage(self, garbage: Garbage) -> None:
        # LIMIT: with several requests open nobody can tell whose answer it was; they wait for their deadlines.
        if len(self._waiting) > 1:
            return
        if garbage is Garbage.TOO_LARGE:
            self._fail(UpstreamFailure.TOO_LARGE, "answer too large")
        else:
            self._fail(UpstreamFailure.BAD_REPLY, "not a JSON-RPC response")

    def _fail(self, kind: UpstreamFailure, cause: str) -> None:
        for passed in self._waiting.values():
            if not passed.done():
                passed.set_exception(UpstreamError(kind, cause, reached=True))


def _parsed(line: bytes) -> object:
    """As strict as a request of a client: a decision may depend on what a server answers."""
    value, deep = body.decode_request(line)
    if deep:
        raise ValueError("nested too deep")
    return value


def _none(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=False)
