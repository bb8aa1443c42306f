"""Files that the documents promise in the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.fakes.processes import ROOT, run

THERE = [
    "Dockerfile", "Dockerfile.demo", "CHANGELOG.md", "CONTRIBUTING.md", "charts/mcp-airlock/Chart.yaml",
    "charts/mcp-airlock/values.yaml", "e2e/kubernetes/run.sh", "e2e/grafana/run.sh", "e2e/postgres/run.sh",
    ".github/workflows/e2e.yml", "examples/demo.py", "examples/policy.yaml", "policy.example.yaml", "server.json",
    "examples/policies/github.yaml", "examples/policies/grafana.yaml", "examples/policies/kubernetes.yaml",
    "examples/policies/postgres.yaml", "docs/demo.gif", "docs/make_demo_gif.py", "examples/sdk_client_confirm.py",
    "README.ru.md", "docs/clients.md",
]  # fmt: skip


@pytest.mark.parametrize("path", THERE)
def test_files_that_the_documents_promise_are_there(path: str) -> None:
    assert (ROOT / path).is_file()
    if path.endswith("run.sh"):
        assert os.access(ROOT / path, os.X_OK)
        assert "set -e" in (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "examples/policies").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_policies_of_the_examples_lint_without_an_error(path: Path) -> None:
    done = run("airlock-policy", "lint", str(path), "--env", "prod")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "ERROR" not in done.stdout
