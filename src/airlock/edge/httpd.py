"""The HTTP server as a process has it: a listening socket, a drain on SIGTERM, an exit status.

Knows sockets, signals and uvicorn's life cycle; must not know MCP, principals, policy or how a head looks.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from types import FrameType

import uvicorn

from airlock.edge.asgi import App
from airlock.edge.front import FrontProtocol
from airlock.edge.frontlimits import FrontConfig, FrontLimits

__all__ = ["FrontLimits", "FrontServer", "bind", "make_server", "run"]

_BACKLOG = 2048
_SETTLE_S = 5.0  # how long calls that a shutdown cancels may take to write what they must


class FrontServer(uvicorn.Server):
    """Serves until told to stop; then finishes what is open and runs `on_stop`.

    The first signal stops gracefully, the second does not wait for open calls, the third is the kernel's.
    """

    config: FrontConfig

    def __init__(self, config: FrontConfig) -> None:
        super().__init__(config)
        self.on_ready: Callable[[], None] | None = None
        self.on_stop: Callable[[], Awaitable[None]] | None = None
        self.signalled: signal.Signals | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve the listening `sockets`, then tell `on_ready`."""
        await super().startup(sockets)
        if self.on_ready is not None:
            self.on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, close what is idle, finish open calls within `drain_s`, cancel the rest, `on_stop`.

        SPEC: gateway.md 15.6.
        """
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        connections, tasks = self.server_state.connections, self.server_state.tasks
        for connection in list(connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.config.limits.drain_s
        while (connections or tasks) and not self.force_exit and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # both sets are uvicorn's: nothing to wait on
        left = list(tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_SETTLE_S)
        for connection in list(connections):
            connection.transport.abort()
        if self.on_stop is not None:
            await self.on_stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal; it is not raised again at the end, `run` decides the exit status."""
        if self.signalled is not None:
            self.force_exit = True
            signal.signal(sig, signal.SIG_DFL)
        self.signalled = signal.Signals(sig)
        self.should_exit = True


def make_server(app: App, limits: FrontLimits, say: Callable[[str], None] | None = None) -> FrontServer:
    """Build the server for `app`. `say` takes its rare log lines (plain words, at most one a minute)."""
    return FrontServer(FrontConfig(app, FrontProtocol, limits, say or (lambda _: None)))


def bind(host: str, port: int) -> socket.socket:
    """Listen on the first address of `host` (IPv4 before IPv6) and `port` (0: any free one).

    Raises OSError with the system's words in `strerror`. Only that one address is tried and an IPv6 wildcard
    takes no IPv4: what is named is what listens.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as fault:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from fault
    family, kind, proto, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def run(
    app: App,
    sock: socket.socket,
    limits: FrontLimits,
    *,
    on_ready: Callable[[], None] | None = None,
    on_stop: Callable[[], Awaitable[None]] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Serve `app` on `sock` until SIGTERM or SIGINT, and return when all is finished (exit status 0).

    Raises SystemExit 130 after ctrl-C and 128+n when a second signal cut the drain short.
    """
    server = make_server(app, limits, say)
    server.on_ready, server.on_stop = on_ready, on_stop
    server.run(sockets=[sock])
    if server.signalled is not None and (server.force_exit or server.signalled == signal.SIGINT):
        raise SystemExit(128 + server.signalled)
