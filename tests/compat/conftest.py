"""Where the tests leave what they saw: build/servers.json and build/sdks.json, which `page` reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.behind import Behind

BUILD = Path(__file__).resolve().parents[2] / "build"


class Rows:
    """The rows of one table, written down whatever becomes of their tests; `key` is what a row is found by.

    Rows of earlier runs stay until they are seen again, so that a part of the tests may be run alone.
    """

    def __init__(self, name: str, *key: str) -> None:
        self._path, self._key = BUILD / f"{name}.json", key
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> None:
        """Take a row, which may be filled in later."""
        self._rows.append(row)

    def write(self) -> None:
        """Put the rows into the file."""
        BUILD.mkdir(exist_ok=True)
        before = json.loads(self._path.read_text(encoding="utf-8")) if self._path.exists() else []
        found = {tuple(row[name] for name in self._key): row for row in [*before, *self._rows]}
        self._path.write_text(json.dumps(list(found.values()), indent=1) + "\n", encoding="utf-8")


def _rows(rows: Rows) -> Iterator[Rows]:
    yield rows
    rows.write()


@pytest.fixture(scope="session")
def servers() -> Iterator[Rows]:
    yield from _rows(Rows("servers", "server", "transport"))


@pytest.fixture(scope="session")
def sdks() -> Iterator[Rows]:
    yield from _rows(Rows("sdks", "client", "mode", "upstream"))


@pytest.fixture
def behind() -> Iterator[Behind]:
    with Behind() as made:
        yield made
