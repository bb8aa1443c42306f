r"""What looks like a secret: key names that hold one, and the shapes of well-known credentials in text.

Knows shapes only; does not know trees (`core.redact.values`) or which secrets there really are.
SPEC: gateway.md 12.2, key rule and value rule.
LIMIT: a secret of no such shape (a password in a URL, `access_token=...` inside a text) stays as sent.
"""

from __future__ import annotations

import re

__all__ = ["REDACTED", "may_hold_secret", "scrub_text", "secret_key"]

REDACTED = "[REDACTED]"

# SPEC: gateway.md 12.2: a match begins at a word start, or right after a literal backslash + n, r or t. Words
# are ASCII here: in scripts without spaces a key may follow a letter directly. A JWT begins after neither `_`
# nor `-`, so that a long identifier is read once and not again from each of its dashes.
_WORD_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_JWT_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt]))"

_SECRET = re.compile(
    rf"{_WORD_START}(?:"
    r"[Bb][Ee][Aa][Rr][Ee][Rr]\s++[^\s\"'`\\,;<>(){}\[\]]++"
    r"|sk-[A-Za-z0-9_-]{8,}+"
    r"|gh[pousr]_[A-Za-z0-9]{20,}+"
    r"|AKIA[0-9A-Z]{16,}+"
    rf")|{_JWT_START}ey[A-Za-z0-9_-]{{8,}}+\.[A-Za-z0-9_-]{{10,}}+(?:\.[A-Za-z0-9_-]++)++"
)

# Hints begin with plain letters: a fast search. In a JSON text any escape may stand before a key.
_SK_HINT = re.compile(r"sk-(?:(?<![A-Za-z0-9]sk-)|(?<=\\[a-z]sk-)|(?<=\\u00[0-9a-f]{2}sk-))[A-Za-z0-9_-]{8}")
_GITHUB_HINT = re.compile(r"gh[pousr]_")
_JWT_HINT = re.compile(r"ey[A-Za-z0-9_-]{8}")


def secret_key(key: str) -> bool:
    """Tell whether a value under `key` is a secret whatever it looks like.

    A case-insensitive substring is enough, so a whole JSON text may be given: False proves that no key in it
    is a secret one.
    """
    low = key.lower()
    return (
        "password" in low
        or "passwd" in low
        or "secret" in low
        or "token" in low
        or "api_key" in low
        or "api-key" in low
        or "apikey" in low
        or "authorization" in low
        or "credential" in low
        or "private_key" in low
        or "private-key" in low
        or "privatekey" in low
    )


def may_hold_secret(text: str) -> bool:
    """Tell cheaply whether `scrub_text` might change `text`; False proves that it does not.

    JSON escapes nothing inside a match, so False for a JSON text holds for every string in it.
    """
    return (
        ("sk-" in text and _SK_HINT.search(text) is not None)
        or "AKIA" in text
        or "bearer" in text.lower()
        or ("_" in text and _GITHUB_HINT.search(text) is not None)
        or (text.count(".") >= 2 and _JWT_HINT.search(text) is not None)
    )


def scrub_text(text: str) -> str:
    """Return `text` with each part that looks like a credential as `[REDACTED]`, in linear time."""
    return _SECRET.sub(REDACTED, text) if may_hold_secret(text) else text
