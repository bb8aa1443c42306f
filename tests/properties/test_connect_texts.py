"""Whatever else a client's file holds, an entry that goes in is the only thing that changes, and going in again is nothing."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from airlock.core.errors import ConfigError
from airlock.gateway.connect import jsontext, tomltext, yamltext

ENTRY = {"url": "http://h/mcp", "headers": {"Authorization": "Bearer a.b.c"}}
KEYS = st.sampled_from(["a", "b", "s", "x y", "é", "on", "1", '"', "//", "/*", ",}", "#"])
LEAVES = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=6) | KEYS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
SERVERS = st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=3), max_size=3)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=4).flatmap(
    lambda rest: st.one_of(
        st.just({k: v for k, v in rest.items() if k != "s"}), SERVERS.map(lambda s: {**rest, "s": s})
    )
)


def changed(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "s": {**document.get("s", {}), "a": ENTRY}}


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.sampled_from([None, 1, 2, "\t"]), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_json(document: dict[str, Any], indent: Any, ascii_only: bool, newline: str):
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).replace("\n", newline)
    made = jsontext.put(text, "f", "s", "a", ENTRY)
    assert json.loads(made) == changed(document)
    assert jsontext.put(made, "f", "s", "a", ENTRY) == made


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS, st.booleans(), st.integers(2, 4))
def test_yaml(document: dict[str, Any], flow: bool, indent: int):
    import io

    writer, out = YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style, writer.indent = flow, indent
    writer.dump(document, out)
    try:
        made = yamltext.put(out.getvalue(), "f", "s", "a", ENTRY)
    except ConfigError:  # somebody's own style, which is refused
        return
    # A writer of YAML may itself change a sign that nobody sees: what counts is what it wrote.
    assert yamltext.parse(made, "f") == changed(yamltext.parse(out.getvalue(), "f"))
    assert yamltext.put(made, "f", "s", "a", ENTRY) == made


@settings(max_examples=200, deadline=None)
@given(SERVERS, st.lists(st.sampled_from(["# c\n", "\n", "[z]\n", "# [s.a]\n"]), max_size=4))
def test_toml(servers: dict[str, Any], between: list[str]):
    pieces = [_table(name, entry) for name, entry in servers.items() if not _none(entry)]
    text = "".join(piece + (between[n % len(between)] if between else "") for n, piece in enumerate(pieces))
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # [z] more than once
        return
    made = tomltext.put(text, "f", "s", "a", ENTRY)
    assert tomllib.loads(made) == changed(document)
    assert tomltext.put(made, "f", "s", "a", ENTRY) == made


def _none(value: Any) -> bool:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return value is None or any(_none(each) for each in inner)


def _table(name: str, entry: dict[str, Any]) -> str:
    return tomltext.show("s", name, entry)


@pytest.mark.parametrize("text", ["{", "[1]", "{} {}", '{"a" 1}', "nul"])
def test_what_is_not_json_is_never_edited(text: str):
    with pytest.raises(ConfigError):
        jsontext.put(text, "f", "s", "a", ENTRY)
