"""Entries in TOML texts: what is written reads as meant, and everything else is still there as it was."""

from __future__ import annotations

import tomllib

import pytest

from airlock.core.errors import ConfigError
from airlock.gateway.connect import tomltext

ENTRY = {"url": "http://h/mcp", "http_headers": {"Authorization": "Bearer a.b.c"}}
TABLE = '[s.a]\nurl = "http://h/mcp"\nhttp_headers = { Authorization = "Bearer a.b.c" }\n'


def put(text: str) -> str:
    return tomltext.put(text, "c.toml", "s", "a", ENTRY)


def test_the_table_alone():
    assert tomltext.show("s", "a", ENTRY) == TABLE
    assert tomllib.loads(TABLE) == {"s": {"a": ENTRY}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", TABLE),
        ('x = 1 # mine', f"x = 1 # mine\n\n{TABLE}"),
        ("x = 1\n", f"x = 1\n\n{TABLE}"),
        ("x = 1\r\n", "x = 1\r\n\r\n" + TABLE.replace("\n", "\r\n")),
        ('[s.b]\nurl = "u"\n', f'[s.b]\nurl = "u"\n\n{TABLE}'),
        ('[s.a]\nurl = "u"\n', TABLE),
        ('y = 1\n[s.a]\nurl = "u"\n\n# mine\n[s.b]\nurl = "v"\n', f'y = 1\n{TABLE}\n# mine\n[s.b]\nurl = "v"\n'),
        ('[s."a"] # c\nurl = "u"\n[s.a.http_headers]\nX = "1"\n[z]\n', f"{TABLE}[z]\n"),
        ("[ s . 'a' ]\nurl = 'u'\n[[l]]\n[[l]]\n", f"{TABLE}[[l]]\n[[l]]\n"),
        ('[s]\nx = 1\n[s.ab]\ny = 1\n', f"[s]\nx = 1\n[s.ab]\ny = 1\n\n{TABLE}"),
    ],
)  # fmt: skip
def test_a_table_goes_in_and_nothing_else_moves(before: str, after: str):
    assert put(before) == after
    assert put(after) == after


def test_values_of_every_kind_that_a_setting_has_are_written():
    entry = {
        "t": True,
        "n": -3,
        "f": 1.5,
        "l": ["x", 2, {"k": False}],
        "s": 'q"\\\x7f\té',
        "o d": {"a b": "c"},
        "e": {},
    }
    text = tomltext.show("s", "a", entry)
    assert tomllib.loads(text) == {"s": {"a": entry}}


@pytest.mark.parametrize(
    ("text", "words"),
    [("x = ", "not TOML"), ("s = 1", "s is not a table"), ('s = { a = { url = "u" } }', "no table of its own"),
     ('s.a.url = "u"', "no table of its own")],
)  # fmt: skip
def test_what_cannot_be_edited_is_one_line_with_the_file(text: str, words: str):
    with pytest.raises(ConfigError, match=f"^c.toml: .*{words}"):
        put(text)


def test_a_date_in_an_entry_is_left_to_its_owner():
    with pytest.raises(ConfigError, match=r"c\.toml: the entry holds a date"):
        tomltext.put("", "c.toml", "s", "a", tomllib.loads("d = 2026-01-01"))
