"""What lint finds in a policy that loads (gateway.md 16)."""

from __future__ import annotations

from collections.abc import Mapping

from airlock.core.policy.lint import Finding, Level, lint
from airlock.core.policy.load import build


def codes(tools: Mapping[str, object], *environments: str) -> list[tuple[str, str]]:
    policy = build({"environment": "prod", "tools": tools}, "policy.yaml", None)
    return [(finding.level.value, finding.code) for finding in lint(policy, environments)]


def test_a_clean_policy_has_no_findings():
    tools = {
        "read": {"tiers": {"prod": "L0"}},
        "drop": {
            "tiers": {"dev": "L0", "prod": "L2"},
            "description": "drop it",
            "count_arg": "names",
            "blast_radius": {},
            "where": [{"arg": "a", "equals": 1, "env": ["dev", "prod"]}],
        },
    }
    assert codes(tools, "prod", "dev") == []


def test_a_tool_without_any_tier_is_an_error():
    assert codes({"a": {"tiers": {}}, "b": {"tiers": {"prod": "L0"}}}) == [("ERROR", "no_tiers")]
    assert codes({"a": {"tiers": {}, "principals": {"bob": {}}}}, "prod")[0] == ("ERROR", "no_tiers")


def test_a_tier_for_one_principal_is_a_tier():
    assert codes({"a": {"tiers": {}, "principals": {"bob": {"prod": "L0"}}}}) == []


def test_a_write_tool_needs_a_description():
    for tier in ("L1", "L2", "L3"):
        assert codes({"a": {"tiers": {"prod": tier}}}) == [("WARN", "no_description")]
        assert codes({"a": {"tiers": {"prod": tier}, "description": " \n"}}) == [("WARN", "no_description")]
    by_override = {"a": {"tiers": {"prod": "L0"}, "principals": {"group:x": {"dev": "L3"}}}}
    assert codes(by_override) == [("WARN", "no_description")]
    assert codes({"a": {"tiers": {"prod": "L0"}}}) == []


def test_a_counted_argument_should_have_its_own_blast_radius():
    tool = {"tiers": {"prod": "L0"}, "count_arg": "names"}
    assert codes({"a": tool}) == [("WARN", "blast_radius_default")]
    assert codes({"a": {**tool, "blast_radius": {"max_per_call": 2}}}) == []


def test_a_rule_for_an_environment_that_no_tier_mentions_is_reported():
    rule = {"arg": "a", "equals": 1, "env": ["tset", "dev", "stage", "prod"]}
    tools = {
        "a": {"tiers": {"dev": "L0"}, "where": [rule]},
        "b": {"tiers": {"prod": "L0"}, "principals": {"bob": {"stage": "L0"}}},
    }
    assert codes(tools) == [("WARN", "where_env_unknown")]


def test_the_running_environment_is_known_even_when_no_tier_mentions_it():
    rule = {"arg": "a", "equals": 1, "env": ["prod"]}
    assert codes({"a": {"tiers": {"dev": "L0"}, "where": [rule]}}) == [("WARN", "env_unused")]


def test_an_environment_that_no_tool_covers_is_reported_once():
    assert codes({"a": {"tiers": {"dev": "L0"}}}, "stage", "prod", "stage", "dev") == [
        ("WARN", "env_unused"),
        ("WARN", "env_unused"),
    ]


def test_findings_come_in_the_order_of_the_file():
    tools = {
        "z": {
            "tiers": {"prod": "L1"},
            "count_arg": "n",
            "where": [{"arg": "a", "equals": 1, "env": ["y", "x"]}],
        },
        "a": {"tiers": {}},
    }
    policy = build({"environment": "prod", "tools": tools}, "policy.yaml", None)
    assert [(finding.code, finding.message.split()[0]) for finding in lint(policy, ["qa"])] == [
        ("no_description", "z"),
        ("blast_radius_default", "z"),
        ("where_env_unknown", "z"),
        ("where_env_unknown", "z"),
        ("no_tiers", "a"),
        ("env_unused", "no"),
    ]
    assert lint(policy, ["qa"]) == lint(policy, ["qa"])


def test_a_hostile_tool_name_stays_on_one_line():
    policy = build({"environment": "p", "tools": {"a\n\x1b[2J": {"tiers": {}}}}, "policy.yaml", None)
    first = lint(policy, [])[0]
    assert first == Finding(Level.ERROR, "no_tiers", first.message)
    assert first.message.isprintable()


def of_sections(*environments: str, **sections: object) -> list[tuple[str, str]]:
    document = {"environment": "prod", "tools": {"t": {"tiers": {"prod": "L0", "dev": "L0"}}}, **sections}
    found = lint(build(document, "policy.yaml", None), environments)
    assert {finding.level for finding in found} <= {Level.WARN}
    return [(finding.code, finding.message) for finding in found]


def test_sections_that_say_what_they_mean_have_no_findings():
    assert (
        of_sections(
            resources={"x://a/b": {}, "x://a/**": {"environments": ["dev"]}, "x://**": {}, "y://*": {}},
            prompts={"a*": {"principals": ["alice"]}, "ab*": {}, "*": {}},
            completion={},
            elicitation={"environments": ["prod"]},
        )
        == []
    )


def test_an_environment_of_a_section_that_no_tier_mentions_is_reported():
    codes = of_sections(
        resources={"x://a": {"environments": ["tset", "prod"]}},
        prompts={"p": {"environments": ["qa"]}},
        sampling={"environments": ["prdo"]},
    )
    assert codes == [
        ("access_env_unknown", "resources x://a names environment tset, which no tier mentions"),
        ("access_env_unknown", "prompts p names environment qa, which no tier mentions"),
        ("access_env_unknown", "sampling names environment prdo, which no tier mentions"),
    ]
    assert "access_env_unknown" not in dict(of_sections("qa", prompts={"p": {"environments": ["qa"]}}))


def test_a_pattern_behind_one_that_takes_it_all_is_reported():
    codes = of_sections(
        resources={"x://a/**": {}, "x://a/b": {}, "x://**": {}, "y://a": {}}, prompts={"*": {}, "a": {}}
    )
    assert codes == [
        (
            "access_unreachable",
            "resources x://a/b is never reached, x://a/** before it admits everyone to all of it",
        ),
        ("access_unreachable", "prompts a is never reached, * before it admits everyone to all of it"),
    ]
