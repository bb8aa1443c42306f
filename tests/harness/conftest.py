"""The client table at the end of the report; the marker of tests that take their time."""

from __future__ import annotations

import pytest

from tests.harness import rows


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than half a minute; -m 'not slow' leaves it out")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = rows.table()
    if found:
        terminalreporter.section("clients (build/clients.json)")
        for row in found:
            terminalreporter.write_line("  ".join(f"{name}: {row[name]}" for name in rows.COLUMNS))
