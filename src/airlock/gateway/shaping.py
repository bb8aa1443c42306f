"""Shaping an upstream's tool result: foreign keys out, ours in, cap, marks. A failure never loses the result.

Pure. SPEC: gateway.md 6.14, 3.5, 9.6, 10.
"""

from __future__ import annotations

from airlock.core.decision import Verdict
from airlock.core.policy.model import OutputLimits
from airlock.core.rules import Rule
from airlock.core.text.scan import Scanner
from airlock.gateway import body, meta, output

__all__ = ["Shaped", "shape"]


class Shaped:
    """An encoded result and what the outcome record says about its shaping."""

    __slots__ = ("detail", "encoded")

    def __init__(self, encoded: bytes, detail: dict[str, object]) -> None:
        self.encoded = encoded
        self.detail = detail


def shape(
    result: dict[str, object],
    scanner: Scanner,
    limits: OutputLimits,
    *,
    verdict: Verdict,
    rule: Rule,
    dry_run: bool | None,
) -> Shaped:
    """Shape `result` in place and encode it."""
    own = meta.strip_holder(result)
    meta.strip_blocks(result.get("content"))
    own[meta.VERDICT] = verdict
    own[meta.RULE_ID] = rule
    own[meta.DRY_RUN] = dry_run
    detail: dict[str, object] = {}
    try:
        encoded, numbers = output.capped(result, limits, dry=dry_run is True)
        if numbers is not None:
            detail.update(numbers)
        structured = result.get("structuredContent")
        text = None if structured is None else body.written(structured)
        findings = scanner.scan_result(result, text)
        if findings:
            own[meta.SUSPICIOUS] = findings
            detail["suspicious"] = sorted({str(finding["rule"]) for finding in findings})
            encoded = body.encode(result)
    except Exception as error:  # noqa: BLE001 - the boundary: the call ran, so its result must not be lost (T60)
        detail["postprocess_error"] = type(error).__name__
        encoded = body.encode(result)
    return Shaped(encoded, detail)
