from __future__ import annotations

import hashlib

import pytest

from airlock.core.action import Action, Kind


def action(**arguments: object) -> Action:
    return Action("drop", arguments, "prod", "http://up/mcp")


def test_the_digest_is_that_of_the_canonical_arguments():
    assert action(b=1, a="é").arguments_digest() == hashlib.sha256('{"a":"é","b":1}'.encode()).hexdigest()


def test_only_a_top_level_dry_run_is_left_out_of_the_digest():
    assert action(a=1, dry_run=True).arguments_digest() == action(a=1, dry_run=False).arguments_digest()
    assert action(a=1, dry_run=True).arguments_digest() == action(a=1).arguments_digest()
    assert action(a={"dry_run": True}).arguments_digest() != action(a={}).arguments_digest()


def test_every_argument_counts():
    assert action(a=1).arguments_digest() != action(a=True).arguments_digest()
    assert action(a="1").arguments_digest() != action(a=1).arguments_digest()


def test_an_action_cannot_be_changed_and_is_a_call_unless_it_says_otherwise():
    made = action()
    assert made.kind is Kind.CALL
    with pytest.raises(AttributeError):
        made.name = "other"  # type: ignore[misc]
