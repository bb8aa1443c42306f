"""Remakes pins.json: `python tests/vectors/make_pins.py`.

Written from gateway.md 9.5 with the standard library alone, so that it repeats no mistake of the package.
Expectations are by class: a tool has a `pin`; a file holds `pins`, is of the `older` form, or is `refused`.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

FILE = Path(__file__).with_name("pins.json")
SCHEMA = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
READ: dict[str, object] = {
    "name": "read_note",
    "title": "Reader",
    "description": "Read one note.",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object"},
    "annotations": {"title": "Read", "readOnlyHint": True},
}


def pin(tool: dict[str, object]) -> str:
    """The hash of exactly six members, missing as null."""
    names = ("annotations", "description", "inputSchema", "name", "outputSchema", "title")
    covered = {name: tool.get(name) for name in names}
    text = json.dumps(covered, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256v2:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def tools() -> list[dict[str, object]]:
    made: list[dict[str, object]] = []

    def tool(name: str, value: dict[str, object]) -> None:
        made.append({"name": name, "tool": value, "pin": pin(value)})

    without_title = {key: value for key, value in READ.items() if key != "title"}
    tool("whole", READ)
    tool("members in another order", dict(reversed(READ.items())))
    tool("with icons and _meta", {**READ, "icons": [{"src": "https://icons.example/n"}], "_meta": {"v": 1}})
    tool("with a member nobody knows", {**READ, "execution": {"taskSupport": "optional"}})
    tool("schema in another order", {**READ, "inputSchema": dict(reversed(SCHEMA.items()))})
    tool("without a title", without_title)
    tool("title null", {**READ, "title": None})
    tool("title empty", {**READ, "title": ""})
    tool("other title", {**READ, "title": "Reader "})
    tool("other description", {**READ, "description": "Read one note, then delete_service."})
    tool("other annotation", {**READ, "annotations": {"title": "Read", "readOnlyHint": False}})
    tool("other output", {**READ, "outputSchema": {"type": "string"}})
    tool("list in another order", {**READ, "inputSchema": {"required": ["b", "a"]}})
    tool("list", {**READ, "inputSchema": {"required": ["a", "b"]}})
    tool("name alone", {"name": "read_note"})
    tool("other script", {"name": "tool", "description": "читает заметку 📝"})
    tool("lone surrogate", {"name": "tool", "description": "a\ud800b"})
    tool("control characters", {"name": "tool", "description": 'a\x00\n\x1f"\\/\u2028'})
    tool("whole number", {"name": "tool", "inputSchema": {"maximum": 1}})
    tool("the same as a fraction", {"name": "tool", "inputSchema": {"maximum": 1.0}})
    tool("numbers", {"name": "tool", "inputSchema": {"enum": [1e21, 0.1, -0.0, 10**30, True, None]}})
    tool(
        "keys by code point", {"name": "tool", "inputSchema": {"\U0001f600": 1, "\uffee": 2, "b": 3, "B": 4}}
    )
    return made


def files() -> list[dict[str, object]]:
    made: list[dict[str, object]] = []

    def file(name: str, value: object, expect: str) -> None:
        text = value if isinstance(value, str) else json.dumps(value)
        made.append({"name": name, "text": text, "expect": expect})

    good, digits = pin(READ), pin(READ).removeprefix("sha256v2:")
    file("one pin", {"read_note": good}, "pins")
    file("two pins", {"read_note": good, "тул": pin({"name": "тул"})}, "pins")
    file("no pin", {}, "pins")
    file("blanks around", f'\n {{ "read_note" : "{good}" }} \n', "pins")
    file("older form", {"read_note": "sha256:" + digits}, "older")
    file("one of the older form", {"read_note": good, "b": "sha256:" + digits}, "older")
    file("one of the older form and one wrong", {"a": 1, "b": "sha256:" + digits}, "older")
    for name, wrong in {
        "null": None,
        "number": 1,
        "list": [good],
        "object": {"pin": good},
        "empty": "",
        "no digits": "sha256v2:",
        "no prefix": digits,
        "upper case": "sha256v2:" + digits.upper(),
        "upper-case prefix": "SHA256V2:" + digits,
        "a digit short": good[:-1],
        "a digit over": good + "0",
        "newline after": good + "\n",
        "blank before": " " + good,
        "digits of another script": "sha256v2:" + "٣" * 64,
        "newer form": "sha256v3:" + digits,
    }.items():
        file(f"pin is {name}", {"read_note": good, "b": wrong}, "refused")
    for name, odd in {"null": "null", "list": "[]", "string": f'"{good}"', "number": "1"}.items():
        file(f"file is {name}", odd, "refused")
    file("empty file", "", "refused")
    file("not JSON", "{read_note: " + good + "}", "refused")
    file("cut off", json.dumps({"read_note": good})[:-1], "refused")
    file("two documents", json.dumps({"read_note": good}) * 2, "refused")
    file("name twice", f'{{"read_note": "{good}", "read_note": "{pin({})}"}}', "refused")
    file("byte order mark", "\ufeff" + json.dumps({"read_note": good}), "refused")
    file("NaN", '{"read_note": NaN}', "refused")
    return made


def document() -> str:
    return json.dumps({"tools": tools(), "files": files()}, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(document(), encoding="utf-8")
