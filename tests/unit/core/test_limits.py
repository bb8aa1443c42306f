"""Token buckets and the tally of refusals: what passes, what waits how long, what is forgotten, what is told."""

from __future__ import annotations

import pytest

from airlock.core.limits import OTHERS, Buckets, Rate, Tally, parse


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("0", None),
        ("600/60", Rate(600, 60, 600)),
        ("1/3600:5", Rate(1, 3600, 5)),
        ("100/1:1", Rate(100, 1, 1)),
    ],
)
def test_a_rate_is_read(text: str, rate: Rate | None):
    assert parse(text) == rate


@pytest.mark.parametrize(
    "text",
    ["", "off", "60", "-1/60", "60/", "/60", "60/60:", "0/60", "60/0", "60/60:0", " 60/60", "6.5/60", "٦/60",
     "60/60\n", "60/60:1:1", "10000000000/1"],
)  # fmt: skip
def test_what_is_no_rate_is_refused(text: str):
    with pytest.raises(ValueError):
        parse(text)


def test_a_rate_says_what_it_is():
    assert str(Rate(600, 60, 10)) == "600 in 60 s"


def test_a_full_bucket_gives_its_burst_and_then_the_rate():
    buckets = Buckets(Rate(2, 10, 3))
    assert [buckets.take("a", 100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.take("a", 100.0) == 5.0
    assert buckets.take("a", 102.0) == 3.0
    assert buckets.take("a", 105.0) == 0.0
    assert buckets.take("a", 105.0) == 5.0


def test_a_refusal_costs_no_token():
    buckets = Buckets(Rate(1, 10, 1))
    assert buckets.take("a", 0.0) == 0.0
    assert [buckets.take("a", 4.0) for _ in range(100)] == [6.0] * 100
    assert buckets.take("a", 10.0) == 0.0


def test_a_bucket_never_holds_more_than_its_burst():
    buckets = Buckets(Rate(1, 1, 2))
    buckets.take("a", 0.0)
    assert [buckets.take("a", 1_000_000.0) for _ in range(3)] == [0.0, 0.0, 1.0]


def test_keys_have_nothing_in_common():
    buckets = Buckets(Rate(1, 60, 1))
    assert buckets.take("a", 0.0) == 0.0
    assert buckets.take(("a", "tool"), 0.0) == 0.0
    assert buckets.take("a", 0.0) == 60.0


def test_the_key_that_was_used_longest_ago_is_forgotten_and_one_that_is_refused_is_not():
    buckets = Buckets(Rate(1, 60, 1), most=2)
    for key in ("a", "b"):
        buckets.take(key, 0.0)
    assert buckets.take("a", 1.0) == 59.0  # refused, and so in use
    assert buckets.take("c", 2.0) == 0.0
    assert len(buckets) == 2
    assert buckets.take("a", 3.0) == 57.0
    assert buckets.take("b", 3.0) == 0.0


def test_the_first_refusal_is_told_and_the_next_ones_are_counted_for_a_period():
    tally = Tally(60.0)
    assert tally.count("a", 0.0)
    assert [tally.count("a", 1.0 + n) for n in range(5)] == [False] * 5
    assert tally.count("b", 5.0)
    assert tally.overdue(59.0) == []
    assert tally.overdue(60.0) == [("a", 5)]
    assert tally.count("a", 60.0)
    assert not tally.count("a", 119.0)
    assert tally.overdue(120.0) == [("a", 1)]
    assert len(tally) == 0


def test_a_key_that_was_quiet_after_its_first_refusal_is_forgotten_without_a_word():
    tally = Tally(60.0)
    for key, now in (("quiet", 3.0), ("late", 30.0), ("late", 31.0)):
        tally.count(key, now)
    assert tally.overdue(70.0) == []
    assert len(tally) == 1
    assert tally.overdue(float("inf")) == [("late", 1)]
    assert tally.overdue(float("inf")) == []


def test_more_keys_than_there_is_room_for_are_told_of_as_one():
    tally = Tally(60.0, most=2)
    assert [tally.count(key, 0.0) for key in ("a", "b", "c", "d", "e")] == [True, True, True, False, False]
    assert not tally.count("a", 1.0)
    assert dict(tally.overdue(60.0)) == {"a": 1, OTHERS: 2}
