r"""Characters in a text for a model that people cannot see, and a visible mark in the place of each.

Knows characters and where they are at home; does not know secrets, results or who reads.

What may stay: the flag of a region (a black flag and 3 to 6 tags), a joiner next to a letter of a script that needs
it or between two pictures, a variation selector behind a sign that has variants, a zero-width space between two
letters of a script without spaces. Everything else becomes `[U+202E]`, more than 8 of one kind in a row
`[U+E0049 tag x42]`, more than 64 of any kinds one mark named after the first. The marks hold nothing that would be
replaced, so doing it twice changes nothing more.

LIMIT: a text grows to at most nine times its characters. Directional marks are replaced in Hebrew and Arabic too.
Look-alike letters and blanks of unusual width stay.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

import msgspec

__all__ = ["KINDS", "SUSPECT", "Cleaned", "neutralise"]

KINDS: Final = ("tag", "bidi", "zero_width", "joiner", "variation", "control", "annotation")
"""What a replaced character is called, and what a policy calls the rule for it."""

SUSPECT: Final = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""What is looked at, as the inside of a character class: all that Unicode calls ignorable, and the controls."""

_CONTROLS = bytes(byte for byte in range(128) if (byte < 32 and byte not in b"\t\n\r") or byte == 127)
_LONGEST_RUN = 8
_LONGEST_JUDGED = 64
_MOST_KNOWN = 4096

# SECURITY: a region has 3 to 6 signs. Without that bound a flag could carry a whole message.
_REGION = re.compile("[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_FLAG = "\U0001f3f4"
_RUN = re.compile(f"[{SUSPECT}]+")

_OF_SIGN = (
    dict.fromkeys("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", "bidi")
    | dict.fromkeys("\u200c\u200d", "joiner")
    | dict.fromkeys("\ufff9\ufffa\ufffb", "annotation")
    | dict.fromkeys(map(chr, [*range(0xFE00, 0xFE10), 0x180B, 0x180C, 0x180D, 0x180F]), "variation")
    | dict.fromkeys(map(chr, [*range(0x20), *range(0x7F, 0xA0)]), "control")
)

# Scripts whose letters change with a joiner: Arabic and its kin, those of India and around, Mongolian.
_JOINED_SIGNS = (
    "\u0600-\u07ff\u0840-\u08ff\u0900-\u0dff\u0f00-\u109f\u1700-\u18af\u1900-\u1cff\ua800-\ua8ff\ua980-\uaaff"
    "\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010aff\U00010d00-\U00010d3f\U00010f00-\U00011fff"
    "\U0001e900-\U0001e95f"
)
_JOINED = re.compile(f"[{_JOINED_SIGNS}]")
_SPACELESS = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1950-\u19ff\u1a20-\u1aaf]")
_MONGOLIAN = re.compile("[\u1820-\u18aa]")
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_PICTURES = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2900-\u297f"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_PICTURE = re.compile(f"[{_PICTURES}]")
_KEYCAP = "#*0123456789"
# Mathematical signs, ideographs and the punctuation among them, Burmese, Phags-pa, Manichaean.
_VARIED = re.compile(
    "[0\u2200-\u22ff\u2a00-\u2aff\u3001\u3002\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01\uff0c\uff0e\uff1a\uff1b"
    "\uff1f\u1000-\u109f\ua840-\ua87f\U00010ac0-\U00010aff\U00020000-\U0003ffff]"
)
# Most of what is looked at stands where it belongs, and this sees nothing there. It begins with one class, so that
# `re` skips to the first candidate.
_ODD = re.compile(
    f"[{SUSPECT}](?:(?<![\u200c\u200d\ufe0f])|(?<=\u200c)(?:(?<![{_JOINED_SIGNS}]\u200c)|(?=[{SUSPECT}]))"
    f"|(?<=\u200d)(?:(?<![{_JOINED_SIGNS}{_PICTURES}\ufe0f]\u200d)|(?<=[{_PICTURES}\ufe0f]\u200d)(?![{_PICTURES}])"
    f"|(?=[{SUSPECT}]))"
    f"|(?<=\ufe0f)(?:(?<![{_PICTURES}{_KEYCAP}]\ufe0f)|(?=[{SUSPECT}])(?!\u200d)))"
)
_CLOSED = "]"  # how a mark ends, and so what stands before whatever follows one


class Cleaned(msgspec.Struct, frozen=True):
    """A text, how many characters of each kind were replaced in it, and where the first mark of a hidden one is.

    `text` is the very object that was given when `counts` is empty. `hidden` is -1 when only controls were
    replaced: a terminal's colours hide nothing.
    """

    text: str
    counts: Mapping[str, int] = {}
    hidden: int = -1


