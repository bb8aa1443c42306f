"""Several policies as one: what an upstream's own file says about its tools, under the names they have outside.

Knows how a name gets its prefix, and what one file may not say beside another; does not know upstreams or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from airlock.core.errors import ConfigError, Fault
from airlock.core.policy.access import Glob
from airlock.core.policy.model import AccessRule, Policy
from airlock.core.policy.pins import Pins, pin_of
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line

__all__ = ["SEPARATOR", "compose", "compose_pins", "outside"]

SEPARATOR = "__"
"""What stands between a prefix, which holds no underscore, and a name."""

_MAIN = "the main file"
_MAIN_ONLY = ("completion", "sampling", "roots", "elicitation")
_SOURCE_POLICY = "policies of the upstreams"
_SOURCE_PINS = "pins of the upstreams"
_SHOWN_CHARS = 80
_MORE = "..."


def outside(prefix: str, name: str) -> str:
    """Return what a tool or prompt that its server calls `name` is called outside. No prefix: the same."""
    return f"{prefix}{SEPARATOR}{name}" if prefix else name


def compose(main: Policy, parts: Mapping[str, Policy], prefixes: Iterable[str] = ()) -> Policy:
    """Return `main` with what each part says added under its prefix (the key; "" for none).

    Tools and prompts of a part get the prefix and keep the limits of their own file; its patterns of resources
    hold for all upstreams, after those of `main`. The rest is that of `main`. `prefixes` names those of upstreams
    without a part. Raises ConfigError with every fault: another environment, a tool that two files name, a name or
    pattern without a prefix that reaches another upstream, a section that only the main file may have.
    """
    others = {*parts, *prefixes} - {""}
    faults: list[Fault] = []
    for prefix, part in parts.items():
        place = _place(prefix)
        if part.environment != main.environment:
            problem = f'runs in "{_shown(part.environment)}", not in "{_shown(main.environment)}"'
            faults.append(Fault(place, problem))
        for section in _MAIN_ONLY:
            if getattr(part, section) is not None:
                faults.append(Fault(place, f"{section} stands in {_MAIN} only"))
    names = _names(main.tools, {prefix: part.tools for prefix, part in parts.items()}, others, faults)
    prompts = {prefix: _prompts(prefix, part.prompts, others, faults) for prefix, part in parts.items()}
    if faults:
        raise ConfigError(_SOURCE_POLICY, faults)
    return msgspec.structs.replace(
        main,
        tools=dict(main.tools) | {name: parts[prefix].tools[own] for name, (prefix, own) in names.items()},
        resources=_chained(main.resources, *(part.resources for part in parts.values())),
        prompts=_chained(main.prompts, *prompts.values()),
    )


def compose_pins(main: Pins, parts: Mapping[str, Pins], prefixes: Iterable[str] = ()) -> Pins:
    """Return `main` with the pins of each part added under its prefix; they hold for what the server itself lists.

    Raises ConfigError with every tool that two files pin, or that belongs to another upstream.
    """
    faults: list[Fault] = []
    others = {*parts, *prefixes} - {""}
    names = _names(main.of, {prefix: part.of for prefix, part in parts.items()}, others, faults)
    if faults:
        raise ConfigError(_SOURCE_PINS, faults)
    added = {name: parts[prefix].of[own] for name, (prefix, own) in names.items()}
    return _Joined(dict(main.of) | added, {name: own for name, (_, own) in names.items()})


class _Joined(Pins, frozen=True):
    """Pins of several files. `own`: outside name to the name that the server gave, which the pin covers."""

    own: Mapping[str, str] = {}

    def changed(self, tool: Mapping[str, object]) -> bool:
        name = tool.get("name")
        if not isinstance(name, str) or name not in self.own:
            return Pins.changed(self, tool)
        return self.of[name] != pin_of({**tool, "name": self.own[name]})


def _names(
    main: Iterable[str], parts: Mapping[str, Iterable[str]], others: set[str], faults: list[Fault]
) -> dict[str, tuple[str, str]]:
    """Map each outside name of the parts to (prefix, own name); note a fault for one that has two places."""
    places = dict.fromkeys(main, _MAIN)
    names: dict[str, tuple[str, str]] = {}
    for prefix, part in parts.items():
        for own in part:
            name = outside(prefix, own)
            first, between, _ = own.partition(SEPARATOR)
            if name in places:
                faults.append(Fault(_shown(name), f"is in {_place(prefix)} and in {places[name]}"))
            elif not prefix and between and first in others:
                # SECURITY: rules for the tools of one server would hold for those of another.
                faults.append(Fault(_shown(name), f"is in {_place(prefix)} and belongs to upstream {first}"))
            else:
                places[name] = _place(prefix)
                names[name] = (prefix, own)
    return names


def _prompts(
    prefix: str, rules: tuple[AccessRule, ...] | None, others: set[str], faults: list[Fault]
) -> tuple[AccessRule, ...] | None:
    """Return the rules of one part with its prefix; note a fault for a pattern that reaches another upstream."""
    if rules is None:
        return None
    if prefix:
        globs = [Glob.of(outside(prefix, rule.pattern.text), paths=False) for rule in rules]
        return tuple(
            msgspec.structs.replace(rule, pattern=glob) for rule, glob in zip(rules, globs, strict=True)
        )
    for rule in rules:
        reached = sorted(other for other in others if rule.pattern.reaches(other + SEPARATOR))
        if reached:
            # SECURITY: `*` for the prompts of one server would let out those of every other.
            problem = f"in {_place(prefix)} also covers prompts of {', '.join(reached)}"
            faults.append(Fault(f"prompts.{_shown(rule.pattern.text)}", problem))
    return rules


def _chained(*parts: tuple[AccessRule, ...] | None) -> tuple[AccessRule, ...] | None:
    """Put sections one after another; None when no file has one."""
    there = [part for part in parts if part is not None]
    return tuple(rule for part in there for rule in part) if there else None


def _place(prefix: str) -> str:
    return f"the file of {prefix}" if prefix else "the file without a prefix"


def _shown(text: str) -> str:
    return cut(one_line(text), _SHOWN_CHARS, _MORE)
