"""Which arguments a header repeats, and how their values are written."""

from __future__ import annotations

import pytest

from airlock.gateway.modern.headers import decode_name
from airlock.gateway.modern.paramheaders import Mirror, encode_value, mirrors, with_params


def schema(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def marked(token: object = "Region", kind: object = "string", **more: object) -> dict[str, object]:
    return {"type": kind, "x-mcp-header": token, **more}


def test_an_annotated_argument_is_found_at_any_depth_of_objects():
    found = mirrors(
        schema(region=marked(), plain={"type": "string"}, deep=schema(on=marked("On", "boolean")))
    )
    assert found == (Mirror("On", ("deep", "on")), Mirror("Region", ("region",)))


@pytest.mark.parametrize(
    "value", [None, True, "text", [], {}, schema(), {"type": "object"}, {"properties": []}]
)
def test_a_schema_without_annotations_wants_nothing(value: object):
    assert mirrors(value) == ()


@pytest.mark.parametrize("token", ["", "a b", "a:b", "a\r\nHost", "é", 7, None, True])
def test_a_token_that_could_split_the_request_makes_the_tool_unusable(token: object):
    assert mirrors(schema(a=marked(token))) is None


@pytest.mark.parametrize("kind", ["number", "object", "array", "null", ["string"], ["string", "null"], None])
def test_only_strings_integers_and_booleans_are_repeated(kind: object):
    assert mirrors(schema(a=marked("A", kind))) is None
    assert [mirrors(schema(a=marked("A", good))) is None for good in ("string", "integer", "boolean")] == [
        False
    ] * 3


def test_two_arguments_cannot_share_a_header_whatever_its_case():
    assert mirrors(schema(a=marked("Region"), b=marked("region"))) is None


@pytest.mark.parametrize(
    "broken",
    [
        marked(),
        schema(a={"items": marked(), "type": "array"}),
        schema(a={"items": [marked()]}),
        schema(a={"anyOf": [marked()]}),
        {"allOf": [schema(a=marked())]},
        {"oneOf": [{"type": "object"}, schema(a=marked())]},
        {"not": schema(a=marked())},
        {"if": schema(a=marked())},
        {"then": schema(a=marked()), "else": {}},
        {"$defs": {"r": marked()}, **schema(a={"$ref": "#/$defs/r"})},
        {"definitions": {"r": schema(a=marked())}},
        {"patternProperties": {"^a": marked()}},
        {"additionalProperties": marked()},
        {"dependentSchemas": {"a": schema(b=marked())}},
        {"dependencies": {"a": ["b"], "b": schema(c=marked())}},
        {"prefixItems": [marked()]},
        schema(a={"contains": {"unevaluatedProperties": marked()}}),
        schema(a={"$ref": "#/x", "x-mcp-header": "A"}),
        schema(a={"items": {"x-mcp-header": "A"}}),
    ],
)
def test_an_annotation_that_no_plain_path_reaches_makes_the_tool_unusable(broken: dict[str, object]):
    assert mirrors(broken) is None
    # Beside a good one too.
    assert mirrors({**broken, "properties": {"good": marked("Good"), **broken.get("properties", {})}}) is None  # type: ignore[dict-item]


def test_the_word_as_data_or_as_the_name_of_an_argument_is_no_annotation():
    assert mirrors(schema(**{"x-mcp-header": {"type": "string"}})) == ()
    data = {"x-mcp-header": "A"}
    assert (
        mirrors(
            schema(a={"type": "object", "default": data, "const": data, "enum": [data], "examples": [data]})
        )
        == ()
    )


@pytest.mark.parametrize("text", ["", "us-west1", "a b", "=?base64?", "?=", "=?BASE64?eA==?=", "~!\"'(),"])
def test_plain_text_goes_as_it_is(text: str):
    assert encode_value(text) == text.encode()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" a", b"=?base64?IGE=?="),
        ("a ", b"=?base64?YSA=?="),
        ("ü", b"=?base64?w7w=?="),
        ("a\r\nb", b"=?base64?YQ0KYg==?="),
        ("\x7f", b"=?base64?fw==?="),
        ("=?base64?eA==?=", b"=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
    ],
)
def test_anything_else_is_wrapped(text: str, value: bytes):
    assert encode_value(text) == value
    assert decode_name(value) == text


def test_a_text_without_utf8_has_no_value():
    assert encode_value("\ud800") is None


WANTED = (
    Mirror("Text", ("text",)),
    Mirror("Number", ("in", "number")),
    Mirror("Flag", ("flag",)),
)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"text": "x", "in": {"number": 42}, "flag": True}, b"Mcp-Param-Text: x\r\nMcp-Param-Number: 42\r\nMcp-Param-Flag: true\r\n"),
        ({"text": "é\n", "flag": False}, b"Mcp-Param-Text: =?base64?w6kK?=\r\nMcp-Param-Flag: false\r\n"),
        ({"in": {"number": 42.0}}, b"Mcp-Param-Number: 42\r\n"),
        ({"in": {"number": -(2**53) + 1}}, b"Mcp-Param-Number: -9007199254740991\r\n"),
        ({"in": {"number": 2**53}}, b""),
        ({"in": {"number": 1.5}, "text": None, "flag": []}, b""),
        ({"in": [1], "text": "\ud800"}, b""),
        ({}, b""),
        (None, b""),
        ([], b""),
    ],
)  # fmt: skip
def test_the_lines_are_what_the_arguments_ask_for(arguments: object, lines: bytes):
    assert (
        with_params(b"mcp-method: tools/call\r\n", WANTED, arguments) == b"mcp-method: tools/call\r\n" + lines
    )


def test_lines_of_the_client_do_not_stay():
    before = b"mcp-name: t\r\nMCP-Param-Text: other\r\nmcp-param-unknown: 1\r\ntraceparent: x\r\n"
    after = with_params(before, WANTED, {"text": "mine"})
    assert after == b"mcp-name: t\r\ntraceparent: x\r\nMcp-Param-Text: mine\r\n"


def test_a_value_cannot_add_a_header():
    block = with_params(b"", WANTED, {"text": "a\r\nAuthorization: Bearer x"})
    assert block.count(b"\r\n") == 1
