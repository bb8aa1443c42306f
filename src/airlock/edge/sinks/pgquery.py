"""Reading the audit table back: records by filter, the newest N oldest first, or counts by verdict and rule.

Knows the table; does not know how records are printed, and changes nothing.
SPEC: gateway.md 12.5.

LIMIT: `jsonb` keeps values, not spelling: `1e22` comes back as its digits, so a record read here may hash to
something else than its `hash` says. The file is what `verify` is for.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from airlock.core.audit.query import Filters
from airlock.core.audit.record import FIELDS
from airlock.core.errors import AirlockError
from airlock.core.text.safe import well_formed
from airlock.core.wire import canon
from airlock.edge import pg
from airlock.edge.sinks.postgres import PRINCIPAL_CUT, handle

if TYPE_CHECKING:
    import psycopg

__all__ = ["QueryFailed", "rows", "stats"]

_FETCHED: Final = 500
_MOST: Final = 2**63 - 1
_SLACK_S: Final = 1.0
_COLUMNS: Final = {"tool": "tool", "verdict": "verdict", "rule": "rule_id", "phase": "phase"}


class QueryFailed(AirlockError):
    """The database did not answer, or complained. The text is one line without any value of the DSN."""


def rows(dsn: pg.Dsn, filters: Filters, limit: int) -> Iterator[dict[str, object]]:
    """Yield the records that match, oldest first: the newest `limit` of them, or all when it is 0.

    Fields come in the order of the file, members of objects sorted as there. Raises QueryFailed, at the first
    record or at any later one. Records of one millisecond keep the order in which they reached the table;
    what is no record is left out.
    """
    where, values = _where(filters)
    if limit:
        query = (
            "SELECT rec::text FROM (SELECT rec, ts, ctid AS place FROM airlock_audit"  # noqa: S608 - our own words
            f"{where} ORDER BY ts DESC, ctid DESC LIMIT %s) AS newest ORDER BY ts, place"
        )
        values = [*values, min(limit, _MOST)]
    else:
        query = f"SELECT rec::text FROM airlock_audit{where} ORDER BY ts, ctid"  # noqa: S608 - our own words
    with _Reading(dsn) as reading:
        reading.ask(f"DECLARE newest NO SCROLL CURSOR FOR {query}", values)
        while found := reading.ask(f"FETCH {_FETCHED} FROM newest").fetchall():
            for (text,) in found:
                record = _record(text)
                if record is not None:
                    yield record


def stats(dsn: pg.Dsn, filters: Filters) -> list[tuple[str | None, str | None, int]]:
    """Count the records that match by verdict and rule, the most frequent first, then by name.

    Raises QueryFailed.
    """
    where, values = _where(filters)
    query = f"SELECT verdict, rule_id, count(*) FROM airlock_audit{where} GROUP BY verdict, rule_id"  # noqa: S608
    with _Reading(dsn) as reading:
        counts = reading.ask(query, values).fetchall()
    return sorted(counts, key=lambda row: (-row[2], canon.text(row[:2])))  # as `core.audit.query.tally` does


class _Reading:
    """A read-only connection whose every wait is bounded, by the server and, should that be frozen, from here."""

    def __init__(self, dsn: pg.Dsn) -> None:
        self._psycopg = pg.driver()
        self._dsn = dsn

    def __enter__(self) -> _Reading:
        try:
            self._conn: psycopg.Connection = self._psycopg.connect(
                self._dsn.conninfo, prepare_threshold=None, client_encoding="utf8"
            )
        except self._psycopg.Error as exc:
            raise self._failed(exc) from None
        self._handle = handle(self._conn)
        self._conn.read_only = True
        try:
            self.ask(pg.set_timeouts(self._dsn.wait_s))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()
        self._handle.close()

    def ask(self, statement: str, values: Sequence[object] = ()) -> psycopg.Cursor:
        """Run one statement of ours, unless the database does not answer in time or complains."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            try:
                self._handle.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was gone already

        timer = threading.Timer(self._dsn.wait_s + _SLACK_S, give_up)
        timer.daemon = True
        timer.start()
        try:
            return self._conn.execute(statement.encode(), values or None)
        except self._psycopg.Error as exc:
            if late.is_set():
                raise QueryFailed(f"the database did not answer within {self._dsn.wait_s:g} s") from None
            raise self._failed(exc) from None
        finally:
            timer.cancel()
            timer.join()

    def _failed(self, exc: psycopg.Error) -> QueryFailed:
        # The primary message: what else there is quotes our own query.
        return QueryFailed(self._dsn.blank(exc.diag.message_primary or str(exc)))


def _where(filters: Filters) -> tuple[str, list[object]]:
    """Return the condition, and the values that go with it."""
    tests: list[str] = []
    values: list[object] = []
    if filters.principal is not None:
        name = well_formed(filters.principal)
        tests.append("principal = %s")
        values.append(name[:PRINCIPAL_CUT])
        if len(name) >= PRINCIPAL_CUT:
            tests.append("rec->>'principal' = %s")
            values.append(name)
    for field, column in _COLUMNS.items():
        value = getattr(filters, field)
        if value is not None:
            tests.append(f"{column} = %s")
            values.append(well_formed(str(value)))
    if filters.since is not None:
        tests.append("ts >= %s")
        values.append(filters.since)
    return (f" WHERE {' AND '.join(tests)}" if tests else ""), values


def _record(text: str) -> dict[str, object] | None:
    """Read the text of a `rec`. None for what is no record: others may have put anything into the table."""
    try:
        record = json.loads(text, object_pairs_hook=_sorted)
    except (ValueError, RecursionError):  # numbers of thousands of digits, or a nesting beyond any record's
        return None
    if not isinstance(record, dict):
        return None
    return {field: record[field] for field in FIELDS if field in record} | record


def _sorted(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(members))
