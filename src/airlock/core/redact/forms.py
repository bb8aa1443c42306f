"""Credentials that their own form gives away: prefixes of makers, PEM blocks, JWTs.

Knows forms; does not know names in front of a secret (`core.redact.assigned`). Nothing here replaces.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

__all__ = ["HINT", "KINDS", "Span", "find"]

KINDS: Final = (
    "private_key", "aws_key", "github_token", "gitlab_token", "slack_token", "stripe_key", "google_key",
    "npm_token", "pypi_token", "api_key", "jwt",
)  # fmt: skip

Span = tuple[int, int, str]
"""From, to, kind."""

HINT: Final = (
    r"PRIVATE KEY|LS0tLS1CRUdJTi|A[KS]IA[0-9A-Z]{8}|gh[pousr]_[A-Za-z0-9]{8}|github_pat_[A-Za-z0-9]"
    r"|gl[a-z]{2,5}-[\w-]{8}|xox[a-z]-[A-Za-z0-9-]{8}|xapp-[0-9]|[rs]k_(?:live|test)_[A-Za-z0-9]{8}|AIza[\w-]{8}|npm_[A-Za-z0-9]{8}"
    r"|pypi-[\w-]{8}|sk-[\w-]{8}|e[wy][\w-]{8,}\.[\w-]+\.[\w-]"
)
"""An RE2 expression that finds something in every text in which `find` does."""


def find(text: str) -> Iterator[Span]:
    """Yield the credentials in `text`, form by form; they may overlap. Takes linear time."""
    if "PRIVATE KEY" in text:
        for found in _PEM.finditer(text):
            if _BLOB.search(found["body"] or found["rest"]) is not None:
                yield found.start(), found.end(), "private_key"
    for form in _FORMS:
        yield from _formed(text, form)
    if text.count(".") > 1:
        for prefix in ("ey", "ew"):
            for found in _matches(text, prefix, _JWT, "_-"):
                if _is_header(found["header"]):
                    yield found.start(), found.end(), "jwt"


class _Form(msgspec.Struct, frozen=True):
    """A maker's form: what it begins with, the whole of it, and what else must hold for it.

    `inside`: signs that may not stand right before it, besides letters and digits.
    """

    kind: str
    prefix: str
    pattern: re.Pattern[str]
    holds: Callable[[str], bool] | None = None
    inside: str = ""


# Nothing between the lines of a PEM block has five dashes. A block that was cut off ends with its last whole line.
_PEM = re.compile(
    r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?P<body>(?:[^-]|-(?!----))*+)-----END (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
    r"|(?P<rest>(?:(?:\s|\\[nrt]|[\"'+,]){0,80}+[A-Za-z0-9+/=]{24,}+)*+))"
)
_BLOB = re.compile(r"[A-Za-z0-9+/=]{24}")
_JWT = re.compile(r"(?P<header>e[wy][A-Za-z0-9_-]{8,}+)\.[A-Za-z0-9_-]{2,}+(?:\.[A-Za-z0-9_-]++){1,3}")
_LONGEST_HEADER = 4096
_ENCODED_PEM_HEAD = 60
_RUN = re.compile(r"[A-Za-z0-9]{20}")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+_-])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=_-])")
_AWS_NEAR = 200
_HEX = re.compile(r"[0-9a-f]{40}", re.IGNORECASE)


def _busy(token: str) -> bool:
    """A digit, a capital or a long run: a name of small words has none."""
    return _RUN.search(token) is not None or any(sign.isdigit() or sign.isupper() for sign in token)


def _dense(token: str) -> bool:
    """A long run, or digits and capitals: so that a name with a version is no token."""
    return _RUN.search(token) is not None or (
        any(sign.isdigit() for sign in token) and any(sign.isupper() for sign in token)
    )


def _encoded_private_key(token: str) -> bool:
    return b"PRIVATE KEY" in binascii.a2b_base64(token[:_ENCODED_PEM_HEAD])


def _has_digit(token: str) -> bool:
    return any(sign.isdigit() for sign in token)


_ENCODED_PEM = re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/]{46,}+={0,2}")
_AWS_ID = re.compile(r"A[KS]IA[0-9A-Z]{16,}+(?![a-z])")
_GITHUB = re.compile(r"gh[pousr]_[A-Za-z0-9]{20,}+")
_GITLAB = re.compile(r"gl[a-z]{2,5}-[A-Za-z0-9_-]{20,}+")
_SLACK = re.compile(r"(?:xox[a-z]|xapp)-[A-Za-z0-9-]{10,}+")
_STRIPE = re.compile(r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+")

_FORMS: Final = (
    _Form("private_key", "LS0tLS1CRUdJTi", _ENCODED_PEM, _encoded_private_key),
    _Form("aws_key", "AKIA", _AWS_ID),
    _Form("aws_key", "ASIA", _AWS_ID, _has_digit),
    *(_Form("github_token", f"gh{sort}_", _GITHUB) for sort in "pousr"),
    _Form("github_token", "github_pat_", re.compile(r"github_pat_[A-Za-z0-9_]{20,}+")),
    *(
        _Form("gitlab_token", f"gl{sort}-", _GITLAB, _busy)
        for sort in ("pat", "dt", "rt", "cbt", "ptt", "ft", "soat", "imt", "agent")
    ),
    _Form("slack_token", "xox", _SLACK, _busy),
    _Form("slack_token", "xapp-", _SLACK, _busy),
    *(_Form("stripe_key", f"{sort}k_{mode}_", _STRIPE) for sort in "rs" for mode in ("live", "test")),
    _Form("google_key", "AIza", re.compile(r"AIza[A-Za-z0-9_-]{35,}+"), None, "_-"),
    _Form("npm_token", "npm_", re.compile(r"npm_[A-Za-z0-9]{36,}+")),
    _Form("pypi_token", "pypi-", re.compile(r"pypi-[A-Za-z0-9_-]{32,}+"), _dense),
    _Form("api_key", "sk-", re.compile(r"sk-[A-Za-z0-9_-]{20,}+"), _dense, "_-"),
)  # fmt: skip


def _formed(text: str, form: _Form) -> Iterator[Span]:
    for found in _matches(text, form.prefix, form.pattern, form.inside):
        start, end = found.span()
        if form.holds is not None and not form.holds(found[0]):
            continue
        yield start, end, form.kind
        if form.kind == "aws_key":
            # SECURITY: the secret that belongs to an id has no form of its own; it stands beside it.
            low, high = max(0, start - _AWS_NEAR), min(len(text), end + _AWS_NEAR)
            for beside in _AWS_SECRET.finditer(text, low, high):
                whole = beside.end() < high or high == len(text)
                if whole and _HEX.fullmatch(beside[0]) is None:
                    yield beside.start(), beside.end(), form.kind


def _matches(text: str, prefix: str, pattern: re.Pattern[str], inside: str) -> Iterator[re.Match[str]]:
    """Yield where `pattern` matches at a word start: `prefix` is searched for, which is fast."""
    at = text.find(prefix)
    while at >= 0:
        found = pattern.match(text, at) if _begins(text, at, inside) else None
        if found is not None:
            yield found
        at = text.find(prefix, at + 1 if found is None else found.end())


def _begins(text: str, at: int, inside: str) -> bool:
    """Tell whether a word may begin at `at`: words are ASCII, and an escaped line break ends one."""
    before = text[at - 1 : at]
    if before.isascii() and before.isalnum():
        return text[max(0, at - 2) : at] in (r"\n", r"\r", r"\t")
    return before == "" or before not in inside


def _is_header(part: str) -> bool:
    """Tell whether the first part of three is the header of a token: JSON that names an algorithm."""
    if len(part) > _LONGEST_HEADER:
        return False
    plain = part.replace("-", "+").replace("_", "/")
    try:
        header = msgspec.json.decode(binascii.a2b_base64(plain + "=" * (-len(plain) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(header, dict) and "alg" in header
