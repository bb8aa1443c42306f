"""Entries in YAML texts: what is written reads as meant, and everything else is still there as it was."""

from __future__ import annotations

import pytest

from airlock.core.errors import ConfigError
from airlock.gateway.connect import yamltext

ENTRY = {"url": "http://h/mcp", "headers": {"Authorization": "Bearer a.b.c"}}
BODY = '  a:\n    url: "http://h/mcp"\n    headers:\n      Authorization: "Bearer a.b.c"\n'


def put(text: str) -> str:
    return yamltext.put(text, "c.yaml", "s", "a", ENTRY)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"s:\n{BODY}"),
        ("# only words\n", f"# only words\ns:\n{BODY}"),
        ("x: 1", f"x: 1\ns:\n{BODY}"),
        ("x: &n [1] # c\ny: *n\n# end\n", f"x: &n [1] # c\ny: *n\n# end\ns:\n{BODY}"),
        ("s:\n  # first\n  b: {url: u}\nx: on\n", f"s:\n{BODY}  # first\n  b: {{url: u}}\nx: on\n"),
        ("s:\n  b: 1\n", f"s:\n{BODY}  b: 1\n"),
        ("s:\nx: 1\n", f"s:\n{BODY}x: 1\n"),
        ("s: # none\nx: 1\n", f"s: # none\n{BODY}x: 1\n"),
        ("s: {}  # none\nx: 1\n", f"s:  # none\n{BODY}x: 1\n"),
        ("s: {\n}\nx: 1\n", f"s:\n{BODY}x: 1\n"),
        ("s: ~", f"s:\n{BODY}"),
        ("s: {}\r\nx: 1\r\n", f"s:\n{BODY}x: 1\n".replace("\n", "\r\n")),
        ("s:\n  a:\n    url: old\n\n# about x\nx: 1\n", f"s:\n{BODY}\n# about x\nx: 1\n"),
        ("s:\n  z: 1\n  a: {url: old} # c\n  b: 1\n", f"s:\n  z: 1\n{BODY}  b: 1\n"),
        ("s:\n  a:\n    l:\n    - 1\n    - k: 2\nx: 1\n", f"s:\n{BODY}x: 1\n"),
        ("s:\n  a:\n    url: |\n      text\nx: 1\n", f"s:\n{BODY}x: 1\n"),
        ("s:\r\n  a:\r\n    url: old\r\nx: 1\r\n", f"s:\n{BODY}x: 1\n".replace("\n", "\r\n")),
        ("s:\n  a:\n    url: old", f"s:\n{BODY}".removesuffix("\n")),
    ],
)
def test_an_entry_goes_in_and_nothing_else_moves(before: str, after: str):
    assert put(before) == after
    kept = yamltext.parse(before, "c")
    assert yamltext.parse(after, "c") == {**kept, "s": {**(kept.get("s") or {}), "a": ENTRY}}  # type: ignore[dict-item]
    assert put(after) == after


def test_the_entry_is_set_in_like_its_neighbours():
    assert put("s:\n    b: 1\n").startswith('s:\n    a:\n      url: "http://h/mcp"\n')


def test_names_and_values_that_yaml_would_read_otherwise_are_quoted():
    entry = {"on": "off", "n": None, "l": [1, {"x": "y"}], "o d": {"1": "2"}, "e": {}, "é": "\u2028"}
    text = yamltext.show("s", "no", entry)
    assert yamltext.parse(text, "c") == {"s": {"no": entry}}
    assert '"no":' in text


@pytest.mark.parametrize(
    ("text", "words"),
    [("x: [", "line 1: "), ("- a\n", "not a mapping"), ("s: 1\n", "s is not a mapping"), ("s: {b: 1}\n", "s is written in one line"),
     ("{x: 1}\n", "the file is written in one line"), ("x: 1\nx: 2\n", "not YAML"), ("s: [1]\n", "s is not a mapping"),
     ('x: "\\UFFFFFFFF"\n', "not YAML"), ("x: \x01\n", "not YAML"), ("a: 1\n---\nb: 1\n", "not YAML")],
)  # fmt: skip
def test_what_cannot_be_edited_is_one_line_with_the_file(text: str, words: str):
    with pytest.raises(ConfigError, match=f"^c.yaml: .*{words}") as caught:
        put(text)
    assert "\n" not in str(caught.value)
