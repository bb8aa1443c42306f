from __future__ import annotations

import html
import re

import pytest

from airlock.core.approval.ticket import Claims
from airlock.gateway.approvepage import Standing, message, question, settled

CLAIMS = Claims(
    p="alice", t="drop_bucket", h="0" * 64, e="prod", u="http://internal/mcp", k="b" * 32, exp=1.0, m="oob"
)
BUTTON = '<form method="post"><button'
HOSTILE = (
    "</pre><script>alert(1)</script><form action=//evil.example><img src=x onerror=y>\"'&amp;\u202e\u200b"
)


def seen(page: bytes) -> str:
    """What a reader gets of a page: its text, without markup."""
    return html.unescape(re.sub(r"<[^>]*>", "", page.decode()))


@pytest.mark.parametrize("standing", Standing)
def test_a_page_shows_the_call_and_its_text(standing: Standing):
    page = seen(question(CLAIMS, "Arguments: {}", standing))
    for fact in ("drop_bucket", "prod", "alice", CLAIMS.k, "Arguments: {}"):
        assert fact in page
    assert CLAIMS.u not in page


@pytest.mark.parametrize("standing", Standing)
def test_there_is_a_button_only_while_it_can_do_something(standing: Standing):
    page = question(CLAIMS, "text", standing).decode()
    assert page.count(BUTTON) == (1 if standing in (Standing.OPEN, Standing.UNKNOWN) else 0)
    assert BUTTON not in settled(CLAIMS, Standing.APPROVED).decode()
    assert BUTTON not in settled(CLAIMS, Standing.BURNED).decode()


def test_a_page_without_a_text_says_so():
    assert "details of this request are not available" in seen(question(CLAIMS, None, Standing.OPEN))
    assert "not available" not in seen(settled(CLAIMS, Standing.APPROVED))


def test_nothing_in_a_page_needs_what_its_policy_forbids():
    tags = re.findall(r"<[^>]*>", question(CLAIMS, HOSTILE, Standing.OPEN).decode())
    assert not any(
        re.search(r"<(script|style|link|img|iframe|base)|\s(style|src|href|on\w+)=", tag) for tag in tags
    )
    assert sum(tag.startswith("<form") for tag in tags) == 1


@pytest.mark.parametrize("field", ["p", "t", "e", "k", "text"])
def test_hostile_text_stays_text(field: str):
    said = {"p": "a", "t": "b", "e": "c", "k": "d", "text": "fine", field: HOSTILE}
    text = said["text"]
    claims = Claims(p=said["p"], t=said["t"], e=said["e"], k=said["k"], h="", u="", exp=1.0, m="oob")
    page = question(claims, text, Standing.OPEN)
    assert "<script" not in page.decode()
    assert "\u202e" not in page.decode()
    assert "\u200b" not in page.decode()
    assert r"&amp;\u202e\u200b" in seen(page)


def test_long_words_may_break_and_are_not_changed_by_it():
    word = "x" * 100
    page = question(CLAIMS, f"{word} & {'<' * 100}", Standing.OPEN)
    assert page.decode().count("<wbr>") == 6
    assert f"{word} & {'<' * 100}" in seen(page)
    assert "<wbr>" not in question(CLAIMS, "y" * 32 + " z", Standing.OPEN).decode()


def test_a_text_keeps_its_lines():
    assert "one\ntwo\n\tthree" in question(CLAIMS, "one\ntwo\n\tthree", Standing.OPEN).decode()


def test_a_message_is_shown_as_text():
    assert "<b>" not in message("<b>").decode()
    assert "<b>" in seen(message("<b>"))
