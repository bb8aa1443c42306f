"""Text that a person may look at: nothing in it is hidden, moves the cursor or turns the reading direction.

Knows characters; does not know secrets (`core.redact`), markup or where the text is shown.
"""

from __future__ import annotations

import re

__all__ = ["SafeText", "one_line", "safe", "well_formed"]


class SafeText(str):
    """Text that went through `safe` or `one_line`. Only they make one; slices and sums are plain `str`."""

    __slots__ = ()


_BROKEN = re.compile(r"[\x00\ud800-\udfff]")

# SECURITY: an approval is worth what the person could see of it. Every character that shows as nothing, or
# changes how others show, is spelled out: controls (escape sequences begin with one), bidirectional marks and
# overrides, separators, zero-width and filler characters, variation selectors (they can carry hidden bytes),
# tags, annotation and shorthand controls, and the code points reserved for more of these.
# LIMIT: look-alike letters, blanks of unusual width and the visible signs of category Cf (U+0600) stay.
_UNSEEN = re.compile(
    r"[\x01-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)

_LAYOUT = str.maketrans({"\n": r"\n", "\r": r"\r", "\t": r"\t"})


def well_formed(text: str) -> str:
    """Return `text` with NUL and lone surrogates as U+FFFD. SPEC: gateway.md 8.2 and 12.2."""
    if "\x00" not in text:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            pass
        else:
            return text
    return _BROKEN.sub("\ufffd", text)


def safe(text: str) -> SafeText:
    r"""Return `text` for people: newlines and tabs stay, what cannot be seen is spelled out.

    NUL and lone surrogates become U+FFFD, the others `\u202e` or `\U000e0041`. A backslash stays single, so a
    text that spells `\u202e` itself looks the same.
    """
    return SafeText(_UNSEEN.sub(_spelled, _BROKEN.sub("\ufffd", text)))


def one_line(text: str) -> SafeText:
    r"""Return `text` for one line of a terminal or log: as `safe`, and `\n`, `\r`, `\t` spelled out."""
    return safe(text.translate(_LAYOUT))


def _spelled(match: re.Match[str]) -> str:
    point = ord(match[0])
    return f"\\u{point:04x}" if point <= 0xFFFF else f"\\U{point:08x}"
