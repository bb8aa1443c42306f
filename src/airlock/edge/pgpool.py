"""A few connections to one Postgres, shared by many calls, each of which ends within a bound.

Knows connections, waits and what an error means; does not know tables or statements.

W is `Dsn.wait_s`. A call waits at most W for a connection, and the work on it is cut off after W: the socket is
shut, the server is asked to cancel, and the connection is gone. Connections are made when they are wanted, for as
long as somebody waits, so that a database that comes back is found within a second or so.
SPEC: gateway.md 13.3.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future as ThreadFuture
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from airlock.core.errors import AirlockError, StoreUnavailable
from airlock.core.text.cut import cut
from airlock.edge import pg

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.AsyncConnection[tuple[object, ...]]

__all__ = ["DRAIN_S", "Complaint", "Pool"]

T = TypeVar("T")

DRAIN_S: Final = 1.0
"""How long `close` waits for work under way, and then for what it had to cut off."""

SLACK_S: Final = 0.2
"""How much sooner than the client the server gives a statement up (gateway.md 13.3)."""

_TOLD_CHARS: Final = 300
_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_NEWS: Final = 4

# SQLSTATE classes and codes that say nobody is there to answer, or not in time: connection failures, exhausted
# resources, statements ended from outside, system errors; a lock not had in time; a server that became a standby.
_NO_ANSWER_CLASSES: Final = frozenset({"08", "53", "57", "58"})
_STANDBY: Final = "25006"
_NO_ANSWER: Final = frozenset({"55P03", _STANDBY})


class Complaint(AirlockError):
    """The database answered that it will not do this. `sqlstate` is its code, or None; no retry cures it."""

    def __init__(self, sqlstate: str | None, problem: str) -> None:
        self.sqlstate = sqlstate
        super().__init__(f"postgres: {problem}" + (f" (SQLSTATE {sqlstate})" if sqlstate else ""))


class Pool:
    """At most `size` connections to one database. Used from one event loop, which it never blocks."""

    def __init__(self, dsn: pg.Dsn, size: int) -> None:
        self._dsn = dsn
        self._size = size
        self._psycopg = pg.driver()
        self._closed = False
        self._idle: list[Connection] = []  # the one used last comes last
        # INVARIANT: none of these is done: whoever ends one takes it out first.
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._busy: dict[asyncio.Task[object], Connection] = {}
        self._silent: set[Connection] = set()  # busy, and cut off
        self._leaving: set[Connection] = set()  # told by the server that this is the end
        self._slots = 0  # connections made, or being made
        self._making: set[asyncio.Task[None]] = set()
        self._cutting: set[asyncio.Task[None]] = set()
        self._failure = ""

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do `work` on a connection in autocommit mode, and return what it returns.

        Work that has begun goes on when the caller is cancelled. Raises StoreUnavailable when there is no answer
        within the bounds, and Complaint when the answer is an error.
        """
        connection = await self._take()
        task = asyncio.create_task(self._worked(connection, work))
        self._busy[task] = connection
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Let work under way end, for a moment; cut off the rest. Every later call raises StoreUnavailable."""
        if self._closed:
            return
        self._closed = True
        while self._waiting:
            self._waiting.popleft().set_result(None)
        for making in self._making:
            making.cancel()
        self._drop_idle()
        if self._busy:
            await asyncio.wait(self._busy, timeout=DRAIN_S)
        for connection in tuple(self._busy.values()):
            self._cut(connection)
        left = {*self._busy, *self._making, *self._cutting}
        if left:
            _, left = await asyncio.wait(left, timeout=DRAIN_S)
        for task in left:
            task.cancel()

    async def _take(self) -> Connection:
        """Return a connection that nobody else uses: an idle one, else the first that is given back or made."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        while self._idle:
            connection = self._idle.pop()
            if self._quiet(connection):
                return connection
            self._drop(connection)
        waiter: asyncio.Future[Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._grow()
        try:
            await asyncio.wait((waiter,), timeout=self._dsn.wait_s)
        except asyncio.CancelledError:
            given = waiter.result() if waiter.done() else None
            if given is not None:
                self._put(given)
            raise
        finally:
            if waiter.cancel():
                self._waiting.remove(waiter)
        if waiter.cancelled():
            none = f"postgres: no connection within {self._dsn.wait_s:g} s"
            raise StoreUnavailable(self._failure or none)
        given = waiter.result()
        if given is None:
            raise StoreUnavailable("the store is closed")
        return given

    def _put(self, connection: Connection) -> None:
        """Hand a connection that is in order to whoever waits longest, else keep it."""
        if self._waiting:
            self._waiting.popleft().set_result(connection)
        elif self._closed:
            self._drop(connection)
        else:
            self._idle.append(connection)

    def _drop(self, connection: Connection) -> None:
        self._silent.discard(connection)
        self._leaving.discard(connection)
        connection.pgconn.finish()
        self._slots -= 1

    def _drop_idle(self) -> None:
        while self._idle:
            self._drop(self._idle.pop())

    def _quiet(self, connection: Connection) -> bool:
        """Tell whether an idle connection still is one. A server that went has said so, or hung up.

        Costs no round trip: nothing is due on it, so what can be read is a farewell (`_noticed`), the end, or news
        (a changed setting, a TLS ticket) that the library takes in.
        """
        pgconn, poller = connection.pgconn, select.poll()
        try:
            poller.register(pgconn.socket, select.POLLIN)
            for _ in range(_NEWS):
                if not poller.poll(0):
                    break
                pgconn.consume_input()
                pgconn.is_busy()  # makes the library look at what it took in
        except self._psycopg.Error:
            return False
        return connection not in self._leaving and self._at_rest(connection)

    def _noticed(self, connection: Connection, notice: psycopg.errors.Diagnostic) -> None:
        """A server that ends a connection says so first; the end itself may come a moment later."""
        if notice.severity_nonlocalized == "FATAL":
            self._leaving.add(connection)

    def _at_rest(self, connection: Connection) -> bool:
        """Tell whether a connection is open, with nothing under way on it."""
        return bool(connection.pgconn.transaction_status == self._psycopg.pq.TransactionStatus.IDLE)

    async def _worked(self, connection: Connection, work: Callable[[Connection], Awaitable[T]]) -> T:
        timer = asyncio.get_running_loop().call_later(self._dsn.wait_s, self._cut, connection)
        sound = False
        try:
            done = await work(connection)
            sound = True
        except self._psycopg.Error as error:
            sound = error.sqlstate != _STANDBY and await self._rolled_back(connection)
            # SECURITY: the driver's text holds names of the DSN, and so may its chain of causes.
            raise self._told(connection, error) from None
        finally:
            timer.cancel()
            if sound and connection not in self._silent and self._at_rest(connection):
                self._put(connection)
            else:
                self._drop(connection)
                self._grow()
        return done

    def _ended(self, task: asyncio.Task[T]) -> None:
        del self._busy[task]
        if not task.cancelled():
            task.exception()  # a caller that went away asks no more

    async def _rolled_back(self, connection: Connection) -> bool:
        """End a transaction that a complaint left open."""
        try:
            await connection.rollback()
        except self._psycopg.Error:
            return False
        return True

    def _told(self, connection: Connection, error: psycopg.Error) -> AirlockError:
        """Sort an error of the driver into the two kinds a store may raise."""
        if connection in self._silent:
            return StoreUnavailable(f"postgres: no answer within {self._dsn.wait_s:g} s")
        state, told = error.sqlstate, cut(self._dsn.blank(str(error)), _TOLD_CHARS, "…")
        if state is None:
            lost = isinstance(error, self._psycopg.OperationalError | self._psycopg.InterfaceError)
        else:
            lost = state[:2] in _NO_ANSWER_CLASSES or state in _NO_ANSWER
        return StoreUnavailable(f"postgres: {told}") if lost else Complaint(state, told)

    def _cut(self, connection: Connection) -> None:
        """End the work on a connection from outside, and drop the idle ones: their server is as silent."""
        if connection in self._silent:
            return
        self._silent.add(connection)
        self._drop_idle()
        task = asyncio.create_task(self._cancelled(connection))
        self._cutting.add(task)
        task.add_done_callback(self._cutting.discard)

    async def _cancelled(self, connection: Connection) -> None:
        """Ask the server to stop, without waiting for that: the socket is shut at once."""
        request: asyncio.Task[None] | None = None
        if self._psycopg.capabilities.has_cancel_safe():
            request = asyncio.create_task(connection.cancel_safe(timeout=self._dsn.wait_s))
            await asyncio.sleep(0)  # the request takes what it needs from the connection while that is open
        try:
            _shut(connection)
        except (self._psycopg.Error, OSError):
            pass  # it ended in this very moment
        if request is not None:
            try:
                await request
            except (self._psycopg.Error, OSError):
                pass  # the server's own timeouts end the statement

    def _grow(self) -> None:
        """Make a connection for everybody who waits for one, as far as the size allows."""
        while len(self._making) < len(self._waiting) and self._slots < self._size:
            self._slots += 1
            task = asyncio.create_task(self._make())
            self._making.add(task)
            task.add_done_callback(self._making.discard)

    async def _make(self) -> None:
        """Connect, and again after a pause, for as long as anybody waits."""
        pause, connection = _PAUSE_S, None
        try:
            while connection is None and self._waiting:
                try:
                    connection = await self._connected()
                except Exception as error:  # noqa: BLE001 - the boundary: whatever it was, nobody answers
                    told = self._dsn.blank(str(error)) or type(error).__name__
                    self._failure = f"postgres: {cut(told, _TOLD_CHARS, '…')}"
                    await asyncio.sleep(pause)
                    pause = min(_LONGEST_PAUSE_S, 2 * pause)
        finally:
            if connection is None:
                self._slots -= 1
        if connection is not None:
            self._failure = ""
            connection.add_notice_handler(partial(self._noticed, connection))
            self._put(connection)

    async def _connected(self) -> Connection:
        """Connect in a thread: finding the host, TLS and the password's hashing all take their time."""
        made: ThreadFuture[Connection] = ThreadFuture()
        Thread(target=self._connect, args=(made,), name="airlock-postgres", daemon=True).start()
        try:
            # Each host may have an address of either kind, and then there is a setting to make.
            async with asyncio.timeout(self._dsn.wait_s * (2 * self._dsn.hosts + 1)):
                return await asyncio.wrap_future(made)
        except BaseException:
            # It may be made in this very moment, or later: nobody will use it.
            if not made.cancel():
                made.add_done_callback(_discard)
            raise

    def _connect(self, made: ThreadFuture[Connection]) -> None:
        async def connect() -> Connection:
            connection: Connection = await self._psycopg.AsyncConnection.connect(
                self._dsn.conninfo,
                autocommit=True,
                # SPEC: gateway.md 13.3: no prepared statements, for the sake of PgBouncer in transaction mode.
                prepare_threshold=None,
                cursor_factory=self._psycopg.AsyncClientCursor,
            )
            try:
                timeouts = pg.set_timeouts(self._dsn.wait_s - SLACK_S)
                await connection.execute(f"SET client_encoding TO 'UTF8'; {timeouts}".encode())
            except BaseException:
                connection.pgconn.finish()
                raise
            return connection

        try:
            connection = asyncio.run(connect())
        except Exception as error:  # noqa: BLE001 - the end of a thread: whoever waits gets it
            pg.let_go(error)
            if made.set_running_or_notify_cancel():
                made.set_exception(error)
        else:
            if made.set_running_or_notify_cancel():
                made.set_result(connection)
            else:
                connection.pgconn.finish()


def _shut(connection: Connection) -> None:
    """Hang up, so that whoever reads from the connection stops. The descriptor stays the library's."""
    with socket.socket(fileno=os.dup(connection.pgconn.socket)) as twin:
        twin.shutdown(socket.SHUT_RDWR)


def _discard(made: ThreadFuture[Connection]) -> None:
    if not made.cancelled() and made.exception() is None:
        made.result().pgconn.finish()
