r"""Secrets in the texts that servers answer, and a mark in the place of each: `[REDACTED:jwt]`.

Knows the shapes of credentials, and the names in front of those that have none; does not know results or policies.

The audit's rules (`core.redact.patterns`) take out too much for a text that somebody works with: there `bearer of
news` may go. Here a secret is what has the form that its maker gave it, or what looks made by chance right behind a
name that says secret. UUIDs, hashes, public keys, images and pagination tokens are none. Only the secret itself is
replaced, everything around it stays. Where several rules see one, the first in `KINDS` names it; a rule that is
allowed keeps the ones after it from taking the same text.

LIMIT: a password of plain words, a secret broken into pieces, encoded twice or inside a blob is not seen; nor is one
behind `IDENTIFIED BY`, in a `.netrc`, or in a cookie. A UUID is never one.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

import msgspec

from airlock.core.text.hygiene import SUSPECT

try:
    import re2
except ImportError:  # the extra `regex` is not installed: every text is looked at closely
    re2 = None  # type: ignore[assignment]

__all__ = ["KINDS", "Redacted", "redact", "worth_a_look"]

KINDS: Final = (
    "private_key", "aws_key", "github_token", "gitlab_token", "slack_token", "stripe_key", "google_key", "npm_token",
    "pypi_token", "api_key", "jwt", "dsn", "url_password", "authorization", "assignment",
)  # fmt: skip
"""What a replaced secret is called, and what a policy calls the rule for it; the more specific first."""

Span = tuple[int, int, str]


class Redacted(msgspec.Struct, frozen=True):
    """A text, and how many secrets of each kind were replaced in it. Without any, `text` is the object given."""

    text: str
    counts: Mapping[str, int] = {}


def redact(text: str, allow: Container[str] = (), *, name: str = "") -> Redacted:
    """Return `text` with `[REDACTED:<kind>]` for each secret in it, but for the kinds in `allow`.

    `name` is what the text is called where it stands, as the key of a member. Takes linear time.
    """
    # A name counts as if it stood in front of the text.
    around = f'{name}="' if name else ""
    skip = len(around)
    spans = _merged(_spans(around + text if around else text))
    parts: list[str] = []
    counts: dict[str, int] = {}
    done = skip
    whole = around + text if around else text
    for start, end, kind in spans:
        if kind in allow or end <= skip:
            continue
        parts += (whole[done : max(start, skip)], f"[REDACTED:{kind}]")
        done = end
        counts[kind] = counts.get(kind, 0) + 1
    return Redacted("".join(parts) + whole[done:], counts) if counts else Redacted(text)
