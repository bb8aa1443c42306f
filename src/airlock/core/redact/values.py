"""JSON trees made fit to be written down: well formed, without secrets, and no member lost on the way.

Knows trees and keys; does not know what a secret looks like (`core.redact.patterns`) or who reads the result.
SPEC: gateway.md 12.2.
LIMIT: trees of any depth are walked without recursion, but the JSON encoder behind `args_json` and
`detail_json` raises RecursionError some thousand levels down; admission refuses more than 64. A cycle is not
JSON and is not looked for.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable

import msgspec

from airlock.core.redact.patterns import REDACTED, may_hold_secret, scrub_text, secret_key
from airlock.core.text.safe import well_formed
from airlock.core.wire import canon

__all__ = ["args_json", "clean", "detail_json", "mask", "masked_by_key", "name", "scrub", "scrub_detail"]

_sorting = msgspec.json.Encoder(order="deterministic")
_EXPONENT = re.compile(rb"[0-9]e")
_SHORTEST_SECRET = 20  # the shortest credential that is one word: a GitHub or an AWS key
_SHORTEST_MASKED = 4
_MOST_MASKED = 128


def clean(value: object) -> object:
    """Return the tree with NUL and lone surrogates as U+FFFD and NaN and infinities as their names.

    Keys that become equal stay apart as `key`, `key#2`, `key#3`.
    """
    return _rebuilt(value, leaf=_clean_leaf, key=_clean_key, hides=_never)


def scrub(value: object) -> object:
    """Return arguments without the subtrees under secret keys and without secret-looking text anywhere.

    Keys that become equal stay apart as `[REDACTED]`, `[REDACTED]#2`, `[REDACTED]#3`.
    """
    return _rebuilt(value, leaf=_scrub_leaf, key=_scrub_leaf, hides=_hides)


def scrub_detail(value: object) -> object:
    """Return a record's `detail` without secrets: as `scrub`, but numbers under a key like `est_tokens` stay.

    Anything that is not JSON, a key included, is turned into text before it is scrubbed.
    """
    return _rebuilt(value, leaf=_scrub_detail_leaf, key=_scrub_detail_key, hides=_hides_detail)


def args_json(arguments: object) -> str:
    """Return the canonical JSON text of the cleaned and scrubbed arguments.

    The usual arguments need neither, which their own JSON text proves without a walk: every mark that a rule
    looks for survives the encoding.
    """
    # INVARIANT: equal to canon.text(scrub(clean(arguments))).
    try:
        text = _written(arguments)
    except ValueError:  # NaN or an infinity, which `clean` names
        return canon.text(scrub(clean(arguments)))
    if r"\u0000" in text or well_formed(text) != text:
        arguments = clean(arguments)
    elif not secret_key(text) and not may_hold_secret(text):
        return text
    return canon.text(scrub(arguments))


def _written(arguments: object) -> str:
    """What `canon.text` returns, by the faster encoder where both are known to agree: wherever no float is."""
    try:
        data = _sorting.encode(arguments)
    except (UnicodeEncodeError, TypeError):  # a lone surrogate; or what is no JSON, which `canon` refuses
        return canon.text(arguments)
    if b"." in data or _EXPONENT.search(data) is not None:
        return canon.text(arguments)
    text = data.decode()
    # NaN and infinities come out as null, which looks like any other.
    return canon.text(arguments) if "null" in text else text


def detail_json(detail: object) -> str:
    """Return the canonical JSON text of the cleaned and scrubbed `detail`; `null` for None."""
    if detail is None:
        return "null"
    if type(detail) is str:
        return canon.text(scrub_text(well_formed(detail)))
    return canon.text(scrub_detail(clean(detail)))


def name(text: str | None) -> str | None:
    """Return a principal, method or tool as it may be written down: well formed and without secrets."""
    # No secret is so short a word, and a word holds nothing that would have to be cleaned.
    if text is None or (len(text) < _SHORTEST_SECRET and text.isidentifier()):
        return text
    return scrub_text(well_formed(text))


def masked_by_key(arguments: object) -> tuple[str, ...]:
    """Return the strings of 4 or more characters that the key rule takes out, longest first."""
    found: set[str] = set()
    todo: list[tuple[object, bool]] = [(arguments, False)]
    while todo:
        item, hidden = todo.pop()
        if isinstance(item, dict):
            todo.extend((child, hidden or _hides(key, child)) for key, child in item.items())
        elif isinstance(item, list | tuple):
            todo.extend((child, hidden) for child in item)
        elif hidden and isinstance(item, str) and len(item) >= _SHORTEST_MASKED:
            found.add(item)
    return tuple(sorted(found, key=lambda text: (-len(text), text)))


def mask(text: str, values: tuple[str, ...]) -> str:
    """Return `text` with each of `values` (from `masked_by_key`) as `[REDACTED]`, plain or JSON-escaped.

    Call it before `scrub_text` and before any cut: half of a value would not be found.
    """
    if not text or not values:
        return text
    # LIMIT: each value costs a pass over the text; an answer for more of them is hidden whole.
    if len(values) > _MOST_MASKED:
        return REDACTED
    # SECURITY: spans are taken from the untouched text and joined where they overlap, so that masking one
    # value cannot leave the rest of another readable.
    spans = sorted(span for form in _forms(values) for span in _occurrences(text, form))
    parts: list[str] = []
    done = start = end = 0
    for a, b in spans:
        if a >= end:
            if end:
                parts.append(text[done:start] + REDACTED)
                done = end
            start, end = a, b
        else:
            end = max(end, b)
    if end:
        parts.append(text[done:start] + REDACTED)
        done = end
    return "".join(parts) + text[done:]


def _forms(values: Iterable[str]) -> set[str]:
    """How a value may be spelled in a text: as it is, well formed, or inside JSON."""
    forms: set[str] = set()
    for value in values:
        forms |= {
            value,
            well_formed(value),
            json.dumps(value)[1:-1],
            json.dumps(value, ensure_ascii=False)[1:-1],
        }
    return forms


def _occurrences(text: str, needle: str) -> Iterable[tuple[int, int]]:
    at = text.find(needle)
    while at >= 0:
        end = at + len(needle)
        yield at, end
        at = text.find(needle, end)


def _never(key: object, child: object) -> bool:
    return False


def _hides(key: object, child: object) -> bool:
    return isinstance(key, str) and secret_key(key)


def _hides_detail(key: object, child: object) -> bool:
    return secret_key(str(key)) and not (child is None or isinstance(child, int | float))


def _clean_leaf(leaf: object) -> object:
    if isinstance(leaf, str):
        return well_formed(leaf)
    if isinstance(leaf, float) and not math.isfinite(leaf):
        return "NaN" if math.isnan(leaf) else "Infinity" if leaf > 0 else "-Infinity"
    return leaf


def _clean_key(key: object) -> object:
    return well_formed(key) if isinstance(key, str) else key


def _scrub_leaf(leaf: object) -> object:
    return scrub_text(leaf) if isinstance(leaf, str) else leaf


def _scrub_detail_leaf(leaf: object) -> object:
    return leaf if leaf is None or isinstance(leaf, int | float) else _scrub_detail_key(leaf)


def _scrub_detail_key(key: object) -> object:
    return scrub_text(key if isinstance(key, str) else well_formed(str(key)))


def _rebuilt(
    value: object,
    *,
    leaf: Callable[[object], object],
    key: Callable[[object], object],
    hides: Callable[[object, object], bool],
) -> object:
    """Copy a tree, top down and without recursion: members in the same order, tuples as lists."""
    root: list[object] = [None]
    todo: list[tuple[dict[object, object] | list[object], object, object]] = [(root, 0, value)]
    while todo:
        holder, place, item = todo.pop()
        fresh: object
        if isinstance(item, dict):
            members: dict[object, object] = {}
            for new, (old, child) in zip(_apart(list(item), key), item.items(), strict=True):
                members[new] = REDACTED
                if not hides(old, child):
                    todo.append((members, new, child))
            fresh = members
        elif isinstance(item, list | tuple):
            items: list[object] = [None] * len(item)
            todo.extend((items, index, child) for index, child in enumerate(item))
            fresh = items
        else:
            fresh = leaf(item)
        holder[place] = fresh  # type: ignore[call-overload]
    return root[0]


def _apart(keys: list[object], renamed: Callable[[object], object]) -> list[object]:
    """Rename keys and keep them apart: unchanged ones keep their names, the others are numbered from 2 on.

    The numbers of one name only go up, so that a thousand equal names cost a thousand steps.
    """
    names = [renamed(key) for key in keys]
    if names == keys:
        return keys
    taken = {new for old, new in zip(keys, names, strict=True) if new == old}
    last: dict[object, int] = {}
    for index, (old, new) in enumerate(zip(keys, names, strict=True)):
        if new == old:
            continue
        number = last.get(new, 1)
        candidate = new if number == 1 else f"{new}#{number}"
        while candidate in taken:
            number += 1
            candidate = f"{new}#{number}"
        last[new] = number
        taken.add(candidate)
        names[index] = candidate
    return names
