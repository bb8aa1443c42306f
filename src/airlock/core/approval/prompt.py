"""What a person reads before saying yes: which call, with which arguments, what a dry run showed, what to do.

Knows the four lines and their order; does not know tickets, stores or where the text is shown.
SPEC: gateway.md 8.2, form of 7.4 and 23.1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final

from airlock.core.approval.ticket import Mode
from airlock.core.redact.patterns import REDACTED, scrub_text
from airlock.core.redact.values import clean, mask, masked_by_key, scrub
from airlock.core.text.cut import cut
from airlock.core.text.safe import SafeText, one_line, safe

__all__ = ["PREVIEW_CHARS", "compose", "instruction", "preview_text", "redactor", "without_instruction"]

PREVIEW_CHARS: Final = 2000
"""The most characters of a preview that are shown, its cut note included."""

_CUT_NOTE: Final = "... [preview cut here]"
_EMPTY_PREVIEW: Final = "(the dry run returned no text)"
_NO_PREVIEW: Final = "No dry-run preview: the tool does not offer one, and nothing has been run."
_NO_DESCRIPTION: Final = "no description given"
_INSTRUCTIONS: Final = {
    Mode.INBAND: "Confirm here to run it.",
    Mode.OOB: "It is approved by the link sent to the approvers; confirming here does not approve it,"
    " declining here cancels it.",
}


def instruction(mode: str | None) -> str:
    """Return the sentence that says where the yes is given. A missing or unknown mode reads as `oob`."""
    return _INSTRUCTIONS[Mode.INBAND if mode == Mode.INBAND else Mode.OOB]


def without_instruction(text: str, mode: str | None) -> str:
    """Return a prompt made for `mode` without the sentence that says where the yes is given.

    It is for whoever was asked by the agent; the approvers read the rest. Another text comes back as it is.
    """
    sentence = f"{instruction(mode)} "
    # SECURITY: the last one is ours: arguments and preview stand before it and may hold the same words (T19).
    before, found, after = text.rpartition(sentence)
    return before + after if found else text


def compose(
    *,
    environment: str,
    tool: str,
    description: str | None,
    arguments: Mapping[str, object],
    preview: str | None,
    key: str,
    mode: str,
) -> SafeText:
    """Return the prompt. `arguments` and `preview` come raw and are redacted here; None is no preview at all.

    Everything but the preview keeps to its own line, whatever it holds; the preview keeps its line breaks.
    """
    about = one_line(description or "").strip() or _NO_DESCRIPTION
    lines = (
        f"[{one_line(environment)}] {one_line(tool)}: {about} (tier L2).",
        f"Arguments: {_arguments_text(arguments)}",
        _NO_PREVIEW if preview is None else f"Dry-run preview: {_shown_preview(preview, arguments)}",
        f"{instruction(mode)} Idempotency key: {one_line(key)}",
    )
    return safe("\n".join(lines))


def preview_text(content: object) -> str:
    """Return the text blocks of a result's `content`, joined by a space; other things are passed over."""
    if not isinstance(content, list):
        return ""
    texts = (
        block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"
    )
    return " ".join(text for text in texts if isinstance(text, str))


def _arguments_text(arguments: Mapping[str, object]) -> str:
    shown = scrub(clean({name: value for name, value in arguments.items() if name != "dry_run"}))
    return one_line(json.dumps(shown, ensure_ascii=False))


def redactor(arguments: Mapping[str, object]) -> Callable[[str], str]:
    """Return what takes the secrets out of a dry run's text: what looks like one, and what `arguments` hid by key.

    The arguments are read once, however many texts follow. SPEC: gateway.md 20 item 10 [STRICTER].
    """
    hidden = masked_by_key(arguments)
    wide = (*hidden, *map(scrub_text, hidden))

    def redacted(text: str) -> str:
        by_key_first = scrub_text(mask(text, hidden))
        # SECURITY: an argument such as `token: "ghp_"` would cut the head off a credential in the preview, and
        # nothing would recognise the rest. Where the two rules get in each other's way, nothing is shown.
        return by_key_first if by_key_first == mask(scrub_text(text), wide) else REDACTED

    return redacted


def _shown_preview(preview: str, arguments: Mapping[str, object]) -> str:
    shown = redactor(arguments)(preview)
    # SPEC: gateway.md 12.2: scrubbed before it is cut, so that no cut leaves half a credential.
    return cut(safe(shown), PREVIEW_CHARS, _CUT_NOTE) if shown.strip() else _EMPTY_PREVIEW
