"""The page of promises says what is there: its headings, and a test that exists behind each promise."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/promises.md").read_text(encoding="utf-8")

HEADINGS = [
    "The promises of the gateway", "Overview", "The way of a call", "Installing", "Running", "Kubernetes", "Flags",
    "Environment variables", "Startup warnings", "Endpoints", "Policy file", "Confirmations", "Audit", "Tracing",
    "Postgres", "Prompt injection", "Pins", "Limits", "Repository",
]  # fmt: skip
"""In this order, each once."""

_HELD = re.compile(r"  - `(tests/[\w/]+\.py)::(test_\w+)`")
_WITHOUT = ("**Open:**", "**Limit:**", "**Ours:**")


@functools.cache
def functions_of(path: str) -> set[str]:
    """The names of the test functions in one file."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"), path)
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def promises() -> list[str]:
    """Each promise with the lines that belong to it."""
    return re.split(r"^- ", re.sub(r"^#.*$", "", PAGE, flags=re.M), flags=re.M)[1:]


def test_the_headings_are_those_of_the_list():
    assert re.findall(r"^#+ (.+)$", PAGE, re.M) == HEADINGS


def test_every_test_that_a_promise_names_exists():
    named = _HELD.findall(PAGE)
    assert len(named) > 400
    assert len(named) == PAGE.count("::"), "a test is named in a form that this check does not read"
    assert [f"{path}::{name}" for path, name in named if name not in functions_of(path)] == []


def test_every_promise_has_a_test_or_says_why_not():
    assert [p for p in promises() if not _HELD.search(p) and not any(word in p for word in _WITHOUT)] == []


def test_no_promise_is_made_twice():
    said = [" ".join(p.split("  - `")[0].split()) for p in promises()]
    assert sorted(said) == sorted(set(said))
