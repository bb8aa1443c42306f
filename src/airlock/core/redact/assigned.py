"""Credentials that only their place gives away: behind a name that says secret, in a header, in a URL or a DSN.

Knows names and places; what a value must look like there is `core.redact.chance`'s. Nothing here replaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from airlock.core.redact.chance import by_chance, opaque, stand_in, user_and_password
from airlock.core.redact.forms import Span

__all__ = ["HINT", "KINDS", "find"]

KINDS: Final = ("dsn", "url_password", "authorization", "assignment")

_NAMES = ("password", "passwd", "passphrase", "pwd", "secret", "token", "credential", "key")
# Which keys are secret: `api_key`, `Secret key`, `AccountKey`.
_KEYS = (
    "api", "access", "secret", "private", "account", "shared", "encryption", "signing", "master", "storage", "auth",
    "client", "app",
)  # fmt: skip
# Tokens that lead on through a list, or belong to a request: without them nobody gets the next page.
_HARMLESS = (
    "next", "page", "pagination", "paging", "continuation", "continue", "cursor", "sync", "resume", "progress",
    "cancellation",
)  # fmt: skip
_DATABASES = frozenset({
    "amqp", "amqps", "bolt", "clickhouse", "cockroachdb", "mariadb", "mongodb", "mssql", "mysql", "neo4j", "oracle",
    "postgres", "postgresql", "redis", "rediss", "snowflake", "sqlserver",
})  # fmt: skip
_FIELDS = (
    "host", "hostaddr", "port", "server", "source", "database", "dbname", "catalog", "user", "user id", "username",
    "uid",
)  # fmt: skip

_BLANK = r"(?:\s|\\[nrt])"
_QUOTE = r"[\"'`\\]"
_TYPE = r"(?:str|string|String|bytes|&str|&'static str|\[\]byte|char ?\*)"
_ENDING = rf"s?(?:[_-]?(?:base|BASE|[0-9]{{1,3}}))?{_QUOTE}{{0,8}}\]?"
_T68 = r"[A-Za-z0-9._~+/-]"

_AFTER_NAME = re.compile(
    rf"{_ENDING}{_BLANK}{{0,8}}(?::?[ ]{{0,2}}{_TYPE}[ ]{{0,2}}(?==))?"
    rf"(?:(?:=>|:=|={{1,3}}|:|>|,?(?:{_BLANK}|-){{0,16}}{_QUOTE}{{0,8}}value{_QUOTE}{{0,8}}\s{{0,4}}[:=]){_BLANK}{{0,8}}"
    rf"|(?P<blank>[ ]))"
    rf"(?:\\{{0,3}}[\"'`](?P<quoted>(?:[^\s\"'`\\]|\\(?![nrt\"'`\\])){{1,4096}}+)"
    rf"|(?P<bare>(?:[^\s\"'`\\,;&<>(){{}}\[\]=|:]|&(?![A-Za-z_][A-Za-z0-9_.-]{{0,40}}=)){{1,4096}}+))"
)
_BARE_REST = re.compile(r"[^\s\"'`\\,;&<>(){}\[\]]{0,4096}+")
_FLAG = re.compile(r"--[a-z0-9-]*\Z")
_AFTER_FLAG = 32

_FIELD_BEFORE = re.compile(r"[^\s;,()\"'&]+[ ;&]{1,2}(?:--)?")
_FIELD_AFTER = re.compile(rf"[ ;&]{{1,2}}(?:--)?(?:initial )?(?:{'|'.join(_FIELDS)}) ?=")
_FIELD_CHARS = 128
_SHORTEST_IN_DSN = 3

_AFTER_AUTH = re.compile(
    rf"(?P<whole>orization)?{_QUOTE}{{0,8}}\]?{_BLANK}{{0,4}}[:=,]{_BLANK}{{0,4}}{_QUOTE}{{0,4}}"
    rf"(?:(?P<scheme>[A-Za-z][A-Za-z0-9_-]{{2,20}})[ ]{{1,4}})?(?P<value>{_T68}{{8,4096}}+={{0,2}})",
    re.IGNORECASE,
)
_AFTER_SCHEME = re.compile(rf"[ \t]{{1,4}}({_T68}{{8,4096}}+={{0,2}})")
_SHORTEST_BEARER = 16

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*\Z")
_SCHEME_CHARS = 32
_USERINFO = re.compile(
    r"[A-Za-z0-9._~%!$&*+,;=-]{0,256}+:([^\s/?#\"'<>\\`|(){}\[\]^]{1,256})@(?!sha(?:256|512):)[A-Za-z0-9\[%_$-]"
)

_BLANKS = r"(?:\s|\\+[nrt])*"  # in a JSON text an escape may be escaped once more
_SOME_NAME = rf"(?:{'|'.join(_NAMES[:-1])}|(?:{'|'.join(_KEYS)})[_ -]*key)s?(?:[_-]?(?:base|[0-9]+))?"
_SOME_VALUE = r"(?:[^\s\"'`]*[0-9]|[^\s\"'`]{20})"  # what looks made by chance has a digit, or is long
_DSN_NAME = r"(?:password|passwd|pwd)s?(?:[_-]?(?:base|[0-9]+))?=[^\s;]"
HINT: Final = (
    rf"(?i:{_SOME_NAME}{_QUOTE}*\]?{_BLANKS}(?::? ? ?{_TYPE} ? ?)?"
    rf"(?:[:=>]|,?(?:{_BLANKS}|-)*{_QUOTE}*value{_QUOTE}*\s*[:=])[:=>]*{_BLANKS}{_QUOTE}*{_SOME_VALUE}"
    rf"|--[a-z0-9-]*{_SOME_NAME} {_QUOTE}*{_SOME_VALUE}"
    rf"|[ ;&](?:--)?{_DSN_NAME}|{_DSN_NAME}[^\s;&]*[ ;&]+(?:--)?(?:initial )?(?:{'|'.join(_FIELDS)}) ?="
    rf"|auth(?:orization)?{_QUOTE}*\]?{_BLANKS}[:=,]{_BLANKS}{_QUOTE}*(?:[a-z][a-z0-9_-]* +)?{_T68}{{8}}"
    rf"|bearer[ \t]+{_T68}{{{_SHORTEST_BEARER}}}|basic[ \t]+{_T68}{{8}})"
    r"|:(?:\\*/){2}[^\s/?#\"'<>]*:[^\s/?#\"'<>]+@"
)
"""An RE2 expression that finds something in every text in which `find` does, and in its JSON."""


def find(text: str) -> Iterator[Span]:
    """Yield the credentials in `text`, place by place; they may overlap. Takes linear time."""
    # Lower case in ASCII only keeps every place where it is.
    low = (
        text.lower()
        if text.isascii()
        else text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    )
    for slashes in ("://", r":\/\/"):
        yield from _urls(text, low, slashes)
    yield from _headers(text, low)
    for name in _NAMES:
        yield from _named(text, low, name)


def _places(low: str, word: str) -> Iterator[int]:
    at = low.find(word)
    while at >= 0:
        yield at
        at = low.find(word, at + len(word))


def _urls(text: str, low: str, slashes: str) -> Iterator[Span]:
    for at in _places(low, slashes):
        found = _USERINFO.match(text, at + len(slashes))
        scheme = _SCHEME.search(low[max(0, at - _SCHEME_CHARS) : at])
        if found is None or scheme is None or stand_in(found[1]):
            continue
        base = scheme[0].partition("+")[0]
        yield found.start(1), found.end(1), "dsn" if base in _DATABASES else "url_password"


def _headers(text: str, low: str) -> Iterator[Span]:
    for at in _places(low, "auth"):
        found = None if low[at - 1 : at].isalnum() else _AFTER_AUTH.match(text, at + 4)
        if found is not None and _authorizes(found):
            yield *found.span("value"), "authorization"
    for scheme in ("bearer", "basic"):
        for at in _places(low, scheme):
            found = None if low[at - 1 : at].isalnum() else _AFTER_SCHEME.match(text, at + len(scheme))
            if found is not None and (
                _bears(found[1]) if scheme == "bearer" else user_and_password(found[1])
            ):
                yield *found.span(1), "authorization"


def _authorizes(found: re.Match[str]) -> bool:
    """Judge what follows `auth` or `Authorization`, with the name of a scheme or without."""
    scheme, value = (found["scheme"] or "").lower(), found["value"]
    if scheme == "basic" or (not scheme and user_and_password(value)):
        return user_and_password(value)
    if scheme:
        return (found["whole"] is not None or scheme == "bearer") and opaque(value)
    return found["whole"] is not None and by_chance(value, quoted=True)


def _bears(value: str) -> bool:
    """Judge what follows `bearer` in any text: often it is the word `token`."""
    if len(value) < _SHORTEST_BEARER or stand_in(value):
        return False
    return by_chance(value, quoted=True) or (value.isalnum() and opaque(value))


def _named(text: str, low: str, name: str) -> Iterator[Span]:
    for at in _places(low, name):
        found = _AFTER_NAME.match(text, at + len(name))
        if found is None or not _says_secret(low, at, name):
            continue
        if found["blank"] is not None and _FLAG.search(low[max(0, at - _AFTER_FLAG) : at]) is None:
            continue
        quoted = found["quoted"] is not None
        start, end = found.span("quoted" if quoted else "bare")
        if name in ("password", "passwd", "pwd") and _in_dsn(low, at, found, start, end):
            yield start, end, "dsn"
        elif quoted:
            if by_chance(text[start:end], quoted=True):
                yield start, end, "assignment"
        elif not _is_code(text, end) and by_chance(text[start:end], quoted=False):
            # What is bare may go on behind a sign that could also have ended it.
            rest = _BARE_REST.match(text, end)
            yield start, end if rest is None else rest.end(), "assignment"


def _says_secret(low: str, at: int, name: str) -> bool:
    before = low[max(0, at - 16) : at].rstrip("_- ")
    if name == "key":
        return before.endswith(_KEYS)
    # A part of a longer address: `arn:aws:secretsmanager:eu-west-1:1:secret:Name`.
    inside = before.endswith((":", "/")) and low.startswith(":", at + len(name))
    return not inside and not before.endswith(_HARMLESS)


def _is_code(text: str, end: int) -> bool:
    """Tell whether a bare value is a call, or the name of something itself."""
    after = text[end : end + 2]
    return after[:1] in ("(", "[") or (after[:1] == ":" and not after[1:].strip())


def _in_dsn(low: str, at: int, found: re.Match[str], start: int, end: int) -> bool:
    """Tell whether a password is a field among others of a connection string; then any word is one."""
    if low[start - 1] != "=" or end - start < _SHORTEST_IN_DSN or stand_in(low[start:end]):
        return False
    if _FIELD_AFTER.match(low, end) is not None:
        return True
    equals = low.rfind("=", max(0, at - _FIELD_CHARS), at)
    return (
        equals > 0
        and low.endswith(_FIELDS, 0, equals)
        and _FIELD_BEFORE.fullmatch(low, equals + 1, at) is not None
    )