def neutralise(text: str, allow: Collection[str] = ()) -> Cleaned:
    """Return `text` with a mark for each character that cannot be seen, but for the kinds in `allow`.

    Lone surrogates stay. Takes linear time.
    """
    if text.isascii() and len(text.encode().translate(None, _CONTROLS)) == len(text):
        return Cleaned(text)
    if _ODD.search(text) is None:
        return Cleaned(text)
    parts: list[str] = []
    counts: dict[str, int] = {}
    known: dict[str, tuple[str, dict[str, int]]] = {}
    done = length = 0
    hidden = -1
    for found in _RUN.finditer(text):
        start, end = found.span()
        # What becomes of a run depends on it and its neighbours; most texts repeat a few of them.
        place = text[start - 1 : end + 1] if start else "\n" + text[: end + 1]
        judged = known.get(place)
        if judged is None:
            judged = _judged(place[0], found[0], text[end : end + 1], allow)
            if len(known) < _MOST_KNOWN:
                known[place] = judged
        fresh, kinds = judged
        if not kinds:
            continue
        parts += (text[done:start], fresh)
        length += start - done
        for kind, number in kinds.items():
            counts[kind] = counts.get(kind, 0) + number
            if hidden < 0 and kind != "control":
                hidden = length
        length += len(fresh)
        done = end
    if not counts:
        return Cleaned(text)
    return Cleaned("".join(parts) + text[done:], counts, hidden)


def _judged(before: str, run: str, after: str, allow: Collection[str]) -> tuple[str, dict[str, int]]:
    """Return what becomes of a run of such characters between two others, and how many of each kind went."""
    if len(run) > _LONGEST_JUDGED:
        return _swept(run, allow)
    region = _REGION.match(run) if before == _FLAG else None
    at = 0 if region is None else region.end()
    before = run[at - 1] if at else before
    parts: list[str] = []
    counts: dict[str, int] = {}
    gone, gone_kind = "", ""
    for place in range(at, len(run)):
        sign = run[place]
        kind = _kind(sign)
        # INVARIANT: only what stays counts as a neighbour, so a second look at the result decides the same.
        stays = kind in allow or _at_home(sign, kind, before, after if place == len(run) - 1 else "")
        if gone and (stays or kind != gone_kind):
            parts.append(_mark(gone, gone_kind))
            gone = ""
        if stays:
            parts.append(sign)
            before = sign
        else:
            gone += sign
            gone_kind, before = kind, _CLOSED
            counts[kind] = counts.get(kind, 0) + 1
    if gone:
        parts.append(_mark(gone, gone_kind))
    return run[:at] + "".join(parts), counts


def _swept(run: str, allow: Collection[str]) -> tuple[str, dict[str, int]]:
    """Judge a run longer than any that belongs somewhere: one mark, named after the first sign."""
    gone = run if not allow else "".join(sign for sign in run if _kind(sign) not in allow)
    counts: dict[str, int] = {}
    for sign, number in Counter(gone).items():
        kind = _kind(sign)
        counts[kind] = counts.get(kind, 0) + number
    if not gone:
        return run, counts
    kept = "".join(sign for sign in run if _kind(sign) in allow) if allow else ""
    return kept + _mark(gone, _kind(gone[0])), counts


def _mark(gone: str, kind: str) -> str:
    if len(gone) > _LONGEST_RUN:
        return f"[U+{ord(gone[0]):04X} {kind} x{len(gone)}]"
    return "".join(f"[U+{ord(sign):04X}]" for sign in gone)


def _kind(sign: str) -> str:
    if sign >= "\U000e0000":
        return "variation" if "\U000e0100" <= sign <= "\U000e01ef" else "tag"
    return _OF_SIGN.get(sign, "zero_width")


def _at_home(sign: str, kind: str, before: str, after: str) -> bool:
    """Tell whether a sign belongs between its neighbours; "" is none, or one that cannot be seen."""
    match kind:
        case "joiner":
            if sign == "\u200d" and _PICTURE.match(after) is not None:
                return before == "\ufe0f" or _PICTURE.match(before) is not None
            # SECURITY: one joiner, not a row of them, which could spell something.
            if before in _OF_SIGN:
                return False
            return _JOINED.match(before) is not None or _JOINED.match(after) is not None
        case "variation":
            if sign >= "\U000e0100":
                return _IDEOGRAPH.match(before) is not None
            if sign < "\ufe00":
                return _MONGOLIAN.match(before) is not None
            if sign >= "\ufe0e":
                return before != "" and (before in _KEYCAP or _PICTURE.match(before) is not None)
            return _VARIED.match(before) is not None
        case "zero_width":
            if sign == "\u180e":
                return _MONGOLIAN.match(before) is not None
            return (
                sign == "\u200b"
                and _SPACELESS.match(before) is not None
                and _SPACELESS.match(after) is not None
            )
        case _:
            return False
