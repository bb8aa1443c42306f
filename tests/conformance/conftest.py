"""One bench for the whole session, and its tables at the end of the report and in build/conformance.json."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance import suite, tables
from tests.conformance.bench import Bench

RESULTS = Path(__file__).resolve().parents[2] / "build" / "conformance.json"
HERE = Path(__file__).resolve().parent
TABLES = pytest.StashKey[str]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """These tests need Node and npm: they are collected only when a command names this folder."""
    for named in config.args:
        place = (config.invocation_params.dir / named.split("::")[0]).resolve()
        if place == HERE or HERE in place.parents:
            return None
    return True


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Bench]:
    try:
        suite.package()
    except suite.Missing as missing:
        pytest.skip(str(missing))
    made = Bench(tmp_path_factory.mktemp("conformance"))
    try:
        yield made
    finally:
        made.close()
        seen = {
            revision: (suite.scored(revision), made.seen(revision))
            for revision in suite.REVISIONS
            if "direct" in made.seen(revision)
        }
        results = tables.as_json(seen)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        request.config.stash[TABLES] = tables.text(results)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if TABLES in config.stash:
        terminalreporter.section("conformance")
        terminalreporter.write(config.stash[TABLES])
