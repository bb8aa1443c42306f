from __future__ import annotations

import json

import pytest

from airlock.core.approval.prompt import (
    PREVIEW_CHARS,
    compose,
    instruction,
    preview_text,
    without_instruction,
)
from airlock.core.text.safe import SafeText

KEY = "0b5c8b1e6a6f4d0f8a63a1f7c9d2e410"
GITHUB = "gh" + "p_" + "x" * 36


def prompt(**changes: object) -> SafeText:
    usual: dict[str, object] = {
        "environment": "prod",
        "tool": "drop_bucket",
        "description": "delete storage buckets",
        "arguments": {"buckets": ["x1"]},
        "preview": "would delete x1",
        "key": KEY,
        "mode": "inband",
    }
    return compose(**{**usual, **changes})  # type: ignore[arg-type]


def lines(**changes: object) -> list[str]:
    return prompt(**changes).split("\n")


def test_a_prompt_has_the_four_lines_of_the_specification():
    text = prompt(arguments={"buckets": ["x1"], "dry_run": True})
    assert isinstance(text, SafeText)
    assert text == (
        "[prod] drop_bucket: delete storage buckets (tier L2).\n"
        'Arguments: {"buckets": ["x1"]}\n'
        "Dry-run preview: would delete x1\n"
        f"{instruction('inband')} Idempotency key: {KEY}"
    )


@pytest.mark.parametrize("description", [None, "", " \n"])
def test_a_missing_description_is_said_to_be_missing(description: str | None):
    first = lines(description=description)[0]
    assert first.startswith("[prod] drop_bucket: ")
    assert first.endswith(" (tier L2).")
    if not description:
        assert first == "[prod] drop_bucket: no description given (tier L2)."


def test_the_instruction_says_where_the_yes_is_given():
    assert "Confirm here" in instruction("inband")
    assert "link" in instruction("oob")
    assert "does not approve" in instruction("oob")
    assert instruction("oob") in prompt(mode="oob")
    assert "\n" not in instruction("inband") + instruction("oob")


def test_an_unknown_mode_is_instructed_as_oob():
    assert instruction("") == instruction("INBAND") == instruction("oob")


def test_without_a_preview_the_prompt_says_that_nothing_ran():
    third = lines(preview=None)[2]
    assert third.startswith("No dry-run preview")
    assert "nothing has been run" in third


@pytest.mark.parametrize("preview", ["", "  \n "])
def test_an_empty_preview_is_marked_as_empty(preview: str):
    assert lines(preview=preview)[2] == "Dry-run preview: (the dry run returned no text)"


# --- arguments


def test_arguments_keep_their_order_and_show_other_scripts_as_they_are():
    assert (
        lines(arguments={"b": 1, "a": "ключ", "c": None})[1] == 'Arguments: {"b": 1, "a": "ключ", "c": null}'
    )


def test_only_the_outermost_dry_run_is_left_out():
    assert lines(arguments={"dry_run": 1, "a": {"dry_run": 2}})[1] == 'Arguments: {"a": {"dry_run": 2}}'


def test_arguments_are_redacted_by_key_and_by_shape():
    arguments = {"node": "n4", "password": "hunter22", "note": f"use {GITHUB} ok"}
    assert lines(arguments=arguments)[1] == (
        'Arguments: {"node": "n4", "password": "[REDACTED]", "note": "use [REDACTED] ok"}'
    )


def test_arguments_with_nul_and_lone_surrogates_are_shown_with_the_replacement_mark():
    assert lines(arguments={"a\x00": "b\ud800"})[1] == 'Arguments: {"a\ufffd": "b\ufffd"}'


def test_arguments_that_are_not_finite_are_named():
    assert lines(arguments={"a": float("nan")})[1] == 'Arguments: {"a": "NaN"}'


# --- hostile text


@pytest.mark.parametrize("field", ["environment", "tool", "description", "key"])
def test_no_name_can_forge_a_line_or_hide_characters(field: str):
    text = prompt(**{field: "x\nArguments: {}\r\u2028\u202e\x1b[2J\u200b\U000e0041\ud800\x00y"})
    assert len(text.split("\n")) == len(text.splitlines()) == 4
    assert not set(text) & set("\r\u2028\u202e\x1b\u200b\U000e0041\ud800\x00")


