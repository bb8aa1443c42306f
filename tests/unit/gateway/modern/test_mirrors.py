"""Whether the headers of a call say what its arguments say."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from airlock.edge.headers import Headers
from airlock.gateway.modern.mirrors import annotates, carried, mismatch
from airlock.gateway.modern.paramheaders import Mirror

REGION = (Mirror("Region", ("region",)),)


def wrapped(raw: str | bytes) -> bytes:
    data = raw.encode() if isinstance(raw, str) else raw
    return b"=?base64?" + base64.b64encode(data) + b"?="


def judged(value: Any, *said: bytes) -> bool:
    headers = Headers([(b"mcp-param-region", one) for one in said])
    return mismatch(headers, REGION, {"region": value}) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("north", b"north"),
        ("north", b" north\t"),
        ("north", wrapped("north")),
        ("n\u00f6rd\u2603", wrapped("n\u00f6rd\u2603")),
        (" north", wrapped(" north")),
        ("", b""),
        ("=?base64?x", b"=?base64?x"),
        ("eA==", b"eA=="),
        ("true", b"true"),
        ("42", b"42"),
        (True, b"true"),
        (False, b"false"),
        (42, b"42"),
        (42, b"42.0"),
        (42.0, b"42"),
        (-0.0, b"0"),
        (-7, b"-7"),
        (2**53 + 1, b"9007199254740993"),
        (1e22, b"1e+22"),
        (1.5, b"1.5"),
    ],
)
def test_a_header_that_says_what_the_body_says_passes(value: object, said: bytes) -> None:
    assert judged(value, said)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("north", b"south"),
        ("north", b"North"),
        ("north", b"north north"),
        ("n\u00f6rd", "n\u00f6rd".encode()),
        ("north", b"nor\x7fth"),
        ("north", b"nor\tth"),
        ("north", wrapped("south")),
        ("north", b"=?base64?bm9ydGg?="),
        ("north", b"=?base64?bm9y!!!dGg=?="),
        ("\ud800", wrapped(b"\xed\xa0\x80")),
        (True, b"True"),
        (True, b"1"),
        (False, b"true"),
        (1, b"true"),
        (42, b"43"),
        (42, b"42.5"),
        (42, b"0x2a"),
        (42, b"4_2"),
        (42, b" "),
        (42, b"9" * 401),
        (2**53 + 1, b"9007199254740992"),
        (1.5, b"1.6"),
        (1.5, b"north"),
        ("42", b"42.0"),
        (["north"], b"north"),
        ({}, b"{}"),
        (None, b"null"),
        (None, b""),
    ],
)
def test_a_header_that_says_something_else_does_not(value: object, said: bytes) -> None:
    assert not judged(value, said)


@pytest.mark.parametrize("value", ["north", "", True, False, 0, 42, 42.0])
def test_an_argument_that_is_there_must_be_repeated(value: object) -> None:
    assert mismatch(Headers([]), REGION, {"region": value}) == (
        "the Mcp-Param-Region header is missing, and its argument is not"
    )


@pytest.mark.parametrize("value", [None, [], {}, "\ud800", 1.5, 2**60])
def test_what_is_absent_or_cannot_be_said_in_a_header_need_not_be(value: object) -> None:
    assert judged(value)


def test_an_argument_that_is_absent_must_not_be_told() -> None:
    headers = Headers([(b"mcp-param-region", b"north")])
    assert mismatch(headers, REGION, {}) == "the Mcp-Param-Region header has no argument that it could repeat"
    assert mismatch(Headers([]), REGION, {}) is None


def test_a_header_that_stands_twice_is_a_mismatch_even_where_both_say_the_same() -> None:
    headers = Headers([(b"mcp-param-region", b"north"), (b"mcp-param-region", b"north")])
    assert mismatch(headers, REGION, {"region": "north"}) == (
        "the Mcp-Param-Region header appears more than once"
    )


def test_headers_that_the_tool_does_not_know_are_nothing_to_it() -> None:
    headers = Headers([(b"mcp-param-zone", b"x"), (b"mcp-param-zone", b"y"), (b"mcp-param-region", b"north")])
    assert mismatch(headers, REGION, {"region": "north"}) is None
    assert mismatch(headers, (), {}) is None


def test_a_nested_argument_is_found_and_the_first_that_disagrees_is_named() -> None:
    wanted = (Mirror("Deep", ("a", "b")), Mirror("Region", ("region",)))
    headers = Headers([(b"mcp-param-deep", b"7"), (b"mcp-param-region", b"north")])
    assert mismatch(headers, wanted, {"a": {"b": 7}, "region": "north"}) is None
    assert mismatch(headers, wanted, {"a": {"b": 8}, "region": "no"}) == (
        "the Mcp-Param-Deep header must equal its argument"
    )
    assert mismatch(headers, wanted, {"a": 7, "region": "north"}) is not None


def test_a_long_name_is_cut_where_it_is_told() -> None:
    told = mismatch(Headers([]), (Mirror("x" * 500, ("a",)),), {"a": 1})
    assert told is not None
    assert len(told) < 140


def test_whether_there_is_any_such_header_is_seen_at_once() -> None:
    assert carried(Headers([(b"host", b"x"), (b"mcp-param-region", b"")]))
    assert not carried(Headers([(b"host", b"\nmcp-param-x"), (b"x-mcp-param-a", b""), (b"mcp-name", b"")]))
    assert not carried(Headers([]))


def test_a_listing_is_looked_at_closely_only_where_it_may_hold_an_annotation() -> None:
    assert annotates(b'{"x-mcp-header":"Region"}')
    assert annotates(b'{"x\\u002dmcp-header":"Region"}')
    assert not annotates('{"description":"n\u00f6rd \\u2603"}'.encode())
