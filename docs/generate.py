"""Writes the reference pages that are made from the code: `python docs/generate.py [--check]`.

Knows how to lay out a table; what stands in it comes from the modules that define it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from airlock.core.rules import SENTENCES

__all__ = ["PAGES", "main", "table"]

DOCS = Path(__file__).resolve().parent
_MADE = "<!-- Made by docs/generate.py from the code; edit there. -->\n"


def table(*rows: tuple[str, ...]) -> str:
    """Lay out a Markdown table; the first row is its head."""
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * len(rows[0]), *body]) + "\n"


def rules() -> str:
    """The page of rule ids."""
    body = table(
        ("rule", "what it says"), *((f"`{rule.value}`", sentence) for rule, sentence in SENTENCES.items())
    )
    return f"""{_MADE}
# Rule ids

Every decision names one rule. It stands in `_meta["io.mcp-airlock/rule_id"]` of the result and in `rule_id`
of both audit records.

{body}
A request that breaks the protocol is denied with `protocol.<code>`, where `<code>` is the JSON-RPC error code
of the answer, for example `protocol.-32602`.
"""


PAGES: dict[str, Callable[[], str]] = {
    "reference/rules.md": rules,
}
"""Path below docs/ to the function that makes the page."""


def main(arguments: list[str], docs: Path = DOCS) -> int:
    """Write the pages, or with `--check` name those that differ from the code and return 1."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python docs/generate.py [--check]\n")
        return 2
    stale = []
    for name, make in PAGES.items():
        page, text = docs / name, make()
        if page.is_file() and page.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not arguments:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
    word = "differs from the code; run python docs/generate.py" if arguments else "written"
    sys.stdout.writelines(f"docs/{name}: {word}\n" for name in stale)
    return 1 if arguments and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
