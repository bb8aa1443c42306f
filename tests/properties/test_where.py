"""What holds for argument rules whatever the value."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.policy.model import Equals, FullMatch, Matcher, NoneOf, OneOf, ToolPolicy, WhereRule
from airlock.core.policy.where import compile_regex, violation

moderate = settings(max_examples=100, deadline=None)

text = st.text(st.characters(exclude_categories=[]), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | text
structures = st.recursive(
    st.lists(scalars, max_size=3) | st.dictionaries(text, scalars, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=4,
)
listed = st.lists(scalars, min_size=1, max_size=4).map(tuple)
patterns = st.sampled_from([r"(?s).*", r"\W+", r"a{,3}", "[a-z]*", ""])


def regex(pattern: str) -> FullMatch:
    found = compile_regex(pattern)
    assert isinstance(found, FullMatch)
    return found


matchers = (
    st.builds(Equals, scalars)
    | st.builds(OneOf, listed)
    | st.builds(NoneOf, listed)
    | st.builds(regex, patterns)
)


def passes(matcher: Matcher, value: object) -> bool:
    tool = ToolPolicy(tiers={}, where=(WhereRule("a", matcher),))
    return violation(tool, {"a": value}, "prod") is None


@moderate
@given(matchers, scalars | structures)
def test_a_verdict_is_total_and_stable(matcher, value):
    assert passes(matcher, value) is passes(matcher, value)


@moderate
@given(matchers, structures)
def test_a_structure_in_a_string_passes_nothing(matcher, value):
    assert not passes(matcher, json.dumps(value))
    assert not passes(matcher, f" \n{json.dumps(value)}\t")


@moderate
@given(matchers, st.lists(scalars, max_size=4))
def test_a_list_passes_exactly_when_each_of_its_elements_does_alone_in_a_list(matcher, values):
    assert passes(matcher, values) is all(passes(matcher, [value]) for value in values)


@moderate
@given(listed, scalars)
def test_what_in_lets_through_not_in_refuses(values, value):
    assert not (passes(OneOf(values), value) and passes(NoneOf(values), value))


@moderate
@given(scalars, scalars)
def test_equal_means_the_same_json(listed, value):
    if passes(Equals(listed), value):
        assert type(value) is type(listed) or {type(value), type(listed)} == {int, float}
        assert value == listed


@moderate
@given(st.text(max_size=40))
def test_no_pattern_makes_the_compiler_raise(pattern):
    compile_regex(pattern)
