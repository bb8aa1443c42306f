"""Entries in JSON texts: what is written reads as meant, and everything else is still there as it was."""

from __future__ import annotations

import json

import pytest

from airlock.core.errors import ConfigError
from airlock.gateway.connect import jsontext

ENTRY = {"type": "http", "url": "http://h/mcp", "headers": {"Authorization": "Bearer a.b.c"}}


def put(text: str, section: str = "s", name: str = "a") -> str:
    return jsontext.put(text, "f.json", section, name, ENTRY)


def test_nothing_becomes_a_document_of_one_entry():
    for text in ("", " \n", "\ufeff"):
        assert put(text) == jsontext.show("s", "a", ENTRY)
    assert json.loads(jsontext.show("s", "a", ENTRY)) == {"s": {"a": ENTRY}}


WHOLE = [
    ('{}', '{\n  "s": {\n    "a": E\n  }\n}'),
    ('{"x": 1}', '{"x": 1, "s": {"a": E}}'),
    ('{"x": 1,}', '{"x": 1, "s": {"a": E},}'),
    ('{"s": {"b": 2}, "x": 1e3}', '{"s": {"b": 2, "a": E}, "x": 1e3}'),
    ('{"s": {"a": 1}}', '{"s": {"a": E}}'),
    ('{\n\t"x": 1\n}\n', '{\n\t"x": 1,\n\t"s": {\n\t\t"a": E\n\t}\n}\n'),
    ('{\n    "x": 1\n}', '{\n    "x": 1,\n    "s": {\n        "a": E\n    }\n}'),
    ('{\r\n  "x": 1\r\n}\r\n', '{\r\n  "x": 1,\r\n  "s": {\r\n    "a": E\r\n  }\r\n}\r\n'),
    ('{\n  "s": {}\n}', '{\n  "s": {\n    "a": E\n  }\n}'),
    ('{\n  "s": {\n    "b": 1 // mine\n  }\n}', '{\n  "s": {\n    "b": 1, // mine\n    "a": E\n  }\n}'),
    ('{\n  "s": {\n    "b": 1 /* , */\n  }\n}', '{\n  "s": {\n    "b": 1,\n    "a": E /* , */\n  }\n}'),
    ('{\n  "s": {\n    "b": 1, // mine\n  },\n}', '{\n  "s": {\n    "b": 1, // mine\n    "a": E,\n  },\n}'),
    ('{\n  "s": {\n    "b": 1 /* x, */, \n  }\n}', '{\n  "s": {\n    "b": 1 /* x, */,\n    "a": E, \n  }\n}'),
    ('{\n  "s": { // none yet\n  }\n}', '{\n  "s": { // none yet\n    "a": E\n  }\n}'),
    ('{\n  "s": {\n    "a": {"old": 1}, // ours\n    "b": 1\n  }\n}', '{\n  "s": {\n    "a": E, // ours\n    "b": 1\n  }\n}'),
    ('// "s": {\n{\n  "x": "// no, /* nor \\" this",\n  "s": {}\n}', '// "s": {\n{\n  "x": "// no, /* nor \\" this",\n  "s": {\n    "a": E\n  }\n}'),
    ('\ufeff{"x": 1}', '\ufeff{"x": 1, "s": {"a": E}}'),
    ('{"y": [{"s": {}}, {"s": 1}], "s": {}}', '{"y": [{"s": {}}, {"s": 1}], "s": {\n  "a": E\n}}'),
    ('{"x": "\\ud800", "s": {"b": "é"}}', '{"x": "\\ud800", "s": {"b": "é", "a": E}}'),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after"), WHOLE)
def test_an_entry_goes_in_and_nothing_else_moves(before: str, after: str):
    made = put(before)
    shape, _, rest = after.partition("E")
    assert made.startswith(shape)
    assert made.endswith(rest)
    assert jsontext.parse(made, "f")["s"]["a"] == ENTRY  # type: ignore[index]
    kept = jsontext.parse(before, "f")
    old = kept.get("s")
    assert jsontext.parse(made, "f") == {**kept, "s": {**(old if isinstance(old, dict) else {}), "a": ENTRY}}
    assert put(made) == made


def test_the_entry_is_set_in_like_its_neighbours():
    made = put('{\n    "s": {\n        "b": 1\n    }\n}')
    assert '\n        "a": {\n            "type": "http",\n' in made


@pytest.mark.parametrize(
    ("text", "words"),
    [("[]", "not a JSON object"), ("{", "not JSON"), ('{"s": 1}', "s is not an object"), ('{"x": 1, "x": 2}', "not JSON"),
     ('{"s": null}', "s is not an object"), ("{'x': 1}", "not JSON"), ('{"x": NaN}', "not JSON"), ('"\ud800"', "not JSON")],
)  # fmt: skip
def test_what_cannot_be_edited_is_one_line_with_the_file(text: str, words: str):
    with pytest.raises(ConfigError, match=f"^f.json: .*{words}"):
        put(text)
