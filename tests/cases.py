"""Which numbered cases are held by a test: reads the marks from the source of the tests, runs nothing.

`python tests/cases.py` lists the cases that no test holds. `--strict T01,T02-T06` exits 1 when one of those
is among them, or when a mark names a number that tests/cases.toml does not have.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Cases", "expand", "main", "marks", "read"]

TESTS = Path(__file__).resolve().parent
_ITEM = re.compile(r"([A-Z]+)(\d+)(?:-\1(\d+))?")

Cases = dict[str, dict[str, str]]
"""Table name to (number to line)."""


def expand(items: str | list[str]) -> list[str]:
    """Turn `T01,T03-T05` (or a list of such items) into single numbers; ValueError on anything else."""
    numbers: list[str] = []
    for item in items.split(",") if isinstance(items, str) else items:
        found = _ITEM.fullmatch(item.strip())
        if found is None or (found[3] is not None and int(found[3]) < int(found[2])):
            raise ValueError(f"not a case number or range: {item!r}")
        letter, first, last = found[1], found[2], found[3] or found[2]
        numbers += [f"{letter}{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    return numbers


def read(path: Path = TESTS / "cases.toml") -> tuple[Cases, list[str]]:
    """Return the cases of each table and the numbers that must be held."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    required: list[str] = []
    for table in tables.values():
        required += expand(table.pop("required", []))
    return tables, required


def marks(root: Path = TESTS) -> Iterator[tuple[str, str]]:
    """Yield (number, place) for each case mark below `root`; ValueError on one that cannot be read."""
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            if not (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.case")):
                continue
            place = f"{path.relative_to(root)}:{node.lineno}"
            if not node.args or node.keywords:
                raise ValueError(f"{place}: a case mark takes numbers and nothing else")
            for argument in node.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{place}: the number of a case is written out as a text")
                yield argument.value, place


def main(arguments: list[str] | None = None, root: Path = TESTS) -> int:
    """Print what is not held; return the exit status."""
    parser = argparse.ArgumentParser(description="List the numbered cases that no test holds.")
    parser.add_argument(
        "--strict", metavar="NUMBERS", help="exit 1 when one of these is not held: T01,T03-T05"
    )
    options = parser.parse_args(arguments)
    tables, _ = read(root / "cases.toml")
    found = list(marks(root))
    held = {number for number, _ in found}
    known = {number for table in tables.values() for number in table}
    for name, table in tables.items():
        missing = {number: line for number, line in table.items() if number not in held}
        if missing:
            print(f"{name}: no test holds")
        for number, line in missing.items():
            print(f"  {number}  {line}")
    print(f"{len(known & held)} of {len(known)} cases are held by a test")
    if options.strict is None:
        return 0
    try:
        asked = expand(options.strict)
    except ValueError as error:
        parser.error(str(error))
    wrong = [f"{place}: no case {number}" for number, place in found if number not in known]
    wrong += [f"{number}: not held" for number in asked if number not in held]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
