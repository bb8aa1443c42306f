"""`airlock audit`, also installed as `airlock-audit`: read the audit log, and check its chain.

Knows arguments, output and exit codes; the chain is `core.audit.chain`, what is asked of records
`core.audit.query`, the files `edge.auditread`, the table `edge.sinks.pgquery`.
SPEC: gateway.md 12.5, 12.6 and 20.5: one line, never a traceback.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import TextIO

import click
import msgspec

from airlock.core.audit import chain, query
from airlock.core.errors import ConfigError
from airlock.core.text.safe import one_line
from airlock.edge import auditread
from airlock.edge.auditread import Reading
from airlock.edge.clock import SystemClock
from airlock.edge.settings import Environment

__all__ = ["Progress", "group"]

_DEFAULT = "audit.jsonl"
_DSN = "AIRLOCK_AUDIT_DSN"


@click.group("audit")
def group() -> None:
    """Read and check the audit log."""


class _Since(click.ParamType[datetime]):
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return query.parse_since(str(value), datetime.fromtimestamp(SystemClock().now(), UTC))
        except ValueError as exc:
            self.fail(f"{one_line(str(value))!r} is {exc}", param, ctx)


@group.command("query")
@click.option(
    "--jsonl", type=click.Path(), metavar="FILE", help=f"Read this log. Default: ${_DSN}, else {_DEFAULT}."
)
@click.option("--dsn", metavar="DSN", help="Read the table of this Postgres instead of a file.")
@click.option("--principal", metavar="NAME", help="Only what NAME asked for.")
@click.option("--tool", metavar="NAME", help="Only calls of the tool NAME.")
@click.option("--verdict", metavar="WORD", help="Only this verdict: allow, deny, confirm or error.")
@click.option("--rule", metavar="ID", help="Only this rule id, such as tier.L2.confirmed.")
@click.option("--phase", type=click.Choice(["intent", "outcome"]), help="Only one of a call's two records.")
@click.option(
    "--since", type=_Since(), metavar="TIME", help="Not older than 30m, 2h, 7d or an ISO 8601 time."
)
@click.option(
    "--limit", type=click.IntRange(min=0), default=0, metavar="N", help="Only the newest N; 0: all."
)
@click.option(
    "--stats", is_flag=True, help="Count records by verdict and rule instead; --limit has no effect."
)
@click.option("--json", "as_json", is_flag=True, help="Changes nothing: every line is one JSON object.")
@click.pass_context
def _query(
    ctx: click.Context,
    /,
    jsonl: str | None,
    dsn: str | None,
    limit: int,
    stats: bool,
    as_json: bool,  # every listing takes it
    **asked: object,
) -> None:
    """Print the records that match all the filters as JSON lines, newest last.

    Rotated files and those of other workers are read too; with several workers the lines are woven together by
    time. A line that is no record is named on stderr and skipped. Both records of a call are printed or counted:
    count calls with --stats --phase outcome.
    """
    if jsonl is not None and dsn is not None:
        raise click.UsageError("--jsonl and --dsn exclude each other", ctx)
    filters = msgspec.convert(asked, query.Filters)
    newest = None if stats else min(limit, sys.maxsize)
    variable, address = ("--dsn", dsn) if dsn is not None else (_DSN, Environment.of_process().text(_DSN))
    if jsonl is None and address is not None:
        ctx.exit(_ask_table(ctx, address, variable, filters, newest))
    try:
        with auditread.opened(_DEFAULT if jsonl is None else jsonl) as readings:
            ctx.exit(_ask_files(ctx, readings, filters, newest))
    except OSError as exc:
        _complain(ctx, exc.filename or _DEFAULT, exc)
        ctx.exit(1)


def _ask_files(ctx: click.Context, readings: list[Reading], filters: query.Filters, limit: int | None) -> int:
    """Print the newest `limit` records (0: all), or for None the counts. Return the exit status."""
    progress = Progress.of(ctx, readings, streaming=limit == 0)

    def skipped(file: str, number: int, why: query.Skip) -> None:
        progress.clear()
        _say(ctx, f"skipped {one_line(file)}:{number}: {why}")

    found = query.merged([query.select(progress.over(each), filters, skipped) for each in readings])
    plain = not _speaks_unicode(sys.stdout)
    if limit is None:
        counts = query.tally(each.record for each in found)
        rows: Iterable[str] = (query.render(count, ascii_only=plain) for count in counts)
    else:
        kept = deque(found, limit) if limit else found
        rows = (query.shown(each.text, ascii_only=plain) for each in kept)
    progress.clear()
    return 0 if _print(ctx, rows) else 1


def _ask_table(
    ctx: click.Context, address: str, variable: str, filters: query.Filters, limit: int | None
) -> int:
    """As `_ask_files`, of the table at the DSN `address`, which `variable` holds."""
    from airlock.edge import pg
    from airlock.edge.sinks import pgquery

    plain = not _speaks_unicode(sys.stdout)
    try:
        dsn = pg.Dsn.parse(address, variable, Environment.of_process())
        answers: Iterable[Mapping[str, object] | query.Count]
        if limit is None:
            answers = (query.Count(*row) for row in pgquery.stats(dsn, filters))
        else:
            answers = pgquery.rows(dsn, filters, limit)
        return 0 if _print(ctx, (query.render(answer, ascii_only=plain) for answer in answers)) else 1
    except (ConfigError, pgquery.QueryFailed) as exc:
        _say(ctx, one_line(str(exc)))
        return 1


@group.command("verify")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per chain.")
@click.pass_context
def _verify(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Check the hash chain of the audit log; FILES are given oldest first.

    Without FILES: audit.jsonl and its rotated files in the working directory. Each further worker of a gateway
    (audit.jsonl.w1, ...) has a chain of its own and a line of its own. Exits 1 when a chain breaks.

    Intents without an outcome are named in a further line: those calls still ran when the log was read, or a
    crash or a full disk cut them off. That is no break.

    Not found: a truncated tail, an edit of the newest record, a log rewritten from start to end.
    """
    try:
        with nullcontext(auditread.given(files)) if files else auditread.opened(_DEFAULT) as readings:
            holds = [_verify_chain(ctx, reading, as_json) for reading in readings]
    except OSError as exc:
        _complain(ctx, exc.filename or _DEFAULT, exc)
        ctx.exit(1)
    ctx.exit(0 if all(holds) else 1)


