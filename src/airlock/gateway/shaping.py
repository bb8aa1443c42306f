"""Shaping an upstream's tool result: foreign keys out, ours in, cap, marks. A failure never loses the result.

Pure. SPEC: gateway.md 6.14, 3.5, 9.6, 10.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airlock.core.decision import Verdict
from airlock.core.policy.model import OutputLimits
from airlock.core.rules import Rule
from airlock.core.text.scan import Scanner
from airlock.gateway import body, meta, output

if TYPE_CHECKING:
    from airlock.gateway.hygiene import Cleaner

__all__ = ["Shaped", "shape"]

_NOTHING: dict[str, object] = {}


class Shaped(msgspec.Struct, frozen=True, gc=False):
    """An encoded result, what the outcome record says about its shaping (empty: nothing), and how many findings."""

    encoded: bytes
    detail: dict[str, object] = _NOTHING
    suspicious: int = 0


def shape(
    result: dict[str, object],
    scanner: Scanner,
    limits: OutputLimits,
    *,
    verdict: Verdict,
    rule: Rule,
    dry_run: bool | None,
    cleaner: Cleaner | None = None,
) -> Shaped:
    """Shape `result` in place and encode it. `cleaner`: of content hygiene, where it is on."""
    own = meta.strip_holder(result)
    meta.strip_blocks(result.get("content"))
    own[meta.VERDICT] = verdict
    own[meta.RULE_ID] = rule
    own[meta.DRY_RUN] = dry_run
    detail: dict[str, object] | None = None
    findings: list[dict[str, object]] = []
    try:
        if cleaner is not None:
            cleaner.result(result)
            cleaner.tell(own)
        encoded, detail = output.capped(result, limits, dry=dry_run is True)
        structured = result.get("structuredContent")
        text = None if structured is None else body.written(structured)
        findings = scanner.scan_result(result, text)
        if cleaner is not None:
            detail, findings = cleaner.noted(detail or {}) or None, cleaner.findings("block", findings)
        if findings:
            own[meta.SUSPICIOUS] = findings
            detail = {**(detail or {}), "suspicious": sorted({str(finding["rule"]) for finding in findings})}
            encoded = body.encode(result)
    except Exception as error:  # noqa: BLE001 - the boundary: the call ran, so its result must not be lost (T60)
        detail = {**(detail or {}), "postprocess_error": type(error).__name__}
        encoded = body.encode(result)
    return Shaped(encoded) if detail is None else Shaped(encoded, detail, len(findings))
