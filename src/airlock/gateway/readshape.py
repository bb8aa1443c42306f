"""Shaping what came back for resources, prompts and completions: foreign keys out, lists cut, cap, marks.

Pure. Knows the shapes of results (mcp.md 4, 7, 9, 23); does not know who asked or why it was allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from airlock.core.policy.model import OutputLimits
from airlock.core.text.scan import Scanner
from airlock.gateway import body, meta
from airlock.gateway.shaping import Shaped

if TYPE_CHECKING:
    from airlock.gateway.hygiene import Cleaner

__all__ = ["LONGEST_TTL_MS", "Piece", "bare", "contents", "listing", "messages"]

LONGEST_TTL_MS = 60_000
"""How long a client may keep what was cut for it, so that a new policy shows in time."""

Piece = tuple[str, Callable[[str], dict[str, object]]]
"""A text, and what makes the member of the result that holds another text in its place."""

_LABELS = {"uri": "resource", "uriTemplate": "resource", "name": "prompt"}


def bare(result: dict[str, object], cleaner: Cleaner | None = None) -> Shaped:
    """Shape a result whose texts are not capped or marked, in place: a question, a completion.

    `cleaner` here and below: of content hygiene, where it is on.
    """
    if "_meta" in result:
        meta.strip_holder(result)
    meta.strip_questions(result.get("inputRequests"))
    detail: dict[str, object] = {}
    findings: list[dict[str, object]] = []
    if cleaner is not None:
        cleaner.questions(result)
        detail, findings = cleaner.noted(detail), cleaner.findings("block", findings)
        if detail:
            cleaner.tell(own := meta.strip_holder(result))
            if findings:
                own[meta.SUSPICIOUS] = findings
    return Shaped(body.encode(result), _noticed(detail, findings), len(findings))


def listing(
    result: dict[str, object],
    member: str,
    key: str,
    may_see: Callable[[str], bool],
    scanner: Scanner,
    told: dict[str, object],
    cleaner: Cleaner | None = None,
) -> Shaped | None:
    """Cut a listing in place to what `may_see` says; None when it holds no list to cut.

    `member` holds the list, and `key` of each item what is asked about it. Items without one are left out. `told`
    goes into `_meta` as it is.
    """
    items = result.get(member)
    # SECURITY: what cannot be filtered is not passed on.
    if not isinstance(items, list):
        return None
    own = meta.strip_holder(result)
    own.update(told)
    kept: list[dict[str, object]] = [
        item
        for item in items
        if isinstance(item, dict) and isinstance(name := item.get(key), str) and may_see(name)
    ]
    meta.strip_items(kept)
    if cleaner is not None:
        kept = cleaner.listed(kept, key)
        cleaner.tell(own)
    result[member] = kept
    _private(result)
    own[meta.HIDDEN_PROMPTS if key == "name" else meta.HIDDEN_RESOURCES] = len(items) - len(kept)
    findings = scanner.scan_named(_LABELS[key], _told(kept, key))
    detail: dict[str, object] = {}
    if cleaner is not None:
        detail, findings = cleaner.noted(detail), cleaner.findings(_LABELS[key], findings)
    if findings:
        own[meta.SUSPICIOUS] = findings
    return Shaped(body.encode(result), _noticed(detail, findings), len(findings))


def contents(
    result: dict[str, object],
    uri: str,
    limits: OutputLimits,
    scanner: Scanner,
    cleaner: Cleaner | None = None,
) -> Shaped:
    """Shape the result of a `resources/read` of `uri` in place."""
    meta.strip_items(result.get("contents"))
    if cleaner is not None:
        cleaner.contents(result)
    _private(result)
    alone: Piece = ("", lambda text: {"uri": uri, "mimeType": "text/plain", "text": text})
    return _shaped(result, "contents", _content, alone, limits, scanner, cleaner)


def messages(
    result: dict[str, object], limits: OutputLimits, scanner: Scanner, cleaner: Cleaner | None = None
) -> Shaped:
    """Shape the result of a `prompts/get` in place."""
    held = result.get("messages")
    meta.strip_items(held)
    meta.strip_blocks([block for _, block in _blocks(held)])
    if cleaner is not None:
        cleaner.messages(result)
    alone: Piece = ("", lambda text: {"role": "user", "content": {"type": "text", "text": text}})
    return _shaped(result, "messages", _message, alone, limits, scanner, cleaner)


def _shaped(
    result: dict[str, object],
    member: str,
    piece: Callable[[dict[str, object]], Piece | None],
    alone: Piece,
    limits: OutputLimits,
    scanner: Scanner,
    cleaner: Cleaner | None,
) -> Shaped:
    """Cap and mark: `piece` finds the text in an item of `member`, `alone` makes one for a note without a text."""
    own = meta.strip_holder(result)
    if cleaner is not None:
        cleaner.tell(own)
    encoded, detail = _capped(result, own, member, piece, alone, limits)
    findings = scanner.scan_texts(_numbered(result.get(member)))
    if cleaner is not None:
        detail, findings = cleaner.noted(detail), cleaner.findings("block", findings)
    if findings:
        own[meta.SUSPICIOUS] = findings
        encoded = body.encode(result)
    return Shaped(encoded, _noticed(detail, findings), len(findings))


def _content(item: dict[str, object]) -> Piece | None:
    text = item.get("text")
    return (text, lambda other: {**item, "text": other}) if isinstance(text, str) else None


def _message(item: dict[str, object]) -> Piece | None:
    block = item.get("content")
    if not isinstance(block, dict) or block.get("type") != "text":
        return None
    found = _content(block)
    return None if found is None else (found[0], lambda other: {**item, "content": {**block, "text": other}})


def _capped(
    result: dict[str, object],
    own: dict[str, object],
    member: str,
    piece: Callable[[dict[str, object]], Piece | None],
    alone: Piece,
    limits: OutputLimits,
) -> tuple[bytes, dict[str, object]]:
    """Encode `result`, trimmed as gateway.md 10 says for tools: texts cut, what is no text dropped, a note last."""
    encoded = body.encode(result)
    if len(encoded) <= limits.max_chars:  # bytes are never fewer than characters
        return encoded, {}
    chars = _chars(result)
    if chars <= limits.max_chars:
        return encoded, {}
    numbers: dict[str, object] = {
        "truncated": True,
        "chars": chars,
        "max_chars": limits.max_chars,
        "est_tokens": round(chars / limits.chars_per_token),
    }
    own[meta.OUTPUT] = numbers
    items = result.get(member)
    found = [piece(item) for item in items if isinstance(item, dict)] if isinstance(items, list) else []
    result[member] = []
    note = f"\n\n[output truncated to {limits.max_chars} characters from {chars}]"
    room = limits.max_chars - _chars(result) - _chars(note)
    result[member] = _fit([one for one in found if one is not None], room, note, alone)
    return body.encode(result), numbers


def _fit(pieces: list[Piece], room: int, note: str, alone: Piece) -> list[dict[str, object]]:
    """Keep whole pieces while there is room, cut the one that does not fit, end the last with the note."""
    kept: list[Piece] = []
    for text, remade in pieces:
        cost = _chars(remade(text)) + 1
        if cost > room:
            around = _chars(remade("")) + 1
            if around <= room:
                kept.append((_prefix(text, room - around), remade))
            break
        kept.append((text, remade))
        room -= cost
    if not kept:
        kept.append(alone)
    *before, (last, ends) = kept
    return [*(remade(text) for text, remade in before), ends(last + note)]


def _prefix(text: str, room: int) -> str:
    """The longest prefix of `text` whose JSON form, without its quotes, has at most `room` characters."""
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if _chars(text[:middle]) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _blocks(items: object) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield what may hold text in contents or messages, with their places: the item itself, or its content."""
    for place, item in enumerate(items if isinstance(items, list) else ()):
        held = item.get("content", item) if isinstance(item, dict) else None
        for block in held if isinstance(held, list) else (held,):
            if isinstance(block, dict):
                yield place, block


