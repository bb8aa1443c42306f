"""A small TCP proxy that breaks connections the way networks and dying servers do.

    with FaultProxy(("127.0.0.1", port)) as proxy:     # or a Unix socket's path
        proxy.fault = truncate(40)                     # for every byte from now on, on old connections too
        ...                                            # talk to 127.0.0.1:proxy.port
        proxy.fault = NONE
        proxy.cut()                                    # reset every open connection
        proxy.deaf()                                   # nobody listens ...
        proxy.listen()                                 # ... and again, on the same port

It runs in a thread of its own, so tests with processes use it as they are. It counts what it accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from dataclasses import dataclass
from types import TracebackType

__all__ = [
    "BLACKHOLE", "NONE", "RESET", "RESET_LATE", "SWALLOW", "Fault", "FaultProxy", "delay", "drip", "half_close",
    "stall", "truncate",
]  # fmt: skip

_WAIT_S = 30.0
_CHUNK = 65536


@dataclass(frozen=True)
class Fault:
    """What happens to the bytes of a connection. `seconds` and `after` mean something for some kinds only."""

    kind: str
    seconds: float = 0.0
    after: int = 0


NONE = Fault("none")
"""Every byte arrives."""
BLACKHOLE = Fault("blackhole")
"""A connection is accepted, and then nothing moves in either direction."""
SWALLOW = Fault("swallow")
"""What is asked arrives, and its answer never does."""
RESET = Fault("reset")
"""The connection is reset as soon as something is asked; that does not arrive."""
RESET_LATE = Fault("reset late")
"""What is asked arrives, and the connection is reset instead of the answer."""


def delay(seconds: float) -> Fault:
    """Every piece of an answer comes so much later."""
    return Fault("delay", seconds=seconds)


def drip(seconds: float) -> Fault:
    """An answer comes one byte at a time."""
    return Fault("drip", seconds=seconds)


def truncate(after: int) -> Fault:
    """A connection is closed after so many bytes of answers."""
    return Fault("truncate", after=after)


def stall(after: int) -> Fault:
    """So many bytes of answers come, and then no more."""
    return Fault("stall", after=after)


def half_close(after: int) -> Fault:
    """So many bytes of answers come, then their direction ends while the other stays open."""
    return Fault("half close", after=after)


class FaultProxy:
    """Listens on a loopback port and connects to `target`: a host and a port, or a Unix socket's path."""

    def __init__(self, target: tuple[str, int] | str) -> None:
        self.target = target
        self.fault = NONE
        self.accepted = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._do(self._listen())

    def deaf(self) -> None:
        """Refuse connections, and reset those that are open."""
        self._do(self._deaf())

    def cut(self) -> None:
        """Reset the connections that are open."""
        self._do(self._cut())

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self.listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    def _do(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)  # type: ignore[arg-type]

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=512)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _deaf(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _cut(self) -> None:
        for writer in tuple(self._open):
            _reset(writer)

    async def _stop(self) -> None:
        await self._deaf()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.accepted += 1
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._between(reader, writer)
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _between(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if isinstance(self.target, str):
            there, back = await asyncio.open_unix_connection(self.target)
        else:
            there, back = await asyncio.open_connection(*self.target)
        self._open.add(back)
        try:
            asked = asyncio.create_task(self._asked(reader, writer, back))
            answered = asyncio.create_task(self._answered(there, writer))
            try:
                await asyncio.wait((asked, answered), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (asked, answered):
                    task.cancel()
                await asyncio.gather(asked, answered, return_exceptions=True)
        finally:
            self._open.discard(back)
            back.transport.abort()

    async def _asked(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(_CHUNK):
            if self.fault.kind == "reset":
                _reset(writer)
                return
            if self.fault.kind != "blackhole":
                back.write(data)
                await back.drain()

    async def _answered(self, there: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sent = 0
        while data := await there.read(_CHUNK):
            fault = self.fault
            if fault.kind == "reset late":
                _reset(writer)
                return
            if fault.kind in {"swallow", "blackhole"}:
                continue
            if fault.kind == "delay":
                await asyncio.sleep(fault.seconds)
            if fault.kind == "drip":
                for byte in data:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(fault.seconds)
                continue
            if fault.kind in {"truncate", "half close", "stall"}:
                data = data[: max(0, fault.after - sent)]
            writer.write(data)
            sent += len(data)
            await writer.drain()
            if fault.kind == "truncate" and sent >= fault.after:
                writer.close()
                await writer.wait_closed()
                return
            if fault.kind == "half close" and sent >= fault.after:
                writer.write_eof()
                await asyncio.Event().wait()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None and sock.fileno() >= 0 and sock.family != socket.AF_UNIX:
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
