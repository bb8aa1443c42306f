"""The table of environment variables knows what the code reads, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

from airlock.edge.settings import Environment
from airlock.gateway import variables
from airlock.gateway.approvalsettings import DEFAULT_PUBLIC_URL, approval_settings
from airlock.gateway.settings import DIFFERENCES, Limits
from airlock.gateway.variables import BY_PROGRAM, VARIABLES

SRC = Path(variables.__file__).resolve().parents[1]
SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for path in sorted(SRC.rglob("*.py"))
    if path != Path(variables.__file__).resolve()
)
NAMES = [name for name, _, _ in VARIABLES]
DEFAULTS = {name: default for name, default, _ in VARIABLES}


class Spy(Environment):
    """An empty environment that remembers the numbers it was asked for, and their defaults."""

    def __init__(self) -> None:
        super().__init__({})
        self.asked: dict[str, int] = {}

    def positive(self, name: str, default: int, most: int = 2**53) -> int:
        self.asked[name] = default
        return super().positive(name, default, most)


def test_every_variable_of_ours_that_the_code_names_stands_in_the_table():
    named = set(re.findall(r'"(AIRLOCK_[A-Z_]+)"', SOURCE))
    known = {name for name in NAMES if name.startswith("AIRLOCK_")}
    assert named == known


def test_every_variable_that_is_asked_for_stands_in_the_table():
    asked = set(re.findall(r'\.(?:text|secret|positive|get)\(\s*"([A-Z][A-Z0-9_]+)"', SOURCE))
    assert {"HOME", "XDG_STATE_HOME", "AIRLOCK_ENV"} <= asked
    assert asked - set(NAMES) == {"PATH"}  # of a server that is started: where its program is
    # The variables of the exporter have two forms each, so the code puts their names together.
    endings = {
        name.removeprefix("OTEL_EXPORTER_OTLP_").removeprefix("TRACES_").removeprefix("OTEL_BSP_")
        for name in NAMES
    }
    assert [name for name in endings if not re.search(rf"""{name}["']""", SOURCE)] == []


def test_no_variable_stands_in_the_table_twice_or_without_words():
    assert len(NAMES) == len(set(NAMES))
    assert [name for name, default, words in VARIABLES if not default or not words.endswith(".")] == []


def test_the_defaults_of_numbers_are_those_of_the_code():
    spy = Spy()
    Limits.read(spy)
    assert len(spy.asked) == 4
    assert {name: DEFAULTS[name] for name in spy.asked} == {
        name: f"`{default}`" for name, default in spy.asked.items()
    }


def test_the_defaults_of_approvals_are_those_of_the_code():
    found = approval_settings(Environment({}))
    assert DEFAULTS["AIRLOCK_APPROVAL_MODE"] == f"`{found.mode}`"
    assert DEFAULTS["AIRLOCK_PUBLIC_URL"] == f"`{DEFAULT_PUBLIC_URL}`" == f"`{found.public_url}`"


def test_what_depends_on_the_program_is_what_the_two_differ_in():
    assert {name for name, default in DEFAULTS.items() if default == BY_PROGRAM} == {
        name for name, _, _ in DIFFERENCES if name.startswith("AIRLOCK_")
    }
