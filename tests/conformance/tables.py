"""The results of several conformance runs side by side, as text, as JSON and as Markdown.

It knows how runs are compared and told; it must not start anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.conformance.suite import VERSION, Checks, Run, passed

__all__ = ["as_json", "differences", "markdown", "text"]


def differences(direct: Run, other: Run, scenarios: list[str]) -> list[str]:
    """One line for each scenario whose multiset of (check id, status) is not the same; empty: check-identical."""
    lines = []
    for name in scenarios:
        lost, new = _unlike(direct.checks.get(name, Counter()), other.checks.get(name, Counter()))
        if lost or new:
            said = "".join(f"\n    {word}" for word in other.words.get(name, ()))
            lines.append(f"{name}: without {lost or 'nothing'}, with {new or 'nothing'}{said}")
    return lines


def _unlike(one: Checks, two: Checks) -> tuple[list[str], list[str]]:
    return [f"{i} {s}" for i, s in (one - two).elements()], [f"{i} {s}" for i, s in (two - one).elements()]


def as_json(revisions: Mapping[str, tuple[list[str], Mapping[str, Run]]]) -> dict[str, Any]:
    """The whole of revision -> (scored scenarios, run name -> run); the run `direct` comes first."""
    told = {}
    for revision, (scenarios, runs) in revisions.items():
        rows = {
            label: {
                name: {f"{i} {s}": n for (i, s), n in sorted(checks.items())}
                for name, checks in run.checks.items()
            }
            for label, run in runs.items()
        }
        told[revision] = {"scored": scenarios, "runs": rows}
    return {"suite": VERSION, "revisions": told}


def _checks(rows: Mapping[str, int]) -> Checks:
    return Counter({(key.rpartition(" ")[0], key.rpartition(" ")[2]): n for key, n in rows.items()})


def _cell(rows: Mapping[str, int], direct: Mapping[str, int]) -> str:
    good = "pass" if passed(_checks(rows)) else "fail"
    lost, new = _unlike(_checks(direct), _checks(rows))
    return good if not lost and not new else f"{good}, other checks"


def _lines(part: Mapping[str, Any]) -> list[list[str]]:
    """Header, one row per scored scenario, totals."""
    scenarios, runs = part["scored"], part["runs"]
    direct = runs["direct"]
    lines = [["scenario", "checks", *runs]]
    for name in scenarios:
        cells = [_cell(run.get(name, {}), direct.get(name, {})) for run in runs.values()]
        lines.append([name, str(sum(direct.get(name, {}).values())), *cells])
    totals = [sum(passed(_checks(run.get(name, {}))) for name in scenarios) for run in runs.values()]
    checks = sum(sum(direct.get(name, {}).values()) for name in scenarios)
    return [*lines, ["passed", str(checks), *(f"{n}/{len(scenarios)}" for n in totals)]]


def markdown(results: Mapping[str, Any]) -> str:
    """The tables of `as_json` for the reference; a cell says `other checks` where a check differs from direct."""
    parts = []
    for revision, part in results["revisions"].items():
        head, *rows, total = _lines(part)
        lines = [head, ["---"] * len(head), *rows, [f"**{cell}**" for cell in total]]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        parts.append(f"### Revision {revision}\n\n{table}\n")
    return "\n".join(parts)


def text(results: Mapping[str, Any]) -> str:
    """The same tables in columns, for a terminal."""
    parts = []
    for revision, part in results["revisions"].items():
        lines = _lines(part)
        widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
        rows = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        parts.append("\n".join([f"revision {revision}, suite {results['suite']}", *rows, ""]))
    return "\n".join(parts)
