"""The state store of one host: a file shared by every process that opens it, kept over restarts.

Knows keys, prompts and charges in SQLite; does not know tickets, policy or what a charge stands for.

Burns and approvals are synced to the disk before they are answered (about half a millisecond on a local disk,
against 0.05 ms without): a used confirmation stays used when the power fails. Charges and prompts survive the
death of the process at any point, but the last of them may go with the power.
SPEC: gateway.md 13.3 (shape of the tables), 13.4.
LIMIT: locks of network file systems are not to be trusted; the file belongs on a local disk. Whoever may
write to its folder may replace it. A lost file takes the burned keys with it (gateway.md 13.3).
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Final, TypeVar
from urllib.parse import quote

from airlock.core.errors import ConfigError, StoreUnavailable
from airlock.core.ports import Clock
from airlock.edge.storesteps import InSteps

__all__ = ["BUSY_S", "CLOCK_SLACK_S", "SWEEP_EVERY_S", "USAGE_KEPT_S", "SqliteStore", "contract_uri", "open"]

T = TypeVar("T")

BUSY_S: Final = 5.0
"""How long a call waits its turn, and then for another process's write: at most twice this in all."""

SWEEP_EVERY_S: Final = 60.0
"""Expired rows are deleted at most this often."""

USAGE_KEPT_S: Final = 86400.0
"""How long a charge is kept: the widest window a policy may name (gateway.md 5)."""

CLOCK_SLACK_S: Final = 3600.0
"""How long past its `exp` a key is kept, so that a clock set back does not make a burned one good again."""

_SWEPT_AT_ONCE: Final = 1000
_PREFIX: Final = "sqlite:///"

# `upto` is the running sum of the (principal, tool) through that row in order of (ts, rowid), so that a
# window is two look-ups however many charges it holds.
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS airlock_keys (key TEXT PRIMARY KEY, exp_ts REAL NOT NULL,"
    " consumed INTEGER NOT NULL DEFAULT 0, approved INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS airlock_keys_exp ON airlock_keys (exp_ts)",
    "CREATE TABLE IF NOT EXISTS airlock_prompts (key TEXT PRIMARY KEY, exp_ts REAL NOT NULL,"
    " text TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS airlock_prompts_exp ON airlock_prompts (exp_ts)",
    "CREATE TABLE IF NOT EXISTS airlock_usage (principal TEXT NOT NULL, tool TEXT NOT NULL,"
    " n INTEGER NOT NULL, ts REAL NOT NULL, upto INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS airlock_usage_window ON airlock_usage (principal, tool, ts)",
    "CREATE INDEX IF NOT EXISTS airlock_usage_ts ON airlock_usage (ts)",
)
_BURN: Final = (
    "INSERT INTO airlock_keys (key, exp_ts, consumed) VALUES (?, ?, 1)"
    " ON CONFLICT (key) DO UPDATE SET consumed = 1, exp_ts = max(exp_ts, excluded.exp_ts) WHERE consumed = 0"
)
_APPROVE: Final = (
    "INSERT INTO airlock_keys (key, exp_ts, approved) VALUES (?, ?, 1)"
    " ON CONFLICT (key) DO UPDATE SET approved = 1,"
    " exp_ts = CASE WHEN consumed THEN max(exp_ts, excluded.exp_ts) ELSE excluded.exp_ts END"
)
_SAVE: Final = (
    "INSERT INTO airlock_prompts (key, exp_ts, text) VALUES (?, ?, ?)"
    " ON CONFLICT (key) DO UPDATE SET exp_ts = excluded.exp_ts, text = excluded.text"
)
_MINE: Final = "FROM airlock_usage WHERE principal = :principal AND tool = :tool"
_LAST: Final = "ORDER BY ts DESC, rowid DESC LIMIT 1"
# The sum before the oldest row that is kept; 0 when there is none.
_BASE: Final = f"(SELECT upto - n {_MINE} ORDER BY ts, rowid LIMIT 1)"
_USED: Final = (
    f"SELECT coalesce((SELECT upto {_MINE} {_LAST}), 0)"
    f" - coalesce((SELECT upto {_MINE} AND ts < :since {_LAST}), {_BASE}, 0)"
)
_CHARGE: Final = (
    "INSERT INTO airlock_usage (principal, tool, n, ts, upto) VALUES (:principal, :tool, :n, :ts,"  # noqa: S608
    f" coalesce((SELECT upto {_MINE} AND ts <= :ts {_LAST}), {_BASE}, 0) + :n)"
)
_MOVE_LATER: Final = (
    "UPDATE airlock_usage SET upto = upto + :n WHERE principal = :principal AND tool = :tool AND ts > :ts"
)
_SWEEP: Final = (
    "DELETE FROM airlock_keys WHERE rowid IN (SELECT rowid FROM airlock_keys WHERE exp_ts < ? LIMIT ?)",
    "DELETE FROM airlock_prompts WHERE rowid IN (SELECT rowid FROM airlock_prompts WHERE exp_ts < ? LIMIT ?)",
    "DELETE FROM airlock_usage WHERE rowid IN (SELECT rowid FROM airlock_usage WHERE ts < ? LIMIT ?)",
)

