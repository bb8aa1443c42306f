"""Counting objects in arguments (gateway.md 5.5)."""

from __future__ import annotations

import sys

import pytest

from airlock.core.policy.model import ToolPolicy
from airlock.core.policy.radius import count

NAMES = ToolPolicy(tiers={}, count_arg="names")


def test_a_tool_without_a_counted_argument_touches_one_object():
    assert count(ToolPolicy(tiers={}), {"names": ["a", "b"]}) == 1


@pytest.mark.parametrize("arguments", [{}, {"other": [1, 2]}, {"names": None}, {"names": 5}, {"names": True}])
def test_an_absent_or_scalar_argument_counts_one(arguments: dict[str, object]):
    assert count(NAMES, arguments) == 1


@pytest.mark.parametrize(
    ("value", "n"), [([], 0), (["a"], 1), ([[1, 2], 3], 2), ({}, 0), ({"a": 1, "b": 2}, 2)]
)
def test_a_list_or_object_counts_its_length(value: object, n: int):
    assert count(NAMES, {"names": value}) == n


@pytest.mark.case("T53")
@pytest.mark.parametrize(
    ("text", "n"),
    [("[]", 0), ('["a","b","c"]', 3), (" \n[1, 2] ", 2), ('{"a": 1, "b": 2}', 2), ("[[1, 2]]", 1)],
)
def test_a_list_in_a_string_is_counted_by_its_elements(text: str, n: int):
    assert count(NAMES, {"names": text}) == n


@pytest.mark.parametrize("text", ["", "a", "5", "true", "null", '"[1, 2]"', "[draft] a", "{oops", "a,b,c"])
def test_any_other_string_counts_one(text: str):
    assert count(NAMES, {"names": text}) == 1


@pytest.mark.case("T53")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000 + "]" * 100_000,
        '{"a":' * 100_000,
        "[" + "9" * (sys.get_int_max_str_digits() + 1) + "]",
    ],
    ids=["deep list", "deep object", "long number"],
)
def test_a_list_that_cannot_be_decoded_here_is_not_counted_as_one(text: str):
    assert count(NAMES, {"names": text}) is None
