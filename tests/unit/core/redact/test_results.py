"""Secrets in result texts: replaced by their kind, everything else byte for byte."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from airlock.core.redact import results
from airlock.core.redact.results import KINDS, RULES, redact, worth_a_look
from airlock.core.text import hygiene

GITHUB = "gh" + "p_" + "x" * 36
JWT = "eyJhbGciOiJIUzI1NiJ9.e30." + "s" * 43
KEY = "aB3xK9pQ2kLm8nRt"


def test_a_secret_is_replaced_by_its_kind_and_the_rest_stays() -> None:
    done = redact(f"\ud83d before {GITHUB}\r\n  after\u200b {JWT} end")
    assert done.text == "\ud83d before [REDACTED:github_token]\r\n  after\u200b [REDACTED:jwt] end"
    assert dict(done.counts) == {"github_token": 1, "jwt": 1}


def test_a_text_without_a_secret_is_the_same_object(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("", "plain", "token: none", f"key: {KEY}"):
        assert redact(text).text is text
    monkeypatch.setattr(results, "_secrets", None)
    for text in ("", "plain", "token: none", f"key: {KEY}"):
        assert redact(text).text is text


def test_the_more_specific_of_two_rules_names_what_both_see() -> None:
    assert redact(f"Authorization: Bearer {JWT}").text == "Authorization: Bearer [REDACTED:jwt]"
    assert (
        redact(f"https://oauth2:{GITHUB}@github.com").text
        == "https://oauth2:[REDACTED:github_token]@github.com"
    )
    assert redact(f'password="{GITHUB}-And9!"').text == 'password="[REDACTED:github_token]"'


def test_what_is_allowed_stays_although_another_rule_sees_it_too() -> None:
    text = f'{{"token":"{JWT}","password":"{KEY}"}}'
    assert redact(text, {"jwt"}).text == f'{{"token":"{JWT}","password":"[REDACTED:assignment]"}}'
    assert redact(text, {"jwt": "why", "assignment": "why"}).text is text


def test_a_name_that_is_given_counts_as_if_it_stood_in_front() -> None:
    assert redact(KEY, name="client_secret").text == "[REDACTED:assignment]"
    assert redact(KEY, name="next_token").text == KEY
    assert redact(KEY, name=f"token={KEY}").text == KEY
    assert redact(f"say {GITHUB}", name="x").text == "say [REDACTED:github_token]"


def test_what_was_replaced_is_not_replaced_again() -> None:
    for text in (f"token: {KEY}", f"Authorization: Bearer {KEY}", "postgres://a:geheim@db", f"--token {KEY}"):
        once = redact(text).text
        assert once != text
        assert redact(once).text is once


def test_the_rules_are_named_once_each() -> None:
    assert (*hygiene.KINDS, *KINDS) == RULES
    assert len(set(RULES)) == len(RULES)


def test_a_quick_look_tells_what_may_change() -> None:
    pytest.importorskip("re2", reason="needs google-re2: install the extra regex")
    for text in ("a\u200b", "\x1b[0m", GITHUB, f"token: {KEY}", "https://a:b@c"):
        assert worth_a_look(text.encode())
        assert worth_a_look(json.dumps([text], ensure_ascii=False).encode(), json=True)
    for text in ("plain\n", "the bearer of news", "max_tokens: many", "token=get()"):
        assert not worth_a_look(text.encode())
        assert not worth_a_look(json.dumps([text], ensure_ascii=False).encode(), json=True)
    assert worth_a_look(b'["\\u001b"]', json=True)
    assert worth_a_look(b'["\\b"]', json=True)


def test_where_re2_is_not_installed_everything_is_worth_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    spec = importlib.util.find_spec("airlock.core.redact.results")
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    assert alone.re2 is None
    assert alone.worth_a_look(b"plain")
    assert alone.worth_a_look(b"plain", json=True)
    assert alone.redact(f"say {GITHUB}").text == "say [REDACTED:github_token]"
    assert alone.redact("plain").counts == {}
