"""What we post to a legacy server besides requests: notifications, and responses to what it asks.

Knows order, limits and time; does not know what the messages say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.gateway.upstream.line import Line

__all__ = ["Poster"]

# SECURITY: a server that floods us with requests while it takes no answers would fill the memory.
MAX_UNSENT: Final = 256
"""LIMIT: messages of one dialogue that wait to be posted; with more, answers to the server are dropped."""


class Poster:
    """Posts on one line, `post_s` seconds at most for one message."""

    __slots__ = ("_line", "_post_s", "_unsent", "_writer")

    def __init__(self, line: Line, post_s: float) -> None:
        self._line = line
        self._post_s = post_s
        self._unsent: deque[dict[str, object] | Callable[[], object]] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def post(self, message: dict[str, object]) -> None:
        """Post a message now. Raises UpstreamError."""
        try:
            async with asyncio.timeout(self._post_s):
                await self._line.post(message)
        except TimeoutError:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "TimeoutError", reached=True) from None

    def soon(self, *notes: dict[str, object] | Callable[[], object]) -> bool:
        """Post messages soon and in this order, and call functions between them; False when too many wait.

        A message that cannot be posted is given up: whoever waits hears of it by the line's end or a deadline.
        """
        if len(self._unsent) + len(notes) > MAX_UNSENT:
            return False
        self._unsent.extend(notes)
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write())
        return True

    async def close(self) -> None:
        """Give up what waits."""
        self._unsent.clear()
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while self._unsent:
                note = self._unsent.popleft()
                if callable(note):
                    note()
                    continue
                try:
                    await self.post(note)
                except UpstreamError:
                    continue
        finally:
            self._writer = None
