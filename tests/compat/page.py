"""Writes docs/reference/compatibility.md from what the tests left in build/: `python -m tests.compat.page`.

It knows how a table is laid out; what stands in it is what was seen. A part that was not run this time stays as it is.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from docs.generate import table
from tests.compat.sdks import FACTS, governed
from tests.conformance import tables

__all__ = ["PAGE", "PARTS", "page", "sections"]

ROOT: Final = Path(__file__).resolve().parents[2]
PAGE: Final = ROOT / "docs/reference/compatibility.md"

_HEAD: Final = """\
<!-- Made by tests/compat/page.py from what the tests saw. -->

# Compatibility

What was tried through `airlock gateway serve`, as it comes, and what came of it. The tables are written by the tests
that did it; `make test-conformance`, `make test-servers` and `python -m tests.compat.page` make them anew.

"""
_UNSEEN: Final = "Not run yet.\n"


def _yes(value: object) -> str:
    return "yes" if value is True else "no" if value in (False, None, "") else str(value)


def conformance(results: Mapping[str, Any]) -> str:
    """The part of the official suite."""
    return f"""\
The official conformance suite, {results["suite"]}, at a server of our own that offers every interaction in both
styles: straight, through the gateway under a policy that allows everything, and through the gateway when the server
speaks only the other era, so that every request is translated. A cell says `other checks` where the scenario passes
but some check in it did not say the same as straight.

{tables.markdown(results)}"""


def clients(rows: list[Mapping[str, Any]]) -> str:
    """The part of programs with a client in them."""
    done = ("lists", "calls", "refused", "held", "released")
    head = ("client", "version", "opens with", "revision", *done)
    body = [
        (row["client"], row["version"], row["opens"], row["revision"], *(_yes(row[what]) for what in done))
        for row in rows
    ]
    return f"""\
Programs that people use, each with a scripted model or by its own check of health. Held: the call waits for a
person. Released: it runs once, after the yes.

{table(head, *body)}"""


def sdks(rows: list[Mapping[str, Any]]) -> str:
    """The part of the SDKs."""
    head = ("client", "version", "opens", "server speaks", "straight", "through the gateway", "governed")
    body = []
    for row in rows:
        good = governed(row["through"])
        told = (
            "yes"
            if all(good.values())
            else "not " + ", ".join(name for name, held in good.items() if not held)
        )
        ways = [_way(row[way]) for way in ("direct", "through")]
        body.append((row["client"], row["version"], row["mode"], row["upstream"], *ways, told))
    return f"""\
Each client opens in its SDK's own ways: `legacy` is `initialize`, `auto` asks first, a revision is that one or
nothing. The cells hold the revision that was agreed on and how much works of: lists tools, calls one, hears progress
while the call runs, answers a question of the tool, cancels a call so that the server stops. Governed: a call that the
policy does not name is refused; one that needs a person runs once after a yes and not after a no; the same yes sent
again runs nothing.

{table(head, *body)}"""


def _way(facts: Mapping[str, Any]) -> str:
    if not facts.get("opened"):
        return "does not open"
    missing = [fact for fact in FACTS if not facts.get(fact)]
    works = f"{len(FACTS) - len(missing)}/{len(FACTS)}"
    return f"{facts['opened']}, {works}" + (f" (not: {', '.join(missing)})" if missing else "")


def servers(rows: list[Mapping[str, Any]]) -> str:
    """The part of real servers."""
    done = ("modern", "legacy", "modern_gated", "legacy_gated")
    head = (
        "server",
        "version",
        "over",
        "speaks",
        "modern client",
        "legacy client",
        "gated, modern",
        "gated, legacy",
    )
    body = [
        (
            row["server"],
            row["version"],
            row["transport"],
            row.get("speaks", "?"),
            *(_yes(row.get(what)) for what in done),
        )
        for row in rows
    ]
    return f"""\
Each server as it is published, behind the gateway, with clients of 2026-07-28 and of 2025-11-25. Speaks: what the
gateway found out. The clients list its tools and call one that reads. Gated: a call that changes something is declined
once, which must send nothing to the server, and confirmed once, which must call it exactly once; a witness between the
gateway and the server counts. Grafana and Kubernetes are stand-ins behind their servers. All of them together behind one
gateway are tried too, with one killed (`tests/compat/test_together.py`).

{table(head, *body)}"""


PARTS: Final[dict[str, tuple[str, Callable[[Any], str]]]] = {
    "Conformance suite": ("conformance", conformance),
    "Clients": ("clients", clients),
    "SDKs": ("sdks", sdks),
    "Servers": ("servers", servers),
}
"""Heading -> the file in build/ that the tests leave, and what makes the part of it."""


def sections(text: str) -> dict[str, str]:
    """The parts of a page under their headings."""
    pieces = re.split(r"^## (.+)\n\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


def page(build: Path, before: str) -> str:
    """The page, with the parts that `build` has no results for as they were `before`."""
    old, parts = sections(before), []
    for heading, (name, make) in PARTS.items():
        file = build / f"{name}.json"
        seen = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        body = make(seen) if seen is not None else old.get(heading, _UNSEEN)
        parts.append(f"## {heading}\n\n{body.strip()}\n")
    return _HEAD + "\n".join(parts)


def main() -> int:
    """Write the page."""
    before = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    PAGE.write_text(page(ROOT / "build", before), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
