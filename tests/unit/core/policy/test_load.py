"""From a mapping to a policy, or every fault in it (gateway.md 5.1, 5.3, 15.4)."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from airlock.core.decision import Tier
from airlock.core.errors import ConfigError
from airlock.core.policy.access import Access, Glob
from airlock.core.policy.load import build
from airlock.core.policy.model import (
    AccessRule,
    Equals,
    FullMatch,
    NoneOf,
    OneOf,
    OutputLimits,
    Policy,
    Radius,
    UpstreamQuestions,
    WhereRule,
)
from airlock.edge import yamlfile

VECTORS = Path(__file__).resolve().parents[3] / "vectors" / "policies"
EXPECT = tomllib.loads((VECTORS / "expect.toml").read_text())


def load(document: object, environment: str | None = "prod") -> Policy:
    return build(document, "policy.yaml", environment)


def faults(document: object, environment: str | None = "prod") -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(document, environment)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("policy.yaml: ")
    return [str(fault) for fault in caught.value.faults]


def tool_faults(**tool) -> list[str]:
    return [fault.removeprefix("tools.t.") for fault in faults({"tools": {"t": {"tiers": {}, **tool}}})]


def rule_faults(**rule) -> list[str]:
    return [fault.removeprefix("where[0]") for fault in tool_faults(where=[rule])]


# What loads


def test_an_empty_policy_with_an_environment_allows_nothing():
    assert load({}) == Policy(environment="prod", tools={})


def test_every_key_ends_up_where_it_belongs():
    policy = load(
        {
            "version": 1,
            "environment": "prod",
            "output": {"max_chars": 10, "chars_per_token": 2.5},
            "blast_radius": {"max_per_call": 1, "max_per_principal": 2, "window_s": 3},
            "tools": {
                "t": {
                    "tiers": {"prod": "L2"},
                    "principals": {"root": {"prod": "L3"}, "group:x": {}},
                    "description": "does it",
                    "count_arg": "names",
                    "where": [
                        {"arg": "a", "equals": None},
                        {"arg": "b", "in": [1, "x", True, None, 1.5], "optional": True},
                        {"arg": "c", "not_in": ["y"], "env": ["prod", "dev"]},
                        {"arg": "d", "regex": "z+"},
                    ],
                },
            },
        },
        None,
    )
    tool = policy.tools["t"]
    assert (policy.output, policy.radius) == (OutputLimits(10, 2.5), Radius(1, 2, 3))
    assert (tool.output, tool.radius, tool.own_radius) == (policy.output, policy.radius, False)
    assert tool.tiers == {"prod": Tier.L2}
    assert tool.principals == {"root": {"prod": Tier.L3}, "group:x": {}}
    assert (tool.description, tool.count_arg) == ("does it", "names")
    assert tool.where[:3] == (
        WhereRule("a", Equals(None)),
        WhereRule("b", OneOf((1, "x", True, None, 1.5)), optional=True),
        WhereRule("c", NoneOf(("y",)), env=frozenset({"prod", "dev"})),
    )
    last = tool.where[3].matcher
    assert isinstance(last, FullMatch)
    assert last.pattern == "z+"


def test_what_is_left_out_takes_its_default():
    tool = load({"tools": {"t": {"tiers": {}}}}).tools["t"]
    assert (tool.description, tool.count_arg, tool.principals, tool.where) == ("", None, {}, ())
    assert tool.output == OutputLimits(16000, 4)
    assert tool.radius == Radius(50, 500, 3600)


def test_questions_of_a_server_are_refused_unless_the_file_or_the_tool_says_otherwise():
    refuse, compose = UpstreamQuestions.REFUSE, UpstreamQuestions.COMPOSE
    tools = {"t": {"tiers": {}}, "c": {"tiers": {}, "upstream_questions": "compose"}}
    plain = load({"tools": tools})
    assert [tool.questions for tool in plain.tools.values()] == [refuse, compose]
    tools = {"t": {"tiers": {}}, "r": {"tiers": {}, "upstream_questions": "refuse"}}
    every = load({"tools": tools, "upstream_questions": "compose"})
    assert [tool.questions for tool in every.tools.values()] == [compose, refuse]


@pytest.mark.parametrize(
    ("word", "got"), [("ask", '"ask"'), ("", '""'), (True, "true"), (None, "null"), (1, "1")]
)
def test_what_becomes_of_questions_is_one_of_two_words(word: object, got: str):
    says = f"upstream_questions: must be refuse or compose, got {got}"
    assert faults({"upstream_questions": word}) == [says]
    assert tool_faults(upstream_questions=word) == [says]


def test_a_tools_own_block_replaces_the_top_level_one_whole():
    policy = load(
        {
            "output": {"max_chars": 1, "chars_per_token": 2},
            "blast_radius": {"max_per_call": 1, "max_per_principal": 2, "window_s": 3},
            "tools": {"t": {"tiers": {}, "output": {"max_chars": 9}, "blast_radius": {"max_per_call": 9}}},
        }
    )
    tool = policy.tools["t"]
    assert tool.output == OutputLimits(9, 4)
    assert (tool.radius, tool.own_radius) == (Radius(9, 500, 3600), True)


def test_the_given_environment_beats_the_files_own():
    assert load({"environment": "dev"}, "prod").environment == "prod"
    assert load({"environment": "dev"}, None).environment == "dev"
    assert load({"environment": "dev"}, "").environment == "dev"


def test_limits_may_be_zero_and_as_large_as_every_store_can_hold():
    policy = load({"blast_radius": {"max_per_call": 0, "max_per_principal": 2**53 - 1, "window_s": 86400}})
    assert policy.radius == Radius(0, 2**53 - 1, 86400)


# The document


@pytest.mark.case("T64")
@pytest.mark.parametrize("environment", ["prod", None])
@pytest.mark.parametrize(
    ("document", "got"),
    [([1], "a list"), ("text", '"text"'), (None, "null"), (5, "5"), (False, "false"), (1.5, "1.5")],
)
def test_a_document_that_is_no_mapping_is_one_fault(document: object, got: str, environment: str | None):
    assert faults(document, environment) == [f"must be a mapping, got {got}"]


@pytest.mark.case("T64")
def test_a_missing_environment_lists_the_other_errors_too():
    assert faults({"tools": {"t": {}}}, None) == [
        "environment: required (or give --env or AIRLOCK_ENV)",
        "tools.t.tiers: required ({} gives the tool no tier)",
    ]
    assert faults({}, None) == ["environment: required (or give --env or AIRLOCK_ENV)"]


@pytest.mark.case("T64")
def test_the_report_is_one_line_with_the_number_of_faults_and_the_file_first():
    with pytest.raises(ConfigError) as caught:
        load({"a": 1, "b": 2})
    assert str(caught.value).startswith("policy.yaml: 2 faults: a: unknown key (")


def test_an_unknown_key_is_a_fault_wherever_it_stands():
    assert faults({"tool": {}})[0].startswith("tool: unknown key (known here: version,")
    assert faults({"output": {"x": 1}})[0].startswith("output.x: unknown key")
    assert faults({"blast_radius": {"x": 1}})[0].startswith("blast_radius.x: unknown key")
    assert tool_faults(x=1)[0].startswith("x: unknown key")
    assert rule_faults(arg="a", equals=1, x=1)[0].startswith(".x: unknown key")


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_a_block_that_is_no_mapping_is_a_fault(value: object):
    for key in ("output", "blast_radius", "tools"):
        assert [fault.split(",")[0] for fault in faults({key: value})] == [f"{key}: must be a mapping"]
    assert faults({"tools": {"t": value}})[0].startswith("tools.t: must be a mapping")
    for key in ("tiers", "principals", "output", "blast_radius"):
        assert tool_faults(**{key: value})[0].startswith(f"{key}: must be a mapping")
    assert tool_faults(principals={"bob": value})[0].startswith("principals.bob: must be a mapping")


@pytest.mark.parametrize(("key", "shown"), [(1, "1"), (True, "true"), (None, "null"), (1.5, "1.5")])
def test_a_key_that_is_not_a_string_is_a_fault_that_says_quote_it(key: object, shown: str):
    expected = f"key must be a string, got {shown} (quote it)"
    assert faults({key: 1}) == [f"{shown}: {expected}"]
    assert faults({"tools": {key: {}}}) == [f"tools.{shown}: {expected}"]
    assert tool_faults(tiers={key: "L0"}) == [f"tiers.{shown}: {expected}"]
    assert tool_faults(principals={"bob": {key: "L0"}}) == [f"principals.bob.{shown}: {expected}"]


def test_an_empty_key_is_a_fault():
    assert faults({"tools": {"": {"tiers": {}}}}) == ["tools: must not have an empty key"]


# Single values


@pytest.mark.parametrize("version", [2, 0, "1", True, 1.0, None])
def test_any_version_but_one_is_a_fault(version: object):
    assert faults({"version": version})[0].startswith("version: must be 1, got ")


@pytest.mark.parametrize("environment", [5, None, True, [], ""])
@pytest.mark.parametrize("given", ["prod", None])
def test_an_environment_in_the_file_must_be_a_name(environment: object, given: str | None):
    assert faults({"environment": environment}, given)[0].startswith("environment: must ")


@pytest.mark.parametrize("value", [-1, 2**53, "5", True, 5.0, None, [5]])
@pytest.mark.parametrize(
    "key", ["output.max_chars", "blast_radius.max_per_call", "blast_radius.max_per_principal"]
)
def test_a_limit_is_a_whole_number_and_nothing_is_coerced(key: str, value: object):
    block, name = key.split(".")
    (fault,) = faults({block: {name: value}})
    assert fault.startswith(f"{key}: must be a whole number from 0 to 9007199254740991, got ")
    assert ("write it without quotes" in fault) is (value == "5")


@pytest.mark.parametrize("value", [0, -1, 86401, "60", True, 1.5, None])
def test_a_window_lasts_between_a_second_and_a_day(value: object):
    (fault,) = tool_faults(blast_radius={"window_s": value})
    assert fault.startswith("blast_radius.window_s: must be a whole number from 1 to 86400, got ")


@pytest.mark.parametrize("value", [0, -1, 0.0, float("inf"), float("nan"), "4", True, None, []])
def test_characters_per_token_are_more_than_nothing(value: object):
    assert faults({"output": {"chars_per_token": value, "max_chars": -1}})[0].startswith(
        "output.chars_per_token: must be a number above 0, got "
    )
    assert len(faults({"output": {"chars_per_token": value, "max_chars": -1}})) == 2


@pytest.mark.parametrize("tier", ["L4", "l0", "", 0, None, True, [], {}])
def test_an_unknown_tier_is_a_fault(tier: object):
    assert tool_faults(tiers={"prod": tier})[0].startswith("tiers.prod: must be one of L0, L1, L2, L3, got ")
    assert tool_faults(principals={"bob": {"prod": tier}})[0].startswith(
        "principals.bob.prod: must be one of"
    )


@pytest.mark.parametrize(("value", "hint"), [(5, " (quote it)"), (True, " (quote it)"), (None, ""), ([], "")])
def test_a_text_is_a_string(value: object, hint: str):
    for key in ("description", "count_arg"):
        (fault,) = tool_faults(**{key: value})
        assert fault.startswith(f"{key}: must be a string, got ")
        assert fault.endswith(hint)


def test_a_counted_argument_has_a_name():
    assert tool_faults(count_arg="") == ["count_arg: must not be empty"]


# Rules


@pytest.mark.parametrize("value", [None, {}, "x"])
def test_where_is_a_list_of_rules(value: object):
    assert tool_faults(where=value)[0].startswith("where: must be a list of rules, got ")
    if not isinstance(value, dict):
        assert tool_faults(where=[value])[0].startswith("where[0]: must be a mapping, got ")


def test_a_rule_has_an_argument_and_exactly_one_matcher():
    exactly = ": must have exactly one of equals, in, not_in, regex, has"
    assert rule_faults(equals=1) == [".arg: required"]
    assert rule_faults(arg="", equals=1) == [".arg: must not be empty"]
    assert rule_faults(arg=1, equals=1) == [".arg: must be a string, got 1 (quote it)"]
    assert rule_faults(arg="a") == [f"{exactly} none"]
    assert rule_faults(arg="a", equals=None, regex="x") == [f"{exactly} equals and regex"]
    assert len(rule_faults(arg="a", **{"in": [], "not_in": []})) == 3


@pytest.mark.parametrize("kind", ["in", "not_in", "env"])
def test_a_list_in_a_rule_may_not_be_empty(kind: str):
    rule: dict[str, object] = {"arg": "a", "equals": 1} if kind == "env" else {"arg": "a"}
    assert rule_faults(**rule, **{kind: []}) == [f".{kind}: must not be empty"]
    assert rule_faults(**rule, **{kind: "x"}) == [f'.{kind}: must be a list, got "x"']
    assert rule_faults(**rule, **{kind: None}) == [f".{kind}: must be a list, got null"]


@pytest.mark.parametrize("value", [[], {}, [1], float("nan"), float("inf")])
def test_a_matcher_takes_scalars_only(value: object):
    assert rule_faults(arg="a", equals=value)[0].startswith(".equals: must be ")
    assert rule_faults(arg="a", **{"in": ["x", value]})[0].startswith(".in[1]: must be ")
    assert rule_faults(arg="a", not_in=[value])[0].startswith(".not_in[0]: must be ")


def test_the_environments_of_a_rule_are_names():
    (fault,) = rule_faults(arg="a", equals=1, env=["prod", True])
    assert fault == ".env[1]: must be a string, got true (quote it)"


@pytest.mark.parametrize("value", ["true", 1, None])
def test_optional_is_a_bool(value: object):
    assert rule_faults(arg="a", equals=1, optional=value)[0].startswith(
        ".optional: must be true or false, got "
    )


@pytest.mark.case("T80")
@pytest.mark.parametrize("pattern", [r"\Z", "(?=a)", "(a{100}){11}", "(?x)a", "a{01001}"])
def test_a_pattern_that_does_not_load_is_one_fault_with_its_path(pattern: str):
    (fault,) = rule_faults(arg="a", regex=pattern)
    assert fault.startswith(".regex: ")
    assert f'got "{pattern}"' in fault


def test_a_pattern_is_a_string():
    assert rule_faults(arg="a", regex=5) == [".regex: must be a string, got 5 (quote it)"]


def test_a_regex_without_re2_is_a_fault_that_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    (fault,) = rule_faults(arg="a", regex="x")
    assert "airlock[regex]" in fault


# How faults are shown


def test_a_hostile_value_is_shown_on_one_line_and_cut():
    text = "\x1b[2J\n\u202e" + "x" * 100
    (fault,) = tool_faults(tiers={"prod": text})
    assert fault.isprintable()
    assert fault.endswith('..."')
    assert len(fault) < 120
    (fault,) = faults({"tools": {text: 1}})
    assert fault.isprintable()
    assert len(fault) < 160


def test_a_huge_number_is_shown_without_its_digits():
    assert faults({"blast_radius": {"max_per_call": 1 << 100_000}})[0].endswith("got a very large number")


def test_a_fault_says_its_line_where_that_is_known():
    document, lines = yamlfile.load_with_lines(
        "policy.yaml", "environment: prod\ntools:\n  t:\n    tier: {}\n"
    )
    with pytest.raises(ConfigError) as caught:
        build(document, "policy.yaml", None, positions=lines)
    assert [str(fault).split("(")[1][:7] for fault in caught.value.faults] == ["line 4;", "{} give"]


# Sections besides the tools


def test_sections_are_none_when_they_are_absent_and_open_when_they_are_empty():
    policy = load({})
    for section in ("resources", "prompts", "completion", "sampling", "roots", "elicitation"):
        assert getattr(policy, section) is None
    policy = load(
        {"resources": {}, "prompts": {}, "completion": {}, "sampling": {}, "roots": {}, "elicitation": {}}
    )
    assert (policy.resources, policy.prompts) == ((), ())
    assert [policy.completion, policy.sampling, policy.roots, policy.elicitation] == [Access()] * 4


def test_resources_and_prompts_keep_their_order_and_take_the_output_of_the_file():
    policy = load(
        {
            "output": {"max_chars": 9},
            "resources": {
                "file:///docs/**": {},
                "db://tables/*": {
                    "environments": ["dev"],
                    "principals": ["alice", "group:sre"],
                    "output": {"max_chars": 4000},
                },
            },
            "prompts": {"review_*": {}},
            "sampling": {"principals": ["group:dev"], "environments": ["prod"]},
        }
    )
    assert policy.resources == (
        AccessRule(pattern=Glob.of("file:///docs/**", paths=True), output=OutputLimits(9)),
        AccessRule(
            pattern=Glob.of("db://tables/*", paths=True),
            access=Access(frozenset({"dev"}), frozenset({"alice", "group:sre"})),
            output=OutputLimits(4000),
        ),
    )
    assert policy.prompts == (AccessRule(pattern=Glob.of("review_*", paths=False), output=OutputLimits(9)),)
    assert policy.sampling == Access(frozenset({"prod"}), frozenset({"group:dev"}))


def test_faults_of_the_sections_have_their_paths():
    assert faults(
        {
            "resources": {
                "docs/**": {},
                "file:///a/../b": {"output": {"max_chars": -1}},
                "x://a": None,
                "x://b": {"principal": ["alice"]},
            },
            "prompts": ["a"],
            "completion": None,
            "sampling": {"environments": [], "output": {}},
            "roots": {"principals": "alice"},
            "elicitation": {"principals": [1, ""]},
        }
    ) == [
        "resources.docs/**: must be a URI that begins with a scheme or with **, without backslash, control or stray "
        "% in it",
        "resources.file:///a/../b: can match nothing: URIs are compared as file:///b",
        f"resources.file:///a/../b.output.max_chars: must be a whole number from 0 to {2**53 - 1}, got -1",
        "resources.x://a: must be a mapping, got null",
        "resources.x://b.principal: unknown key (known here: environments, principals, output)",
        "prompts: must be a mapping, got a list",
        "completion: must be a mapping, got null",
        "sampling.output: unknown key (known here: environments, principals)",
        "sampling.environments: must not be empty",
        'roots.principals: must be a list, got "alice"',
        "elicitation.principals[0]: must be a string, got 1 (quote it)",
        "elicitation.principals[1]: must not be empty",
    ]


def test_a_hostile_pattern_stays_on_one_line():
    (fault,) = faults({"resources": {"file:///\x1b[2J" + "a" * 500: {}}})
    assert fault.isprintable()
    assert len(fault) < 300


# Content hygiene


def allowed(*rules: str, reason: object = "the tool exists to show them") -> dict[str, object]:
    return {"hygiene": {"allow": [{"rule": rule, "reason": reason} for rule in rules]}}


def test_rules_of_hygiene_are_silenced_for_a_tool_or_for_the_file():
    tools = {"t": {"tiers": {}}, "own": {"tiers": {}, **allowed("jwt")}, "none": {"tiers": {}, "hygiene": {}}}
    policy = load({"tools": tools, "prompts": {"p": {}}, **allowed("bidi", "dsn")})
    whole = dict.fromkeys(("bidi", "dsn"), "the tool exists to show them")
    assert policy.hygiene == policy.tools["t"].hygiene == whole
    assert policy.tools["own"].hygiene == {"jwt": "the tool exists to show them"}
    assert policy.tools["none"].hygiene == {}
    assert policy.prompts is not None
    assert policy.prompts[0].hygiene == whole
    assert load({"tools": tools}).hygiene == load({"tools": tools}).tools["t"].hygiene == {}


def test_a_silenced_rule_is_known_and_says_why():
    tool = {"tiers": {}, **allowed("jwt", "jwt")}
    assert faults({"tools": {"t": tool}}) == ['tools.t.hygiene.allow[1].rule: stands twice, got "jwt"']
    for reason, got in (("", '""'), ("  ", '"  "'), (None, "null"), (5, "5")):
        assert faults(allowed("jwt", reason=reason)) == [f"hygiene.allow[0].reason: must say why, got {got}"]
    (unknown,) = faults(allowed("jvt"))
    assert unknown.startswith("hygiene.allow[0].rule: must be one of tag, bidi, ")
    assert unknown.endswith(', got "jvt"')
    (missing,) = faults({"hygiene": {"allow": [{"reason": "why"}]}})
    assert missing.endswith(', got ""')


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (False, "hygiene: must be a mapping, got false"),
        ({"allow": []}, "hygiene.allow: must not be empty"),
        ({"allow": "jwt"}, 'hygiene.allow: must be a list, got "jwt"'),
        ({"allow": ["jwt"]}, 'hygiene.allow[0]: must be a mapping, got "jwt"'),
        ({"off": True}, "hygiene.off: unknown key (known here: allow)"),
    ],
)
def test_hygiene_is_a_mapping_with_a_list(value: object, problem: str):
    assert faults({"hygiene": value}) == [problem]


# Whole files


@pytest.mark.parametrize("name", EXPECT)
def test_a_policy_file_loads_or_reports_all_that_is_expected(name: str):
    expected = EXPECT[name]
    path = VECTORS / name
    try:
        policy = build(yamlfile.load(name, path.read_bytes()), name, None)
    except ConfigError as error:
        found = [str(fault) for fault in error.faults]
        assert len(found) == len(expected["faults"]), found
        for fault, start in zip(found, expected["faults"], strict=True):
            assert fault.startswith(start)
    else:
        assert len(policy.tools) == expected["tools"]


def test_every_policy_file_has_an_expectation():
    assert {path.name for path in VECTORS.glob("*.yaml")} == set(EXPECT)
