"""The HTTP server as a process has it: a listening socket, a drain on SIGTERM, an exit status.

Knows sockets, signals and the event loop; must not know MCP, principals, policy or how a head looks.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable

from airlock.edge.asgi import App
from airlock.edge.front import FrontProtocol
from airlock.edge.frontlimits import Direct, FrontLimits, FrontState

__all__ = ["Direct", "FrontLimits", "FrontServer", "allow_connections", "bind", "make_server", "run"]

_BACKLOG = 2048
_OTHER_FILES = 256  # what a process has open besides connections
_SETTLE_S = 5.0  # how long calls that a shutdown cancels may take to write what they must
_SAME_S = 0.5  # what signals a whole group of processes reaches a worker once more through its supervisor


class FrontServer:
    """Serves until told to stop; then finishes what is open and runs `on_stop`.

    The first signal stops gracefully, a second does not wait for open calls, the third is the kernel's. Signals
    within half a second of the first are still the first.
    `loop` names the event loop to make: `uvloop` where it is installed, else `asyncio`.
    """

    def __init__(self, state: FrontState) -> None:
        self.state = state
        self.loop = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
        self.on_ready: Callable[[], None] | None = None
        self.on_stop: Callable[[], Awaitable[None]] | None = None
        self.on_hangup: Callable[[], None] | None = None
        self.on_drain: Callable[[], None] | None = None
        self.signalled: signal.Signals | None = None
        self.forced = False
        self._signalled_at = 0.0
        self._stopping: Callable[[], object] = lambda: None

    def run(self, sock: socket.socket) -> None:
        """Serve the listening `sock` in an event loop of its own until `stop` or a signal."""
        factory = None
        if self.loop == "uvloop":
            import uvloop

            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(self.serve(sock))

    async def serve(self, sock: socket.socket) -> None:
        """Serve the listening `sock` until `stop` or a signal, in the running loop."""
        loop = asyncio.get_running_loop()
        stopped = asyncio.Event()
        self._stopping = lambda: loop.call_soon_threadsafe(stopped.set)
        self._listen_to_signals(loop)
        server = await loop.create_server(
            lambda: FrontProtocol(self.state, loop), sock=sock, backlog=_BACKLOG
        )
        if self.on_ready is not None:
            self.on_ready()
        await stopped.wait()
        server.close()
        if self.on_drain is not None:
            self.on_drain()
        await self._drained(loop)
        if self.on_stop is not None:
            await self.on_stop()

    def stop(self) -> None:
        """Stop gracefully; from any thread."""
        self._stopping()

    async def _drained(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close what is idle, finish open calls within `drain_s`, cancel the rest. SPEC: gateway.md 15.6."""
        connections, tasks = self.state.connections, self.state.tasks
        self.state.stopping = True  # also for those that were accepted and not yet seen
        for connection in list(connections):
            connection.shutdown()
        end = loop.time() + self.state.limits.drain_s
        while (connections or tasks) and not self.forced and loop.time() < end:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # it waits for many things: looking is simpler than being told
        left = list(tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_SETTLE_S)
        for connection in list(connections):
            connection.transport.abort()

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for sig in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(sig, self._signal, sig)
            except NotImplementedError:  # Windows
                signal.signal(sig, lambda number, _: self._signal(signal.Signals(number)))
        if self.on_hangup is not None and hasattr(signal, "SIGHUP"):
            loop.add_signal_handler(signal.SIGHUP, self.on_hangup)

    def _signal(self, sig: signal.Signals) -> None:
        """Take a signal; it is not raised again at the end, `run` decides the exit status."""
        now = time.monotonic()
        if self.signalled is None:
            self._signalled_at = now
        elif now - self._signalled_at < _SAME_S:
            return
        else:
            self.forced = True
            signal.signal(sig, signal.SIG_DFL)
        self.signalled = sig
        self.stop()


def make_server(
    app: App, limits: FrontLimits, say: Callable[[str], None] | None = None, direct: Direct | None = None
) -> FrontServer:
    """Build the server for `app`. `say` takes its rare log lines (plain words, at most one a minute)."""
    return FrontServer(FrontState(app, limits, say or (lambda _: None), direct))


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Listen on the first address of `host` (IPv4 before IPv6) and `port` (0: any free one).

    Raises OSError with the system's words in `strerror`. Only that one address is tried and an IPv6 wildcard
    takes no IPv4: what is named is what listens. `shared` lets other sockets of this user listen there too, each
    with a share of the connections.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError as fault:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from fault
    family, kind, proto, _, address = min(found, key=lambda info: info[0] != socket.AF_INET)
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def allow_connections(wanted: int) -> int:
    """Ask the system for files enough for `wanted` connections with one each behind; return how many fit."""
    try:
        import resource
    except ImportError:  # Windows counts no files like that
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 2 * wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(FrontLimits().max_connections, min(wanted, (soft - _OTHER_FILES) // 2))


def run(
    app: App,
    sock: socket.socket,
    limits: FrontLimits,
    *,
    direct: Direct | None = None,
    on_ready: Callable[[], None] | None = None,
    on_stop: Callable[[], Awaitable[None]] | None = None,
    on_drain: Callable[[], None] | None = None,
    on_hangup: Callable[[], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> None:
    """Serve `app` on `sock` until SIGTERM or SIGINT, and return when all is finished (exit status 0).

    `on_hangup` is called, in the event loop, for each SIGHUP; `on_drain` once, when the server stops listening and
    waits for open calls: what has no end of its own must end then. Raises SystemExit 130 after ctrl-C and 128+n
    when a second signal cut the drain short.
    """
    server = make_server(app, limits, say, direct)
    server.on_ready, server.on_stop, server.on_hangup = on_ready, on_stop, on_hangup
    server.on_drain = on_drain
    server.run(sock)
    if server.signalled is not None and (server.forced or server.signalled == signal.SIGINT):
        raise SystemExit(128 + server.signalled)
