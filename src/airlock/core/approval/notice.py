"""What approvers get of a prompt: the text kept for the approve page, and the message that carries the link.

Knows lengths, escaping and order; does not know how a prompt is made (`core.approval.prompt`) or posted.
SPEC: gateway.md 8.5, 8.6, 23.11.
"""

from __future__ import annotations

import re
from typing import Final

from airlock.core.approval.prompt import without_instruction
from airlock.core.redact.values import name
from airlock.core.text.cut import cut
from airlock.core.text.safe import SafeText, one_line, safe

__all__ = [
    "KEPT_CHARS",
    "MESSAGE_CHARS",
    "NAME_CHARS",
    "POSTED_CHARS",
    "addressed",
    "kept",
    "shown_name",
    "slack",
    "telegram",
]

KEPT_CHARS: Final = 8000
"""The most characters kept for the approve page, the cut note included."""

POSTED_CHARS: Final = 3500
"""The most characters of a message before its link line, escaped, the cut note included."""

MESSAGE_CHARS: Final = 4096
"""The most characters of a whole Telegram message."""

NAME_CHARS: Final = 128
"""The most characters shown of a name that a client may have chosen."""

_FLOOR: Final = 500  # what a message says at least, however long its link is
_KEPT_NOTE: Final = "\n... [cut here; the audit record of this call holds the full arguments]"
_POSTED_NOTE: Final = "\n... [cut here; the page behind the link shows more]"
_NAME_NOTE: Final = "...[cut]"
_HALF_ENTITY: Final = re.compile(r"&[a-z]{0,3}\Z")


def kept(text: str, mode: str | None) -> SafeText:
    """Return what the approve page shows of the prompt `text`, which was made for `mode`."""
    shown = safe(without_instruction(text, mode).replace("\x00", ""))
    return safe(cut(shown, KEPT_CHARS, _KEPT_NOTE))


def addressed(text: str, mode: str | None, principal: str) -> SafeText:
    """Return the message of the prompt `text` without its link: a line that names who asks, then the prompt."""
    return safe(f"Approval request from {shown_name(principal)}\n{without_instruction(text, mode)}")


def shown_name(text: str) -> SafeText:
    """Return a principal, tool or environment on one line, without secrets, at most `NAME_CHARS` long."""
    return safe(cut(one_line(name(text) or ""), NAME_CHARS, _NAME_NOTE))


def slack(text: str, link: str) -> str:
    """Return a whole message for a Slack-style webhook. `text` comes from `addressed`, unescaped."""
    # SECURITY: `<url|label>` would show one address and open another, `<!channel>` would call everybody.
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _linked(escaped, link, POSTED_CHARS)


def telegram(text: str, link: str) -> str:
    """Return a whole message for Telegram, which takes it as plain text. `text` comes from `addressed`."""
    # A very long link takes from the text, or the message would be refused whole.
    room = MESSAGE_CHARS - len(_link_line(link))
    return _linked(text, link, max(_FLOOR, min(POSTED_CHARS, room)))


def _linked(text: str, link: str, limit: int) -> str:
    # SECURITY: cut after escaping, which makes a text longer, and the link behind the cut: whatever the text
    # holds, the last line is there and ours (T17).
    if len(text) > limit:
        # Nothing stays of an entity that the cut went through.
        begun = _HALF_ENTITY.sub("", text[: limit - len(_POSTED_NOTE)])
        text = begun + _POSTED_NOTE
    return text + _link_line(link)


def _link_line(link: str) -> str:
    return f"\n\nApprove: {link}"
