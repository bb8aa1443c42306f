"""Reading YAML: one meaning for every text, every fault with its line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.errors import ConfigError
from airlock.edge.yamlfile import MAX_BYTES, MAX_DEPTH, load, load_file, load_with_lines


def faults(data: str | bytes) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load("policy.yaml", data)
    message = str(caught.value)
    assert message.startswith("policy.yaml: ")
    assert message.isprintable()
    return [str(fault) for fault in caught.value.faults]


# What is read


@pytest.mark.parametrize("data", ["", "# only a comment\n", "---\n", "\n\n", b"", "\ufeff"])
def test_an_empty_file_is_an_empty_mapping(data: str | bytes):
    assert load("policy.yaml", data) == {}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("~", None),
        ("null", None),
        ("", None),
        ("true", True),
        ("False", False),
        ("0", 0),
        ("-12", -12),
        ("+5", 5),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("1.", 1.0),
        (".5", 0.5),
        ("-2.5e+3", -2500.0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("word", "word"),
        ("y", "y"),
        ("N", "N"),
        ("tRue", "tRue"),
        ("1.2.3", "1.2.3"),
        ("8080:80", "8080:80"),
        ("2024-01-01-a", "2024-01-01-a"),
        ('"on"', "on"),
        ("'010'", "010"),
        ("two words", "two words"),
    ],
)
def test_a_scalar_means_what_yaml_1_2_says(word: str, value: object):
    document = load("policy.yaml", f"a: {word}\n")
    assert document == {"a": value}
    assert isinstance(document, dict)
    assert type(document["a"]) is type(value)


def test_not_a_number_is_a_float():
    document = load("policy.yaml", "a: .nan")
    assert isinstance(document, dict)
    assert document["a"] != document["a"]


def test_blocks_flows_and_literals_are_read():
    text = 'a:\n  - 1\n  - { b: [x, "y"] }\nc: |\n  on\n  off\nd: >-\n  yes\n'
    assert load("policy.yaml", text) == {"a": [1, {"b": ["x", "y"]}], "c": "on\noff\n", "d": "yes"}


def test_documents_that_are_no_mapping_are_read_too():
    assert load("policy.yaml", "- 1\n- a") == [1, "a"]
    assert load("policy.yaml", "word") == "word"
    assert load("policy.yaml", "null") is None


def test_text_and_bytes_read_alike():
    assert load("policy.yaml", "\ufeffa: é".encode()) == load("policy.yaml", "a: é") == {"a": "é"}


def test_every_key_and_item_has_its_line():
    _, lines = load_with_lines("policy.yaml", "a:\n  b: 1\nc:\n- x\n- d: 2\n")
    assert lines == {(): 1, ("a",): 1, ("a", "b"): 2, ("c",): 3, ("c", 0): 4, ("c", 1): 5, ("c", 1, "d"): 5}


# What could mean two things

SWITCHES = ["on", "off", "yes", "no", "On", "OFF", "Yes", "nO"]
INTEGERS = ["010", "-010", "00", "09", "1_000", "0b11", "0o7", "0x1_F", "-0x1F"]
FLOATS = ["1:30", "12:30:45", "1:30.5", "1e3", "1.5e3", "-.5", "1_0.5"]
DATES = ["2024-01-01", "2024-1-2", "2024-01-01T00:00:00Z", "2024-01-01 10:00:00 +1"]


@pytest.mark.parametrize("word", [*SWITCHES, *INTEGERS, *FLOATS, *DATES])
def test_a_word_that_yaml_1_1_reads_otherwise_is_refused_as_value_and_as_key(word: str):
    for text in (f"a: {word}", f"{word}: a", f"[{word}]", f"a:\n- {word}"):
        (fault,) = faults(text)
        assert f'"{word}"' in fault
        assert fault.endswith("(quote it)")
        assert fault.startswith(f"line {text.count(chr(10)) + 1}: ")
    assert load("policy.yaml", f'a: "{word}"') == {"a": word}


def test_all_faults_are_in_one_report():
    assert [fault.split(":")[0] for fault in faults("on: 1\na: 010\na: 2\nb: *x\n1: c\n")] == [
        f"line {n}" for n in range(1, 6)
    ]


@pytest.mark.parametrize("key", ["1", "1.5", "true", "null", "~"])
def test_a_key_that_is_not_a_string_says_quote_it(key: str):
    assert faults(f"{key}: a\nb: c") == [f'line 1: key "{key}" is not a string (quote it)']
    assert load("policy.yaml", f'"{key}": a') == {key: "a"}


@pytest.mark.parametrize("text", ["? [a]\n: b", "{[a]: b}", "? {a: b}\n: [c, d]"])
def test_a_key_that_is_a_list_or_mapping_is_refused(text: str):
    assert faults(text) == ["line 1: a key must be a string"]


def test_a_number_with_more_digits_than_can_be_read_is_refused():
    assert faults("a: " + "9" * 5000) == ["line 1: a number with too many digits (quote it)"]


# What hides something


def test_a_key_that_is_written_twice_is_refused():
    assert faults("a: 1\nb:\n  c: 1\n  'c': 2\na: 3") == [
        'line 4: key "c" again, first on line 3',
        'line 5: key "a" again, first on line 1',
    ]


def test_anchors_and_aliases_are_refused():
    assert faults("a: &x [1]\nb: *x\nc: *unknown") == [
        "line 1: anchor &x: anchors are not read",
        "line 2: alias *x: aliases are not read",
        "line 3: alias *unknown: aliases are not read",
    ]


def test_an_alias_bomb_never_grows():
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 30))
    assert len(faults(text)) == 30 + 29 * 9


def test_a_merge_key_is_refused_and_its_text_is_not():
    assert faults("<<: {a: 1}\nb: 2") == ["line 1: merge keys are not read"]
    assert load("policy.yaml", '"<<": 1') == {"<<": 1}


@pytest.mark.parametrize("value", ["!!str 1", "! 1", "!x [1]", "!!map {}", '!!python/object:os.system "x"'])
def test_a_tag_is_refused(value: str):
    (fault,) = faults(f"a: {value}")
    assert fault.startswith("line 1: tag ")
    assert fault.endswith(": tags are not read")


def test_a_tagged_or_anchored_key_is_refused():
    assert len(faults("!!str a: 1\n&b c: 2")) == 2


@pytest.mark.parametrize(
    "directive", ["%YAML 1.1", "%YAML 1.2", "%TAG ! x:", "%OTHER x", "%YAML " + "9" * 5000 + ".1"]
)
def test_a_directive_is_refused(directive: str):
    (fault,) = faults(f"{directive}\n---\na: 1")
    assert fault.startswith("line 1, column 1: ")
    assert "quote it" in fault


def test_a_second_document_is_refused():
    assert faults("a: 1\n---\nb: 2") == ["line 2: a second document begins, only one is read"]
    assert faults("a: 1\n...\n---\n") == ["line 3: a second document begins, only one is read"]
    assert load("policy.yaml", "---\na: 1\n...\n") == {"a": 1}


def test_a_lone_surrogate_is_refused():
    assert faults('a: "\\ud800"') == ["line 1: a lone surrogate is no character"]


# What is no YAML


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a:\n\tb: 1", "line 2, column 1"),
        ("a: [1", "line 1, column 6"),
        ("a: b: c", "line 1, column 5"),
        ("a: 'x", "line 1, column 6"),
        ("a: @x", "line 1, column 4"),
        ('a: "\\q"', "line 1, column 6"),
        ("a: |\n    \n\n      x", "line 4, column 7"),
        ("a: 1\n b: 2", "line 2, column 3"),
    ],
)
def test_a_syntax_error_is_one_line_with_line_and_column(text: str, place: str):
    (fault,) = faults(text)
    assert fault.startswith(f"{place}: not YAML: ")


def test_a_syntax_error_comes_with_the_faults_before_it():
    assert [fault.split(":")[0] for fault in faults("a: on\nb: [")] == ["line 1", "line 2, column 5"]


@pytest.mark.parametrize("escape", ["\\UFFFFFFFF", "\\U00110000"])
def test_an_escape_beyond_all_characters_is_a_fault(escape: str):
    assert faults(f'a: 1\nb: "{escape}"') == ["line 2: not YAML (an escape here names no character)"]


@pytest.mark.parametrize("character", ["\x00", "\x01", "\x1b", "\x7f", "\ud800"])
def test_a_character_that_yaml_forbids_is_a_fault_with_its_line(character: str):
    assert faults(f"a: 1\nb: {character}") == [f"line 2: character U+{ord(character):04X} is not allowed"]


def test_bytes_that_are_not_utf_8_are_a_fault_with_their_line():
    assert faults(b"a: 1\nb: \xff") == ["line 2: not UTF-8 text"]
    assert faults("a: 1".encode("utf-16")) == ["line 1: not UTF-8 text"]


def test_hostile_text_in_a_fault_is_made_safe_and_cut():
    (fault,) = faults('"\u202e' + "x" * 500 + '": 1\n"\u202e' + "x" * 500 + '": 2')
    assert len(fault) < 100


# Bounds


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}"), ("- ", "")])
def test_nesting_is_bounded(opening: str, closing: str):
    assert load("policy.yaml", opening * (MAX_DEPTH - 1) + "x" + closing * (MAX_DEPTH - 1)) is not None
    (fault,) = faults(opening * MAX_DEPTH + "x" + closing * MAX_DEPTH)
    assert fault.endswith(f"nested deeper than {MAX_DEPTH} levels")


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[? "])
def test_a_file_full_of_openings_is_refused_at_once(opening: str):
    assert faults(opening * 100_000)[-1].endswith(f"nested deeper than {MAX_DEPTH} levels")


def test_a_longer_file_than_the_limit_is_not_read(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError) as caught:
        load_file(str(path))
    assert str(caught.value) == f"{path}: longer than {MAX_BYTES} bytes"
    path.write_bytes(b"#" * MAX_BYTES)
    assert load_file(str(path)) == {}


# Files


def test_a_file_is_read(tmp_path: Path):
    path = tmp_path / "policy.yaml"
    path.write_text("a: 1\n")
    assert load_file(str(path)) == {"a": 1}


def test_a_file_that_cannot_be_read_is_reported_in_the_systems_words(tmp_path: Path):
    missing = str(tmp_path / "none.yaml")
    with pytest.raises(ConfigError) as caught:
        load_file(missing)
    assert str(caught.value) == f"{missing}: {os.strerror(2)}"
    with pytest.raises(ConfigError) as caught:
        load_file(str(tmp_path))
    assert str(caught.value) == f"{tmp_path}: {os.strerror(21)}"


# Anything


SIGNS = st.text(":-?[]{},\"'|>\n \t#&*!%.\\<~\r", max_size=3)
WORDS = st.sampled_from(
    ["a", "on", "1", "U0011", "xff", "!!str ", "&x ", "*x ", "---\n", "...\n", "é", "b: ", "- "]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(SIGNS | WORDS, max_size=15).map("".join))
def test_any_text_gives_a_value_or_one_line(text: str):
    try:
        load("policy.yaml", text)
    except ConfigError as error:
        report = str(error)
    else:
        report = ""
    assert "\n" not in report