# These mean that nobody answered. Any other complaint is an error of ours or of the file; no retry cures it.
_NO_ANSWER: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PROTOCOL,
    }
)  # fmt: skip

# Closing any descriptor of a file drops this process's locks on it, SQLite's too. So a file is made, and that
# descriptor closed, before anyone here can have connected to it.
_making = Lock()


def open(uri: str, clock: Clock) -> SqliteStore:  # noqa: A001 - the name every store module offers
    """Make a store over `sqlite:///relative.db` or `sqlite:////absolute/path.db`.

    The path is taken as it stands (no escapes), a relative one from the working directory of this moment.
    Nothing is opened yet; the folder must exist by the first use. Raises ConfigError, quoting none of it.
    """
    path = uri.removeprefix(_PREFIX)
    if path == uri:
        raise _config("must be sqlite:///relative.db or sqlite:////absolute/path.db")
    if "?" in path or "#" in path or "\0" in path:
        raise _config("takes no options: the path may not hold `?`, `#` or NUL")
    if not os.path.basename(path) or path == ":memory:":
        raise _config("names no file")
    return SqliteStore(os.path.abspath(path), clock)


def contract_uri(tmp_path: Path) -> str:
    """Return a URI for a fresh store under `tmp_path`, for the contract suite."""
    return f"{_PREFIX}{tmp_path}/store.db"


def _config(problem: str) -> ConfigError:
    return ConfigError("AIRLOCK_STORE_DSN", f"a sqlite store {problem}")


