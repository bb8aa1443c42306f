"""The output cap: a result over the limit is trimmed in one pass, never lost and never an exception.

Pure. SPEC: gateway.md 10.
"""

from __future__ import annotations

from airlock.core.policy.model import OutputLimits
from airlock.gateway import body, meta

__all__ = ["capped"]


def capped(
    result: dict[str, object], limits: OutputLimits, *, dry: bool
) -> tuple[bytes, dict[str, object] | None]:
    """Encode `result`, trimming it in place first when it is over `limits.max_chars` characters.

    Returns the encoded result and the numbers of the trim (None when nothing was trimmed). `result["_meta"]`
    must already hold the gateway's own keys. `dry`: what ran was only a dry run.
    """
    encoded = body.encode(result)
    if len(encoded) <= limits.max_chars:  # bytes are never fewer than characters
        return encoded, None
    chars = _chars(result)
    if chars <= limits.max_chars:
        return encoded, None
    numbers: dict[str, object] = {
        "truncated": True,
        "chars": chars,
        "max_chars": limits.max_chars,
        "est_tokens": round(chars / limits.chars_per_token),
    }
    own = result["_meta"]
    if isinstance(own, dict):
        own[meta.OUTPUT] = numbers
    if "structuredContent" in result:
        # SPEC: it no longer matches the tool's outputSchema; clients refuse a non-error result that does not.
        del result["structuredContent"]
        result["isError"] = True
    texts = _texts(result.get("content"))
    result["content"] = []
    ran = "only the dry run ran, nothing was executed" if dry else "the call itself ran"
    note = f"\n\n[output truncated to {limits.max_chars} characters from {chars}; {ran}]"
    result["content"] = _fit(texts, limits.max_chars - _chars(result), note)
    return body.encode(result), numbers


def _texts(content: object) -> list[str]:
    """The text of every well-formed text block."""
    if not isinstance(content, list):
        return []
    return [
        block["text"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
    ]


def _fit(texts: list[str], budget: int, note: str) -> list[dict[str, str]]:
    """Keep whole texts while they fit beside the note, cut the one that does not, end with the note."""
    budget -= _chars(_block(note))
    kept: list[str] = []
    for text in texts:
        cost = _chars(_block(text)) + 1
        if cost > budget:
            kept.append(_prefix(text, budget - _chars(_block("")) - 1))
            break
        kept.append(text)
        budget -= cost
    if not kept:
        kept.append("")
    kept[-1] += note
    return [_block(text) for text in kept]


def _prefix(text: str, room: int) -> str:
    """The longest prefix of `text` whose JSON form, without its quotes, has at most `room` characters."""
    low, high = 0, max(0, min(len(text), room))
    while low < high:
        middle = (low + high + 1) // 2
        if _chars(text[:middle]) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return text[:low]


def _block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _chars(value: object) -> int:
    return len(body.written(value))
