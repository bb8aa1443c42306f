"""Finding a tier: own entry, then groups in their order, then the environment."""

from __future__ import annotations

import msgspec
import pytest

from airlock.core.decision import Tier
from airlock.core.policy.access import Access, Glob
from airlock.core.policy.model import (
    AccessRule,
    Equals,
    FullMatch,
    NoneOf,
    OneOf,
    OutputLimits,
    Policy,
    ToolPolicy,
)
from airlock.core.principal import Principal


def policy(**tool) -> Policy:
    return Policy(environment="prod", tools={"t": ToolPolicy(**tool)})


def test_an_unlisted_tool_has_no_tier():
    assert policy(tiers={"prod": Tier.L0}).tier("other", Principal("alice")) is None
    assert policy(tiers={"prod": Tier.L0}).tool("other") is None


def test_a_listed_tool_is_found_by_its_exact_name():
    rules = policy(tiers={})
    assert rules.tool("t") is rules.tools["t"]
    assert rules.tool("T") is None


def test_without_overrides_the_environment_decides():
    assert policy(tiers={"prod": Tier.L2, "dev": Tier.L0}).tier("t", Principal("alice")) is Tier.L2
    assert policy(tiers={"dev": Tier.L0}).tier("t", Principal("alice")) is None


def test_an_own_entry_beats_groups_and_environment():
    rules = policy(
        tiers={"prod": Tier.L1}, principals={"alice": {"prod": Tier.L3}, "group:ops": {"prod": Tier.L2}}
    )
    assert rules.tier("t", Principal("alice", ("ops",))) is Tier.L3
    assert rules.tier("t", Principal("bob", ("ops",))) is Tier.L2
    assert rules.tier("t", Principal("bob")) is Tier.L1


def test_the_first_group_that_has_the_environment_wins():
    rules = policy(
        tiers={"prod": Tier.L1},
        principals={"group:a": {"dev": Tier.L0}, "group:b": {"prod": Tier.L2}, "group:c": {"prod": Tier.L3}},
    )
    assert rules.tier("t", Principal("bob", ("a", "b", "c"))) is Tier.L2
    assert rules.tier("t", Principal("bob", ("c", "b"))) is Tier.L3


def test_an_own_entry_without_the_environment_does_not_end_the_search():
    rules = policy(
        tiers={"prod": Tier.L1}, principals={"bob": {"dev": Tier.L0}, "group:b": {"prod": Tier.L2}}
    )
    assert rules.tier("t", Principal("bob", ("b",))) is Tier.L2
    assert rules.tier("t", Principal("bob")) is Tier.L1


def test_names_and_groups_are_case_sensitive():
    rules = policy(tiers={}, principals={"bob": {"prod": Tier.L0}, "group:b": {"prod": Tier.L0}})
    assert rules.tier("t", Principal("Bob", ("B",))) is None


@pytest.mark.case("T02")
def test_a_principal_named_like_a_group_key_does_not_get_the_groups_tier():
    rules = policy(tiers={}, principals={"group:x": {"prod": Tier.L3}})
    assert rules.tier("t", Principal("group:x")) is None
    assert rules.tier("t", Principal("group:x", ("x",))) is Tier.L3


def test_policies_are_frozen():
    with pytest.raises(AttributeError):
        policy(tiers={}).environment = "dev"  # type: ignore[misc]
    assert issubclass(Policy, msgspec.Struct)


def test_each_matcher_is_called_as_in_the_file():
    assert [kind.kind for kind in (Equals, OneOf, NoneOf, FullMatch)] == ["equals", "in", "not_in", "regex"]


def rule(pattern: str, *, paths: bool = True, **more) -> AccessRule:
    return AccessRule(pattern=Glob.of(pattern, paths=paths), **more)


def with_rules(*resources: AccessRule, prompts: tuple[AccessRule, ...] = ()) -> Policy:
    return Policy(environment="prod", tools={}, resources=resources, prompts=prompts)


def test_without_a_section_nobody_has_a_resource_a_prompt_or_anything_else():
    rules = Policy(environment="prod", tools={})
    alice = Principal("alice")
    assert rules.resource("file:///a", alice) is None
    assert rules.prompt("p", alice) is None
    assert not rules.template("file:///{x}", alice)
    assert not rules.grants(rules.completion, alice)


def test_the_first_matching_pattern_that_admits_the_caller_wins():
    mine = rule("file:///a/*", access=Access(principals=frozenset({"alice"})), output=OutputLimits(1))
    elsewhere = rule("file:///a/**", access=Access(environments=frozenset({"dev"})))
    ours = rule("file:///**", output=OutputLimits(2))
    rules = with_rules(mine, elsewhere, ours)
    assert rules.resource("file:///a/x", Principal("alice")) is mine
    assert rules.resource("file:///a/x", Principal("bob")) is ours
    assert rules.resource("file:///a/b/c", Principal("alice")) is ours
    assert rules.resource("db://a", Principal("alice")) is None


def test_a_resource_is_matched_in_canonical_form_and_refused_in_another():
    rules = with_rules(rule("file:///docs/**"))
    assert rules.resource("FILE:///docs/a", Principal("alice")) is not None
    for uri in ("file:///docs/../etc/passwd", "file:///docs/%2e%2e/etc", "file:///docs/..%2Fetc", "docs/a"):
        assert rules.resource(uri, Principal("alice")) is None


def test_a_prompt_is_found_by_its_name():
    mine = rule("review_*", paths=False, access=Access(principals=frozenset({"group:dev"})))
    rules = with_rules(prompts=(mine,))
    assert rules.prompt("review_code", Principal("bob", ("dev",))) is mine
    assert rules.prompt("review_code", Principal("bob")) is None
    assert rules.prompt("other", Principal("bob", ("dev",))) is None


def test_a_template_is_known_to_whoever_may_have_something_that_begins_like_it():
    rules = with_rules(rule("db://tables/*", access=Access(principals=frozenset({"alice"}))))
    for template in ("db://tables/{name}", "db://{kind}/x", "{uri}", "db://tables/users"):
        assert rules.template(template, Principal("alice"))
        assert not rules.template(template, Principal("bob"))
    for template in ("file:///{x}", "db://tables/a/{x}", "db://tables/../{x}", "db://tables/a/b"):
        assert not rules.template(template, Principal("alice"))


def test_a_section_grants_where_it_stands_and_admits():
    rules = Policy(
        environment="prod", tools={}, sampling=Access(environments=frozenset({"dev"})), roots=Access()
    )
    assert rules.grants(rules.roots, Principal("alice"))
    assert not rules.grants(rules.sampling, Principal("alice"))
