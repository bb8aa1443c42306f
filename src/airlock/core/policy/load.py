"""From a parsed mapping to a Policy, or every fault in it with its path.

Knows the keys, types and ranges of a policy; does not know YAML or files (`edge.yamlfile` does).

SPEC: gateway.md 5.1, 5.3 and 15.4. Nothing is coerced: a number in quotes is a string and a bool is no
number, so that a policy means what it looks like. null is no way to leave a key out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from airlock.core.decision import Tier
from airlock.core.errors import ConfigError, Fault
from airlock.core.policy.access import Access, Glob, pattern_problem
from airlock.core.policy.model import (
    AccessRule,
    Equals,
    Matcher,
    NoneOf,
    OneOf,
    OutputLimits,
    Policy,
    Radius,
    Scalar,
    ToolPolicy,
    UpstreamQuestions,
    WhereRule,
)
from airlock.core.policy.where import Unfit, compile_regex
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line

__all__ = ["Path", "build"]

Path = tuple[str | int, ...]
"""Where a value stands: keys and list indexes from the top."""

_TOP = (
    "version", "environment", "output", "blast_radius", "tools", "resources", "prompts", "completion", "sampling",
    "roots", "elicitation", "upstream_questions", "hygiene",
)  # fmt: skip
_OUTPUT = ("max_chars", "chars_per_token")
_RADIUS = ("max_per_call", "max_per_principal", "window_s")
_TOOL = (
    "tiers", "principals", "description", "count_arg", "output", "blast_radius", "where", "upstream_questions",
    "hygiene",
)  # fmt: skip
_ACCESS = ("environments", "principals")
_QUESTIONS = tuple(kind.value for kind in UpstreamQuestions)
_TIERS = tuple(tier.value for tier in Tier)
_HYGIENE, _ALLOWED = ("allow",), ("rule", "reason")
_MATCHERS = ("equals", "in", "not_in", "regex")
_RULE = ("arg", *_MATCHERS, "env", "optional")

_MAX_LIMIT = 2**53 - 1  # what every store and every JSON reader keeps exactly
_MAX_WINDOW_S = 86400
_SHOWN_CHARS = 40
_SHOWN_KEY_CHARS = 80
_MORE = "..."


def build(
    document: object, source: str, environment: str | None, *, positions: Mapping[Path, int] | None = None
) -> Policy:
    """Turn the parsed `document` into a Policy that runs in `environment`, else in the file's own.

    `source` names the file in the error; `positions` may give the line of each path. Raises ConfigError with
    every fault, each `<dotted.path>: <reason>[, got <scalar>]`. An empty `environment` counts as not given.
    """
    reading = _Reading(positions or {})
    policy = reading.policy(document, environment or None)
    if policy is None or reading.faults:
        raise ConfigError(source, reading.faults)
    return policy


class _Reading:
    """One walk over a document. Each method returns what it read, or a stand-in after noting a fault."""

    def __init__(self, positions: Mapping[Path, int]) -> None:
        self.faults: list[Fault] = []
        self._positions = positions

    def policy(self, document: object, environment: str | None) -> Policy | None:
        top = self._mapping((), document, _TOP)
        if top is None:
            return None
        if "version" in top and (type(top["version"]) is not int or top["version"] != 1):
            self._fault(("version",), f"must be 1{_got(top['version'])}")
        own = self._text(("environment",), top["environment"]) if "environment" in top else None
        if environment is None and "environment" not in top:
            self._fault(("environment",), "required", "or give --env or AIRLOCK_ENV")
        output = self._output(("output",), top["output"]) if "output" in top else OutputLimits()
        radius = self._radius(("blast_radius",), top["blast_radius"]) if "blast_radius" in top else Radius()
        questions = self._questions((), top, UpstreamQuestions.REFUSE)
        hygiene = self._hygiene((), top, {})
        tools = self._mapping(("tools",), top.get("tools", {})) or {}
        return Policy(
            environment=environment or own or "",
            tools={
                name: self._tool(("tools", name), body, output, radius, questions, hygiene)
                for name, body in tools.items()
            },
            output=output,
            radius=radius,
            resources=self._rules("resources", top, output, hygiene),
            prompts=self._rules("prompts", top, output, hygiene),
            completion=self._section("completion", top),
            sampling=self._section("sampling", top),
            roots=self._section("roots", top),
            elicitation=self._section("elicitation", top),
            hygiene=hygiene,
        )

    def _rules(
        self, section: str, top: Mapping[str, object], output: OutputLimits, hygiene: Mapping[str, str]
    ) -> tuple[AccessRule, ...] | None:
        if section not in top:
            return None
        paths = section == "resources"
        rules: list[AccessRule] = []
        for pattern, body in (self._mapping((section,), top[section]) or {}).items():
            path: Path = (section, pattern)
            problem = pattern_problem(pattern) if paths else None
            if problem is not None:
                self._fault(path, one_line(problem))
            keys = self._mapping(path, body, (*_ACCESS, "output")) or {}
            rules.append(
                AccessRule(
                    pattern=Glob.of(pattern, paths=paths),
                    access=self._access(path, keys),
                    output=self._output((*path, "output"), keys["output"]) if "output" in keys else output,
                    hygiene=hygiene,
                )
            )
        return tuple(rules)

    def _section(self, section: str, top: Mapping[str, object]) -> Access | None:
        if section not in top:
            return None
        return self._access((section,), self._mapping((section,), top[section], _ACCESS) or {})

    def _access(self, path: Path, keys: Mapping[str, object]) -> Access:
        environments, principals = (
            self._texts((*path, key), keys[key]) if key in keys else None for key in _ACCESS
        )
        return Access(environments, principals)

    def _tool(
        self,
        path: Path,
        body: object,
        output: OutputLimits,
        radius: Radius,
        questions: UpstreamQuestions,
        hygiene: Mapping[str, str],
    ) -> ToolPolicy:
        keys = self._mapping(path, body, _TOOL)
        if keys is None:
            return ToolPolicy(tiers={})
        if "tiers" not in keys:
            self._fault((*path, "tiers"), "required", "{} gives the tool no tier")
        overrides = self._mapping((*path, "principals"), keys.get("principals", {})) or {}
        own_radius = "blast_radius" in keys
        # SPEC: gateway.md 5.1: a tool's own block replaces the top-level one whole.
        return ToolPolicy(
            tiers=self._tiers((*path, "tiers"), keys.get("tiers", {})),
            principals={key: self._tiers((*path, "principals", key), on) for key, on in overrides.items()},
            description=self._text((*path, "description"), keys.get("description", ""), empty=True),
            count_arg=self._text((*path, "count_arg"), keys["count_arg"]) if "count_arg" in keys else None,
            output=self._output((*path, "output"), keys["output"]) if "output" in keys else output,
            radius=self._radius((*path, "blast_radius"), keys["blast_radius"]) if own_radius else radius,
            own_radius=own_radius,
            where=self._where((*path, "where"), keys.get("where", [])),
            questions=self._questions(path, keys, questions),
            hygiene=self._hygiene(path, keys, hygiene),
        )

    def _hygiene(
        self, path: Path, keys: Mapping[str, object], default: Mapping[str, str]
    ) -> Mapping[str, str]:
        if "hygiene" not in keys:
            return default
        from airlock.core.redact.results import (
            RULES,
        )  # many expressions to compile, for a key that few files have

        path = (*path, "hygiene")
        block = self._mapping(path, keys["hygiene"], _HYGIENE) or {}
        allowed: dict[str, str] = {}
        if "allow" not in block:
            return allowed
        for at, item in self._items((*path, "allow"), block["allow"]):
            entry = self._mapping(at, item, _ALLOWED)
            if entry is None:
                continue
            rule, reason = entry.get("rule", ""), entry.get("reason", "")
            if not isinstance(rule, str) or rule not in RULES:
                self._fault((*at, "rule"), f"must be one of {_listed(RULES)}{_got(rule)}")
            elif rule in allowed:
                self._fault((*at, "rule"), f"stands twice{_got(rule)}")
            elif not isinstance(reason, str) or not reason.strip():
                self._fault((*at, "reason"), f"must say why{_got(reason)}")
            else:
                allowed[rule] = reason
        return allowed

    def _questions(
        self, path: Path, keys: Mapping[str, object], default: UpstreamQuestions
    ) -> UpstreamQuestions:
        word = keys.get("upstream_questions", default)
        if isinstance(word, str) and word in _QUESTIONS:
            return UpstreamQuestions(word)
        self._fault((*path, "upstream_questions"), f"must be {' or '.join(_QUESTIONS)}{_got(word)}")
        return default

    def _tiers(self, path: Path, value: object) -> dict[str, Tier]:
        tiers: dict[str, Tier] = {}
        for environment, word in (self._mapping(path, value) or {}).items():
            if isinstance(word, str) and word in _TIERS:
                tiers[environment] = Tier(word)
            else:
                self._fault((*path, environment), f"must be one of {_listed(_TIERS)}{_got(word)}")
        return tiers

    def _output(self, path: Path, value: object) -> OutputLimits:
        block = self._mapping(path, value, _OUTPUT) or {}
        limits = OutputLimits()
        per_token = block.get("chars_per_token", limits.chars_per_token)
        if (
            isinstance(per_token, bool)
            or not isinstance(per_token, (int, float))
            or not 0 < per_token < math.inf
        ):
            self._fault((*path, "chars_per_token"), f"must be a number above 0{_got(per_token)}")
            per_token = limits.chars_per_token
        return OutputLimits(
            max_chars=self._whole(path, block, "max_chars", limits.max_chars), chars_per_token=per_token
        )

    def _radius(self, path: Path, value: object) -> Radius:
        block = self._mapping(path, value, _RADIUS) or {}
        limits = Radius()
        return Radius(
            max_per_call=self._whole(path, block, "max_per_call", limits.max_per_call),
            max_per_principal=self._whole(path, block, "max_per_principal", limits.max_per_principal),
            window_s=self._whole(path, block, "window_s", limits.window_s, 1, _MAX_WINDOW_S),
        )

    def _where(self, path: Path, value: object) -> tuple[WhereRule, ...]:
        if not isinstance(value, list):
            self._fault(path, f"must be a list of rules{_got(value)}")
            return ()
        rules = (self._rule((*path, index), rule) for index, rule in enumerate(value))
        return tuple(rule for rule in rules if rule is not None)

    def _rule(self, path: Path, value: object) -> WhereRule | None:
        keys = self._mapping(path, value, _RULE)
        if keys is None:
            return None
        if "arg" not in keys:
            self._fault((*path, "arg"), "required")
        arg = self._text((*path, "arg"), keys["arg"]) if "arg" in keys else ""
        named = [name for name in _MATCHERS if name in keys]
        if len(named) != 1:
            problem = f"must have exactly one of {_listed(_MATCHERS)}"
            self._fault(path, f"{problem}, has {' and '.join(named) or 'none'}")
        matchers = [self._matcher((*path, name), name, keys[name]) for name in named]
        env = self._texts((*path, "env"), keys["env"]) if "env" in keys else None
        optional = keys.get("optional", False)
        if not isinstance(optional, bool):
            self._fault((*path, "optional"), f"must be true or false{_got(optional)}")
        if not matchers or matchers[0] is None:
            return None
        return WhereRule(arg, matchers[0], env, optional is True)

    def _matcher(self, path: Path, kind: str, value: object) -> Matcher | None:
        if kind == "equals":
            return Equals(self._scalar(path, value))
        if kind == "regex":
            return self._regex(path, value)
        values = tuple(self._scalar(at, item) for at, item in self._items(path, value))
        return OneOf(values) if kind == "in" else NoneOf(values)

    def _regex(self, path: Path, value: object) -> Matcher | None:
        if not isinstance(value, str):
            self._text(path, value)
            return None
        found = compile_regex(value)
        if isinstance(found, Unfit):
            self._fault(path, f"{one_line(found.problem)}{_got(value)}", found.hint)
            return None
        return found

    def _texts(self, path: Path, value: object) -> frozenset[str]:
        return frozenset(self._text(at, item) for at, item in self._items(path, value))

    def _items(self, path: Path, value: object) -> list[tuple[Path, object]]:
        """Return the items of a list that may not be empty, each with its path."""
        if isinstance(value, list) and value:
            return [((*path, index), item) for index, item in enumerate(value)]
        self._fault(path, "must not be empty" if value == [] else f"must be a list{_got(value)}")
        return []

    def _scalar(self, path: Path, value: object) -> Scalar:
        if isinstance(value, float) and not math.isfinite(value):
            self._fault(path, f"must be a finite number{_got(value)}")
        elif value is None or isinstance(value, (str, int, float)):
            return value
        else:
            self._fault(path, f"must be null, a string, a number or a bool{_got(value)}")
        return None

    def _text(self, path: Path, value: object, *, empty: bool = False) -> str:
        if not isinstance(value, str):
            quotable = value is not None and isinstance(value, (int, float))
            self._fault(path, f"must be a string{_got(value)}", "quote it" if quotable else "")
            return ""
        if not value and not empty:
            self._fault(path, "must not be empty")
        return value

    def _whole(
        self,
        path: Path,
        block: Mapping[str, object],
        key: str,
        default: int,
        low: int = 0,
        high: int = _MAX_LIMIT,
    ) -> int:
        value = block.get(key, default)
        if type(value) is int and low <= value <= high:
            return value
        hint = "write it without quotes" if isinstance(value, str) else ""
        self._fault((*path, key), f"must be a whole number from {low} to {high}{_got(value)}", hint)
        return default

    def _mapping(
        self, path: Path, value: object, known: Iterable[str] | None = None
    ) -> dict[str, object] | None:
        """Return the entries of a mapping whose keys are as they should be; None when it is no mapping."""
        if not isinstance(value, dict):
            self._fault(path, f"must be a mapping{_got(value)}")
            return None
        entries: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self._fault((*path, _shown(key)), f"key must be a string{_got(key)}", "quote it")
            elif known is not None and key not in known:
                self._fault((*path, key), "unknown key", f"known here: {_listed(known)}")
            elif not key:
                self._fault(path, "must not have an empty key")
            else:
                entries[key] = item
        return entries

    def _fault(self, path: Path, problem: str, hint: str = "") -> None:
        line = self._positions.get(path)
        place = "" if line is None else f"line {line}"
        self.faults.append(Fault(_dotted(path), problem, "; ".join(part for part in (place, hint) if part)))


def _dotted(path: Path) -> str:
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + cut(one_line(part), _SHOWN_KEY_CHARS, _MORE)
    return text


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _got(value: object) -> str:
    return f", got {_shown(value)}"


def _shown(value: object) -> str:
    # SECURITY: what stands in the file may try to write the terminal or the log.
    if isinstance(value, str):
        return '"' + cut(one_line(value), _SHOWN_CHARS, _MORE) + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= 128 else "a very large number"
    if isinstance(value, float):
        return repr(value)
    return "a list" if isinstance(value, list) else "a mapping"
