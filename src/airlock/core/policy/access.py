"""Who and what an entry of the policy admits: callers and environments, and patterns of names and URIs.

Knows patterns and callers; does not know what is behind a name, or how any of it was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from airlock.core.policy import uris
from airlock.core.principal import Principal

__all__ = ["GROUP", "Access", "Glob", "pattern_problem", "template_start"]

GROUP = "group:"
"""What an entry of `principals` begins with when it names a group."""

_WILD = re.compile(r"(\*+)")
# What a server may decode before it splits, and what stands for it: no URI that is matched holds a control.
_FOLDED = (("%2F", "\x00"), ("%3F", "\x01"), ("%23", "\x02"))
_SLASHES = "/\x00"
_CUTS = "?#\x01\x02"  # behind one of these nothing is path any more
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*|")


class Access(msgspec.Struct, frozen=True):
    """Whom an entry admits: callers by name or group, and in which environments. None: all of them."""

    environments: frozenset[str] | None = None
    principals: frozenset[str] | None = None

    @property
    def everyone(self) -> bool:
        """Whether it admits every caller in every environment."""
        return self.environments is None and self.principals is None

    def admits(self, principal: Principal, environment: str) -> bool:
        """Tell whether `principal` is admitted in `environment`."""
        if self.environments is not None and environment not in self.environments:
            return False
        if self.principals is None:
            return True
        # SECURITY: a principal that is literally named `group:x` is not in group x.
        if principal.name in self.principals and not principal.name.startswith(GROUP):
            return True
        return any(GROUP + group in self.principals for group in principal.groups)


class Glob(msgspec.Struct, frozen=True):
    """A pattern, compiled: `*` and `**` stand for any characters, the rest for itself.

    In a pattern of URIs `*` stays within a segment, and neither takes the sign that begins a query or a fragment,
    unless it ends the pattern. `prefix` is what stands before the first of them; `takes_all` tells whether whatever
    begins with it matches.
    """

    text: str
    prefix: str
    takes_all: bool
    # One bit for each place in the pattern, after so many of its own characters: the places that a character leads
    # on from, and those where any character, or any but a slash, may be skipped.
    _on: Mapping[str, int]
    _any: int
    _within: int
    _end: int
    _paths: bool

    @classmethod
    def of(cls, text: str, *, paths: bool) -> Glob:
        """Compile a pattern of URIs, which have paths, or of names."""
        on: dict[str, int] = {}
        skips = {True: 0, False: 0}
        place = 0
        for piece in _WILD.split(_folded(text) if paths else text):
            if piece.startswith("*"):
                skips[paths and piece == "*"] |= 1 << place
                continue
            for sign in piece:
                on[sign] = on.get(sign, 0) | 1 << place
                place += 1
        prefix = text.partition("*")[0]
        takes_all = skips == {True: 0, False: 1 << place} and text.rstrip("*") == prefix
        return cls(text, prefix, takes_all, on, skips[False], skips[True], place, paths)

    def matches(self, text: str) -> bool:
        """Tell whether the whole of `text`, a canonical URI or a name, matches: in one pass, whatever it is."""
        if not text.startswith(self.prefix) or len(text) > uris.MAX_CHARS:
            return False
        return self.takes_all or self._places(text) >> self._end & 1 == 1

    def reaches(self, start: str) -> bool:
        """Tell whether some text that begins with `start` matches."""
        return self._places(start) != 0

    def _places(self, text: str) -> int:
        """Return the places of the pattern at which one may be behind `text`."""
        places, on, stay, special = 1, self._on, self._any | self._within, {}
        if self._paths:
            text = _folded(text)
            # SECURITY: an encoded slash ends a segment too: a server may decode it.
            special = dict.fromkeys(_SLASHES, self._any)
            # SECURITY: what a pattern says behind a wildcard, of a host or a path, must not be found in the query
            # or fragment of another one: only the wildcard that ends the pattern takes those.
            special |= dict.fromkeys(_CUTS, stay & 1 << self._end)
        for sign in text:
            places = (places & on.get(sign, 0)) << 1 | places & special.get(sign, stay)
            if not places:
                break
        return places


def pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a pattern of URIs, None when it can match one."""
    stand_in = "x:" if pattern.startswith("**") else ""
    form = uris.canonical(stand_in + pattern)
    if form is None:
        return (
            "must be a URI that begins with a scheme or with **, without backslash, control or stray % in it"
        )
    form = form.removeprefix(stand_in)
    return None if form == pattern else f"can match nothing: URIs are compared as {form}"


def template_start(template: str) -> str | None:
    """Return how every URI that a template makes begins: its text up to the first `{`, in canonical form.

    None when nothing that begins so can be asked for. For a template without `{` that is the URI itself.
    """
    start, brace, _ = template.partition("{")
    if not brace:
        return uris.asked(start)
    if ":" not in start:
        return start.lower() if _SCHEME.fullmatch(start) is not None else None
    # What follows a brace is some character: without one, a dot before it would be taken for a dot segment.
    form = uris.asked(start + "x")
    return None if form is None else form[:-1]


def _folded(text: str) -> str:
    if "%" in text:
        for triplet, sign in _FOLDED:
            text = text.replace(triplet, sign)
    return text
