"""The shape of the source: small modules with a name from the domain, a docstring and a declared surface."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "airlock"
MODULES = sorted(SRC.rglob("*.py"))
LINES = 450
NAMELESS = frozenset({"base", "common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"})


def name(path: Path) -> str:
    return path.relative_to(SRC).as_posix()


@cache
def written() -> dict[str, ast.Module]:
    """The modules that hold anything, parsed."""
    texts = {name(path): path.read_text(encoding="utf-8") for path in MODULES}
    return {place: ast.parse(text, place) for place, text in texts.items() if text.strip()}


def test_no_source_file_is_long():
    lengths = {name(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {place: n for place, n in lengths.items() if n > LINES} == {}


def test_no_module_is_named_after_nothing():
    assert [name(path) for path in MODULES if path.stem in NAMELESS or path.parent.name in NAMELESS] == []


def test_every_module_says_what_it_knows():
    assert [place for place, tree in written().items() if not ast.get_docstring(tree)] == []


def test_every_module_declares_what_it_offers():
    faults = []
    for place, tree in written().items():
        if place.endswith("__main__.py"):
            continue
        declared = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and [ast.unparse(t) for t in node.targets] == ["__all__"]
        ]
        if len(declared) != 1 or not isinstance(declared[0], ast.List | ast.Tuple):
            faults.append(place)
    assert faults == []


def test_annotations_are_never_evaluated():
    assert [
        place
        for place, tree in written().items()
        if not place.endswith("__main__.py")
        and not any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    ] == []


def test_only_the_command_line_prints():
    faults = [
        f"{place}:{node.lineno}"
        for place, tree in written().items()
        if not place.startswith("cli/") and place != "edge/out.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print"
    ]
    assert faults == []