def _verify_chain(ctx: click.Context, reading: Reading, as_json: bool) -> bool:
    """Check and report one chain. False when it breaks, or when nobody could be told."""
    progress = Progress.of(ctx, [reading])
    intents = query.Intents()
    outcome = chain.verify((name, intents.watch(name, lines)) for name, lines in progress.over(reading))
    progress.clear()
    holds = isinstance(outcome, chain.Verified)
    lone = intents.lone() if holds else []
    if as_json:
        fields = {"ok": holds, "chain": reading.name, **msgspec.to_builtins(outcome)}
        rows = [json.dumps(fields | {"lone_intents": msgspec.to_builtins(lone)} if holds else fields)]
    else:
        # SPEC: gateway.md 12.6: the line itself stays as it is; which worker it is about stands behind it.
        aside = f" ({one_line(reading.name)})" if holds and reading.worker else ""
        rows = [chain.render(outcome) + aside] + ([query.render_lone(lone)] if lone else [])
    return _print(ctx, (_writable(row, sys.stdout) for row in rows)) and holds


class Progress:
    """A line on a terminal that says how far reading has come, once it has taken over two seconds."""

    _AFTER_S = 2.0
    _EVERY = 2000  # lines between two looks at the clock

    def __init__(
        self, stream: TextIO | None, program: str, size: int, monotonic: Callable[[], float]
    ) -> None:
        """`stream` is None where nobody looks; `size` is the number of bytes to be read, 0 if not known."""
        self._stream = stream
        self._program = program
        self._size = size
        self._monotonic = monotonic
        self._due = monotonic() + self._AFTER_S
        self._read = 0
        self._visible = False

    @classmethod
    def of(cls, ctx: click.Context, readings: list[Reading], *, streaming: bool = False) -> Progress:
        """Speak on stderr when it is a terminal. `streaming`: output that goes anywhere but a file shows enough."""
        stream = sys.stderr if sys.stderr is not None and sys.stderr.isatty() else None
        if streaming and not _is_file(sys.stdout):
            stream = None
        return cls(stream, _program(ctx), sum(each.size for each in readings), SystemClock().monotonic)

    def over(self, reading: Reading) -> Iterable[tuple[str, Iterable[bytes]]]:
        """The files of `reading`, watched while they are read."""
        if self._stream is None:
            return reading.files
        return ((name, self._watched(lines)) for name, lines in reading.files)

    def clear(self) -> None:
        """Take the line away, so that something else can be written."""
        if self._visible and self._stream is not None:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
        self._visible = False

    def _watched(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        try:
            for number, line in enumerate(lines):
                self._read += len(line)
                if number % self._EVERY == 0 and self._monotonic() >= self._due:
                    self._show()
                yield line
        finally:
            self.clear()

    def _show(self) -> None:
        self._due = self._monotonic() + 0.5
        of = f" of {self._size / 1e6:.0f}" if self._size >= self._read else ""
        if self._stream is not None:
            self._stream.write(f"\r\x1b[K{self._program}: read {self._read / 1e6:.0f}{of} MB")
            self._stream.flush()
        self._visible = True


def _is_file(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except OSError:  # it has no descriptor
        return False


def _print(ctx: click.Context, rows: Iterable[str]) -> bool:
    """Print lines as they come. False when standard output took them not; a reader who went away is no fault.

    An OSError of `rows` themselves passes through.
    """
    out = sys.stdout
    for row in rows:
        problem = _write(out, row + "\n")
        if problem is not None:
            break
    else:
        problem = _write(out, None)
    if problem is None or isinstance(problem, BrokenPipeError):
        return True
    _complain(ctx, "standard output", problem)
    return False


def _write(stream: TextIO | None, text: str | None) -> OSError | None:
    """Write `text`, or for None all that waits. The problem if there was one: then nothing more may be written."""
    if stream is None:  # it was closed when we started
        return None
    try:
        if text is None:
            stream.flush()
        else:
            stream.write(text)
    except OSError as exc:
        # Else the interpreter tries to flush what is left at exit, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return exc
    return None


def _program(ctx: click.Context) -> str:
    return ctx.parent.command_path if ctx.parent is not None else ctx.command_path


def _complain(ctx: click.Context, where: str, exc: OSError) -> None:
    _say(ctx, f"{one_line(where)}: {exc.strerror or type(exc).__name__}")


def _say(ctx: click.Context, text: str) -> None:
    click.echo(_writable(f"{_program(ctx)}: {text}", sys.stderr), err=True)


def _speaks_unicode(stream: TextIO | None) -> bool:
    return stream is None or stream.encoding.lower().replace("-", "").replace("_", "") == "utf8"


def _writable(text: str, stream: TextIO | None) -> str:
    """Return `text` with what the encoding of `stream` lacks spelled out. None: it was closed at start."""
    encoding = "utf-8" if stream is None else stream.encoding
    return text.encode(encoding, "backslashreplace").decode(encoding)
