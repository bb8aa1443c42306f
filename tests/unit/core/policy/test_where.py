"""The table of argument rules (gateway.md 5.4), and which patterns load."""

from __future__ import annotations

import json
import sys

import pytest

from airlock.core.policy.model import Equals, FullMatch, Matcher, NoneOf, OneOf, ToolPolicy, WhereRule
from airlock.core.policy.where import MAX_REGEX_CHARS, Unfit, compile_regex, violation


def regex(pattern: str) -> FullMatch:
    found = compile_regex(pattern)
    assert isinstance(found, FullMatch), found
    return found


def check(matcher: Matcher, value: object, **rule) -> str | None:
    tool = ToolPolicy(tiers={}, where=(WhereRule("a", matcher, **rule),))
    return violation(tool, {"a": value}, "prod")


def passes(matcher: Matcher, value: object) -> bool:
    return check(matcher, value) is None


ANYTHING = regex("(?s).*")
EVERY_KIND: list[Matcher] = [
    Equals("x"),
    OneOf(("x", 1, True, None)),
    NoneOf(("y", 2, False, None)),
    ANYTHING,
]

DEEP = "[" * 100_000 + "]" * 100_000
LONG_NUMBER = "[" + "9" * (sys.get_int_max_str_digits() + 1) + "]"


# Which rules apply


def test_a_tool_without_rules_lets_everything_through():
    assert violation(ToolPolicy(tiers={}), {"a": {}}, "prod") is None


def test_a_rule_for_other_environments_is_skipped():
    assert check(Equals("x"), "y", env=frozenset({"dev"})) is None
    assert check(Equals("x"), "y", env=frozenset({"dev", "prod"})) == "argument 'a' not allowed by equals"


@pytest.mark.parametrize(
    ("matcher", "kind"),
    [(Equals("x"), "equals"), (OneOf(("x",)), "in"), (NoneOf(("x",)), "not_in"), (ANYTHING, "regex")],
)
def test_an_absent_argument_fails_unless_it_is_optional(matcher: Matcher, kind: str):
    tool = ToolPolicy(tiers={}, where=(WhereRule("ns", matcher),))
    assert violation(tool, {"other": "x"}, "prod") == f"argument 'ns' missing, wanted by {kind}"
    lenient = ToolPolicy(tiers={}, where=(WhereRule("ns", matcher, optional=True),))
    assert violation(lenient, {}, "prod") is None


def test_all_rules_must_hold_and_the_first_that_fails_gives_the_reason():
    tool = ToolPolicy(
        tiers={},
        where=(WhereRule("a", Equals(1)), WhereRule("b", OneOf((2,))), WhereRule("c", NoneOf((3,)))),
    )
    assert violation(tool, {"a": 1, "b": 2, "c": 4}, "prod") is None
    assert violation(tool, {"a": 1, "b": 9, "c": 3}, "prod") == "argument 'b' not allowed by in"


def test_the_reason_never_holds_the_value():
    for matcher in EVERY_KIND:
        assert "hush" not in (check(matcher, {"hush": "hush"}) or "")


def test_the_name_of_an_argument_cannot_break_the_line_of_a_reason():
    tool = ToolPolicy(tiers={}, where=(WhereRule("a\n\x1b[2J\u202e", Equals(1)),))
    reason = violation(tool, {}, "prod")
    assert reason is not None
    assert reason.isprintable()


# Null


@pytest.mark.case("T55")
@pytest.mark.parametrize("optional", [False, True])
def test_a_null_argument_passes_only_equals_null(optional: bool):
    for matcher in [*EVERY_KIND, OneOf((None,)), NoneOf((None,))]:
        assert check(matcher, None, optional=optional) is not None
    assert check(Equals(None), None, optional=optional) is None


def test_equals_null_lets_nothing_else_through():
    others: list[object] = ["null", "", 0, False, {}, "x"]
    assert not any(passes(Equals(None), value) for value in others)


# Lists and objects


def test_every_element_of_a_list_must_match():
    assert passes(OneOf(("a", "b")), ["a", "b", "a"])
    assert not passes(OneOf(("a", "b")), ["a", "c"])
    assert passes(regex("x+"), ["x", "xx"])
    assert not passes(regex("x+"), ["x", 1])
    assert not passes(NoneOf(("a",)), ["b", "a"])


@pytest.mark.parametrize("matcher", EVERY_KIND)
def test_an_empty_list_passes(matcher: Matcher):
    assert passes(matcher, [])


@pytest.mark.parametrize("nested", [[["x"]], [{}], [[]], ["x", [None]]])
@pytest.mark.parametrize("matcher", [*EVERY_KIND, Equals(None), NoneOf((None, "y"))])
def test_a_nested_list_or_object_fails(matcher: Matcher, nested: list[object]):
    assert not passes(matcher, nested)


