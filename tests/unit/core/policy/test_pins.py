"""The pin of a tool, and what a pins file may hold (gateway.md 9.5)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airlock.core.errors import ConfigError
from airlock.core.policy import pins
from airlock.core.policy.pins import Pins, pin_of
from tests.vectors import make_pins

VECTORS = Path(__file__).resolve().parents[3] / "vectors" / "pins.json"
WHOLE = json.loads(VECTORS.read_text(encoding="utf-8"))
TOOLS: dict[str, dict[str, Any]] = {case["name"]: case for case in WHOLE["tools"]}
FILES: list[dict[str, str]] = WHOLE["files"]
READ = TOOLS["whole"]["tool"]
GOOD = TOOLS["whole"]["pin"]


def test_the_vectors_are_those_that_the_script_makes():
    assert VECTORS.read_text(encoding="utf-8") == make_pins.document()


@pytest.mark.parametrize("case", TOOLS.values(), ids=TOOLS.keys())
def test_the_pin_of_a_tool_is_that_of_the_vectors(case: dict[str, Any]):
    assert pin_of(case["tool"]) == case["pin"]


@pytest.mark.case("T57")
def test_a_pin_covers_what_a_model_reads_and_nothing_else():
    same = ("members in another order", "with icons and _meta", "with a member nobody knows",
            "schema in another order")  # fmt: skip
    assert {TOOLS[name]["pin"] for name in same} == {GOOD}
    for member in pins.COVERED:
        assert pin_of({**READ, member: "another"}) != GOOD, member
    others = [case["pin"] for name, case in TOOLS.items() if name not in same]
    alike = {("without a title", "title null")}
    assert len(set(others)) == len(others) - len(alike)


@pytest.mark.case("T57")
def test_a_changed_title_is_a_changed_tool():
    pinned = Pins({"read_note": GOOD})
    assert not pinned.changed(READ)
    assert pinned.changed({**READ, "title": "Reader, which also deletes"})
    assert pinned.changed({**READ, "annotations": {"title": "Delete"}})


def test_a_tool_without_a_pin_is_not_changed():
    assert not Pins().changed(READ)
    assert not Pins({"other": GOOD}).changed({**READ, "title": "x"})


@pytest.mark.parametrize("name", [None, 5, ["read_note"], {}])
def test_a_tool_whose_name_is_no_text_is_not_pinned(name: object):
    assert not Pins({"read_note": GOOD}).changed({"name": name})
    assert not Pins({"read_note": GOOD}).changed({})


def test_parsed_pins_are_those_of_the_file():
    assert pins.parse({"read_note": GOOD}, "pins.json") == Pins({"read_note": GOOD})
    assert pins.parse({}, "pins.json").of == {}


@pytest.mark.case("T57")
def test_a_file_of_the_older_form_is_refused_whole_with_one_fault_that_says_what_to_do():
    old = "sha256:" + "0" * 64
    with pytest.raises(ConfigError) as caught:
        pins.parse({"a": GOOD, "b": old, "c": old, "d": 5}, "pins.json")
    (fault,) = caught.value.faults
    assert "title" in fault.problem
    assert fault.hint == "pin again, from a server you trust"
    assert str(caught.value).startswith("pins.json: holds pins of an older form (sha256:)")


@pytest.mark.parametrize("document", [None, [], "x", 1, True])
def test_a_pins_file_is_an_object(document: object):
    with pytest.raises(ConfigError, match=r"^pins\.json: a pins file is a JSON object"):
        pins.parse(document, "pins.json")


def test_every_bad_pin_is_named():
    with pytest.raises(ConfigError) as caught:
        pins.parse({"a": GOOD, "b": GOOD.upper(), "c": None}, "pins.json")
    assert [fault.path for fault in caught.value.faults] == ["b", "c"]
    assert "sha256v2: and 64 lowercase hex digits" in str(caught.value)


def test_a_hostile_name_in_a_bad_file_stays_on_one_line_and_is_cut():
    with pytest.raises(ConfigError) as caught:
        pins.parse({"\x1b[2J\n\u202e" + "x" * 500: 1}, "pins.json")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("case", FILES, ids=[case["name"] for case in FILES])
def test_what_parses_as_json_is_judged_as_in_the_vectors(case: dict[str, str]):
    try:
        document = json.loads(case["text"])
    except ValueError:
        return  # the file's business
    if case["name"] in {"name twice", "NaN"}:
        return
    if case["expect"] == "pins":
        assert pins.parse(document, "p").of == document
        return
    with pytest.raises(ConfigError) as caught:
        pins.parse(document, "p")
    assert ("older form" in str(caught.value)) == (case["expect"] == "older")


def test_the_text_of_a_file_is_sorted_indented_and_reads_back():
    text = pins.text(Pins({"b": GOOD, "a": GOOD, "тул\u202e": GOOD}))
    assert text.startswith('{\n  "a": "sha256v2:')
    assert text.endswith('"\n}\n')
    assert text.isascii()
    assert list(json.loads(text)) == ["a", "b", "тул\u202e"]
    assert pins.text(Pins()) == "{}\n"