def _numbered(items: object) -> Iterator[tuple[int, str]]:
    """Yield every text in contents or messages with its place, those of embedded resources too."""
    for place, block in _blocks(items):
        inner = block.get("resource")
        for text in (block.get("text"), inner.get("text") if isinstance(inner, dict) else None):
            if isinstance(text, str):
                yield place, text


def _told(items: list[dict[str, object]], key: str) -> Iterator[tuple[str, str]]:
    """Yield what each listed item says to a model, under its name: descriptions, titles, those of arguments."""
    for item in items:
        arguments = item.get("arguments")
        for part in (item, *(arguments if isinstance(arguments, list) else ())):
            for text in (part.get("description"), part.get("title")) if isinstance(part, dict) else ():
                if isinstance(text, str):
                    yield str(item[key]), text


def _private(result: dict[str, object]) -> None:
    # SECURITY: it was cut for one principal; a shared cache must not serve it to another.
    result["cacheScope"] = "private"
    ttl = result.get("ttlMs")
    if isinstance(ttl, int | float) and ttl > LONGEST_TTL_MS:
        result["ttlMs"] = LONGEST_TTL_MS


def _noticed(detail: dict[str, object], findings: list[dict[str, object]]) -> dict[str, object]:
    if not findings:
        return detail
    return {**detail, "suspicious": sorted({str(finding["rule"]) for finding in findings})}


def _chars(value: object) -> int:
    return len(body.written(value))