@pytest.mark.parametrize("value", [{}, {"x": "x"}])
@pytest.mark.parametrize("matcher", [*EVERY_KIND, Equals(None), NoneOf((None,))])
def test_an_object_fails_every_matcher(matcher: Matcher, value: object):
    assert not passes(matcher, value)


def test_elements_of_a_list_are_not_decoded():
    assert passes(Equals("null"), ["null"])
    assert passes(ANYTHING, ["[1]", "{}"])


def test_a_null_element_passes_only_equals_null():
    assert passes(Equals(None), [None])
    assert not passes(OneOf((None, "x")), [None])
    assert not passes(NoneOf((None, "x")), [None])


# Strings that may be something else to the upstream


@pytest.mark.case("T54")
@pytest.mark.parametrize(
    "value", ["null", " null\n", "[]", '["x"]', "\t{}", '{"a": 1} ', "[NaN]", "\u00a0[1]", DEEP, LONG_NUMBER]
)
@pytest.mark.parametrize("matcher", [*EVERY_KIND, Equals(None)])
def test_a_string_that_the_upstream_would_decode_is_denied_by_every_matcher(matcher: Matcher, value: str):
    assert not passes(matcher, value)


def test_a_string_that_is_listed_but_decodes_is_denied_all_the_same():
    assert not passes(Equals("[]"), "[]")
    assert not passes(OneOf(("null",)), "null")


@pytest.mark.parametrize(
    "value", ["123", "true", '"quoted"', "nullable", "[draft] title", "{oops", "1.5", "nul", ""]
)
def test_any_other_string_is_taken_as_it_is(value: str):
    assert passes(Equals(value), value)
    assert passes(ANYTHING, value)


def test_a_number_in_quotes_is_a_string():
    assert not passes(Equals(123), "123")
    assert not passes(Equals("123"), 123)
    assert not passes(OneOf((True,)), "true")


# Kinds


def test_a_bool_is_never_a_number():
    assert not passes(Equals(1), True)
    assert not passes(Equals(True), 1)
    assert not passes(OneOf((0,)), False)


def test_numbers_are_compared_by_value():
    assert passes(Equals(3), 3.0)
    assert passes(OneOf((2.5, 3.0)), 3)
    assert not passes(Equals(2**53), 2**53 + 1)


@pytest.mark.case("T55")
@pytest.mark.parametrize("value", ["0", False, None, [], {}, ["0"], [False]])
def test_not_in_fails_values_of_a_kind_that_is_not_listed(value: object):
    assert passes(NoneOf((0,)), value) is (value == [] and isinstance(value, list))


def test_not_in_lets_other_values_of_a_listed_kind_through():
    matcher = NoneOf((0, "kube-system"))
    assert passes(matcher, 1)
    assert passes(matcher, "dev")
    assert not passes(matcher, 0.0)
    assert not passes(matcher, "kube-system")
    assert not passes(matcher, True)


# Regex


def test_a_regex_must_match_the_whole_string():
    assert passes(regex("tmp-.*"), "tmp-1")
    assert not passes(regex("tmp-.*"), "x-tmp-1")
    assert not passes(regex("tmp"), "tmp-1")
    assert not passes(regex("a|ab"), "abc")
    assert not passes(regex("tmp-.*"), "tmp-\nrm")


@pytest.mark.parametrize("value", [1, True, 1.5, {}])
def test_a_regex_fails_what_is_not_a_string(value: object):
    assert check(ANYTHING, value) == "argument 'a' not allowed by regex"


@pytest.mark.case("T54")
def test_a_regex_is_not_tried_on_a_longer_string_than_the_limit():
    why = "argument 'a' longer than 4096 characters, too long for regex"
    assert passes(ANYTHING, "x" * MAX_REGEX_CHARS)
    assert check(ANYTHING, "x" * (MAX_REGEX_CHARS + 1)) == why
    assert check(ANYTHING, ["x", "x" * (MAX_REGEX_CHARS + 1)]) == why
    assert passes(ANYTHING, "я" * MAX_REGEX_CHARS)


@pytest.mark.case("T54")
@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+c", "(.*a){30}d", "(a*)*e"])
def test_a_pattern_that_backtracks_for_ever_elsewhere_answers(pattern: str):
    assert not passes(regex(pattern), "a" * MAX_REGEX_CHARS)


@pytest.mark.parametrize("value", ["\ud800", "a\udfffb", ["ok", "\ud83d"]])
def test_a_lone_surrogate_fails_a_regex(value: object):
    assert check(ANYTHING, value) == "argument 'a' not allowed by regex"
    assert check(ANYTHING, json.loads(json.dumps(value))) is not None


