r"""Credentials that only the place gives away: behind a name that says secret, in a header, in a URL or a DSN.

Knows names and places; what a value must look like there is `core.redact.chance`'s. Nothing here replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from airlock.core.redact.chance import by_chance, opaque, user_and_password
from airlock.core.redact.forms import Span

__all__ = ["HINT", "KINDS", "find"]

KINDS: Final = ("dsn", "url_password", "authorization", "assignment")

_NAMES = ("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "key")
_KEYS = (
    "api", "access", "secret", "private", "account", "shared", "encryption", "signing", "master", "storage", "auth",
    "client", "app",
)  # fmt: skip
# Tokens that lead on through a list or belong to a request; without them nobody gets the next page.
_HARMLESS = ("next", "page", "pagination", "paging", "continuation", "continue", "cursor", "sync", "resume", "progress", "cancellation")

_BLANK = r"(?:\s|\\[nrt])"
_QUOTES = r"[\"'`\\]"
_TYPES = r"(?:str|string|String|bytes|&str|&'static str|\[\]byte|char ?\*)"
_OPEN = r"[^\s\"'`\\,;&<>(){}\[\]=|:]"  # what a bare value may hold; it ends at anything else
_QUERY = r"[A-Za-z_][A-Za-z0-9_.-]{0,40}="

_SEPARATOR = (
    rf"(?:=>|:=|={{1,3}}|:|>|,?(?:{_BLANK}|-){{0,16}}{_QUOTES}{{0,8}}value{_QUOTES}{{0,8}}\s{{0,4}}[:=])"
)
_AFTER = re.compile(
    rf"s?(?:[_-]?(?:base|\d{{1,3}}))?{_QUOTES}{{0,8}}\]?{_BLANK}{{0,8}}(?::?[ ]{{0,2}}{_TYPES}[ ]{{0,2}}(?==))?"
    rf"(?:(?P<separator>{_SEPARATOR}){_BLANK}{{0,8}}|(?P<flag>[ ]))"
    rf"(?:\\{{0,3}}[\"'`](?P<quoted>(?:[^\s\"'`\\]|\\(?![nrt\"'`\\])){{1,4096}}+)"
    rf"|(?P<bare>(?:{_OPEN}|&(?!{_QUERY})){{1,4096}}+))"
)
_REST = re.compile(r"[^\s\"'`\\,;&<>(){}\[\]]*")
_FLAG = re.compile(r"--[a-z0-9-]{0,30}\Z")
_FLAG_CHARS = 32
_CALLED = frozenset("([")
_NAMED = frozenset(":=")
