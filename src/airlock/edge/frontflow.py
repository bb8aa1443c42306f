"""Back-pressure of one connection, both ways.

Knows when reading and writing are held back; must not know why, or what is read and written.
"""

from __future__ import annotations

import asyncio

__all__ = ["HIGH_WATER_BYTES", "Flow"]

HIGH_WATER_BYTES = 65536
"""How many bytes of a body wait for an application before its client is held back."""


class Flow:
    """Pauses and resumes; saying the same twice does nothing."""

    __slots__ = ("_transport", "_writable", "read_paused", "write_paused")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._writable: asyncio.Event | None = None
        self.read_paused = self.write_paused = False

    def pause_reading(self) -> None:
        """Take no more from the client."""
        if not self.read_paused:
            self.read_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on reading."""
        if self.read_paused:
            self.read_paused = False
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The client takes less than we write."""
        self.write_paused = True

    def resume_writing(self) -> None:
        """The client caught up, or is gone."""
        self.write_paused = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def drain(self) -> None:
        """Return when there is room to write."""
        while self.write_paused:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()
