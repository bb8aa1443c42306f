"""The one judgement of the gateway: what the policy says about an action, given what is known so far.

Knows the order of the checks; does not know clocks, stores, catalogs or how a fact is obtained.

SPEC: gateway.md 6, steps 3 to 5: allowlist, `where`, tier, objects per call, then the tier, then objects per
principal. The first four cost no trip, so nothing that is down can mask them. Pure and total: no arguments,
however odd, make it raise. What must be atomic (burning a yes, charging the window) is never a fact here.
"""

from __future__ import annotations

import msgspec

from airlock.core.action import Action
from airlock.core.decision import Allow, Confirm, Decision, Deny, Fact, Need, Tier
from airlock.core.policy.model import Policy, Radius, ToolPolicy
from airlock.core.policy.radius import count
from airlock.core.policy.where import violation
from airlock.core.principal import Principal
from airlock.core.rules import Rule

__all__ = ["Facts", "decide", "over_window"]


class Facts(msgspec.Struct, frozen=True):
    """What is known from outside. None: not asked yet.

    `dry_run_declared`: the tool's schema declares `dry_run`. `used`: objects the principal used up in the
    tool's window. `confirmed`: a person said yes to exactly this action, and that yes is still to be burned.
    """

    dry_run_declared: bool | None = None
    used: int | None = None
    confirmed: bool = False


_DRY_RUN = "dry_run"
_READ = Allow(Rule.L0_READ, Tier.L0)
_NOT_LISTED = Deny(Rule.ALLOWLIST_DENY, "the policy does not list this tool")


def decide(action: Action, principal: Principal, policy: Policy, facts: Facts) -> Decision:
    """Judge `action` by `principal` under `policy`. `Need` names a fact to obtain; then ask again with it.

    An Allow carries in `charge` the objects of what really executes: None for reads and dry runs.
    """
    assert action.environment == policy.environment
    tool = policy.tools.get(action.name)
    if tool is None:
        return _NOT_LISTED
    arguments = action.arguments
    if tool.where:
        reason = violation(tool, arguments, policy.environment)
        if reason is not None:
            return Deny(Rule.ARGS_VIOLATION, reason)
    tier = tool.tier(principal, policy.environment)
    if tier is None:
        return Deny(Rule.TIER_UNASSIGNED, f"no tier for this caller in environment {policy.environment!r}")
    objects = count(tool, arguments)
    if objects is None:
        return Deny(
            Rule.RADIUS_PER_CALL, f"the objects in argument {tool.count_arg!r} cannot be counted", tier
        )
    if objects > tool.radius.max_per_call:
        return Deny(Rule.RADIUS_PER_CALL, f"{objects} objects, limit {tool.radius.max_per_call}", tier)
    if tier is Tier.L0:
        return _READ
    return _gated(tier, tool, objects, arguments, facts)


def _gated(
    tier: Tier, tool: ToolPolicy, objects: int, arguments: dict[str, object], facts: Facts
) -> Decision:
    """Judge by tier. A dry run is neither checked against the principal's window nor charged."""
    declared = facts.dry_run_declared
    if declared is None and (tier is not Tier.L3 or _DRY_RUN in arguments):
        return Need(Fact.SCHEMA)
    asked = arguments.get(_DRY_RUN) is True
    # SECURITY: what a person approves leaves `dry_run` out. Where the tool does not declare it, it would reach the
    # upstream as it is, and nobody has seen it; only a plain `false` says nothing.
    if tier is Tier.L2 and not declared and arguments.get(_DRY_RUN, False) is not False:
        return Deny(Rule.DRY_RUN_UNSUPPORTED, "the tool does not declare dry_run", tier)
    if tier is Tier.L1 or (tier is Tier.L2 and asked):
        if not declared:
            return Deny(Rule.DRY_RUN_UNSUPPORTED, "the tool does not declare dry_run", tier)
        return Allow(Rule.L1_DRY_RUN if tier is Tier.L1 else Rule.L2_DRY_RUN, tier, dry_run=True)
    if tier is Tier.L3 and asked and declared:
        return Allow(Rule.L3_AUTO, tier, dry_run=True)

    # Without a yes to protect, L3 does not ask what was used: the atomic charge right after answers the same.
    if facts.used is None:
        if tier is Tier.L2 or facts.confirmed:
            return Need(Fact.USAGE)
    elif facts.used + objects > tool.radius.max_per_principal:
        return over_window(objects, facts.used, tool.radius, tier)
    if tier is Tier.L3:
        return Allow(Rule.L3_AUTO, tier, charge=objects)
    if facts.confirmed:
        return Allow(Rule.L2_CONFIRMED, tier, dry_run=False if declared else None, charge=objects)
    return Confirm(Rule.L2_CONFIRM, tier, preview=declared is True)


def over_window(objects: int, used: int, radius: Radius, tier: Tier) -> Deny:
    """The refusal of a call that does not fit the principal's window any more."""
    reason = f"{used} used + {objects} asked, limit {radius.max_per_principal} per {radius.window_s} s"
    return Deny(Rule.RADIUS_PER_PRINCIPAL, reason, tier)
