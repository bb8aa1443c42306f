from __future__ import annotations

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.settings import Environment
from airlock.gateway.approvalsettings import approval_settings, approval_warnings

HOOK = "https://hooks.example/services/T0/B0/" + "S" * 24
BOT = "https://api.telegram.org/bot1:" + "T" * 30 + "/sendMessage"
PUBLIC = "https://gate.example"


def env(**values: str) -> Environment:
    return Environment({f"AIRLOCK_{name}": value for name, value in values.items()})


@pytest.mark.parametrize(
    ("values", "mode"),
    [
        ({}, "inband"),
        ({"APPROVAL_WEBHOOK": HOOK}, "oob"),
        ({"APPROVAL_MODE": "inband"}, "inband"),
        ({"APPROVAL_MODE": "inband", "APPROVAL_WEBHOOK": HOOK}, "inband"),
        ({"APPROVAL_MODE": "oob", "APPROVAL_WEBHOOK": HOOK}, "oob"),
    ],
)
def test_the_mode_is_oob_where_a_webhook_is_and_inband_elsewhere(values: dict[str, str], mode: str):
    assert approval_settings(env(**values)).mode == mode


@pytest.mark.case("T69")
@pytest.mark.parametrize(("webhook", "mode"), [("", "inband"), (HOOK, "oob")])
def test_an_empty_mode_counts_as_unset(webhook: str, mode: str):
    assert approval_settings(env(APPROVAL_MODE="", APPROVAL_WEBHOOK=webhook)).mode == mode


@pytest.mark.parametrize("mode", ["OOB", "later", " oob", "in-band"])
def test_an_unknown_mode_stops_the_start_and_is_not_repeated(mode: str):
    with pytest.raises(ConfigError, match=r"^AIRLOCK_APPROVAL_MODE must be oob or inband$"):
        approval_settings(env(APPROVAL_MODE=mode, APPROVAL_WEBHOOK=HOOK))


@pytest.mark.parametrize("webhook", [{}, {"APPROVAL_WEBHOOK": ""}])
def test_oob_without_a_webhook_stops_the_start(webhook: dict[str, str]):
    with pytest.raises(ConfigError, match="needs AIRLOCK_APPROVAL_WEBHOOK"):
        approval_settings(env(APPROVAL_MODE="oob", **webhook))


@pytest.mark.parametrize(
    ("url", "base"),
    [
        (None, "http://127.0.0.1:9000"),
        ("", "http://127.0.0.1:9000"),
        ("/", "http://127.0.0.1:9000"),
        ("https://gate.example/", "https://gate.example"),
        ("https://gate.example/airlock//", "https://gate.example/airlock"),
        ("https://gate.example", "https://gate.example"),
    ],
)
def test_the_base_of_approve_links_ends_without_a_slash(url: str | None, base: str):
    assert approval_settings(env(**({} if url is None else {"PUBLIC_URL": url}))).public_url == base


def test_settings_show_no_webhook():
    settings = approval_settings(env(APPROVAL_WEBHOOK=HOOK, TELEGRAM_CHAT="-100200"))
    assert HOOK not in repr(settings)
    assert settings.webhook is not None
    assert settings.webhook.reveal() == HOOK
    assert settings.chat == "-100200"


# --- warnings


@pytest.mark.parametrize("values", [{}, {"PUBLIC_URL": PUBLIC}, {"APPROVAL_MODE": "inband"}])
def test_without_a_webhook_there_is_nothing_to_warn_about(values: dict[str, str]):
    assert approval_warnings(env(**values)) == []


@pytest.mark.parametrize("chat", [{}, {"TELEGRAM_CHAT": "-1"}])
def test_a_webhook_that_works_is_not_warned_about(chat: dict[str, str]):
    assert approval_warnings(env(APPROVAL_WEBHOOK=HOOK, PUBLIC_URL=PUBLIC, **chat)) == []
    assert approval_warnings(env(APPROVAL_WEBHOOK=BOT, PUBLIC_URL=PUBLIC, TELEGRAM_CHAT="-1")) == []


@pytest.mark.parametrize("url", [None, "", "http://127.0.0.1:9000", "http://127.0.0.1:9000/"])
def test_a_link_that_nobody_else_can_open_is_warned_about(url: str | None):
    (warning,) = approval_warnings(env(APPROVAL_WEBHOOK=HOOK, **({} if url is None else {"PUBLIC_URL": url})))
    assert "AIRLOCK_PUBLIC_URL is the default" in warning


@pytest.mark.case("T21")
@pytest.mark.parametrize(
    "url",
    ["hooks.example/x", "ftp://hooks.example/x", "https://", "https:///x", "https://hooks.example:99999/x",
     "https://hooks.example:port/x", "api.telegram.org/bot1:x/sendMessage", "https://user:pass@hooks.example/x",
     "https://hooks.example/a b", "x"],
)  # fmt: skip
def test_a_webhook_that_cannot_be_posted_to_is_warned_about_and_not_shown(url: str):
    (warning,) = approval_warnings(env(APPROVAL_WEBHOOK=url, PUBLIC_URL=PUBLIC))
    assert "is not an http(s) URL with a host" in warning
    assert "hooks.example" not in warning


@pytest.mark.case("T21")
def test_a_telegram_webhook_without_a_chat_is_warned_about():
    (warning,) = approval_warnings(env(APPROVAL_WEBHOOK=BOT, PUBLIC_URL=PUBLIC))
    assert "Telegram URL without AIRLOCK_TELEGRAM_CHAT" in warning
    assert "TTTT" not in warning


@pytest.mark.case("T21")
def test_a_chat_without_a_webhook_is_warned_about():
    assert approval_warnings(env(TELEGRAM_CHAT="-1")) == [
        "AIRLOCK_TELEGRAM_CHAT without AIRLOCK_APPROVAL_WEBHOOK is ignored"
    ]


@pytest.mark.case("T21")
def test_the_warnings_stand_in_a_fixed_order():
    first, second = approval_warnings(env(APPROVAL_WEBHOOK="x", TELEGRAM_CHAT="-1"))
    assert "AIRLOCK_PUBLIC_URL" in first
    assert "http(s)" in second
