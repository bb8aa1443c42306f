"""Approval messages to a Slack-style incoming webhook: `{"text": ...}`.

Knows the form of the body; posting is `edge.outbox`'s, the text `core.approval.notice`'s.
SPEC: gateway.md 8.6, 23.11.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from airlock.core.approval import notice
from airlock.core.secret import Secret
from airlock.edge.outbox import Outbox

__all__ = ["Webhook", "open"]


def open(url: Secret, say: Callable[[str], None]) -> Webhook:  # noqa: A001 - the name every notifier offers
    """Make the notifier of one webhook. `say` takes a log line about a message that did not get through."""
    return Webhook(Outbox(url, say))


class Webhook:
    """Posts to one Slack-style webhook."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def post(self, text: str, link: str, lost: Callable[[], None] | None = None) -> None:
        """Queue a message: `text` escaped and cut, `link` on the last line. Never waits, never fails.

        `lost` is called when it cannot be delivered.
        """
        self._outbox.put(json.dumps({"text": notice.slack(text, link)}).encode(), lost)

    async def close(self) -> None:
        """Post what is left, for a bounded time."""
        await self._outbox.close()
