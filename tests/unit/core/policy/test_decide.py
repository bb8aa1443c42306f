"""The judgement: its order, each tier, and what is charged (gateway.md 6, steps 3 to 5)."""

from __future__ import annotations

import pytest

from airlock.core.action import Action
from airlock.core.decision import Allow, Confirm, Decision, Deny, Fact, Need, Tier
from airlock.core.policy.decide import Facts, decide
from airlock.core.policy.model import Equals, Policy, Radius, ToolPolicy, WhereRule
from airlock.core.principal import Principal
from airlock.core.rules import Rule

ALICE = Principal("alice")
RADIUS = Radius(max_per_call=5, max_per_principal=4, window_s=600)
NAMES: dict[str, object] = {"names": ["a", "b"]}


def judge(
    tier: Tier | None, arguments: dict[str, object] | None = None, facts: Facts | None = None, **tool
) -> Decision:
    tool = {"radius": RADIUS, "count_arg": "names", **tool}
    rules = ToolPolicy(tiers={} if tier is None else {"prod": tier}, **tool)
    policy = Policy(environment="prod", tools={"t": rules})
    return decide(Action("t", arguments or {}, "prod", "up"), ALICE, policy, facts or Facts())


# The free checks and their order


def test_a_tool_that_is_not_listed_is_refused():
    policy = Policy(environment="prod", tools={})
    decision = decide(Action("t", {}, "prod", "up"), ALICE, policy, Facts(True, 0, True))
    assert isinstance(decision, Deny)
    assert (decision.rule, decision.tier) == (Rule.ALLOWLIST_DENY, None)


@pytest.mark.case("T71")
@pytest.mark.parametrize("tier", [None, *Tier])
def test_arguments_are_judged_before_the_tier_and_before_any_fact(tier: Tier | None):
    decision = judge(
        tier, {"names": list(range(99)), "a": "secret-value"}, where=(WhereRule("a", Equals("x")),)
    )
    assert decision == Deny(Rule.ARGS_VIOLATION, "argument 'a' not allowed by equals")


def test_a_rule_that_holds_lets_the_judgement_go_on():
    assert judge(Tier.L0, {"a": "x"}, where=(WhereRule("a", Equals("x")),)) == Allow(Rule.L0_READ, Tier.L0)


def test_a_tool_without_a_tier_here_is_refused_before_its_objects_are_counted():
    decision = judge(None, {"names": list(range(99))})
    assert isinstance(decision, Deny)
    assert (decision.rule, decision.tier) == (Rule.TIER_UNASSIGNED, None)
    assert "'prod'" in decision.reason


@pytest.mark.parametrize("tier", list(Tier))
def test_too_many_objects_in_one_call_are_refused_at_every_tier_and_before_any_fact(tier: Tier):
    decision = judge(tier, {"names": list(range(6)), "dry_run": True})
    assert decision == Deny(Rule.RADIUS_PER_CALL, "6 objects, limit 5", tier)
    assert not isinstance(judge(tier, {"names": list(range(5))}), Deny)


@pytest.mark.case("T53")
@pytest.mark.parametrize("tier", list(Tier))
def test_objects_that_cannot_be_counted_are_refused(tier: Tier):
    decision = judge(tier, {"names": "[" * 100_000})
    assert decision == Deny(Rule.RADIUS_PER_CALL, "the objects in argument 'names' cannot be counted", tier)


def test_a_limit_of_zero_refuses_even_a_read():
    decision = judge(Tier.L0, radius=Radius(max_per_call=0))
    assert isinstance(decision, Deny)


def test_an_action_for_another_environment_is_a_bug():
    policy = Policy(environment="prod", tools={})
    with pytest.raises(AssertionError):
        decide(Action("t", {}, "dev", "up"), ALICE, policy, Facts())


# L0


@pytest.mark.parametrize("facts", [Facts(), Facts(False, 10**9, True)])
def test_a_read_needs_nothing_and_is_not_charged(facts: Facts):
    assert judge(Tier.L0, {"dry_run": True}, facts) == Allow(Rule.L0_READ, Tier.L0)


# L1


def test_a_suggestion_needs_the_schema():
    assert judge(Tier.L1) == Need(Fact.SCHEMA)


@pytest.mark.parametrize("sent", [{}, {"dry_run": False}, {"dry_run": True}, {"dry_run": "no"}])
def test_a_suggestion_is_always_a_dry_run_and_never_charged(sent: dict[str, object]):
    expected = Allow(Rule.L1_DRY_RUN, Tier.L1, dry_run=True)
    assert judge(Tier.L1, sent, Facts(True)) == expected
    assert judge(Tier.L1, sent, Facts(True, 10**9, True)) == expected


def test_a_suggestion_without_a_declared_dry_run_is_refused():
    decision = judge(Tier.L1, {}, Facts(False, 0, True))
    assert isinstance(decision, Deny)
    assert (decision.rule, decision.tier) == (Rule.DRY_RUN_UNSUPPORTED, Tier.L1)


# L2


def test_a_confirmation_needs_the_schema_and_then_the_usage():
    assert judge(Tier.L2) == Need(Fact.SCHEMA)
    assert judge(Tier.L2, facts=Facts(used=0)) == Need(Fact.SCHEMA)
    assert judge(Tier.L2, facts=Facts(True)) == Need(Fact.USAGE)
    assert judge(Tier.L2, facts=Facts(False, confirmed=True)) == Need(Fact.USAGE)


