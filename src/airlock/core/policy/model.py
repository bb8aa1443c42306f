"""What a policy says, as frozen values: tiers, limits and argument rules of each tool.

Knows how a tier is found; does not know files, YAML or how any of it was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol

import msgspec

from airlock.core.decision import Tier
from airlock.core.principal import Principal

__all__ = [
    "GROUP",
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
    "WhereRule",
]

GROUP = "group:"
"""What a key of `principals` begins with when it names a group."""

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
    """What the policy says about one tool. `output` and `radius` are resolved: its own, else the policy's.

    `own_radius` tells whether `radius` was written at the tool. `tiers` maps an environment to a tier,
    `principals` a principal's name, or `group:` and a group's, to such a map.
    """

    tiers: Mapping[str, Tier]
    principals: Mapping[str, Mapping[str, Tier]] = {}
    description: str = ""
    count_arg: str | None = None
    output: OutputLimits = OutputLimits()
    radius: Radius = Radius()
    own_radius: bool = False
    where: tuple[WhereRule, ...] = ()

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


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for calls in one running `environment`. `tools` keeps the order of the file."""

    environment: str
    tools: Mapping[str, ToolPolicy]
    output: OutputLimits = OutputLimits()
    radius: Radius = Radius()

    def tool(self, name: str) -> ToolPolicy | None:
        """Return what the policy says about the tool `name`, or None when it does not list it."""
        return self.tools.get(name)

    def tier(self, name: str, principal: Principal) -> Tier | None:
        """Return the tier of `principal` for the tool `name` in the running environment, or None."""
        tool = self.tools.get(name)
        return None if tool is None else tool.tier(principal, self.environment)
