"""The list of numbered cases, the marks in the tests, and the script that compares them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import cases


def test_no_mark_names_an_unknown_case():
    tables, _ = cases.read()
    known = {number for table in tables.values() for number in table}
    assert [f"{place}: {number}" for number, place in cases.marks() if number not in known] == []


def test_every_required_case_is_held_by_a_test():
    _, required = cases.read()
    held = {number for number, _ in cases.marks()}
    assert [number for number in required if number not in held] == []


def test_the_cases_are_numbered_without_gaps_and_each_has_a_line():
    tables, required = cases.read()
    assert list(tables["gateway"]) == [f"T{n:02d}" for n in range(1, 81)]
    assert all(line and "\n" not in line for table in tables.values() for line in table.values())
    assert set(required) <= {number for table in tables.values() for number in table}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "cases.toml").write_text(
        '[gateway]\nrequired = ["T01-T02"]\nT01 = "a"\nT02 = "b"\nT03 = "c"\n'
    )
    (tmp_path / "test_it.py").write_text(
        'import pytest\n@pytest.mark.case("T01")\ndef test_a(): ...\n'
        '@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.case("T03"))])\n'
        "def test_b(x): ...\n"
    )
    return tmp_path


def test_the_script_lists_what_no_test_holds(tree: Path, capsys: pytest.CaptureFixture[str]):
    assert cases.main([], tree) == 0
    out = capsys.readouterr().out
    assert re.search(r"^  T02  b$", out, re.MULTILINE)
    assert "T01" not in out
    assert out.endswith("2 of 3 cases are held by a test\n")


def test_strict_fails_for_a_missing_number_and_names_it(tree: Path, capsys: pytest.CaptureFixture[str]):
    assert cases.main(["--strict", "T01,T03"], tree) == 0
    assert cases.main(["--strict", "T01-T03"], tree) == 1
    assert capsys.readouterr().err == "T02: not held\n"


def test_strict_fails_for_a_mark_with_an_unknown_number(tree: Path, capsys: pytest.CaptureFixture[str]):
    (tree / "test_more.py").write_text('import pytest\npytestmark = pytest.mark.case("T99")\n')
    assert cases.main(["--strict", "T01"], tree) == 1
    assert capsys.readouterr().err == "test_more.py:2: no case T99\n"


@pytest.mark.parametrize("text", ["pytest.mark.case()", "pytest.mark.case(number)", "pytest.mark.case(7)"])
def test_a_mark_that_cannot_be_read_is_an_error(tree: Path, text: str):
    (tree / "test_more.py").write_text(f"import pytest\npytestmark = {text}\n")
    with pytest.raises(ValueError, match=r"^test_more\.py:2: "):
        list(cases.marks(tree))


def test_ranges_are_written_out():
    assert cases.expand("T01,T09-T11") == ["T01", "T09", "T10", "T11"]
    assert cases.expand(["A7"]) == ["A7"]


@pytest.mark.parametrize("text", ["", "T", "T2-T1", "T1-A2", "1", "T1 T2"])
def test_what_is_no_number_or_range_is_refused(text: str):
    with pytest.raises(ValueError, match="not a case number"):
        cases.expand(text)