@pytest.mark.parametrize("declared", [True, False])
def test_a_call_that_nobody_confirmed_asks_with_a_preview_only_where_one_is_declared(declared: bool):
    decision = judge(Tier.L2, NAMES, Facts(declared, 2))
    assert decision == Confirm(Rule.L2_CONFIRM, Tier.L2, preview=declared)


def test_a_confirmed_call_executes_for_real_and_is_charged():
    assert judge(Tier.L2, NAMES, Facts(True, 2, True)) == Allow(
        Rule.L2_CONFIRMED, Tier.L2, dry_run=False, charge=2
    )
    assert judge(Tier.L2, NAMES, Facts(False, 2, True)) == Allow(
        Rule.L2_CONFIRMED, Tier.L2, dry_run=None, charge=2
    )


@pytest.mark.parametrize("confirmed", [True, False])
def test_nobody_is_asked_to_approve_what_the_window_will_refuse(confirmed: bool):
    decision = judge(Tier.L2, NAMES, Facts(True, 3, confirmed))
    assert decision == Deny(Rule.RADIUS_PER_PRINCIPAL, "3 used + 2 asked, limit 4 per 600 s", Tier.L2)


@pytest.mark.case("T10")
@pytest.mark.parametrize("confirmed", [True, False])
def test_a_dry_run_that_the_client_asks_for_itself_leaves_the_confirmation_alone(confirmed: bool):
    decision = judge(Tier.L2, {"dry_run": True}, Facts(True, 10**9, confirmed))
    assert decision == Allow(Rule.L2_DRY_RUN, Tier.L2, dry_run=True)


@pytest.mark.case("T10")
def test_a_dry_run_that_the_client_asks_for_needs_a_declared_one():
    decision = judge(Tier.L2, {"dry_run": True}, Facts(False, 0, True))
    assert isinstance(decision, Deny)
    assert (decision.rule, decision.tier) == (Rule.DRY_RUN_UNSUPPORTED, Tier.L2)


@pytest.mark.parametrize("sent", [False, "true", 1, None, [True]])
def test_only_json_true_asks_for_a_dry_run(sent: object):
    assert judge(Tier.L2, {"dry_run": sent}, Facts(True, 0)) == Confirm(
        Rule.L2_CONFIRM, Tier.L2, preview=True
    )


# L3


def test_an_automatic_call_asks_nothing_and_is_charged():
    assert judge(Tier.L3, NAMES) == Allow(Rule.L3_AUTO, Tier.L3, charge=2)


def test_an_automatic_call_beyond_a_known_window_is_refused():
    assert judge(Tier.L3, NAMES, Facts(used=2)) == Allow(Rule.L3_AUTO, Tier.L3, charge=2)
    assert judge(Tier.L3, NAMES, Facts(used=3)) == Deny(
        Rule.RADIUS_PER_PRINCIPAL, "3 used + 2 asked, limit 4 per 600 s", Tier.L3
    )


def test_an_empty_list_is_charged_as_nothing():
    assert judge(Tier.L3, {"names": []}) == Allow(Rule.L3_AUTO, Tier.L3, charge=0)


def test_an_automatic_call_needs_the_schema_only_when_it_names_dry_run():
    for sent in (True, False, "x", None):
        assert judge(Tier.L3, {"dry_run": sent}) == Need(Fact.SCHEMA)


def test_an_automatic_call_is_a_dry_run_where_the_client_says_so_and_the_tool_declares_it():
    assert judge(Tier.L3, {"dry_run": True}, Facts(True, 10**9)) == Allow(Rule.L3_AUTO, Tier.L3, dry_run=True)


@pytest.mark.case("T56")
def test_a_dry_run_on_a_tool_that_does_not_declare_it_is_a_real_execution_and_is_charged():
    sent = {"dry_run": True, **NAMES}
    assert judge(Tier.L3, sent, Facts(False)) == Allow(Rule.L3_AUTO, Tier.L3, charge=2)
    assert isinstance(judge(Tier.L3, sent, Facts(False, 3)), Deny)


def test_a_dry_run_that_is_not_json_true_is_a_real_execution():
    assert judge(Tier.L3, {"dry_run": "true"}, Facts(True)) == Allow(Rule.L3_AUTO, Tier.L3, charge=1)
    assert judge(Tier.L3, {"dry_run": False}, Facts(True)) == Allow(Rule.L3_AUTO, Tier.L3, charge=1)


# A tier that changed since the prompt


def test_a_confirmed_call_that_is_automatic_by_now_asks_the_usage_before_the_yes_is_burned():
    assert judge(Tier.L3, NAMES, Facts(confirmed=True)) == Need(Fact.USAGE)
    assert judge(Tier.L3, NAMES, Facts(None, 2, True)) == Allow(Rule.L3_AUTO, Tier.L3, charge=2)
    assert isinstance(judge(Tier.L3, NAMES, Facts(None, 3, True)), Deny)


def test_a_confirmed_call_that_is_a_suggestion_by_now_is_a_dry_run():
    assert judge(Tier.L1, NAMES, Facts(True, 0, True)) == Allow(Rule.L1_DRY_RUN, Tier.L1, dry_run=True)
