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
    """The rows of one table, each written down as soon as it is seen, whatever becomes of its test."""

    def __init__(self, name: str) -> None:
        self._path = BUILD / f"{name}.json"
        self._rows: list[dict[str, Any]] = []

    def add(self, row: dict[str, Any]) -> dict[str, Any]:
        self._rows.append(row)
        return row

    def write(self) -> None:
        BUILD.mkdir(exist_ok=True)
        if self._rows:
            self._path.write_text(json.dumps(self._rows, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def servers() -> Iterator[Rows]:
    rows = Rows("servers")
    yield rows
    rows.write()


@pytest.fixture(scope="session")
def sdks() -> Iterator[Rows]:
    rows = Rows("sdks")
    yield rows
    rows.write()


@pytest.fixture
def behind() -> Iterator[Behind]:
    with Behind() as made:
        yield made
