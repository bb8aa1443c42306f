"""The state store of many hosts: one Postgres database shared by every replica.

Knows keys, prompts and charges in SQL; does not know tickets, policy or what a charge stands for.

Every operation is one round trip, what must be atomic included: a transaction goes out as one message. What a
call waits for is bounded by the pool (`edge.pgpool`). The tables are made by the call that finds them gone.
SPEC: gateway.md 13.3.
LIMIT: used keys go with a lost database, so a confirmation used shortly before can be used once more within its
lifetime. Counters know no environment: gateways that share a database share them. The column of a charge holds
31 bits. Tables that another program made keep the indexes they have.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from airlock.core.errors import StoreUnavailable
from airlock.core.ports import Clock
from airlock.core.text.safe import well_formed
from airlock.edge import pg
from airlock.edge.pgpool import Complaint, Pool
from airlock.edge.settings import Environment

if TYPE_CHECKING:
    from airlock.edge.pgpool import Connection

__all__ = ["CLOCK_SLACK_S", "SWEEP_EVERY_S", "USAGE_KEPT_S", "PostgresStore", "open"]

SWEEP_EVERY_S: Final = 60.0
"""Expired rows are deleted at most this often, beside the calls."""

USAGE_KEPT_S: Final = 86400.0
"""How long a charge is kept: the widest window a policy may name (gateway.md 5)."""

CLOCK_SLACK_S: Final = 3600.0
"""How long past its `exp` a key is kept, so that a clock set back does not make a burned one good again."""

_SWEPT_AT_ONCE: Final = 1000

# SECURITY: whatever isolation the role was given, each statement must see what was committed while the one
# before it waited for the lock: with the snapshot of a repeatable read, two replicas could both charge the last
# of a limit.
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED; "
_SCHEMA: Final = (
    f"{_BEGIN} SELECT pg_advisory_xact_lock({pg.DDL_LOCK});"
    " CREATE TABLE IF NOT EXISTS airlock_keys (key text PRIMARY KEY, exp_ts double precision NOT NULL,"
    " consumed boolean NOT NULL DEFAULT false, approved boolean NOT NULL DEFAULT false);"
    " CREATE INDEX IF NOT EXISTS airlock_keys_exp ON airlock_keys (exp_ts);"
    " CREATE TABLE IF NOT EXISTS airlock_prompts (key text PRIMARY KEY, exp_ts double precision NOT NULL,"
    " text text NOT NULL);"
    " CREATE INDEX IF NOT EXISTS airlock_prompts_exp ON airlock_prompts (exp_ts);"
    " CREATE TABLE IF NOT EXISTS airlock_usage (principal text NOT NULL, tool text NOT NULL,"
    " n integer NOT NULL, ts double precision NOT NULL);"
    " CREATE INDEX IF NOT EXISTS airlock_usage_window ON airlock_usage (principal, tool, ts);"
    " CREATE INDEX IF NOT EXISTS airlock_usage_ts ON airlock_usage (ts); COMMIT"
)
_BURN: Final = (
    "INSERT INTO airlock_keys (key, exp_ts, consumed) VALUES (%(key)s, %(exp)s, true)"
    " ON CONFLICT (key) DO UPDATE SET consumed = true,"
    " exp_ts = greatest(airlock_keys.exp_ts, excluded.exp_ts) WHERE NOT airlock_keys.consumed RETURNING true"
)
_APPROVE: Final = (
    "INSERT INTO airlock_keys (key, exp_ts, approved) VALUES (%(key)s, %(exp)s, true)"
    " ON CONFLICT (key) DO UPDATE SET approved = true, exp_ts = CASE WHEN airlock_keys.consumed"
    " THEN greatest(airlock_keys.exp_ts, excluded.exp_ts) ELSE excluded.exp_ts END"
)
_STANDING: Final = (
    "SELECT consumed, approved AND exp_ts > %(now)s::double precision FROM airlock_keys WHERE key = %(key)s"
)
_SAVE: Final = (
    "INSERT INTO airlock_prompts (key, exp_ts, text) VALUES (%(key)s, %(exp)s, %(text)s)"
    " ON CONFLICT (key) DO UPDATE SET exp_ts = excluded.exp_ts, text = excluded.text"
)
_PROMPT: Final = "SELECT text FROM airlock_prompts WHERE key = %(key)s AND exp_ts > %(now)s::double precision"
_SUM: Final = (
    "SELECT coalesce(sum(n), 0) {} FROM airlock_usage"
    " WHERE principal = %(principal)s AND tool = %(tool)s AND ts >= %(since)s::double precision"
)
_ROOM: Final = f"room AS ({_SUM.format('+ %(n)s <= %(limit)s AS fits')})"
_CHARGE: Final = "INSERT INTO airlock_usage (principal, tool, n, ts)"
_CHARGED: Final = (
    f"charged AS ({_CHARGE} SELECT %(principal)s, %(tool)s, %(n)s, %(ts)s"  # noqa: S608 - the driver's marks
    " FROM room WHERE fits AND %(n)s <> 0"
)
_LOCKED: Final = f"{_BEGIN} SELECT pg_advisory_xact_lock(%(lock)s); WITH"
_RESERVE: Final = f"{_LOCKED} {_ROOM}, {_CHARGED}) SELECT fits FROM room; COMMIT"  # noqa: S608
_BURN_AND_RESERVE: Final = (
    f"{_LOCKED} burned AS ({_BURN}), {_ROOM}, {_CHARGED} AND EXISTS (SELECT FROM burned))"  # noqa: S608
    " SELECT EXISTS (SELECT FROM burned), fits FROM room; COMMIT"
)
_GIVE_BACK: Final = f"{_CHARGE} VALUES (%(principal)s, %(tool)s, %(n)s, %(ts)s)"
_PING: Final = "SELECT 1 FROM airlock_keys, airlock_prompts, airlock_usage LIMIT 0"
# What another replica is deleting is left to it.
_SWEEP: Final = tuple(
    f"WITH swept AS (DELETE FROM {table} WHERE ctid = ANY (ARRAY (SELECT ctid FROM {table} WHERE"  # noqa: S608
    f" {column} < %(before)s::double precision LIMIT {_SWEPT_AT_ONCE} FOR UPDATE SKIP LOCKED)) RETURNING 1)"
    " SELECT count(*) FROM swept"
    for table, column in (("airlock_keys", "exp_ts"), ("airlock_prompts", "exp_ts"), ("airlock_usage", "ts"))
)


def open(uri: str, clock: Clock, env: Environment | None = None) -> PostgresStore:  # noqa: A001 - see sqlite
    """Make a store over a Postgres DSN, a URI or libpq's `name=value` text. Nothing is connected yet.

    `env` holds AIRLOCK_STORE_CONNECT_TIMEOUT, AIRLOCK_STORE_POOL_SIZE and PGCONNECT_TIMEOUT. Raises ConfigError,
    quoting nothing of the DSN, when it does not parse or the `postgres` extra is missing.
    """
    settings = Environment({}) if env is None else env
    dsn = pg.Dsn.parse(uri, "AIRLOCK_STORE_DSN", settings)
    return PostgresStore(Pool(dsn, settings.positive("AIRLOCK_STORE_POOL_SIZE", 4)), clock)


class PostgresStore:
    """`core.ports.Store` in a Postgres database, with two operations more that save round trips."""

    def __init__(self, pool: Pool, clock: Clock) -> None:
        self._pool = pool
        self._clock = clock
        self._next_sweep = 0.0
        self._sweeping: asyncio.Task[None] | None = None
        self._undefined_table: type[Exception] = pg.driver().errors.UndefinedTable

    async def burn(self, key: str, exp: float) -> bool:
        """Use `key` up: True the first time, False ever after, whatever other replicas do."""
        return await self._write(f"{_BEGIN}{_BURN}; COMMIT", {"key": key, "exp": exp}) is not None

    async def burned(self, key: str) -> bool:
        """Tell whether `key` was used up."""
        return (await self.standing(key, 0.0))[0]

    async def approve(self, key: str, exp: float) -> None:
        """Record a person's yes for `key`, good until `exp`."""
        await self._write(_APPROVE, {"key": key, "exp": exp})

    async def approved(self, key: str, now: float) -> bool:
        """Tell whether `key` has a yes that is still good at `now`."""
        return (await self.standing(key, now))[1]

    async def standing(self, key: str, now: float) -> tuple[bool, bool]:
        """Return what `burned(key)` and `approved(key, now)` would, in one round trip."""
        row = await self._ask(_STANDING, {"key": key, "now": now})
        return (row[0] is True, row[1] is True) if row is not None else (False, False)

    async def save_prompt(self, key: str, text: str, exp: float) -> None:
        """Keep the text a person is shown for `key` until `exp`."""
        await self._write(_SAVE, {"key": key, "text": text, "exp": exp})

    async def prompt(self, key: str) -> str | None:
        """Return the text kept for `key`, or None."""
        row = await self._ask(_PROMPT, {"key": key, "now": self._clock.now()})
        return str(row[0]) if row is not None else None

    async def used(self, principal: str, tool: str, since: float) -> int:
        """Sum the objects charged to (principal, tool) at or after `since`."""
        row = await self._ask(_SUM.format(""), {"principal": principal, "tool": tool, "since": since})
        return _whole(row)

    async def reserve(self, principal: str, tool: str, n: int, ts: float, since: float, limit: int) -> bool:
        """Add `n` at `ts` unless the sum since `since` would pass `limit`, whatever other replicas do."""
        charge = _charge(principal, tool, n, ts, since, limit)
        row = await self._write(_RESERVE, charge)
        return row is not None and row[0] is True

    async def burn_and_reserve(
        self, key: str, exp: float, principal: str, tool: str, n: int, ts: float, since: float, limit: int
    ) -> tuple[bool, bool]:
        """Burn, and if that was the first time reserve, in one round trip: (burned now, charged now).

        Just as `burn` and then `reserve`: a key used up before charges nothing (False, False), and a key stays
        burned when the charge is refused (True, False). When it raises, either both were done or neither.
        """
        charge = _charge(principal, tool, n, ts, since, limit)
        row = await self._write(_BURN_AND_RESERVE, {**charge, "key": key, "exp": exp})
        burned, fits = (row[0] is True, row[1] is True) if row is not None else (False, False)
        return burned, burned and fits

    async def give_back(self, principal: str, tool: str, n: int, ts: float) -> None:
        """Undo a charge of `n` made at `ts`, stamped with that same time."""
        # A charge this old was deleted: giving it back now would leave a credit nobody paid for.
        if n and ts >= self._clock.now() - USAGE_KEPT_S:
            await self._write(_GIVE_BACK, {"principal": principal, "tool": tool, "n": -n, "ts": ts})

    async def ping(self) -> None:
        """Return when the database answers and the tables exist; missing ones are made again."""
        await self._ask(_PING, {})

    async def close(self) -> None:
        """Close every connection, within about two seconds; later calls raise `StoreUnavailable`."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._pool.close()

    async def _write(self, statements: str, values: Mapping[str, object]) -> tuple[object, ...] | None:
        row = await self._ask(statements, values)
        now = self._clock.now()
        if now >= self._next_sweep and (self._sweeping is None or self._sweeping.done()):
            self._next_sweep = now + SWEEP_EVERY_S
            self._sweeping = asyncio.create_task(self._sweep(now))
        return row

    async def _ask(self, statements: str, values: Mapping[str, object]) -> tuple[object, ...] | None:
        """Send one message of statements; return the row of the last one that has rows, or None."""
        # A NUL or half a character cannot be stored: names that differ in nothing else share one budget.
        clean = {
            name: well_formed(value) if isinstance(value, str) else value for name, value in values.items()
        }
        message = statements.encode()

        async def work(connection: Connection) -> tuple[object, ...] | None:
            try:
                return await _row(connection, message, clean)
            except self._undefined_table:
                await connection.rollback()
                await connection.execute(_SCHEMA.encode())
                return await _row(connection, message, clean)

        return await self._pool.run(work)

    async def _sweep(self, now: float) -> None:
        """Delete what has expired, in short steps so that calls get in. What fails is left to the next time."""
        before = (now - CLOCK_SLACK_S, now, now - USAGE_KEPT_S)
        try:
            for statement, moment in zip(_SWEEP, before, strict=True):
                swept = _SWEPT_AT_ONCE
                while swept == _SWEPT_AT_ONCE:
                    swept = _whole(await self._ask(statement, {"before": moment}))
        except (StoreUnavailable, Complaint):
            pass


async def _row(
    connection: Connection, message: bytes, values: Mapping[str, object]
) -> tuple[object, ...] | None:
    cursor = await connection.execute(message, values)
    row = None
    while True:
        if cursor.description:
            row = await cursor.fetchone()
        if not cursor.nextset():
            return row


def _charge(
    principal: str, tool: str, n: int, ts: float, since: float, limit: int
) -> dict[str, str | int | float]:
    """The values of a charge, with the lock under which charges to one (principal, tool) take turns."""
    principal, tool = well_formed(principal), well_formed(tool)
    name = f"{len(principal)}:{principal}{tool}".encode()
    lock = int.from_bytes(hashlib.sha256(name).digest()[:8], "big", signed=True)
    return {
        "lock": lock, "principal": principal, "tool": tool, "n": n, "ts": ts, "since": since, "limit": limit,
    }  # fmt: skip


def _whole(row: tuple[object, ...] | None) -> int:
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]
