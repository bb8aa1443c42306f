"""The mirror of the audit file in a Postgres table: rows land a moment later, and nobody ever waits for them.

Knows a connection, a table and sealed lines; does not know the chain, and is never the truth: that is the file.
SPEC: gateway.md 12.7.

One worker thread owns the connection. A row that the database refuses is dropped; while there is no connection
rows wait, as many as `pgqueue.Backlog` holds. A refused batch is repeated row by row, so that a bad row costs no
other and a wait that ends without an answer (a locked table) costs one row, not a batch.
LIMIT: the worker waits as long as a frozen server on a Unix socket is frozen, and says nothing meanwhile; the
full backlog is what shows it. A line counts as unwritten until its answer is in, so a row that was cut off at
the very end may be in the table all the same.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from airlock.edge import pg
from airlock.edge.sinks.pgqueue import Backlog, Losses, counted, jsonb_text

if TYPE_CHECKING:
    import psycopg

__all__ = ["PRINCIPAL_CUT", "PostgresMirror", "Unreachable", "handle"]

PRINCIPAL_CUT: Final = 512
"""Characters of a principal in its column, so that its index always takes it; `rec` holds all of them."""

_BATCH_ROWS: Final = 100
_BATCH_SIZE: Final = 1024 * 1024
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 4.0
_STOP_S: Final = 2.0
_CLOSE_S: Final = 15.0
_FULL: Final = "the audit table is behind: its queue is full, records are dropped from the table"

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS airlock_audit (ts timestamptz NOT NULL, phase text, call_id text, principal text,"
    " method text, tool text, verdict text, rule_id text, tier text, dry_run boolean, latency_ms integer,"
    " upstream_status integer, trace_id text, rec jsonb NOT NULL)",
    "CREATE INDEX IF NOT EXISTS airlock_audit_ts ON airlock_audit (ts)",
    "CREATE INDEX IF NOT EXISTS airlock_audit_principal_ts ON airlock_audit (principal, ts)",
)

# The server takes the records apart: here that would hold the interpreter while calls are being decided.
_INSERT: Final = (
    "INSERT INTO airlock_audit (ts, phase, call_id, principal, method, tool, verdict, rule_id, tier, dry_run,"  # noqa: S608
    " latency_ms, upstream_status, trace_id, rec)"
    f" SELECT (rec->>'ts')::timestamptz, rec->>'phase', rec->>'call_id', left(rec->>'principal', {PRINCIPAL_CUT}),"
    " rec->>'method', rec->>'tool', rec->>'verdict', rec->>'rule_id', rec->>'tier', (rec->>'dry_run')::boolean,"
    " (rec->>'latency_ms')::integer, (rec->>'upstream_status')::integer, rec->>'trace_id', rec"
    " FROM jsonb_array_elements(%s::jsonb) AS line (rec)"
)
_INSERT_MISSING: Final = (
    f"{_INSERT} WHERE NOT EXISTS (SELECT FROM airlock_audit AS kept WHERE kept.ts = (line.rec->>'ts')::timestamptz"
    " AND kept.rec->>'hash' = line.rec->>'hash')"
)


class Unreachable(Exception):
    """No row could be tried: there is no connection, or no table and none can be made. The words are blanked."""


class PostgresMirror:
    """Takes the sealed lines of the audit file for the table `airlock_audit`.

    Nothing is connected before the first line. `warn` takes one line of text and is called from any thread.
    Raises ConfigError when the `postgres` extra is missing.
    """

    def __init__(self, dsn: pg.Dsn, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._wait_s = float(dsn.wait_s)
        self._table = _Table(dsn)
        self._backlog = Backlog()
        self._losses = Losses(warn)
        self._stop = threading.Event()
        self._closing = threading.Lock()
        self._worker = threading.Thread(target=self._work, name="airlock-audit-table", daemon=True)
        self._worker.start()

    @property
    def waiting(self) -> int:
        """How many lines are not in the table yet."""
        return len(self._backlog)

    def offer(self, line: bytes) -> None:
        """Queue one sealed line, whether or not the file took it. Never waits, never raises.

        Without room the line is dropped and counted; after `close` it is dropped.
        """
        if not self._backlog.put(line) and not self._stop.is_set():
            self._losses.trouble(_FULL, dropped=1)

    def close(self) -> None:
        """Write what waits, for at most the connect timeout, then cut the connection. At most 15 s in all.

        Blocks: not for the event loop. A second call waits for the first and does nothing.
        """
        with self._closing:
            if self._stop.is_set():
                return
            self._stop.set()
            self._backlog.close()
            self._worker.join(min(self._wait_s, _CLOSE_S - _STOP_S))
            if self._worker.is_alive():
                self._table.cut()
                self._worker.join(_STOP_S)
            self._report()

    def _report(self) -> None:
        left, dropped = len(self._backlog), self._losses.count
        if left or dropped:
            before = f", {counted(dropped)} dropped before" if dropped else ""
            self._warn(f"the audit table was closed: {counted(left)} left unwritten{before}")

    def _work(self) -> None:
        singly = 0  # so many lines go one at a time: the batch they were in was refused
        pause = _FIRST_PAUSE_S
        try:
            while lines := self._backlog.head(1 if singly else _BATCH_ROWS, _BATCH_SIZE):
                last = self._stop.is_set()
                try:
                    self._table.write([jsonb_text(line) for line in lines])
                except Unreachable as exc:
                    if self._table.gone:
                        return
                    self._losses.trouble(f"the audit table cannot be written, its records wait: {exc}")
                    if last:
                        return
                    self._stop.wait(pause)
                    pause = min(2 * pause, _LONGEST_PAUSE_S)
                    continue
                except Exception as exc:  # noqa: BLE001 - the boundary: whatever it is, the next line is tried
                    if len(lines) > 1:
                        singly = len(lines)
                        continue
                    self._drop(exc)
                else:
                    if self._backlog.settle(len(lines)):
                        self._losses.well()
                singly = max(0, singly - len(lines))
                pause = _FIRST_PAUSE_S
        finally:
            self._table.close()

    def _drop(self, exc: Exception) -> None:
        words = self._table.complaint(exc)
        self._losses.trouble(f"the audit table took no record, it is dropped: {words}", dropped=1)
        self._backlog.settle(1)


class _Table:
    """The connection and what is done over it. Only the worker calls it, `cut` apart."""

    def __init__(self, dsn: pg.Dsn) -> None:
        self._psycopg = pg.driver()
        self._dsn = dsn
        self._conn: psycopg.Connection | None = None
        self._handle: socket.socket | None = None
        self._made = False
        self._doubt = False  # whether a lost connection may have taken the oldest rows
        self._cut = False
        self._lock = threading.Lock()

    def write(self, texts: list[str]) -> None:
        """Insert records in one statement: all of them or none.

        A dropped connection is opened again and a missing table made again, once. Raises Unreachable, or the
        database's complaint about the records.
        """
        rows = f"[{','.join(texts)}]"
        if not self._insert(rows, again=True):
            self._insert(rows, again=False)

    def _insert(self, rows: str, *, again: bool) -> bool:
        """Try once. False, if `again`, when a second try may do better; whether it does shows its exception."""
        conn = self._ready()
        doubt, self._doubt = self._doubt, False
        try:
            conn.execute(_INSERT_MISSING if doubt else _INSERT, (rows,))
        except self._psycopg.errors.UndefinedTable:
            self._made = False
            if not again:
                raise
        except self._psycopg.Error:
            if not conn.broken:
                raise
            self.close()
            self._doubt = True
            if not again:
                raise
        else:
            return True
        return False

    @property
    def gone(self) -> bool:
        """Whether it was cut."""
        return self._cut

    def complaint(self, exc: Exception) -> str:
        """Say in one line why a record failed."""
        errors = self._psycopg.errors
        if isinstance(exc, errors.QueryCanceled | errors.LockNotAvailable):
            return f"it, or a lock it needs, took longer than {self._dsn.wait_s:g} s"
        # SECURITY: what the server says of a row may quote it; the name it has for the trouble does not.
        if isinstance(exc, self._psycopg.Error) and exc.sqlstate is None:
            return self._dsn.blank(str(exc))
        return type(exc).__name__

    def cut(self) -> None:
        """End whatever the connection waits for, and open no other. For any thread."""
        with self._lock:
            self._cut = True
            if self._handle is not None:
                try:
                    self._handle.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the other side was faster

    def close(self) -> None:
        """Close the connection, if there is one."""
        with self._lock:
            conn, self._conn = self._conn, None
            own, self._handle = self._handle, None
        if conn is not None:
            conn.close()
        if own is not None:
            own.close()

    def _ready(self) -> psycopg.Connection:
        try:
            conn = self._conn or self._open()
            if not self._made:
                self._make(conn)
        except (self._psycopg.Error, OSError) as exc:
            pg.let_go(exc)
            self.close()  # a later attempt begins anew
            raise Unreachable(self._dsn.blank(str(exc))) from None
        return conn

    def _open(self) -> psycopg.Connection:
        self._made = False
        self._stay_closed()
        conn: psycopg.Connection = self._psycopg.connect(
            self._dsn.conninfo, autocommit=True, client_encoding="utf8"
        )
        with self._lock:
            self._conn = conn
            self._handle = handle(conn)
        self._stay_closed()
        conn.execute(pg.set_timeouts(self._dsn.wait_s))
        return conn

    def _stay_closed(self) -> None:
        if self._cut:
            raise Unreachable("it was closed")

    def _make(self, conn: psycopg.Connection) -> None:
        """Make the table with its indexes, unless there is one.

        A table that is there is used as it is: the role may be allowed to insert and no more, and an index on
        what others filled would hold everybody up.
        """
        if not _exists(conn):
            with conn.transaction():
                # SPEC: gateway.md 13.3. Replicas that start together must not fail each other's CREATE.
                conn.execute("SELECT pg_advisory_xact_lock(%s)", (pg.DDL_LOCK,))
                for statement in _TABLE:
                    conn.execute(statement)
        self._made = True


def handle(conn: psycopg.Connection) -> socket.socket:
    """Return a descriptor of our own for a connection's socket, with which any thread may shut it down.

    libpq may close its own at any time, and the number would then belong to the next file opened.
    """
    return socket.socket(fileno=os.dup(conn.fileno()))


def _exists(conn: psycopg.Connection) -> bool:
    row = conn.execute("SELECT to_regclass('airlock_audit') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])
