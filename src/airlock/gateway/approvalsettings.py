"""How confirmations leave the process: the approval mode, the webhook, the base of approve links.

Knows the variables and their defaults; opens nothing. SPEC: gateway.md 8.3, 15.2, 15.3 (W8, W9).
"""

from __future__ import annotations

import msgspec

from airlock.core.approval.ticket import Mode
from airlock.core.errors import ConfigError
from airlock.core.secret import Secret
from airlock.edge.httpc import parse_target
from airlock.edge.notify.telegram import is_telegram
from airlock.edge.settings import Environment

__all__ = ["DEFAULT_PUBLIC_URL", "ApprovalSettings", "approval_settings", "approval_warnings"]

DEFAULT_PUBLIC_URL = "http://127.0.0.1:9000"


class ApprovalSettings(msgspec.Struct, frozen=True):
    """Who may say yes and how approvers are told.

    `mode` is `oob` or `inband`. `webhook` is None when only the client is asked. `public_url` ends without `/`.
    """

    mode: str
    webhook: Secret | None
    chat: str | None
    public_url: str


def approval_settings(env: Environment) -> ApprovalSettings:
    """Read the settings; raise ConfigError for a mode that is unknown or with which nobody could approve."""
    webhook = env.secret("AIRLOCK_APPROVAL_WEBHOOK")
    mode = env.text("AIRLOCK_APPROVAL_MODE")
    if mode is None:
        mode = Mode.INBAND if webhook is None else Mode.OOB
    elif mode not in {Mode.OOB, Mode.INBAND}:
        raise ConfigError("", "AIRLOCK_APPROVAL_MODE must be oob or inband")
    elif mode == Mode.OOB and webhook is None:
        raise ConfigError(
            "", "AIRLOCK_APPROVAL_MODE=oob needs AIRLOCK_APPROVAL_WEBHOOK: nobody could approve"
        )
    return ApprovalSettings(str(mode), webhook, env.text("AIRLOCK_TELEGRAM_CHAT"), _public_url(env))


def approval_warnings(env: Environment) -> list[str]:
    """Return the sentences W8 and W9 for these settings, without full stops. None of them shows a value."""
    found: list[str] = []
    webhook = env.text("AIRLOCK_APPROVAL_WEBHOOK")
    chat = env.text("AIRLOCK_TELEGRAM_CHAT")
    if webhook is not None and _public_url(env) == DEFAULT_PUBLIC_URL:
        found.append(
            "AIRLOCK_APPROVAL_WEBHOOK while AIRLOCK_PUBLIC_URL is the default: "
            "nobody on another machine can open the approve link"
        )
    if webhook is not None and not _can_be_posted_to(webhook):
        found.append(
            "AIRLOCK_APPROVAL_WEBHOOK is not an http(s) URL with a host that can be posted to: "
            "no message can be delivered, and in oob mode nothing can be approved"
        )
    elif webhook is not None and is_telegram(webhook) and chat is None:
        found.append(
            "AIRLOCK_APPROVAL_WEBHOOK is a Telegram URL without AIRLOCK_TELEGRAM_CHAT: "
            "no message can be delivered, and in oob mode nothing can be approved"
        )
    elif webhook is None and chat is not None:
        found.append("AIRLOCK_TELEGRAM_CHAT without AIRLOCK_APPROVAL_WEBHOOK is ignored")
    return found


def _public_url(env: Environment) -> str:
    return (env.text("AIRLOCK_PUBLIC_URL") or "").rstrip("/") or DEFAULT_PUBLIC_URL


def _can_be_posted_to(url: str) -> bool:
    try:
        parse_target(url)
    except ValueError:
        return False
    return True
