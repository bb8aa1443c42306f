"""The example that makes tokens for a first try: the gateway believes them, and nothing else is needed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from airlock.edge.identity.jwt import Hs256
from tests.fakes.processes import ROOT, clean_env

SCRIPT = ROOT / "examples/make_token.py"
SECRET = "0123456789abcdef" * 2


def make(folder: Path, *args: str, secret: str = SECRET) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(SCRIPT), *args]
    env = clean_env(AIRLOCK_JWT_SECRET=secret)
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("secret", [SECRET, "密钥" * 8])
def test_the_gateway_believes_its_tokens_for_an_hour(tmp_path: Path, secret: str) -> None:
    before = time.time()
    done = make(tmp_path, "alice", "oncall", "dev", secret=secret)
    assert (done.returncode, done.stderr) == (0, "")
    checks = Hs256(secret.encode(), issuer=None, audience=None)
    principal = checks.verify(done.stdout.strip().encode(), before)
    assert principal is not None
    assert (principal.name, principal.groups) == ("alice", ("oncall", "dev"))
    assert checks.verify(done.stdout.strip().encode(), time.time() + 3600) is None
    assert list(tmp_path.iterdir()) == []


def test_without_a_secret_it_says_so_and_makes_none(tmp_path: Path) -> None:
    done = make(tmp_path, "alice", secret="")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "make_token: AIRLOCK_JWT_SECRET is not set\n"


def test_no_example_hides_a_module_of_the_standard_library() -> None:
    # A script's folder comes first on the path: an examples/token.py would stop every example beside it.
    names = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert names & sys.stdlib_module_names == set()
