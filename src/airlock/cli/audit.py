"""`airlock audit`, also installed as `airlock-audit`: check the audit log.

Knows arguments, output and exit codes; the chain is `core.audit.chain`, the files are `edge.auditfiles`.
SPEC: gateway.md 12.6 and 20.5: one line, never a traceback.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from typing import TextIO

import click
import msgspec

from airlock.core.audit import chain
from airlock.core.text.safe import one_line
from airlock.edge import auditfiles

__all__ = ["group"]

_DEFAULT = "audit.jsonl"


@click.group("audit")
def group() -> None:
    """Check the audit log."""


@group.command("verify")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def _verify(ctx: click.Context, files: tuple[str, ...], as_json: bool) -> None:
    """Check the hash chain of the audit log; FILES are given oldest first.

    Without FILES: audit.jsonl and its rotated files in the working directory. Exits 1 at the first break.
    Not found: a truncated tail, an edit of the newest record, a log rewritten from start to end.
    """
    try:
        names = list(files) or auditfiles.log_files(_DEFAULT)
        if not names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), _DEFAULT)
        outcome = chain.verify((name, auditfiles.read_lines(name)) for name in names)
    except OSError as exc:
        _complain(ctx, exc.filename or _DEFAULT, exc)
        ctx.exit(1)
    holds = isinstance(outcome, chain.Verified)
    text = json.dumps({"ok": holds, **msgspec.to_builtins(outcome)}) if as_json else chain.render(outcome)
    ctx.exit(0 if _print(ctx, text) and holds else 1)


def _print(ctx: click.Context, text: str) -> bool:
    """Print a line. False when standard output took it not; a reader who went away is no fault."""
    try:
        click.echo(_writable(text, sys.stdout))
    except BrokenPipeError:
        # Else the interpreter tries to flush what is left at exit, and complains.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        _complain(ctx, "standard output", exc)
        return False
    return True


def _complain(ctx: click.Context, where: str, exc: OSError) -> None:
    program = ctx.parent.command_path if ctx.parent is not None else ctx.command_path
    line = f"{program}: {one_line(where)}: {exc.strerror or type(exc).__name__}"
    click.echo(_writable(line, sys.stderr), err=True)


def _writable(text: str, stream: TextIO | None) -> str:
    """Return `text` with what the encoding of `stream` lacks spelled out. None: it was closed at start."""
    encoding = "utf-8" if stream is None else stream.encoding
    return text.encode(encoding, "backslashreplace").decode(encoding)
