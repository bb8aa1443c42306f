r"""Secrets in the texts that servers answer, and a mark in the place of each: `[REDACTED:jwt]`.

Knows the forms of credentials, and the names in front of those that have none; does not know results or policies.

The audit's rules (`core.redact.patterns`) take out too much for a text that somebody works with: there `bearer of
news` may go. Here a secret is what has the form that its maker gave it, or what looks made by chance right behind
a name that says secret. UUIDs, hashes, public keys, images and pagination tokens are none. Only the secret itself
is replaced. Where several rules see one, the first in `KINDS` names it; while that is allowed, the others leave it
alone too.

LIMIT: not seen: a password of plain words, a secret in pieces, encoded twice or inside a blob; one behind
`IDENTIFIED BY`, in a `.netrc` or a cookie; what follows a bracket, quote or comma inside a bare one.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Final

import msgspec

from airlock.core.redact import assigned, forms
from airlock.core.redact.forms import Span
from airlock.core.text import hygiene

try:
    import re2
except ImportError:  # the extra `regex` is not installed: every text is looked at closely
    re2 = None  # type: ignore[assignment]

__all__ = ["KINDS", "RULES", "Redacted", "redact", "worth_a_look"]

KINDS: Final = (*forms.KINDS, *assigned.KINDS)
"""What a replaced secret is called, and what a policy calls the rule for it; the more specific first."""

RULES: Final = (*hygiene.KINDS, *KINDS)
"""All rules of content hygiene."""

_ORDER: Final = {kind: place for place, kind in enumerate(KINDS)}

_SECRETS: Final = f"{forms.HINT}|{assigned.HINT}"
_ESCAPED: Final = r"\\(?:u00[01][0-9A-Fa-f]|u007[Ff]|[bf])"
_MAX_MEMORY = 64 << 20


class Redacted(msgspec.Struct, frozen=True):
    """A text, and how many secrets of each kind were replaced in it. Without any, `text` is the object given."""

    text: str
    counts: Mapping[str, int] = {}


def redact(text: str, allow: Container[str] = (), *, name: str = "") -> Redacted:
    """Return `text` with `[REDACTED:<kind>]` for each secret in it, but for the kinds in `allow`.

    `name` is what the text is called where it stands, such as the key of a member. Takes linear time.
    """
    # A name counts as if it stood in front of the text.
    before = f'{name}="' if name else ""
    whole = before + text if before else text
    if _secrets is not None and _secrets.search(whole.encode("utf-8", "surrogatepass")) is None:
        return Redacted(text)
    parts: list[str] = []
    counts: dict[str, int] = {}
    done = len(before)
    for start, end, kind in _joined([*forms.find(whole), *assigned.find(whole)]):
        if end <= done or kind in allow:
            continue
        parts += (whole[done:start], f"[REDACTED:{kind}]")
        done = end
        counts[kind] = counts.get(kind, 0) + 1
    return Redacted("".join(parts) + whole[done:], counts) if counts else Redacted(text)


def _joined(spans: list[Span]) -> Iterator[Span]:
    """Yield what overlaps as one, under its most specific kind."""
    spans.sort(key=lambda span: span[0])
    rest = iter(spans)
    last = next(rest, None)
    for span in rest:
        assert last is not None
        if span[0] < last[1]:
            kind = min(last[2], span[2], key=_ORDER.__getitem__)
            last = (last[0], max(last[1], span[1]), kind)
        else:
            yield last
            last = span
    if last is not None:
        yield last


def worth_a_look(data: bytes, *, json: bool = False) -> bool:
    """Tell cheaply whether `redact` or `core.text.hygiene.neutralise` might change a text, given as UTF-8.

    False proves that neither does. With `json` the data is a JSON text, and the answer holds for every string in it
    under its key.
    """
    quick = _quick_json if json else _quick
    return quick is None or quick.search(data) is not None


def _compiled(pattern: str) -> re2._Regexp | None:
    if re2 is None:
        return None
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.never_capture = True
    return re2.compile(pattern, options)


_secrets = _compiled(_SECRETS)
_quick = _compiled(f"[{hygiene.SUSPECT}]|{_SECRETS}")
_quick_json = _compiled(f"[{hygiene.SUSPECT}]|{_SECRETS}|{_ESCAPED}")
