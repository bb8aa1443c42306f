"""Finding a tier: own entry, then groups in their order, then the environment."""

from __future__ import annotations

import msgspec
import pytest

from airlock.core.decision import Tier
from airlock.core.policy.model import Equals, FullMatch, NoneOf, OneOf, Policy, ToolPolicy
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
