"""Requests under way on one channel: found again by id, by progress token, or as the only one that fits.

Knows ids, tokens and deadlines; does not know the channel or what answers mean.
SPEC: mcp.md 13, 17.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from airlock.core.errors import UpstreamError
from airlock.edge.stdio import MAX_LINE_BYTES
from airlock.gateway.upstream.port import Heard, Outgoing

__all__ = ["MAX_IN_FLIGHT", "InFlight", "Open", "StdioLimits"]

MAX_IN_FLIGHT: Final = 1024
"""LIMIT: requests of one process that are open at once, those that wait for its start and listens included."""

_LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class StdioLimits(msgspec.Struct, frozen=True):
    """What one request may take: seconds between signs of progress, seconds at most, bytes of a line."""

    total_s: float = 60.0
    hard_s: float = 600.0
    max_line_bytes: int = MAX_LINE_BYTES


class Open:
    """A request under way. `id` is ours, `outer` the asker's; `read` makes the answer of a message and its line."""

    __slots__ = (
        "deadline",
        "future",
        "hard",
        "heard",
        "id",
        "listens",
        "logs",
        "outer",
        "read",
        "timer",
        "token",
    )

    def __init__(
        self,
        own: int,
        outgoing: Outgoing,
        heard: Heard | None,
        read: Callable[[dict[str, object], bytes], object],
        *,
        listens: bool,
    ) -> None:
        meta = outgoing.params.get("_meta")
        self.id = own
        self.outer = outgoing.id
        self.heard = heard
        self.read = read
        self.listens = listens
        self.logs = not listens and isinstance(meta, dict) and _LOG_LEVEL in meta
        self.token = _token(meta.get("progressToken")) if isinstance(meta, dict) else None
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None
        self.deadline = self.hard = 0.0

    def notify(self, message: dict[str, object]) -> None:
        """Hand a notification to whoever asked."""
        if self.heard is not None:
            self.heard.notify(message)


class InFlight:
    """The requests under way. `expired` takes the id of one whose time was over, after it was forgotten.

    INVARIANT: a request is forgotten before its future is settled: nothing reaches its `heard` after that.
    """

    def __init__(self, limits: StdioLimits, expired: Callable[[Open], None]) -> None:
        self._limits = limits
        self._expired = expired
        self._open: dict[int, Open] = {}
        self._tokens: dict[str | int, Open] = {}
        self._logs: dict[int, Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, opened: Open) -> None:
        """Take a request up; its time begins, unless it listens."""
        self._open[opened.id] = opened
        if opened.token is not None:
            self._tokens[opened.token] = opened
        if opened.logs:
            self._logs[opened.id] = opened
        if not opened.listens:
            loop = asyncio.get_running_loop()
            now = loop.time()
            opened.hard = now + self._limits.hard_s
            opened.deadline = min(now + self._limits.total_s, opened.hard)
            opened.timer = loop.call_at(opened.deadline, self._look, opened)

    def leave(self, opened: Open) -> None:
        """Forget a request."""
        if self._open.pop(opened.id, None) is None:
            return
        if opened.token is not None and self._tokens.get(opened.token) is opened:
            del self._tokens[opened.token]
        self._logs.pop(opened.id, None)
        if opened.timer is not None:
            opened.timer.cancel()

    def settle(self, opened: Open, message: dict[str, object], line: bytes) -> None:
        """Answer a request with what its `read` makes of the message."""
        self.leave(opened)
        if opened.future.done():
            return
        try:
            opened.future.set_result(opened.read(message, line))
        except UpstreamError as error:
            opened.future.set_exception(error)

    def fail(self, opened: Open, error: UpstreamError) -> None:
        """Answer a request with a failure."""
        self.leave(opened)
        if not opened.future.done():
            opened.future.set_exception(error)

    def fail_all(self, error: Callable[[], UpstreamError]) -> None:
        """Answer every request with a failure of its own."""
        for opened in list(self._open.values()):
            self.fail(opened, error())

    def fail_only(self, error: UpstreamError, *, or_oldest: bool = False) -> None:
        """Fail the one request that does not listen; of several none, or the oldest."""
        waiting = [opened for opened in self._open.values() if not opened.listens]
        if len(waiting) == 1 or (or_oldest and waiting):
            self.fail(waiting[0], error)

    def with_id(self, own: object) -> Open | None:
        """Return the request with this id."""
        # SECURITY: 1.0, true and "1" are no ids of ours, though a dict would find some of them.
        return self._open.get(own) if type(own) is int else None

    def listening(self, own: object) -> Open | None:
        """Return the request with this id if it listens."""
        opened = self.with_id(own)
        return opened if opened is not None and opened.listens else None

    def progressed(self, token: object) -> Open | None:
        """Return the request with this progress token, with its time begun anew."""
        key = _token(token)
        opened = None if key is None else self._tokens.get(key)
        if opened is not None:
            now = asyncio.get_running_loop().time()
            opened.deadline = min(now + self._limits.total_s, opened.hard)
        return opened

    def logging(self) -> Open | None:
        """Return the only request that asked for log messages."""
        # SECURITY: a log message names no request: among several it could be told to the wrong caller.
        return next(iter(self._logs.values())) if len(self._logs) == 1 else None

    def _look(self, opened: Open) -> None:
        """A deadline came, unless progress moved it."""
        loop = asyncio.get_running_loop()
        if loop.time() < opened.deadline:
            opened.timer = loop.call_at(opened.deadline, self._look, opened)
            return
        self.leave(opened)
        self._expired(opened)


def _token(value: object) -> str | int | None:
    return value if isinstance(value, (str, int)) and not isinstance(value, bool) else None