class SqliteStore(InSteps):
    """`core.ports.Store` in a SQLite file. One thread of its own does the work; the loop never waits."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="airlock-store")
        self._closed = False
        # Only the store's thread touches what follows.
        self._db: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._next_sweep = 0.0

    async def burn(self, key: str, exp: float) -> bool:
        """Use `key` up: True the first time, False ever after. On the disk when it returns."""
        return await self._do(lambda db: self._write(db, _BURN, (key, exp), durable=True) == 1)

    async def burned(self, key: str) -> bool:
        """Tell whether `key` was used up."""
        query = "SELECT 1 FROM airlock_keys WHERE key = ? AND consumed"
        return await self._do(lambda db: db.execute(query, (key,)).fetchone() is not None)

    async def approve(self, key: str, exp: float) -> None:
        """Record a person's yes for `key`, good until `exp`. On the disk when it returns."""
        await self._do(lambda db: self._write(db, _APPROVE, (key, exp), durable=True))

    async def approved(self, key: str, now: float) -> bool:
        """Tell whether `key` has a yes that is still good at `now`."""
        query = "SELECT 1 FROM airlock_keys WHERE key = ? AND approved AND exp_ts > ?"
        return await self._do(lambda db: db.execute(query, (key, now)).fetchone() is not None)

    async def save_prompt(self, key: str, text: str, exp: float) -> None:
        """Keep the text a person is shown for `key` until `exp`."""
        await self._do(lambda db: self._write(db, _SAVE, (key, exp, text), durable=False))

    async def prompt(self, key: str) -> str | None:
        """Return the text kept for `key`, or None."""
        query = "SELECT text FROM airlock_prompts WHERE key = ? AND exp_ts > ?"
        row = await self._do(lambda db: db.execute(query, (key, self._clock.now())).fetchone())
        return str(row[0]) if row is not None else None

    async def used(self, principal: str, tool: str, since: float) -> int:
        """Sum the objects charged to (principal, tool) at or after `since`."""
        values = {"principal": principal, "tool": tool, "since": since}
        return await self._do(lambda db: int(db.execute(_USED, values).fetchone()[0]))

    async def reserve(self, principal: str, tool: str, n: int, ts: float, since: float, limit: int) -> bool:
        """Add `n` at `ts` unless the sum since `since` would pass `limit`, whatever other processes do."""
        return await self._do(lambda db: self._reserve(db, principal, tool, n, ts, since, limit))

    async def give_back(self, principal: str, tool: str, n: int, ts: float) -> None:
        """Undo a charge of `n` made at `ts`, stamped with that same time."""
        await self._do(lambda db: self._give_back(db, principal, tool, n, ts))

    async def ping(self) -> None:
        """Return when the file answers and its tables exist; missing ones are made again."""
        await self._do(self._make_tables)

    async def close(self) -> None:
        """Finish what was asked before, then release the file; later calls raise `StoreUnavailable`."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        latest = self._clock.monotonic() + BUSY_S
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._answer, work, latest)

    # From here on everything runs in the store's thread.

    def _answer(self, work: Callable[[sqlite3.Connection], T], latest: float) -> T:
        """Do `work` on a connection, mending what can be mended and sorting what cannot."""
        if self._clock.monotonic() > latest:
            raise StoreUnavailable("sqlite: busy")
        try:
            db = self._connected()
            try:
                return work(db)
            except sqlite3.OperationalError as error:
                if not str(error).startswith("no such table"):
                    raise
                self._roll_back(db)
                self._make_tables(db)
                return work(db)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if self._db is not None:
                self._roll_back(self._db)
            if not isinstance(code, int) or code & 0xFF not in _NO_ANSWER:
                raise
            # A lock passes by itself; after anything else the next call starts from a fresh connection.
            if code & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                self._disconnect()
            raise StoreUnavailable(f"sqlite: {error.sqlite_errorname}") from error
        except StoreUnavailable:
            self._disconnect()
            raise
        except OSError as error:
            self._disconnect()
            raise StoreUnavailable(f"store file: {error.strerror or type(error).__name__}") from error

    def _connected(self) -> sqlite3.Connection:
        """Return a connection to the file that is at the path now."""
        if self._db is not None:
            try:
                if _identity(self._path) == self._file:
                    return self._db
            except FileNotFoundError:
                pass
            # SECURITY: with the file replaced under us, two processes could burn one key, each in its own.
            self._disconnect()
        with _making:
            _make_private(self._path)
        name = f"file:{quote(os.fsencode(self._path))}?mode=rw"
        db = sqlite3.connect(name, uri=True, timeout=BUSY_S, isolation_level=None)
        try:
            _use_wal(db)
            self._make_tables(db)
            self._file = _identity(self._path)
        except (sqlite3.Error, OSError):
            db.close()
            raise
        self._db = db
        return db

    def _disconnect(self) -> None:
        db, self._db, self._file = self._db, None, None
        if db is not None:
            db.close()

    def _roll_back(self, db: sqlite3.Connection) -> None:
        if db.in_transaction:
            try:
                db.execute("ROLLBACK")
            except sqlite3.Error:
                self._disconnect()

    def _make_tables(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA:
            db.execute(statement)
        _commit(db)

    def _write(
        self, db: sqlite3.Connection, statement: str, values: tuple[object, ...], *, durable: bool
    ) -> int:
        """Run one statement in a transaction of its own; return how many rows it touched."""
        self._sweep(db)
        _begin(db, durable=durable)
        changed = db.execute(statement, values).rowcount
        _commit(db)
        return changed

    def _reserve(
        self, db: sqlite3.Connection, principal: str, tool: str, n: int, ts: float, since: float, limit: int
    ) -> bool:
        self._sweep(db)
        values = {"principal": principal, "tool": tool, "n": n, "ts": ts, "since": since}
        # SECURITY: the write lock is taken before the sum is read, so no other process charges in between.
        _begin(db, durable=False)
        fits = int(db.execute(_USED, values).fetchone()[0]) + n <= limit
        if fits and n:
            self._charge(db, values)
        _commit(db)
        return fits

    def _give_back(self, db: sqlite3.Connection, principal: str, tool: str, n: int, ts: float) -> None:
        # A charge this old was deleted: giving it back now would leave a credit nobody paid for.
        if n == 0 or ts < self._clock.now() - USAGE_KEPT_S:
            return
        self._sweep(db)
        _begin(db, durable=False)
        self._charge(db, {"principal": principal, "tool": tool, "n": -n, "ts": ts})
        _commit(db)

    def _charge(self, db: sqlite3.Connection, values: dict[str, object]) -> None:
        db.execute(_CHARGE, values)
        db.execute(_MOVE_LATER, values)

    def _sweep(self, db: sqlite3.Connection) -> None:
        """Delete what has expired, at most once in `SWEEP_EVERY_S`, in short steps so that others get in."""
        now = self._clock.now()
        if now < self._next_sweep:
            return
        self._next_sweep = now + SWEEP_EVERY_S
        for statement, before in zip(_SWEEP, (now - CLOCK_SLACK_S, now, now - USAGE_KEPT_S), strict=True):
            while db.execute(statement, (before, _SWEPT_AT_ONCE)).rowcount == _SWEPT_AT_ONCE:
                pass


def _begin(db: sqlite3.Connection, *, durable: bool) -> None:
    db.execute("PRAGMA synchronous = FULL" if durable else "PRAGMA synchronous = NORMAL")
    db.execute("BEGIN IMMEDIATE")


def _commit(db: sqlite3.Connection) -> None:
    # SECURITY: SQLite ends a transaction by itself when it cannot go on, and not every version of the module says
    # so at the statement: what was not committed must not count as a burned key or a charge.
    if not db.in_transaction:
        raise StoreUnavailable("sqlite: rolled back (SQLITE_FULL, SQLITE_IOERR or SQLITE_NOMEM)")
    db.execute("COMMIT")


def _use_wal(db: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging, once for all its users.

    SQLite does not wait by itself when several processes do this at the same moment.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise OSError("the file system cannot hold a write-ahead log")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path, follow_symlinks=False)
    return found.st_dev, found.st_ino


def _make_private(path: str) -> None:
    """Make sure that a database file of ours, mode 0600, is at `path`. Its folder must exist.

    A symlink, or anything else than a regular file of our own user, is refused; so for its two companions.
    """
    # SECURITY: private from its first instant, whatever the umask, and never opened through a planted link:
    # whoever can write the file can write approvals into it.
    try:
        made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        pass
    else:
        try:
            os.fchmod(made, 0o600)
        finally:
            os.close(made)
    for name in (path, f"{path}-wal", f"{path}-shm"):
        try:
            found = os.stat(name, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(0, "not a regular file of this user")
        if stat.S_IMODE(found.st_mode) != 0o600:
            os.chmod(name, 0o600)
