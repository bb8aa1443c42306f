"""The arrangements that the suite is run against: the server alone, behind the relay, behind the gateway.

It knows which processes make one arrangement and keeps them until it is closed; it must not judge what the suite says.
By hand: `python -m tests.conformance.bench "gateway, legacy-only server" 2026-07-28 [SCENARIO]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.conformance import suite
from tests.conformance.material import TOOLS
from tests.conformance.suite import Run
from tests.fakes.processes import ROOT, Lines, Running, clean_env, gateway

__all__ = ["ARRANGEMENTS", "Bench", "allow_all", "server"]

PRINCIPAL: Final = "X-Airlock-Principal: conformance"
ARRANGEMENTS: Final = {
    "2026-07-28": ("direct", "gateway", "gateway, legacy-only server"),
    "2025-11-25": ("direct", "gateway", "gateway, modern-only server"),
}
"""Revision -> the runs that its table shows; the first is what the others are compared with."""


def allow_all() -> str:
    """A policy under which the gateway lets everything of the server pass (JSON is YAML)."""
    return json.dumps(
        {
            "version": 1,
            "environment": "prod",
            "tools": {name: {"tiers": {"prod": "L0"}} for name in TOOLS},
            "resources": {"**": {}},
            "prompts": {"*": {}},
            "completion": {},
            "sampling": {},
            "roots": {},
        },
        indent=1,
    )


class Bench:
    """Starts what a run needs, once, and remembers what each run said."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._urls: dict[str, str] = {}
        self._runs: dict[tuple[str, str], Run] = {}

    def run(self, arrangement: str, revision: str) -> Run:
        """What the suite says of one arrangement; asked once."""
        if (arrangement, revision) not in self._runs:
            self._runs[arrangement, revision] = suite.run(self.url(arrangement), revision)
        return self._runs[arrangement, revision]

    def seen(self, revision: str) -> dict[str, Run]:
        """The runs for one table that happened, in its order."""
        return {
            name: self._runs[name, revision]
            for name in ARRANGEMENTS[revision]
            if (name, revision) in self._runs
        }

    def close(self) -> None:
        self._stack.close()

    def url(self, arrangement: str) -> str:
        """Where the suite finds one arrangement; its processes are started once."""
        if arrangement not in self._urls:
            self._urls[arrangement] = self._started(arrangement)
        return self._urls[arrangement]

    def _started(self, arrangement: str) -> str:
        if arrangement == "direct":
            return self._server("dual").url
        if arrangement == "relay":
            return self._relay(self._server("dual")).url
        if arrangement in ("legacy-only server", "modern-only server"):
            return self._server(arrangement.partition("-")[0]).url
        era = arrangement.removeprefix("gateway").strip(", ").partition("-")[0] or "dual"
        folder = self._folder / era
        folder.mkdir(exist_ok=True)
        (folder / "policy.yaml").write_text(allow_all())
        opened = gateway(
            folder,
            self._server(era).url,
            "--front",
            "dual",
            name="airlock",
            policy=str(folder / "policy.yaml"),
            AIRLOCK_TRUST_PRINCIPAL_HEADER="1",
        )
        return self._relay(self._stack.enter_context(opened)).url

    def _server(self, era: str) -> Running:
        return self._stack.enter_context(server(era))

    def _relay(self, to: Running) -> Running:
        argv = ["tests.conformance.relay", "--to", str(to.port), "--header", PRINCIPAL]
        return self._stack.enter_context(_process(argv))


def server(era: str) -> AbstractContextManager[Running]:
    """The conformance server in its own process, speaking `dual`, `legacy` or `modern`."""
    return _process(["tests.conformance.server", "--era", era])


@contextlib.contextmanager
def _process(module: list[str]) -> Iterator[Running]:
    argv = [sys.executable, "-m", *module]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=clean_env(), cwd=ROOT) as process:
        try:
            yield Running(process, int(Lines(process.stdout).until(r"ready (\d+)")[1]), None)
        finally:
            process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description="run the suite against one arrangement")
    parser.add_argument("arrangement", choices=["relay", *dict.fromkeys(sum(ARRANGEMENTS.values(), ()))])
    parser.add_argument("revision", choices=list(suite.REVISIONS))
    parser.add_argument("scenario", nargs="?")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Bench(Path(folder))) as bench:
        run = suite.run(bench.url(options.arrangement), options.revision, options.scenario)
        suite.tell(run, options.revision, options.scenario)


if __name__ == "__main__":
    main()
