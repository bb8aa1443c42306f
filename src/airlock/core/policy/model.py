"""What a policy says, as frozen values: tiers, limits and argument rules of tools, and who may have what else.

Knows how a tier or an entry is found; does not know files, YAML or how any of it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Protocol

import msgspec

from airlock.core.decision import Tier
from airlock.core.policy import uris
from airlock.core.policy.access import GROUP, Access, Glob, template_start
from airlock.core.principal import Principal

__all__ = [
    "GROUP",
    "AccessRule",
    "Equals",
    "FullMatch",
    "Matcher",
    "NoneOf",
    "OneOf",
    "OutputLimits",
    "Pattern",
    "Policy",
    "Radius",
    "Scalar",
    "ToolPolicy",
    "UpstreamQuestions",
    "WhereRule",
]

Scalar = str | int | float | bool | None


class Pattern(Protocol):
    """A compiled RE2 expression."""

    def fullmatch(self, text: bytes, /) -> object | None:
        """Return something that is not None when the whole UTF-8 `text` matches."""
        ...


class OutputLimits(msgspec.Struct, frozen=True):
    """How long a result may be. `max_chars` counts characters of the serialized result, 0 or more."""

    max_chars: int = 16000
    chars_per_token: float = 4


class Radius(msgspec.Struct, frozen=True):
    """How many objects may be touched: by one call, and by one principal within `window_s` seconds.

    SPEC: gateway.md 5.1 and 5.6. A number equal to a limit passes.
    """

    max_per_call: int = 50
    max_per_principal: int = 500
    window_s: int = 3600


class UpstreamQuestions(StrEnum):
    """What becomes of a question that a server asks in a call behind a confirmation. SPEC: mcp.md 10 (0)."""

    REFUSE = "refuse"
    COMPOSE = "compose"


class Equals(msgspec.Struct, frozen=True):
    """The argument is exactly `value`."""

    kind: ClassVar[str] = "equals"
    value: Scalar


class OneOf(msgspec.Struct, frozen=True):
    """The argument is one of `values`."""

    kind: ClassVar[str] = "in"
    values: tuple[Scalar, ...]


class NoneOf(msgspec.Struct, frozen=True):
    """The argument is none of `values`, and of a kind (bool, number, string) that is among them."""

    kind: ClassVar[str] = "not_in"
    values: tuple[Scalar, ...]


class FullMatch(msgspec.Struct, frozen=True):
    """The argument is a string and the whole of it matches `compiled`. `pattern` is as it was written."""

    kind: ClassVar[str] = "regex"
    pattern: str
    compiled: Pattern


Matcher = Equals | OneOf | NoneOf | FullMatch


class WhereRule(msgspec.Struct, frozen=True):
    """What argument `arg` must be in the environments `env` (None: in all). `optional`: it may be absent."""

    arg: str
    matcher: Matcher
    env: frozenset[str] | None = None
    optional: bool = False


class ToolPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy says about one tool; `output`, `radius`, `questions` are resolved: its own or the policy's.

    So is `hygiene`: the rules of content hygiene that are not applied, each with the reason why. `own_radius` tells
    whether `radius` was written at the tool. `tiers` maps an environment to a tier, `principals` the name of a
    principal, or `group:` and a group's, to such a map.
    """

    tiers: Mapping[str, Tier]
    principals: Mapping[str, Mapping[str, Tier]] = {}
    description: str = ""
    count_arg: str | None = None
    output: OutputLimits = OutputLimits()
    radius: Radius = Radius()
    own_radius: bool = False
    where: tuple[WhereRule, ...] = ()
    questions: UpstreamQuestions = UpstreamQuestions.REFUSE
    hygiene: Mapping[str, str] = {}

    def tier(self, principal: Principal, environment: str) -> Tier | None:
        """Return the tier of `principal` in `environment`, or None when there is none.

        SPEC: gateway.md 5.2: the principal's own entry, then its groups in their order, then `tiers`. An
        entry without `environment` does not match and the search goes on.
        """
        overrides = self.principals
        if overrides:
            # SECURITY: a principal that is literally named `group:x` must not get the tier of group x.
            if not principal.name.startswith(GROUP):
                own = overrides.get(principal.name)
                if own is not None and environment in own:
                    return own[environment]
            for group in principal.groups:
                theirs = overrides.get(GROUP + group)
                if theirs is not None and environment in theirs:
                    return theirs[environment]
        return self.tiers.get(environment)


class AccessRule(msgspec.Struct, frozen=True, kw_only=True):
    """Resources or prompts of one pattern: who may have them, and `output` and `hygiene`, resolved as for tools."""

    pattern: Glob
    access: Access = Access()
    output: OutputLimits = OutputLimits()
    hygiene: Mapping[str, str] = {}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for calls in one running `environment`. `tools` keeps the order of the file, rules do too.

    `resources`, `prompts` and `completion` are None when the file has no such section: then nobody is served
    them. `sampling`, `roots` and `elicitation` say what a server may ask of a caller's client.
    """

    environment: str
    tools: Mapping[str, ToolPolicy]
    output: OutputLimits = OutputLimits()
    radius: Radius = Radius()
    resources: tuple[AccessRule, ...] | None = None
    prompts: tuple[AccessRule, ...] | None = None
    completion: Access | None = None
    sampling: Access | None = None
    roots: Access | None = None
    elicitation: Access | None = None
    hygiene: Mapping[str, str] = {}

    def tool(self, name: str) -> ToolPolicy | None:
        """Return what the policy says about the tool `name`, or None when it does not list it."""
        return self.tools.get(name)

    def tier(self, name: str, principal: Principal) -> Tier | None:
        """Return the tier of `principal` for the tool `name` in the running environment, or None."""
        tool = self.tools.get(name)
        return None if tool is None else tool.tier(principal, self.environment)

    def resource(self, uri: str, principal: Principal) -> AccessRule | None:
        """Return the first rule that lets `principal` have the resource `uri`, or None: then it is not for them."""
        text = uris.asked(uri)
        return None if text is None else self._first(self.resources, text, principal)

    def prompt(self, name: str, principal: Principal) -> AccessRule | None:
        """Return the first rule that lets `principal` have the prompt `name`, or None."""
        return self._first(self.prompts, name, principal)

    def template(self, template: str, principal: Principal) -> bool:
        """Tell whether `principal` may know a URI template: some URI that begins as it does is for them.

        What begins a template is its text up to the first `{`.
        """
        start = template_start(template)
        if start is None:
            return False
        whole = "{" not in template
        return any(
            (rule.pattern.matches(start) if whole else rule.pattern.reaches(start))
            and rule.access.admits(principal, self.environment)
            for rule in self.resources or ()
        )

    def grants(self, access: Access | None, principal: Principal) -> bool:
        """Tell whether one of the policy's own sections is there and admits `principal`."""
        return access is not None and access.admits(principal, self.environment)

    def _first(
        self, rules: tuple[AccessRule, ...] | None, text: str, principal: Principal
    ) -> AccessRule | None:
        for rule in rules or ():
            if rule.pattern.matches(text) and rule.access.admits(principal, self.environment):
                return rule
        return None
