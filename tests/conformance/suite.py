"""The official conformance suite as a Python function: what to run it with, and what its result files say.

It knows the suite's command line and output; it must not know who stands behind the URL.
By hand: `python -m tests.conformance.suite --url URL --revision 2026-07-28 [--scenario NAME]`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

__all__ = ["REVISIONS", "VERSION", "Checks", "Missing", "Run", "passed", "run", "scored", "tell", "unscored"]

PACKAGE: Final = "@modelcontextprotocol/conformance"
VERSION: Final = "0.2.0-alpha.12"
REVISIONS: Final = {"2026-07-28": 37, "2025-11-25": 30}
"""Revision -> how many scenarios it scores of a server."""
FOLDER: Final = Path(__file__).resolve().parents[2] / "build" / "npm-conformance"
NODE_MAJOR: Final = 22
RUN_S: Final = 300
"""LIMIT: one revision takes about ten seconds; a server that answers nothing takes the suite's own time-outs."""

Checks = Counter[tuple[str, str]]
"""(check id, status) -> how often. Statuses: SUCCESS, FAILURE, WARNING, SKIPPED, INFO."""


class Missing(Exception):
    """The suite cannot run here; the text says what to install."""


@dataclass(frozen=True)
class Run:
    """What the suite said of one server: checks by scenario, and its words on each check that did not succeed."""

    checks: Mapping[str, Checks]
    words: Mapping[str, tuple[str, ...]]

    def passing(self, scenarios: list[str]) -> list[str]:
        """Those of the scenarios that ran and passed."""
        return [name for name in scenarios if passed(self.checks.get(name, Counter()))]


def passed(checks: Checks) -> bool:
    """The suite's own rule, no check failed, and in addition at least one succeeded."""
    statuses = {status for _, status in checks}
    return "SUCCESS" in statuses and "FAILURE" not in statuses


@cache
def node() -> str:
    """The path of a Node that is new enough: the one of this environment, else the one on the PATH."""
    beside = Path(sys.executable).parent / "node"
    found = str(beside) if beside.exists() else shutil.which("node")
    told = (
        "" if found is None else subprocess.run([found, "--version"], capture_output=True, text=True).stdout
    )
    if found is None or int(told.strip().removeprefix("v").partition(".")[0] or 0) < NODE_MAJOR:
        raise Missing(f"Node {NODE_MAJOR} or newer is needed: uv sync --inexact --group conformance")
    return found


@cache
def package() -> Path:
    """The folder of the installed suite; installed first, without scripts, when it is not there."""
    installed = FOLDER / "node_modules" / PACKAGE
    if not _is_there(installed):
        FOLDER.mkdir(parents=True, exist_ok=True)
        npm = Path(node()).with_name("npm")
        flags = ["--ignore-scripts", "--no-fund", "--no-audit", "--silent", "--prefix", str(FOLDER)]
        done = subprocess.run(
            [str(npm), "install", *flags, f"{PACKAGE}@{VERSION}"],
            capture_output=True,
            text=True,
            env=_environment(),
        )
        if done.returncode or not _is_there(installed):
            raise Missing(f"npm cannot install {PACKAGE}@{VERSION}: {done.stderr.strip()[-300:]}")
    return installed


def _is_there(folder: Path) -> bool:
    described = folder / "package.json"
    return described.exists() and json.loads(described.read_text())["version"] == VERSION


def _environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{Path(node()).parent}{os.pathsep}{os.environ.get('PATH', '')}"}


@cache
def _requirements(revision: str) -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(package() / "requirements" / f"{revision}.yaml")
    return loaded


def scored(revision: str) -> list[str]:
    """The scenarios that count for a server of this revision, in the suite's order."""
    return list(_requirements(revision)["server"])


def unscored(revision: str) -> list[str]:
    """The scenarios that run without counting, extensions of the protocol left out."""
    rows = _requirements(revision)["not_scored"]
    return [row["scenario"] for row in rows if row["leg"] == "server" and row["reason"] != "extension"]


def run(url: str, revision: str, scenario: str | None = None) -> Run:
    """Run what the revision requires, or one scenario at that revision's wire, against a server."""
    which = (
        ["--requirements", revision]
        if scenario is None
        else ["--scenario", scenario, "--spec-version", revision]
    )
    with tempfile.TemporaryDirectory() as folder:
        argv = [node(), str(package() / "dist" / "index.js"), "server", "--url", url, *which, "-o", folder]
        done = subprocess.run(
            argv, capture_output=True, text=True, cwd=folder, env=_environment(), timeout=RUN_S
        )
        read = {
            re.sub(r"^server-(.+)-\d{4}-\d\d-\d\dT[\dZ-]+$", r"\1", path.parent.name): json.loads(
                path.read_text()
            )
            for path in sorted(Path(folder).glob("*/checks.json"))
        }
    if not read:
        raise RuntimeError(f"the suite wrote no results: {(done.stdout + done.stderr)[-2000:]}")
    checks = {name: Counter((row["id"], row["status"]) for row in rows) for name, rows in read.items()}
    words = {
        name: tuple(
            f"{row['status']} {row['id']}: {row.get('errorMessage') or ''}" for row in rows if _told(row)
        )
        for name, rows in read.items()
    }
    return Run(checks, words)


def _told(row: Mapping[str, Any]) -> bool:
    return row["status"] not in ("SUCCESS", "INFO")


def tell(result: Run, revision: str, scenario: str | None = None) -> None:
    """Print a run: a line for each scenario, and under it the checks that did not succeed."""
    counted = scored(revision)
    for name in [scenario] if scenario else [*counted, *unscored(revision)]:
        checks = result.checks.get(name, Counter())
        mark = "ok  " if passed(checks) else "FAIL"
        print(f"{mark} {name}{'' if name in counted else ' (not scored)'}: {checks.total()} checks")
        for line in result.words.get(name, ()):
            print(f"       {line}")
    if scenario is None:
        print(f"{len(result.passing(counted))}/{len(counted)} scored scenarios of {revision}")


def main() -> None:
    parser = argparse.ArgumentParser(description="run the official conformance suite against a server")
    parser.add_argument("--url", required=True)
    parser.add_argument("--revision", choices=list(REVISIONS), required=True)
    parser.add_argument("--scenario", help="one scenario alone")
    options = parser.parse_args()
    tell(run(options.url, options.revision, options.scenario), options.revision, options.scenario)


if __name__ == "__main__":
    main()
