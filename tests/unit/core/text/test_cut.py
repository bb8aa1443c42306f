"""Cutting to a length, note included."""

from __future__ import annotations

import pytest

from airlock.core.text.cut import cut


@pytest.mark.parametrize("text", ["", "abc", "abcdefghij"])
def test_a_text_within_the_limit_stays(text):
    assert cut(text, 10, "...") is text


def test_a_longer_text_ends_with_the_note_and_fills_the_limit():
    assert cut("abcdefghijk", 10, "[cut]") == "abcde[cut]"


def test_a_note_that_just_fits_is_all_there_is():
    assert cut("abcdefghijk", 5, "[cut]") == "[cut]"


@pytest.mark.parametrize("limit", range(5))
def test_a_note_that_does_not_fit_is_cut_itself(limit):
    assert cut("abcdefghijk", limit, "[cut]") == "[cut]"[:limit]


def test_without_a_note_the_text_is_only_cut():
    assert cut("abcdef", 4, "") == "abcd"
