"""What a person may look at, character by character."""

from __future__ import annotations

import unicodedata

import pytest

from airlock.core.text.safe import SafeText, one_line, safe, well_formed

VISIBLE_FORMAT = [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD]


@pytest.mark.case("T30")
def test_nul_and_lone_surrogates_become_the_replacement_character():
    broken = "a\x00b\ud800c\udfffd\udbff\udc00"
    assert well_formed(broken) == "a\ufffdb\ufffdc\ufffdd\ufffd\ufffd"
    assert safe(broken) == one_line(broken) == well_formed(broken)


@pytest.mark.case("T30")
@pytest.mark.parametrize("text", ["\ud800", "é\udc00", "\x00", "é\x00"])
def test_each_alone_is_found(text):
    assert "\ufffd" in well_formed(text)
    well_formed(text).encode()


@pytest.mark.parametrize("text", ["", "plain", "é\U0001f600\ufffe", "\x01\x1b\u202e\n"])
def test_a_well_formed_text_is_handed_back_itself(text):
    assert well_formed(text) is text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2K", r"\u001b[2K"),
        ("a\rb", r"a\u000db"),
        ("\x07\x08\x7f\x85\x9b", r"\u0007\u0008\u007f\u0085\u009b"),
        ("\u202egpj.exe\u202c", r"\u202egpj.exe\u202c"),
        ("\u2066\u2069\u200e\u200f\u061c", r"\u2066\u2069\u200e\u200f\u061c"),
        ("a\u200bb\u2060c\ufeffd\xade", r"a\u200bb\u2060c\ufeffd\u00ade"),
        ("\u180e\u115f\u1160\u3164\uffa0\u034f\u17b4", r"\u180e\u115f\u1160\u3164\uffa0\u034f\u17b4"),
        ("\u2028\u2029", r"\u2028\u2029"),
        ("\ufff9\ufffa\ufffb", r"\ufff9\ufffa\ufffb"),
        ("\U000e0041\U000e007f", r"\U000e0041\U000e007f"),
        ("x\ufe0f\U000e0100", r"x\ufe0f\U000e0100"),
        ("\u2065\U000e0fff", r"\u2065\U000e0fff"),
    ],
)
def test_what_cannot_be_seen_is_spelled_out(text, shown):
    assert safe(text) == shown
    assert safe(shown) == shown
    assert safe(text).isprintable()


@pytest.mark.parametrize(
    "text", ["", "a b", "tab\tand\nline", "zoë \U0001f600 漢字 ‘x’", r"\u202e", "\ufffd", "\xa0"]
)
def test_everything_else_stays(text):
    assert safe(text) == text


def test_both_give_safe_text_and_nothing_beside_the_text():
    assert type(safe("x")) is SafeText
    assert type(one_line("x")) is SafeText
    with pytest.raises(AttributeError):
        safe("x").note = 1  # type: ignore[attr-defined]


def test_one_line_spells_line_ends_and_tabs():
    assert one_line("a\nb\r\tc") == r"a\nb\r\tc"
    assert one_line(safe("a\nb")) == r"a\nb"


def test_nothing_unseen_gets_through_but_newline_tab_and_the_visible_signs():
    unseen = ("Cc", "Cf", "Cs", "Zl", "Zp")
    every = {c for c in map(chr, range(0x110000)) if unicodedata.category(c) in unseen}
    text = "".join(sorted(every))
    signs = set(map(chr, VISIBLE_FORMAT))
    assert every & set(one_line(text)) == signs
    assert every & set(safe(text)) == signs | {"\n", "\t"}
