"""A bucket never lets more through than its burst and what its rate refills, whatever the times."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.limits import Buckets, Rate, Tally, parse

RATES = st.builds(Rate, st.integers(1, 1000), st.integers(1, 1000), st.integers(1, 50))
STEPS = st.lists(st.floats(0, 50, allow_nan=False) | st.just(0.0), max_size=60)


@settings(max_examples=200, deadline=None)
@given(RATES, STEPS, st.floats(0, 1e7))
def test_no_stretch_of_time_holds_more_than_burst_and_refill(rate: Rate, steps: list[float], start: float):
    buckets, now, passed = Buckets(rate), start, []
    for step in steps:
        now += step
        if buckets.take("k", now) == 0.0:
            passed.append(now)
    for i, first in enumerate(passed):
        for j in range(i, len(passed)):
            most = rate.burst + (passed[j] - first) * rate.count / rate.seconds
            assert j - i + 1 <= most + 1e-3


@settings(max_examples=100, deadline=None)
@given(RATES, STEPS)
def test_a_wait_that_is_kept_always_leads_to_a_token(rate: Rate, steps: list[float]):
    buckets, now = Buckets(rate), 0.0
    for step in steps:
        now += step
        wait = buckets.take("k", now)
        assert 0.0 <= wait <= rate.seconds / rate.count * 1.001
        if wait:
            now += wait + 1e-6
            assert buckets.take("k", now) == 0.0


@settings(max_examples=100, deadline=None)
@given(RATES)
def test_a_rate_is_read_as_it_is_written(rate: Rate):
    assert parse(f"{rate.count}/{rate.seconds}:{rate.burst}") == rate


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 90)), max_size=80))
def test_every_refusal_is_told_once(refused: list[tuple[str, float]]):
    tally, now, told = Tally(60.0, most=3), 0.0, 0
    for key, step in refused:
        now += step
        told += sum(number for _, number in tally.overdue(now))
        told += tally.count(key, now)
    told += sum(number for _, number in tally.overdue(float("inf")))
    assert told == len(refused)
