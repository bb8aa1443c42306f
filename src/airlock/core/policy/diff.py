"""Where a policy and the tools that a server really lists disagree, and what either says against the pins.

Knows the policy, the listed tools and the pins; does not know servers, files or how findings are printed.
SPEC: gateway.md 16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from airlock.core.decision import Tier
from airlock.core.errors import ConfigError
from airlock.core.policy.lint import Finding, Level
from airlock.core.policy.model import Policy, ToolPolicy
from airlock.core.policy.pins import Pins, pin_of
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line

__all__ = ["Catalog", "Listed", "counted", "diff", "listed", "pin"]

_DRY_RUN = "dry_run"
_FORCED = (Tier.L1, Tier.L2)
_SHOWN_CHARS = 80
_MORE = "..."


class Listed(msgspec.Struct, frozen=True):
    """What matters of a tool that a server lists: the arguments its schema declares, and its pin."""

    arguments: frozenset[str]
    pin: str


Catalog = Mapping[str, Listed]
"""Everything a server lists, by name."""


def listed(tool: Mapping[str, object]) -> Listed:
    """Read one tool of a `tools/list` answer. A schema without properties declares no arguments."""
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return Listed(frozenset(properties) if isinstance(properties, dict) else frozenset(), pin_of(tool))


def diff(policy: Policy, catalog: Catalog, pins: Pins | ConfigError | None = None) -> list[Finding]:
    """Compare `policy` with what the server lists, and with the pins; None: without pins.

    Order: tool by tool as in the policy, tools that it does not mention, pins, pins that are of no use any
    more; when nothing is an error, a summary. A pins file that could not be used is one finding.
    """
    findings = [
        finding for name, tool in policy.tools.items() for finding in _tool(name, tool, policy, catalog)
    ]
    findings += [
        _finding(Level.WARN, "not_allowlisted", f"{_shown(name)} is on the server and not in the policy")
        for name in sorted(catalog.keys() - policy.tools.keys())
    ]
    if isinstance(pins, ConfigError):
        findings.append(_finding(Level.ERROR, "pins_file", str(pins)))
    elif pins is not None:
        findings += _pins(policy, catalog, pins)
    if not any(finding.level is Level.ERROR for finding in findings):
        compared = f", {len(pins.of)} pinned" if isinstance(pins, Pins) else ""
        summary = f"{counted(len(policy.tools))} in the policy, {len(catalog)} on the server{compared}"
        findings.append(_finding(Level.INFO, "ok", summary))
    return findings


def pin(policy: Policy, catalog: Catalog) -> tuple[Pins, list[Finding]]:
    """Return the pins of every tool of `policy` that the server lists, and a warning for each that it does not."""
    pins = Pins({name: catalog[name].pin for name in policy.tools if name in catalog})
    return pins, [_missing(name, Level.WARN) for name in policy.tools if name not in catalog]


def counted(number: int) -> str:
    """Say how many tools."""
    return "1 tool" if number == 1 else f"{number} tools"


def _missing(name: str, level: Level) -> Finding:
    return _finding(level, "missing_upstream", f"{_shown(name)} is in the policy and not on the server")


def _shown(name: str) -> str:
    # SECURITY: a server chooses its names: none of them draws on the terminal or fills it.
    return cut(one_line(name), _SHOWN_CHARS, _MORE)


def _tool(name: str, tool: ToolPolicy, policy: Policy, catalog: Catalog) -> Iterator[Finding]:
    there = catalog.get(name)
    if there is None:
        yield _missing(name, Level.ERROR)
        return
    tier = tool.tiers.get(policy.environment)
    if tier in _FORCED and _DRY_RUN not in there.arguments:
        yield _finding(Level.WARN, "no_dry_run", f"{_shown(name)} is {tier} and declares no dry_run")
    for index, rule in enumerate(tool.where):
        if rule.arg not in there.arguments:
            place = f"{_shown(name)} where[{index}]"
            yield _finding(
                Level.WARN, "where_unknown_arg", f"{place}: the tool declares no argument {_shown(rule.arg)}"
            )


def _pins(policy: Policy, catalog: Catalog, pins: Pins) -> Iterator[Finding]:
    for name in policy.tools:
        pin, there = pins.of.get(name), catalog.get(name)
        if pin is None:
            yield _finding(Level.WARN, "no_pin", f"{_shown(name)} has no pin")
        elif there is not None and pin != there.pin:
            yield _finding(Level.ERROR, "pin_mismatch", f"{_shown(name)} is not as it was pinned")
    for name in sorted(pins.of):
        if name not in policy.tools or name not in catalog:
            where = "on the server" if name in policy.tools else "in the policy"
            yield _finding(Level.WARN, "stale_pin", f"{_shown(name)} has a pin and is not {where}")


def _finding(level: Level, code: str, message: str) -> Finding:
    return Finding(level, code, str(one_line(message)))
