"""What is doubtful in a policy that loads, without asking any server.

Knows the policy alone; does not know catalogs, pins or how findings are printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

import msgspec

from airlock.core.decision import Tier
from airlock.core.policy.access import Access
from airlock.core.policy.model import AccessRule, Policy, ToolPolicy
from airlock.core.text.safe import one_line

__all__ = ["Finding", "Level", "lint"]


class Level(StrEnum):
    """How bad a finding is. Only an error makes `lint` fail."""

    ERROR = "ERROR"
    WARN = "WARN"
    INFO = "INFO"


class Finding(msgspec.Struct, frozen=True):
    """One doubtful thing. `message` is one safe line."""

    level: Level
    code: str
    message: str


def lint(policy: Policy, environments: Sequence[str]) -> list[Finding]:
    """Return what is doubtful in `policy`: tool by tool in the order of the file, other sections, environments.

    `environments` are those that must be covered besides the policy's own. SPEC: gateway.md 16.
    """
    covered = {environment for tool in policy.tools.values() for environment in _environments(tool)}
    findings = [
        Finding(level, code, str(one_line(message)))
        for name, tool in policy.tools.items()
        for level, code, message in _tool(name, tool, covered | {policy.environment})
    ]
    known = covered | {policy.environment, *environments}
    findings += [
        Finding(Level.WARN, code, str(one_line(message))) for code, message in _sections(policy, known)
    ]
    for environment in dict.fromkeys([policy.environment, *environments]):
        if environment not in covered:
            message = f"no tool has a tier in environment {environment}"
            findings.append(Finding(Level.WARN, "env_unused", str(one_line(message))))
    return findings


def _tool(name: str, tool: ToolPolicy, known: set[str]) -> Iterator[tuple[Level, str, str]]:
    tiers = set(tool.tiers.values()).union(*(override.values() for override in tool.principals.values()))
    if not tiers:
        yield Level.ERROR, "no_tiers", f"{name} has no tier in any environment, every call is refused"
    if tiers - {Tier.L0} and not tool.description.strip():
        yield Level.WARN, "no_description", f"{name} can write and has no description for approvers"
    if tool.count_arg is not None and not tool.own_radius:
        yield (
            Level.WARN,
            "blast_radius_default",
            f"{name} counts {tool.count_arg} against the top-level blast_radius",
        )
    for index, rule in enumerate(tool.where):
        for environment in sorted((rule.env or frozenset()) - known):
            yield (
                Level.WARN,
                "where_env_unknown",
                f"{name} where[{index}] names environment {environment}, which no tier mentions",
            )


def _environments(tool: ToolPolicy) -> Iterator[str]:
    """Yield every environment in which some caller has a tier for `tool`."""
    yield from tool.tiers
    for override in tool.principals.values():
        yield from override


def _sections(policy: Policy, known: set[str]) -> Iterator[tuple[str, str]]:
    """Yield what is doubtful about resources, prompts and the sections of one entry: code and message."""
    entries: list[tuple[str, Access | None]] = []
    for section, rules in (("resources", policy.resources), ("prompts", policy.prompts)):
        entries += [(f"{section} {rule.pattern.text}", rule.access) for rule in rules or ()]
    entries += [
        (section, getattr(policy, section)) for section in ("completion", "sampling", "roots", "elicitation")
    ]
    for place, access in entries:
        for environment in sorted((access.environments if access else None) or frozenset()):
            if environment not in known:
                yield "access_env_unknown", f"{place} names environment {environment}, which no tier mentions"
    for section, rules in (("resources", policy.resources), ("prompts", policy.prompts)):
        for later, first in _shadowed(rules or ()):
            message = f"{section} {later} is never reached, {first} before it admits everyone to all of it"
            yield "access_unreachable", message


def _shadowed(rules: Sequence[AccessRule]) -> Iterator[tuple[str, str]]:
    """Yield each pattern that comes to nothing, with the earlier one that takes everything it could match.

    LIMIT: only an earlier pattern that ends in its one wildcard and admits everyone is seen to do that.
    """
    taking: list[AccessRule] = []
    for rule in rules:
        first = next((one for one in taking if rule.pattern.prefix.startswith(one.pattern.prefix)), None)
        if first is not None:
            yield rule.pattern.text, first.pattern.text
        if rule.access.everyone and rule.pattern.takes_all:
            taking.append(rule)
