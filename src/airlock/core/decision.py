"""What the policy says about an action: a value, never an exception.

`Need` is not a verdict: it names a fact that `decide` lacks. Every other decision names its rule.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from airlock.core.rules import Rule

__all__ = ["Allow", "Confirm", "Decision", "Deny", "Fact", "Need", "Tier", "Verdict"]


class Verdict(StrEnum):
    """The word a decision has in the audit and in `_meta`."""

    ALLOW = "allow"
    DENY = "deny"
    CONFIRM = "confirm"
    ERROR = "error"


class Tier(StrEnum):
    """How much a tool may do by itself: read, suggest, confirm, auto."""

    L0 = "L0"
    L1 = "L1"
    L2 = "L2"
    L3 = "L3"


class Fact(StrEnum):
    """Something `decide` may need from outside before it can judge."""

    SCHEMA = "schema"  # does the tool declare `dry_run`?
    USAGE = "usage"  # objects the caller already used in the tool's window


class Allow(msgspec.Struct, frozen=True):
    """The action may run. `dry_run` is the value to force (None: leave the argument alone).

    `charge` is the number of objects to reserve before it runs (None: it is not counted).
    """

    rule: Rule
    tier: Tier
    dry_run: bool | None = None
    charge: int | None = None


class Deny(msgspec.Struct, frozen=True):
    """The action may not run. `reason` names arguments and limits, never argument values."""

    rule: Rule
    reason: str
    tier: Tier | None = None


class Confirm(msgspec.Struct, frozen=True):
    """A person must say yes first. `preview`: the tool declares `dry_run`, so a dry run can show the effect."""

    rule: Rule
    tier: Tier
    preview: bool


class Need(msgspec.Struct, frozen=True):
    """`decide` cannot judge without this fact; the flow obtains it and asks again."""

    fact: Fact


Decision = Allow | Deny | Confirm | Need
