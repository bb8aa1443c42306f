"""The page of compatibility has the shape that the tests would give it, and shows nothing that fails."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compat.page import PAGE, PARTS, page, sections
from tests.compat.programs import SERVERS
from tests.compat.sdks import ERAS, FACTS, MODERN, WAYS
from tests.conformance.suite import REVISIONS, VERSION

TEXT = PAGE.read_text(encoding="utf-8")
PART = sections(TEXT)


def rows(part: str) -> list[list[str]]:
    """The lines of the table in a part, its head first."""
    lines = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return [line for line in lines if set(line) != {"---"}]


def test_without_results_the_page_is_as_it_was(tmp_path: Path):
    assert page(tmp_path, TEXT) == TEXT


def test_every_part_is_there():
    assert list(PART) == list(PARTS)


@pytest.mark.parametrize("revision", REVISIONS)
def test_the_suite_passes_straight_and_through_the_gateway(revision: str):
    assert f"conformance suite, {VERSION}, " in PART["Conformance suite"]
    table = rows(
        re.split(r"^### Revision ", PART["Conformance suite"], flags=re.M)[
            list(REVISIONS).index(revision) + 1
        ]
    )
    whole = f"**{REVISIONS[revision]}/{REVISIONS[revision]}**"
    assert table[0][2:4] == ["direct", "gateway"]
    assert len(table) == REVISIONS[revision] + 2
    assert table[-1][2:4] == [whole, whole]


def test_every_sdk_client_and_way_to_open_stands_in_the_table_and_works():
    head, *table = rows(PART["SDKs"])
    assert [(row[3], row[0], row[2]) for row in table] == [(era, *way) for era in ERAS for way in WAYS]
    whole = f"{len(FACTS)}/{len(FACTS)}"
    assert {row[5] for row in table} == {f"2025-11-25, {whole}", f"{MODERN}, {whole}"}
    assert {row[head.index("governed")] for row in table} == {"yes"}


def test_every_server_and_transport_stands_in_the_table_and_works():
    _, *table = rows(PART["Servers"])
    assert [(row[0], row[2]) for row in table] == [(s.name, how) for s in SERVERS for how in s.transports]
    assert {cell for row in table for cell in row[4:]} == {"yes"}
