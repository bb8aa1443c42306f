"""Telling the approvers about a question that was just asked: the page's text kept first, then the message posted.

Knows the order and the link; texts are `core.approval.notice`'s, posting is the notifier's.
SPEC: gateway.md 8.5, 8.6.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from airlock.core.approval import notice, ticket
from airlock.core.ports import Store
from airlock.edge.log import Log
from airlock.edge.notify import telegram, webhook
from airlock.gateway.approvalsettings import ApprovalSettings

__all__ = ["Approvers", "Notifier", "open_notifier"]


class Notifier(Protocol):
    """A channel to the approvers."""

    def post(self, text: str, link: str, lost: Callable[[], None] | None = None) -> None:
        """Queue a message and return at once. `text` comes unescaped from `notice.addressed`.

        `lost` is called, now or later, when it cannot be delivered.
        """
        ...

    async def close(self) -> None:
        """Post what is left, for a bounded time."""
        ...


def open_notifier(settings: ApprovalSettings, say: Callable[[str], None]) -> Notifier | None:
    """Make the notifier of the configured webhook; None without one. An address of no use is no error here."""
    if settings.webhook is None:
        return None
    if telegram.is_telegram(settings.webhook.reveal()):
        return telegram.open(settings.webhook, settings.chat, say)
    return webhook.open(settings.webhook, say)


class Approvers:
    """The people behind the webhook. Exists only where one is configured: without it a question costs nothing."""

    __slots__ = ("_keys", "_log", "_notifier", "_page", "_store")

    def __init__(
        self, keys: ticket.Keys, store: Store, notifier: Notifier, public_url: str, log: Log
    ) -> None:
        self._keys = keys
        self._store = store
        self._notifier = notifier
        self._page = f"{public_url}/approve/"
        self._log = log

    async def announce(
        self, claims: ticket.Claims, prompt: str, lost: Callable[[], None] | None = None
    ) -> None:
        """Keep `prompt` for the approve page and post it with the link. Never fails: the agent is asked anyway.

        `lost` is called when the message does not reach the approvers.
        """
        # SPEC: gateway.md 21 T68: kept before it is posted, or a quick approver would see a page without it.
        try:
            await self._store.save_prompt(claims.k, notice.kept(prompt, claims.m), claims.exp)
        except asyncio.CancelledError:
            if lost is not None:
                lost()
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: a page without details still approves
            self._log.warning(
                f"the text of a prompt could not be kept for the approve page: {type(error).__name__}"
            )
        link = self._page + ticket.approve_token(self._keys, claims)
        self._notifier.post(notice.addressed(prompt, claims.m, claims.p), link, lost)

    async def close(self) -> None:
        """Let the messages under way leave, for a bounded time."""
        await self._notifier.close()
