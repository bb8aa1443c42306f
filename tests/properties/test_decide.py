"""What holds for the judgement whatever is asked, by whom and under which policy."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.action import Action
from airlock.core.decision import Allow, Confirm, Decision, Deny, Fact, Need, Tier
from airlock.core.policy.decide import Facts, decide
from airlock.core.policy.model import Equals, NoneOf, OneOf, Policy, Radius, ToolPolicy, WhereRule
from airlock.core.principal import Principal
from airlock.core.rules import Rule

ENVIRONMENTS = ("dev", "prod")
TOOLS = ("t", "u")
NAMES = ("alice", "bob", "group:ops", "ops")
ARGUMENTS = ("a", "names", "dry_run")

text = st.text(st.characters(exclude_categories=[]), max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
hostile = st.sampled_from(
    ["null", "[1,2]", '{"a": 1}', "[" * 5000, "[" + "9" * 5000 + "]", "[oops", "\ud800"]
)
values = st.recursive(
    scalars | hostile,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(ARGUMENTS) | text, values, max_size=4)
tiers = st.dictionaries(st.sampled_from(ENVIRONMENTS), st.sampled_from(list(Tier)), max_size=2)
listed = st.lists(scalars, min_size=1, max_size=3).map(tuple)
rules = st.builds(
    WhereRule,
    st.sampled_from(ARGUMENTS),
    st.builds(Equals, scalars) | st.builds(OneOf, listed) | st.builds(NoneOf, listed),
    st.none() | st.frozensets(st.sampled_from(ENVIRONMENTS), min_size=1),
    st.booleans(),
)
tools = st.builds(
    ToolPolicy,
    tiers=tiers,
    principals=st.dictionaries(st.sampled_from([*NAMES, "group:dev"]), tiers, max_size=3),
    count_arg=st.none() | st.sampled_from(ARGUMENTS),
    radius=st.builds(Radius, st.integers(0, 5), st.integers(0, 5), st.just(60)),
    where=st.just(()) | st.lists(rules, max_size=2).map(tuple),
)
policies = st.builds(
    Policy,
    environment=st.sampled_from(ENVIRONMENTS),
    tools=st.dictionaries(st.sampled_from(TOOLS), tools, max_size=2),
)
principals = st.builds(
    Principal, st.sampled_from(NAMES), st.lists(st.sampled_from(["ops", "dev", "x"]), max_size=3).map(tuple)
)
facts = st.builds(Facts, st.none() | st.booleans(), st.none() | st.integers(0, 8), st.booleans())

moderate = settings(max_examples=100, deadline=None)


def ask(policy: Policy, who: Principal, name: str, sent: dict[str, object], known: Facts) -> Decision:
    return decide(Action(name, sent, policy.environment, "up"), who, policy, known)


@moderate
@given(policies, principals, st.sampled_from(TOOLS), arguments, facts)
def test_it_never_raises_never_changes_the_arguments_and_answers_alike(policy, who, name, sent, known):
    before = repr(sent)
    first = ask(policy, who, name, sent, known)
    assert isinstance(first, (Allow, Deny, Confirm, Need))
    assert ask(policy, who, name, sent, known) == first
    assert repr(sent) == before


@moderate
@given(policies, principals, arguments, facts)
def test_an_unknown_tool_is_refused(policy, who, sent, known):
    decision = ask(policy, who, "other", sent, known)
    assert isinstance(decision, Deny)
    assert decision.rule is Rule.ALLOWLIST_DENY


@moderate
@given(policies, principals, st.sampled_from(TOOLS), arguments, facts)
def test_without_a_tier_nothing_is_allowed(policy, who, name, sent, known):
    elsewhere = Policy(environment="stage", tools=policy.tools)
    assert isinstance(ask(elsewhere, who, name, sent, known), Deny)


@moderate
@given(policies, st.sampled_from(TOOLS), arguments, facts)
def test_a_principal_that_only_overrides_could_know_is_refused_when_they_do_not(policy, name, sent, known):
    bare = {
        key: ToolPolicy(tiers={}, principals=tool.principals, count_arg=tool.count_arg, where=tool.where)
        for key, tool in policy.tools.items()
    }
    closed = Policy(environment=policy.environment, tools=bare)
    for stranger in (Principal("mallory", ("strangers",)), Principal("group:ops"), Principal("group:dev")):
        assert isinstance(ask(closed, stranger, name, sent, known), Deny)


@moderate
@given(policies, principals, st.sampled_from(TOOLS), arguments, facts)
def test_a_fact_more_never_turns_a_refusal_into_anything_else(policy, who, name, sent, known):
    less = [
        Facts(None, known.used, known.confirmed),
        Facts(known.dry_run_declared, None, known.confirmed),
        Facts(known.dry_run_declared, known.used, confirmed=False),
        Facts(),
    ]
    for fewer in less:
        earlier = ask(policy, who, name, sent, fewer)
        if isinstance(earlier, Deny):
            assert ask(policy, who, name, sent, known) == earlier


@moderate
@given(policies, principals, st.sampled_from(TOOLS), arguments, facts)
def test_a_need_names_a_fact_that_was_missing_and_two_answers_are_enough(policy, who, name, sent, known):
    decision = ask(policy, who, name, sent, Facts(confirmed=known.confirmed))
    given_so_far = Facts(confirmed=known.confirmed)
    for _ in range(2):
        if not isinstance(decision, Need):
            return
        if decision.fact is Fact.SCHEMA:
            assert given_so_far.dry_run_declared is None
            given_so_far = Facts(bool(known.dry_run_declared), given_so_far.used, known.confirmed)
        else:
            assert given_so_far.used is None
            given_so_far = Facts(given_so_far.dry_run_declared, known.used or 0, known.confirmed)
        decision = ask(policy, who, name, sent, given_so_far)
    assert not isinstance(decision, Need)


ORDER = [
    Rule.ALLOWLIST_DENY,
    Rule.ARGS_VIOLATION,
    Rule.TIER_UNASSIGNED,
    Rule.RADIUS_PER_CALL,
    Rule.DRY_RUN_UNSUPPORTED,
    Rule.RADIUS_PER_PRINCIPAL,
]


@moderate
@given(policies, principals, st.sampled_from(TOOLS), arguments, facts)
def test_lifting_the_reason_of_a_refusal_never_uncovers_an_earlier_one(policy, who, name, sent, known):
    decision = ask(policy, who, name, sent, known)
    if not isinstance(decision, Deny) or decision.rule is Rule.ALLOWLIST_DENY:
        return
    tool = policy.tools[name]
    lifted = ToolPolicy(
        tiers={policy.environment: Tier.L0} if decision.rule is Rule.TIER_UNASSIGNED else tool.tiers,
        principals={} if decision.rule is Rule.TIER_UNASSIGNED else tool.principals,
        count_arg=None if decision.rule is Rule.RADIUS_PER_CALL else tool.count_arg,
        radius=Radius() if "RADIUS" in decision.rule.name else tool.radius,
        where=() if decision.rule is Rule.ARGS_VIOLATION else tool.where,
    )
    after = ask(Policy(environment=policy.environment, tools={name: lifted}), who, name, sent, known)
    if isinstance(after, Deny):
        assert ORDER.index(after.rule) >= ORDER.index(decision.rule)


@moderate
@given(policies, principals, st.sampled_from(TOOLS), arguments, facts)
def test_what_really_executes_is_charged_and_nothing_else_is(policy, who, name, sent, known):
    decision = ask(policy, who, name, sent, known)
    if isinstance(decision, Allow):
        real = decision.tier is not Tier.L0 and decision.dry_run is not True
        assert (decision.charge is not None) is real
        if decision.charge is not None:
            assert 0 <= decision.charge <= policy.tools[name].radius.max_per_call
        assert decision.tier is not Tier.L2 or known.confirmed or decision.dry_run is True
