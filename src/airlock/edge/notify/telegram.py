"""Approval messages to a Telegram chat, by the `sendMessage` address of a bot.

Knows the form of the body; posting is `edge.outbox`'s, the text `core.approval.notice`'s.
SPEC: gateway.md 8.6, 23.11.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from airlock.core.approval import notice
from airlock.core.secret import Secret
from airlock.edge.outbox import Outbox

__all__ = ["Telegram", "is_telegram", "open"]


def is_telegram(url: str) -> bool:
    """Tell whether a webhook address is Telegram's. SPEC: gateway.md 8.6."""
    return "api.telegram.org" in url


def open(url: Secret, chat: str | None, say: Callable[[str], None]) -> Telegram:  # noqa: A001 - as in `webhook`
    """Make the notifier of one chat. Without a chat nothing can be sent, and every message says so in the log."""
    return Telegram(Outbox(url if chat is not None else None, say), chat)


class Telegram:
    """Posts to one chat."""

    def __init__(self, outbox: Outbox, chat: str | None) -> None:
        self._outbox = outbox
        self._chat = chat

    def post(self, text: str, link: str, lost: Callable[[], None] | None = None) -> None:
        """Queue a message: `text` cut, `link` on the last line. Never waits, never fails.

        `lost` is called when it cannot be delivered.
        """
        message = {
            "chat_id": self._chat,
            "text": notice.telegram(text, link),
            "disable_web_page_preview": True,
        }
        self._outbox.put(json.dumps(message).encode(), lost)

    async def close(self) -> None:
        """Post what is left, for a bounded time."""
        await self._outbox.close()
