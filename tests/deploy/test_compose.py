"""The compose stacks and the workflow as texts: closed networks, pinned images, nothing secret, nothing missing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from airlock.gateway.variables import VARIABLES
from tests.fakes.processes import run

yaml = pytest.importorskip("yaml", reason="needs the wheel kubernetes-validate: uv sync --group deploy")

ROOT = Path(__file__).resolve().parents[2]
E2E = ROOT / "e2e"
STACKS = ["kubernetes", "grafana", "postgres"]
OURS = {"mcp-airlock:e2e", "mcp-airlock-e2e:e2e"}
WORKFLOW = ROOT / ".github/workflows/e2e.yml"


def stack(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((E2E / name / "compose.yaml").read_text(encoding="utf-8"))
    return found


def services(name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = stack(name)["services"]
    return found


def variables(service: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = service.get("environment") or {}
    return found


@pytest.mark.parametrize("name", STACKS)
def test_every_network_is_without_a_way_out(name: str):
    networks = stack(name)["networks"]
    assert networks
    assert [key for key, value in networks.items() if value != {"internal": True}] == []
    for service in services(name).values():
        mode = service.get("network_mode")
        assert mode is None or mode.removeprefix("service:") in services(name), mode
        assert (mode is None) == (service.get("networks") == list(networks))


@pytest.mark.parametrize("name", STACKS)
def test_nothing_is_published_on_the_host_nor_taken_from_it(name: str):
    for key, service in services(name).items():
        assert not service.keys() & {"ports", "pid", "ipc", "devices", "extra_hosts", "cap_add"}, key
        assert service.get("privileged", False) is (key == "k3s"), key
        for volume in service.get("volumes", []):
            place, _, rest = volume.partition(":")
            assert not place.startswith(("/", "~")), volume
            if place.startswith("."):
                assert rest.endswith(":ro"), volume
                assert (E2E / name / place).exists(), volume


@pytest.mark.parametrize("name", STACKS)
def test_every_image_is_built_here_or_pinned(name: str):
    for key, service in services(name).items():
        image = service["image"]
        if image in OURS:
            assert service["pull_policy"] == "never", key
            continue
        assert re.fullmatch(r"[a-z0-9.]+/[\w./-]+:v?\d[\w.-]*", image), f"{key}: {image}"
    built = {service["image"] for service in services(name).values() if "build" in service}
    assert built == OURS
    for service in services(name).values():
        place = service.get("build", {}).get("dockerfile", "Dockerfile")
        assert (ROOT / place).exists()


@pytest.mark.parametrize("name", STACKS)
def test_no_secret_stands_in_a_stack(name: str):
    for key, service in services(name).items():
        for variable, value in variables(service).items():
            if re.search(r"SECRET|PASSWORD|TOKEN|DSN|AUTH$", variable):
                assert re.search(r"\$\{E2E_\w+:\?[^}]+\}", str(value)), f"{key}: {variable}"


@pytest.mark.parametrize("name", STACKS)
def test_the_gateways_run_as_the_image_is_meant_to_with_settings_that_exist(name: str):
    gateways = {key: service for key, service in services(name).items() if key.startswith("gateway")}
    assert len(gateways) == (5 if name == "postgres" else 1)
    known = {variable for variable, _, _ in VARIABLES}
    for key, service in gateways.items():
        assert service["read_only"] is True, key
        assert service["cap_drop"] == ["ALL"], key
        assert "--strict" in service["command"], key
        assert variables(service).keys() - known == set(), key
    first, *others = [variables(service) for service in gateways.values()]
    assert all(other == first for other in others)


@pytest.mark.parametrize("name", STACKS)
def test_whatever_is_waited_for_is_there_and_can_become_healthy(name: str):
    for key, service in services(name).items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services(name), f"{key} waits for {other}"
            if how["condition"] == "service_healthy":
                target = services(name)[other]
                assert "healthcheck" in target or target["image"] == "mcp-airlock:e2e", (
                    f"{key} waits for {other}"
                )


@pytest.mark.parametrize("name", STACKS)
def test_every_script_a_stack_runs_is_there_and_has_what_it_asks_for(name: str):
    texts = [(E2E / name / "run.sh").read_text(encoding="utf-8")]
    texts += [" ".join(map(str, service.get("command", []))) for service in services(name).values()]
    scripts = {path for text in texts for path in re.findall(r"/e2e/(\w+/\w+\.py)", text)}
    assert f"{name}/driver.py" in scripts
    for path in scripts:
        asked = set(re.findall(r'environ\["(\w+)"\]', (E2E / path).read_text(encoding="utf-8")))
        runs = [
            variables(service)
            for key, service in services(name).items()
            if path in " ".join(map(str, service.get("command", ())))
            or (key, path) == ("driver", f"{name}/driver.py")
        ]
        assert runs, path
        assert [asked - set(given) for given in runs] == [set()] * len(runs), path


@pytest.mark.parametrize("name", [name for name in STACKS if (E2E / name / "policy.yaml").exists()])
def test_the_policies_of_the_stacks_are_valid(name: str):
    done = run("airlock-policy", "lint", str(E2E / name / "policy.yaml"), "--env", "e2e")
    assert "ERROR" not in done.stdout, done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", STACKS)
def test_the_runner_stops_at_the_first_failure(name: str):
    script = E2E / name / "run.sh"
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    assert script.stat().st_mode & 0o111
    for path in (script, E2E / "stack.sh"):
        assert subprocess.run(["bash", "-n", path], capture_output=True, timeout=30).returncode == 0


def test_the_runner_exits_with_the_status_of_what_failed_and_takes_the_stack_down(tmp_path: Path):
    log = tmp_path / "log"
    docker = tmp_path / "docker"
    docker.write_text(
        f'#!/bin/sh\necho "$@" >> {log}\ncase "$*" in *driver.py*) exit 7;; esac\n', encoding="utf-8"
    )
    docker.chmod(0o755)
    for status, text in ((7, docker.read_text(encoding="utf-8")), (0, f'#!/bin/sh\necho "$@" >> {log}\n')):
        docker.write_text(text, encoding="utf-8")
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        done = subprocess.run([E2E / "postgres/run.sh"], env=env, capture_output=True, text=True, timeout=30)
        assert done.returncode == status, done.stderr
        assert ("All steps went as told." in done.stdout) == (status == 0)
        said = log.read_text(encoding="utf-8").splitlines()
        log.unlink()
        assert said[-1].split(" compose.yaml ")[1].startswith("down --volumes")
        assert any(" logs " in line for line in said) == (status != 0)


def test_the_workflow_runs_two_stacks_each_night_and_on_demand():
    flow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    triggers = flow[True]  # YAML 1.1 reads the bare word `on` as a boolean
    assert set(triggers) == {"schedule", "workflow_dispatch"}
    assert re.fullmatch(r"\d+ \d+ \* \* \*", triggers["schedule"][0]["cron"])
    assert flow["permissions"] == {}
    (job,) = flow["jobs"].values()
    assert sorted(job["strategy"]["matrix"]["stack"]) == ["grafana", "postgres"]
    assert job["strategy"]["fail-fast"] is False
    assert job["permissions"] == {"contents": "read"}
    checkout, last = job["steps"]
    assert re.fullmatch(r"actions/checkout@v\d+", checkout["uses"])
    assert last["run"] == "e2e/${{ matrix.stack }}/run.sh"
    assert job["timeout-minutes"] <= 60


def test_a_release_is_tagged_with_its_full_and_its_short_version():
    release = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
    # YAML 1.1 reads the key `on` as true.
    triggers = release.get("on", release.get(True))
    assert triggers == {"push": {"tags": ["v[0-9]+.[0-9]+.[0-9]+"]}}
    assert release["permissions"] == {}
    job = release["jobs"]["image"]
    assert job["permissions"] == {"contents": "read", "packages": "write"}
    steps = {step["uses"].partition("@")[0]: step.get("with", {}) for step in job["steps"] if "uses" in step}
    assert steps["docker/metadata-action"]["tags"].split() == [
        "type=semver,pattern={{version}}",
        "type=semver,pattern={{major}}.{{minor}}",
    ]
    assert steps["docker/build-push-action"]["push"] is True
    assert any("pyproject.toml" in step.get("run", "") for step in job["steps"])
