"""Who asks: a name, the groups it is in, and how we know.

Knows what a usable name is; does not know tokens or headers (`edge.identity` does).
"""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from airlock.core.secret import Secret

__all__ = ["UNPROVEN", "Principal", "Proof", "Source", "groups_from", "usable_name"]

_SEPARATORS = re.compile(r"[,\s]+")


class Source(StrEnum):
    """How a principal was established."""

    TOKEN = "token"  # noqa: S105 - the word, not a credential
    HEADER = "header"


class Proof:
    """What a verified token says besides the name: until when it holds (Unix seconds) and its scopes.

    `token` is the token itself, kept only where it is exchanged for another one (RFC 8693). Without a token all
    three are empty. INVARIANT: every proof equals every other, so that a principal is the same with a new token.
    """

    __slots__ = ("scopes", "token", "until")

    def __init__(
        self, until: float | None = None, scopes: frozenset[str] = frozenset(), token: Secret | None = None
    ) -> None:
        self.until = until
        self.scopes = scopes
        self.token = token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Proof)

    def __hash__(self) -> int:
        return hash(Proof)

    def __repr__(self) -> str:
        return f"Proof(until={self.until})"


UNPROVEN = Proof()
"""The proof of a name that came without a token."""


class Principal(msgspec.Struct, frozen=True):
    """A caller with a usable name. `groups` keeps the order of its source, since the order decides tiers."""

    name: str
    groups: tuple[str, ...] = ()
    source: Source = Source.TOKEN
    proof: Proof = UNPROVEN


def usable_name(value: object) -> bool:
    """Tell whether `value` may name a principal: a string, not empty, equal to its own trimmed form.

    SPEC: gateway.md 4.3. A padded name is refused, never trimmed into another principal's name.
    """
    return isinstance(value, str) and value != "" and value == value.strip()


def groups_from(value: object) -> tuple[str, ...]:
    """Read groups from a claim or header: an array of strings, or one string split on commas and blanks.

    SPEC: gateway.md 4.4. Non-strings and blanks are dropped, entries are trimmed, order is kept.
    """
    if isinstance(value, str):
        return tuple(part for part in _SEPARATORS.split(value) if part)
    if isinstance(value, (list, tuple)):
        return tuple(part.strip() for part in value if isinstance(part, str) and part.strip())
    return ()
