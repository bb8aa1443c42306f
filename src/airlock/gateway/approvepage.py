"""The markup of the approve page: plain HTML, readable on a phone, without style or script.

Knows markup and words; does not know the store, HTTP or who looks. SPEC: gateway.md 8.5.

The page's policy forbids every style, so what CSS would do is said in elements: `<pre wrap>` and `<wbr>` keep
long text within a narrow screen, `<big>` makes the button large enough for a finger.
"""

from __future__ import annotations

import html
import re
from enum import Enum, auto
from typing import Final

from airlock.core.approval.notice import shown_name
from airlock.core.approval.ticket import Claims
from airlock.core.text.safe import safe

__all__ = ["BAD_LINK", "NO_RECORD", "NO_STORE", "Standing", "message", "question", "settled"]

BAD_LINK: Final = "This link is not valid, or its time is over. Nothing was approved."
NO_STORE: Final = "The approval could not be stored, and nothing was approved. Try again in a moment."
NO_RECORD: Final = "The approval was stored, but the audit log could not take the record of it."

_NO_TEXT: Final = (
    "The details of this request are not available here. Read them in the message that led you here."
)
_RUN: Final = 32  # characters that may stand together before a line may break among them
_LONG: Final = re.compile(rf"\S{{{_RUN}}}(?=\S)")


class Standing(Enum):
    """Where an approval stands, as far as the store says."""

    OPEN = auto()
    APPROVED = auto()
    BURNED = auto()
    UNKNOWN = auto()


_TITLES: Final = {
    Standing.OPEN: "Approve this call?",
    Standing.UNKNOWN: "Approve this call?",
    Standing.APPROVED: "This call is approved",
    Standing.BURNED: "This call is over",
}
_FORM: Final = (
    "<p>Opening this page has approved nothing. If you approve, the call may run once, with exactly these"
    " arguments. To refuse, close the page: the request ends by itself.</p>\n"
    '<form method="post"><button type="submit"><big><big>Approve</big></big></button></form>'
)
_ENDS: Final = {
    Standing.OPEN: _FORM,
    Standing.UNKNOWN: _FORM,
    Standing.APPROVED: "<p>It may run once, when the agent repeats it. There is nothing more to do here.</p>",
    Standing.BURNED: "<p>It was already executed or declined. It cannot be approved any more.</p>",
}


def question(claims: Claims, text: str | None, standing: Standing) -> bytes:
    """Return the page that shows one call. `text` is what was kept of its prompt, None when there is none."""
    details = f"<p>{_NO_TEXT}</p>" if text is None else f"<pre wrap>{_shown(text)}</pre>"
    return _page(_TITLES[standing], f"{_facts(claims)}{details}\n{_ENDS[standing]}")


def settled(claims: Claims, standing: Standing) -> bytes:
    """Return the page that answers the button."""
    return _page(_TITLES[standing], f"{_facts(claims)}{_ENDS[standing]}")


def message(text: str) -> bytes:
    """Return a page that says one thing."""
    return _page("Airlock", f"<p>{_shown(text)}</p>")


def _facts(claims: Claims) -> str:
    named = (("Tool", claims.t), ("Environment", claims.e), ("Asked by", claims.p), ("Key", claims.k))
    listed = "".join(f"<dt>{term}</dt><dd>{_shown(shown_name(value))}</dd>\n" for term, value in named)
    return f"<dl>\n{listed}</dl>\n"


def _shown(text: str) -> str:
    """Return text as markup that shows it and nothing else."""
    # SECURITY: the agent chose most of this text: markup in it would draw a page of its own around our button.
    pieces = _LONG.sub("\\g<0>\x00", safe(text)).split("\x00")
    return "<wbr>".join(html.escape(piece) for piece in pieces)


def _page(title: str, body: str) -> bytes:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="robots" content="noindex, nofollow">\n'
        f"<title>{title}</title>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    ).encode()
