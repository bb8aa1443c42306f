"""The table of clients in build/clients.json: one row for each, written by the tests that prove it.

    row = Row(CODEX)
    with row.proving("held"): ...      # true when nothing was raised in it, else false

A row is {client, version, opens, revision, lists, calls, refused, held, released}. `opens` is the first message that
the client sent, `revision` what it then spoke; what no test has come to is null. Tests that run at the same time in
other processes write to the same file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.harness.parts import Part
from tests.harness.wire import Wire

__all__ = ["COLUMNS", "FILE", "Row", "table"]

COLUMNS: Final = ("client", "version", "opens", "revision", "lists", "calls", "refused", "held", "released")
FILE: Final = Path(__file__).resolve().parents[2] / "build" / "clients.json"
_META: Final = "io.modelcontextprotocol/protocolVersion"


class Row:
    """The row of one client."""

    def __init__(self, part: Part) -> None:
        self._key = {"client": part.name, "version": part.version()}

    @contextlib.contextmanager
    def proving(self, *columns: str) -> Iterator[None]:
        """Prove what the columns say."""
        self._write(dict.fromkeys(columns, False))
        yield
        self._write(dict.fromkeys(columns, True))

    def opened(self, wire: Wire) -> tuple[str, str]:
        """Write how a client opened and which revision it spoke then, and return both."""
        heard = [one for one in wire.heard() if one.method is not None]
        first = heard[0].message
        offered = first["params"].get("protocolVersion") or first["params"]["_meta"][_META]
        opens, revision = f"{first['method']} {offered}", heard[-1].headers["mcp-protocol-version"]
        self._write({"opens": opens, "revision": revision})
        return opens, revision

    def _write(self, found: dict[str, Any]) -> None:
        FILE.parent.mkdir(exist_ok=True)
        with open(FILE.with_suffix(".lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = {row["client"]: row for row in table()}
            row = rows.get(self._key["client"], {})
            # What another version did says nothing of this one.
            kept = row if row.get("version") == self._key["version"] else {}
            rows[self._key["client"]] = {**dict.fromkeys(COLUMNS), **kept, **self._key, **found}
            draft = FILE.with_suffix(f".{os.getpid()}")
            draft.write_text(
                json.dumps([rows[name] for name in sorted(rows)], indent=1) + "\n", encoding="utf-8"
            )
            draft.replace(FILE)


def table() -> list[dict[str, Any]]:
    """The rows so far."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []
    return found