REFUSED = {
    "look-ahead": "(?=a)",
    "negative look-ahead": "(?!a)b",
    "look-behind": "(?<=a)b",
    "negative look-behind": "(?<!a)b",
    "backreference": r"(a)\1",
    "backreference of two digits": "(a)" * 12 + r"\12",
    "backreference before a digit": r"(a)\108",
    "numbered backreference by name": r"(a)\g<1>",
    "named backreference": "(?P<n>a)(?P=n)",
    "named backreference of another kind": r"(?<n>a)\k<n>",
    "conditional": "(a)?(?(1)b|c)",
    "possessive star": "a*+",
    "possessive plus": "a++",
    "possessive question mark": "a?+",
    "possessive count": "a{1,2}+",
    "atomic group": "(?>a)",
    "python end": r"a\Z",
    "four digit escape": r"\u0041",
    "eight digit escape": r"\U00000041",
    "named character": r"\N{DIGIT ONE}",
    "verbose": "(?x)a",
    "verbose group": "(?x:a b)",
    "comment": "(?#note)a",
    "ascii flag": "(?a)a",
    "unicode flag": "(?u)a",
    "locale flag": "(?L)a",
    "verbose among others": "(?ix)a",
    "verbose taken back": "(?i-x)a",
    "doubled count": "a{2}{3}",
    "count over 1000": "a{1001}",
    "open count over 1000": "a{1001,}",
    "count range over 1000": "a{1,1001}",
    "nested counts": "(a{100}){11}",
    "deeply nested counts": "((a{10}){10}){11}",
    "nested open counts": "(a{2,}){501}",
    "count of zeros": "a{00}",
    "small count with a leading zero": "a{1,03}",
    "nested counts behind a leading zero": "(a{0100}){11}",
    "count with a leading zero": "a{01001}",
    "count range with a leading zero": "a{1,01001}",
    "count beyond all reading": "a{99999999999}",
    "count with endless digits": "a{" + "9" * 5000 + "}",
    "open group": "(a",
    "open class": "[a",
    "lone surrogate": "\ud800",
}


@pytest.mark.case("T80")
@pytest.mark.parametrize("pattern", REFUSED.values(), ids=REFUSED.keys())
def test_a_spelling_that_re2_does_not_have_does_not_load(pattern: str, capfd: pytest.CaptureFixture[str]):
    assert isinstance(compile_regex(pattern), Unfit)
    assert capfd.readouterr() == ("", "")


def test_a_refusal_says_what_to_write_instead():
    for pattern, advice in {
        r"a\Z": r"\z",
        r"\u0041": r"\x{41}",
        "(?=a)": "look-around",
        "a{1001}": "at most 1000",
        "(?x)a": "flags",
        r"(a)\1": "backreferences",
        "(?P<n>a)(?P=n)": "backreferences",
        "a*+": "possessive",
        "a{007}": "plain text",
        r"(a)\12": r"\x{..}",
        r"(a)\g<1>": "backreferences",
        r"\pL{1000}": "smaller",
    }.items():
        found = compile_regex(pattern)
        assert isinstance(found, Unfit)
        assert advice in found.hint


def test_a_refusal_does_not_repeat_a_long_pattern():
    found = compile_regex("(" + "a" * 10_000)
    assert isinstance(found, Unfit)
    assert len(found.problem) < 200


@pytest.mark.parametrize(
    "pattern",
    [
        "a{1000}",
        "a{0}",
        "a{0,3}",
        r"\123",
        r"\012",
        r"\0",
        r"[\12]",
        r"\\12",
        r"\Q\12\E",
        "(a{100}){10}",
        "(?:a{500}b{500})",
        "(?i)a",
        "(?s).*",
        "(?P<n>a)",
        r"a\z",
        r"\x{2028}+",
        r"\x{2028}{2}",
        r"\pL+",
        r"\p{Cyrillic}{2}",
        r"\{2000\}",
        r"[{2000}]",
        r"[]{2000}]",
        r"[^]{2000}]",
        r"[[:alpha:]{2000}]",
        r"\Q{2000}\E",
        r"\Q{2000}",
        "",
    ],
)
def test_what_re2_has_loads(pattern: str):
    assert isinstance(compile_regex(pattern), FullMatch)


@pytest.mark.case("T80")
def test_a_count_without_a_lower_bound_matches_only_its_own_text():
    matcher = regex("a{,3}")
    assert passes(matcher, "a{,3}")
    assert not any(passes(matcher, "a" * n) for n in range(5))


@pytest.mark.case("T80")
def test_classes_are_ascii_only_and_their_negations_are_not():
    assert passes(regex(r"\W+"), "привет")
    assert not passes(regex(r"\w+"), "привет")
    assert passes(regex(r"\pL+"), "привет")
    assert passes(regex(r"\p{Cyrillic}+"), "привет")
    assert passes(regex(r"\S+"), "a\u00a0b")
    assert not passes(regex(r"\d"), "٣")
    assert passes(regex("(?i)привет"), "ПРИВЕТ")


def test_without_re2_a_regex_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    found = compile_regex("a")
    assert isinstance(found, Unfit)
    assert "google-re2" in found.problem
    assert "airlock[regex]" in found.hint
