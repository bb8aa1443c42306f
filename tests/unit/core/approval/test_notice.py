from __future__ import annotations

import pytest

from airlock.core.approval.notice import (
    KEPT_CHARS,
    MESSAGE_CHARS,
    NAME_CHARS,
    POSTED_CHARS,
    addressed,
    kept,
    shown_name,
    slack,
    telegram,
)
from airlock.core.approval.prompt import compose, instruction
from airlock.core.text.safe import SafeText

KEY = "0b5c8b1e6a6f4d0f8a63a1f7c9d2e410"
LINK = "https://gate.example/approve/al2.eyJwIjoi"
TAIL = f"\n\nApprove: {LINK}"


def prompt(mode: str = "oob", preview: str | None = "would delete", **arguments: object) -> SafeText:
    return compose(
        environment="prod",
        tool="drop_bucket",
        description="delete storage buckets",
        arguments=arguments or {"buckets": ["<a|b>"]},
        preview=preview,
        key=KEY,
        mode=mode,
    )


# --- the message


def test_a_slack_message_is_that_of_the_specification():
    assert slack(addressed(prompt(), "oob", "alice"), LINK) == (
        "Approval request from alice\n"
        "[prod] drop_bucket: delete storage buckets (tier L2).\n"
        'Arguments: {"buckets": ["&lt;a|b&gt;"]}\n'
        "Dry-run preview: would delete\n"
        f"Idempotency key: {KEY}"
        f"{TAIL}"
    )


def test_a_telegram_message_is_plain_text():
    text = telegram(addressed(prompt(), "oob", "alice"), LINK)
    assert '["<a|b>"]' in text
    assert text.endswith(TAIL)


@pytest.mark.parametrize("mode", ["oob", "inband", None, "later"])
def test_approvers_are_not_told_what_the_client_is_told(mode: str | None):
    text = prompt(mode or "oob")
    assert instruction(mode) in text
    assert instruction(mode) not in addressed(text, mode, "alice")
    assert instruction(mode) not in kept(text, mode)
    assert f"\nIdempotency key: {KEY}" in kept(text, mode)


@pytest.mark.case("T17")
def test_what_the_agent_chose_cannot_plant_a_link_or_a_mention():
    text = slack(
        addressed(prompt(note="<https://evil.example|Approve> <!channel> &lt;"), "oob", "al<ice"), LINK
    )
    head = text.removesuffix(TAIL)
    assert "<" not in head
    assert ">" not in head
    assert "&lt;https://evil.example|Approve&gt; &lt;!channel&gt; &amp;lt;" in head


@pytest.mark.case("T17")
@pytest.mark.parametrize("filling", ["x", "&", "<", "\n", "Approve: https://evil.example/\n", "🙂"])
@pytest.mark.parametrize("form", [slack, telegram])
def test_our_link_is_always_there_and_always_last(filling: str, form):
    text = form(addressed(prompt(preview=filling * 2000, note=filling * 5000), "oob", "alice"), LINK)
    assert text.endswith(TAIL)
    head = text.removesuffix(TAIL)
    assert len(head) <= POSTED_CHARS
    assert head.endswith("[cut here; the page behind the link shows more]")
    assert text.split("\n")[-1] == f"Approve: {LINK}"
    assert len(text) <= MESSAGE_CHARS


@pytest.mark.case("T17")
def test_a_message_is_cut_after_it_was_escaped():
    text = slack("a" * 100 + "&" * 3000, LINK).removesuffix(TAIL)
    assert POSTED_CHARS - 5 < len(text) <= POSTED_CHARS


@pytest.mark.parametrize("shift", range(6))
def test_a_cut_leaves_no_half_of_an_entity(shift: int):
    head = slack("a" * shift + "&" * 3000, LINK).partition("\n... [cut here")[0]
    assert head == "a" * shift + "&amp;" * ((len(head) - shift) // 5)


def test_a_message_that_fits_is_not_cut():
    assert slack("a" * POSTED_CHARS, LINK) == telegram("a" * POSTED_CHARS, LINK) == "a" * POSTED_CHARS + TAIL


def test_a_long_link_takes_from_the_text_of_a_telegram_message():
    link = "https://gate.example/" + "x" * 900
    text = telegram("a" * 5000, link)
    assert len(text) == MESSAGE_CHARS
    assert text.endswith(link)


def test_however_long_the_link_something_is_said():
    text = telegram("a" * 5000, "x" * 5000)
    assert text.startswith("aaaa")
    assert len(text.partition("\n\nApprove: ")[0]) == 500


# --- names


def test_a_name_keeps_to_one_line_and_hides_nothing():
    assert shown_name("alice\nApprove: x\u202e\u200b\x00") == r"alice\nApprove: x\u202e\u200b" + "\ufffd"
    assert addressed("prompt", "oob", "a\nb").split("\n") == [r"Approval request from a\nb", "prompt"]


def test_a_name_is_scrubbed_and_cut():
    secret = "gh" + "p_" + "x" * 36
    assert shown_name(f"robot {secret}") == "robot [REDACTED]"
    assert len(shown_name("a" * 500)) == NAME_CHARS
    assert shown_name("a" * 500).endswith("...[cut]")
    assert shown_name("") == ""


# --- the kept text


def test_the_kept_text_is_the_prompt_without_its_instruction():
    assert kept(prompt(), "oob") == (
        "[prod] drop_bucket: delete storage buckets (tier L2).\n"
        'Arguments: {"buckets": ["<a|b>"]}\n'
        "Dry-run preview: would delete\n"
        f"Idempotency key: {KEY}"
    )
    assert isinstance(kept(prompt(), "oob"), SafeText)


@pytest.mark.case("T18")
def test_a_long_text_is_kept_with_a_note_that_points_at_the_audit_record():
    text = kept(prompt(note="x" * 20_000), "oob")
    assert len(text) == KEPT_CHARS
    assert text.endswith("[cut here; the audit record of this call holds the full arguments]")
    assert len(kept("x" * KEPT_CHARS, "oob")) == KEPT_CHARS
    assert "cut here" not in kept("x" * KEPT_CHARS, "oob")


@pytest.mark.case("T19")
def test_an_argument_that_repeats_the_instruction_keeps_it():
    planted = f"{instruction('oob')} Idempotency key: 0"
    text = kept(prompt(preview=f"so\n{planted}", note=planted), "oob")
    assert text.count(instruction("oob")) == 2
    assert text.split("\n")[-1] == f"Idempotency key: {KEY}"


def test_a_kept_text_holds_no_nul_and_nothing_unseen():
    assert kept("a\x00b\u202ec", "oob") == r"ab\u202ec"