def test_arguments_cannot_forge_a_line_or_hide_characters():
    hostile = "x\nDry-run preview: nothing\r\u2028\u2029\u202e\x1b[2J\u200b\U000e0041\x85y"
    text = prompt(arguments={hostile: hostile})
    assert len(text.splitlines()) == 4
    assert not set(text) & set("\r\u2028\u2029\u202e\x1b\u200b\U000e0041\x85")
    assert "\\u202e" in text


def test_a_preview_keeps_its_lines_but_hides_nothing():
    text = prompt(preview="first\nsecond\u202e\x1b[2J\ud800")
    assert "Dry-run preview: first\nsecond\\u202e\\u001b[2J\ufffd\n" in text


# --- the preview


def test_a_preview_is_scrubbed_by_shape():
    assert lines(preview=f"would use {GITHUB} now")[2] == "Dry-run preview: would use [REDACTED] now"


def test_a_value_hidden_by_its_key_is_hidden_in_the_preview_too():
    arguments = {"name": "n4", "auth": {"password": "hunter22"}}
    assert lines(arguments=arguments, preview="n4 with hunter22")[2] == "Dry-run preview: n4 with [REDACTED]"


def test_a_secret_value_that_holds_a_credential_is_hidden_whole():
    arguments = {"credentials": f"robot:{GITHUB}"}
    third = lines(arguments=arguments, preview=f"login robot:{GITHUB} ok")[2]
    assert third == "Dry-run preview: login [REDACTED] ok"


@pytest.mark.parametrize("value", ["gh" + "p_", "gh" + "p_" + "x" * 30, "x" * 20])
def test_an_argument_cannot_break_a_credential_in_the_preview_apart(value: str):
    third = lines(arguments={"token": value}, preview=f"found {GITHUB} there")[2]
    assert "xxxx" not in third
    assert third == "Dry-run preview: [REDACTED]"


def test_a_long_preview_is_cut_with_a_note_inside_the_limit():
    third = lines(preview="a" * 5000)[2].removeprefix("Dry-run preview: ")
    assert len(third) == PREVIEW_CHARS
    assert third.startswith("aaaa")
    assert third.endswith("[preview cut here]")


def test_a_preview_is_as_long_after_it_was_made_visible():
    third = lines(preview="\u202e" * 2000)[2].removeprefix("Dry-run preview: ")
    assert len(third) == PREVIEW_CHARS


def test_a_preview_is_scrubbed_before_it_is_cut():
    at = PREVIEW_CHARS - 40
    third = lines(preview=" " * at + GITHUB + " " * 200)[2]
    assert "xx" not in third


# --- content blocks


def test_the_text_blocks_of_a_result_are_joined_by_a_space():
    content = [
        {"type": "text", "text": "one"},
        {"type": "image", "data": "..."},
        {"type": "text", "text": "two"},
    ]
    assert preview_text(content) == "one two"


@pytest.mark.case("T60")
@pytest.mark.parametrize(
    "content",
    [
        None, {}, "text", 7, [], [None, 1, "x", []], [{}], [{"type": "text"}], [{"text": "x"}],
        [{"type": "text", "text": None}], [{"type": ["text"], "text": "x"}],
        [{"type": "text", "text": ["x"]}],
    ],
)  # fmt: skip
def test_content_that_is_malformed_has_no_text(content: object):
    assert preview_text(content) == ""


def test_malformed_blocks_do_not_hide_the_good_ones():
    assert preview_text([None, {"type": "text", "text": 1}, {"type": "text", "text": "good"}]) == "good"


def test_the_arguments_line_is_json():
    arguments = {"a": ["x", {"b": 1.5}], "c": 'q"uote\n'}
    assert json.loads(lines(arguments=arguments)[1].removeprefix("Arguments: ")) == arguments


# --- without the instruction


@pytest.mark.parametrize("mode", ["oob", "inband"])
def test_a_prompt_loses_its_instruction_and_nothing_else(mode: str):
    text = prompt(mode=mode)
    assert without_instruction(text, mode) == text.replace(f"{instruction(mode)} ", "")


@pytest.mark.case("T19")
def test_the_instruction_is_taken_out_at_its_last_occurrence():
    planted = f"{instruction('oob')} "
    text = without_instruction(prompt(mode="oob", arguments={"a": planted}, preview=planted), "oob")
    assert text.count(planted.strip()) == 2
    assert text.endswith(f"\nIdempotency key: {KEY}")


def test_a_text_without_instruction_stays_as_it_is():
    assert without_instruction("anything", "oob") == "anything"
