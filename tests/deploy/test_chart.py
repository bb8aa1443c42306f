"""What the chart renders: the promises of the seed's section on Kubernetes, on parsed manifests."""

from __future__ import annotations

import base64
import json
import re
import string
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.rendered import (
    CHART,
    MINIMAL,
    NAME,
    ROOT,
    SHARED,
    cluster,
    helm,
    install,
    refusal,
    render,
    yaml,
)

OPTIONAL = {
    "AIRLOCK_JWT_SECRET",
    "AIRLOCK_AUDIT_DSN",
    "AIRLOCK_UPSTREAM_AUTH",
    "AIRLOCK_APPROVAL_WEBHOOK",
    "OTEL_EXPORTER_OTLP_HEADERS",
}
CLAIM = {"emptyDir": None, "persistentVolumeClaim": {"claimName": "audit"}}
FROM = {"secretKeyRef": {"name": "other", "key": "k"}}

SHAPES: dict[str, dict[str, Any]] = {
    "minimal": {},
    "claim": {"dataVolume": CLAIM},
    "shared": {**SHARED, "replicaCount": 3},
    "no sleep": {"preStopSeconds": 0},
    "no identity": {"generateJwtSecret": False, "strict": False},
    "everything": {
        **SHARED,
        "replicaCount": 5.0,
        "environment": "prod",
        "env": {"AIRLOCK_MAX_REQUEST_BYTES": 104857600.0, "AIRLOCK_TRUST_PRINCIPAL_HEADER": 1, "DEBUG": True},
        "extraEnv": [{"name": "AIRLOCK_AUDIT_DSN", "valueFrom": FROM}, {"name": "TZ", "value": "UTC"}],
        "envFrom": [{"secretRef": {"name": "more"}}],
        "extraArgs": ["--audit-max-bytes", 104857600, "--audit-keep", 3],
        "dataVolume": {"emptyDir": {"sizeLimit": 2147483648}},
        "resources": {"limits": {"memory": 536870912, "cpu": 2}},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "agents", "operator": "Exists", "tolerationSeconds": 1048576}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
            "podAffinityTerm": {"topologyKey": "host", "labelSelector": {"matchLabels": {"a": "b"}}}}]}},
        "service": {"type": "NodePort", "port": 80},
    },
}  # fmt: skip


@pytest.mark.parametrize("version", ["1.30.0", "1.37.0"])
def test_every_shape_is_valid_for_kubernetes(version: str, tmp_path: Path):
    check = Path(sys.executable).parent / "kubernetes-validate"
    if not check.exists():
        pytest.skip("needs the wheel kubernetes-validate: uv sync --group deploy")
    files: list[Path] = []
    for shape, values in SHAPES.items():
        files.append(tmp_path / f"{shape}.yaml")
        files[-1].write_text(render(**values).text, encoding="utf-8")
    command: list[str | Path] = [check, "--strict", "-k", version, *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (done.stdout + done.stderr).count("INFO") == sum(len(render(**v).all) for v in SHAPES.values())


@pytest.mark.parametrize("shape", list(SHAPES))
def test_helm_finds_no_fault_in_the_chart(shape: str):
    report = helm.lint(CHART, {**MINIMAL, **SHAPES[shape]}, strict=True)
    assert report["errors"] == []
    assert [m["error"] for m in report["messages"]] == ["icon is recommended"]


def test_the_chart_renders_a_deployment_a_service_a_policy_and_a_secret_of_one_name():
    manifests = render()
    assert manifests.kinds == ["ConfigMap", "Deployment", "Secret", "Service"]
    assert {document["metadata"]["name"] for document in manifests.all} == {NAME}


def test_the_longest_release_name_still_gives_a_name_a_service_may_have():
    manifests = render(name="r" * 53)
    assert {len(document["metadata"]["name"]) for document in manifests.all} == {63}


def test_the_version_of_the_chart_and_of_the_image_is_the_projects():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "([^"]+)"$', project, re.M)
    assert version is not None
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == version[1]
    assert render().container["image"] == f"mcp-airlock:{version[1]}"
    named = {"repository": "registry.example.com/mcp-airlock", "tag": "0.1"}
    assert render(image=named).container["image"] == "registry.example.com/mcp-airlock:0.1"


def test_the_gateway_gets_its_flags_and_strict_is_on():
    start = [
        "--policy",
        "/data/policy.yaml",
        "--upstream",
        MINIMAL["upstream"],
        "--audit",
        "/data/audit.jsonl",
    ]
    assert render().args == [*start, "--strict"]
    assert render(strict=False).args == start
    more = render(environment="prod", extraArgs=["--audit-keep", 3]).args
    assert more == [*start, "--env", "prod", "--strict", "--audit-keep", "3"]


def test_the_flags_that_the_chart_passes_are_flags_of_the_program():
    command = [sys.executable, "-c", "from airlock.cli.compat import mcp_airlock as m; m()", "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    flags = [word for word in render(environment="prod").args if word.startswith("--")]
    assert [flag for flag in [*flags, "--host"] if flag not in helped] == []


def test_the_policy_is_mounted_as_one_file_and_arrives_to_the_letter():
    policy = "  # first line is indented\nversion: 1\r\ntools: { a: {description: \"\t'é \U0001f512'\"} }\n\n"
    manifests = render(policy=policy)
    assert manifests.one("ConfigMap")["data"] == {"policy.yaml": policy}
    mounts = {mount["name"]: mount for mount in manifests.container["volumeMounts"]}
    where = {"name": "policy", "mountPath": "/data/policy.yaml", "subPath": "policy.yaml", "readOnly": True}
    assert mounts["policy"] == where
    assert mounts["data"] == {"name": "data", "mountPath": "/data"}


def test_a_new_policy_rolls_the_pods_and_the_same_one_does_not():
    def note(**values: Any) -> Any:
        return render(**values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]

    assert note() == note()
    assert note() != note(policy="version: 1\nenvironment: dev\n")


def test_the_pod_is_hardened():
    pod = render().pod
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "fsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert render().container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


def test_the_probes_ask_the_process_for_liveness_and_the_store_for_readiness():
    container = render().container
    alive = {"path": "/healthz", "port": "http"}
    assert container["startupProbe"] == {"httpGet": alive, "periodSeconds": 2, "failureThreshold": 30}
    assert container["livenessProbe"] == {"httpGet": alive, "periodSeconds": 10, "failureThreshold": 3}
    ready = {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5, "timeoutSeconds": 3}
    assert container["readinessProbe"] == ready


def test_the_service_finds_the_pods_and_their_port():
    manifests = render()
    spec = manifests.one("Service")["spec"]
    assert (spec["type"], spec["ports"][0]["port"]) == ("ClusterIP", 9000)
    assert spec["ports"][0]["targetPort"] == manifests.container["ports"][0]["name"]
    assert manifests.container["ports"][0]["containerPort"] == 9000
    template = manifests.one("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"].items() <= template.items()
    assert manifests.one("Deployment")["spec"]["selector"]["matchLabels"] == spec["selector"]


@pytest.mark.case("T66")
def test_whole_numbers_render_whole_wherever_they_stand():
    big = {
        "env": {"A": 104857600, "B": 104857600.0, "C": 2**53},
        "extraArgs": ["--audit-max-bytes", 104857600],
    }
    manifests = render(**helm.values_from_yaml(json.dumps(big)))
    assert [manifests.env[name]["value"] for name in "ABC"] == ["104857600", "104857600", str(2**53)]
    assert manifests.args[-1] == "104857600"
    assert "e+" not in render(**SHAPES["everything"]).text
    typed = render(env={"A": True, "B": 0.5, "C": "1e3", "D": "", "E": "007"})
    assert [typed.env[name]["value"] for name in "ABCDE"] == ["true", "0.5", "1e3", "", "007"]


def test_text_of_a_setting_arrives_to_the_letter():
    odd = '"quoted" \\ back: - {x} #y\n\ttab \x7f é \U0001f512 yes'
    assert render(env={"A": odd}).env["A"]["value"] == odd
    assert render(extraArgs=[odd]).args[-1] == odd


@pytest.mark.case("T66")
@pytest.mark.parametrize("shape", list(SHAPES))
def test_no_variable_stands_twice(shape: str):
    names = [entry["name"] for entry in render(**SHAPES[shape]).container.get("env", [])]
    assert sorted(names) == sorted(set(names))


def test_optional_keys_come_from_the_secret_of_the_operator():
    env = render(existingSecret="mine").env
    assert env.keys() == OPTIONAL
    for key, entry in env.items():
        assert entry["valueFrom"] == {"secretKeyRef": {"name": "mine", "key": key, "optional": True}}


def test_optional_keys_come_from_the_generated_secret_otherwise_and_from_none_without_one():
    entry = render().env["AIRLOCK_JWT_SECRET"]["valueFrom"]["secretKeyRef"]
    assert entry == {"name": NAME, "key": "AIRLOCK_JWT_SECRET", "optional": True}
    assert "env" not in render(generateJwtSecret=False).container


def test_the_shared_keys_are_set_with_the_shared_store_only_and_must_be_there():
    shared = {"AIRLOCK_STORE_DSN", "AIRLOCK_SECRET"}
    assert not shared & render(existingSecret="mine").env.keys()
    env = render(**SHARED, replicaCount=3).env
    assert env.keys() == OPTIONAL | shared
    for key in shared:
        assert env[key]["valueFrom"] == {"secretKeyRef": {"name": "mine", "key": key}}


def test_an_extra_variable_takes_the_place_of_an_optional_key_and_stands_last():
    extra = [{"name": "AIRLOCK_AUDIT_DSN", "valueFrom": FROM}, {"name": "NOTE", "value": "$(AIRLOCK_ENV)"}]
    manifests = render(existingSecret="mine", env={"AIRLOCK_ENV": "prod"}, extraEnv=extra)
    assert manifests.container["env"][-2:] == extra
    assert manifests.env.keys() == OPTIONAL | {"AIRLOCK_ENV", "NOTE"}
    without = render(extraEnv=[{"name": "AIRLOCK_SECRET", "valueFrom": FROM}])
    assert without.env["AIRLOCK_SECRET"]["valueFrom"] == FROM


def test_whole_secrets_can_be_variables():
    more = [{"secretRef": {"name": "more"}}]
    assert render(envFrom=more).container["envFrom"] == more
    assert "envFrom" not in render().container


def test_the_strategy_is_written_out_and_a_kept_volume_recreates():
    rolling = render().one("Deployment")["spec"]["strategy"]
    assert rolling == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    manifests = render(dataVolume=CLAIM)
    assert manifests.one("Deployment")["spec"]["strategy"] == {"type": "Recreate"}
    assert manifests.pod["volumes"][0] == {"name": "data", "persistentVolumeClaim": {"claimName": "audit"}}
    assert render().pod["volumes"][0] == {"name": "data", "emptyDir": {"sizeLimit": "1Gi"}}


def test_a_pod_sleeps_before_it_stops_and_the_grace_period_is_longer():
    assert render().container["lifecycle"] == {"preStop": {"sleep": {"seconds": 5}}}
    assert render().pod["terminationGracePeriodSeconds"] == 30
    assert "lifecycle" not in render(preStopSeconds=0).container


def test_the_generated_key_is_64_letters_and_digits_and_new_for_each_release():
    def key() -> str:
        return base64.b64decode(render().one("Secret")["data"]["AIRLOCK_JWT_SECRET"]).decode()

    first, second = key(), key()
    assert len(first) == 64
    assert set(first) <= set(string.ascii_letters + string.digits)
    assert first != second
    assert render().one("Secret")["data"].keys() == {"AIRLOCK_JWT_SECRET"}


@pytest.mark.parametrize("values", [{"existingSecret": "mine"}, {"generateJwtSecret": False}, SHARED])
def test_no_key_is_generated_that_nothing_would_use(values: dict[str, Any]):
    assert render(**values).kinds == ["ConfigMap", "Deployment", "Service"]


def test_an_upgrade_keeps_the_key_that_is_there():
    with cluster(secret=b"k" * 64) as (state, config):
        data = install(config).one("Secret")["data"]
    assert base64.b64decode(data["AIRLOCK_JWT_SECRET"]) == b"k" * 64
    assert f"/api/v1/namespaces/agents/secrets/{NAME}" in state.asked
    with cluster() as (_, config):
        data = install(config).one("Secret")["data"]
    assert len(base64.b64decode(data["AIRLOCK_JWT_SECRET"])) == 64


@pytest.mark.parametrize("version", ["v1.29.15", "v1.29.5-gke.100", "v1.24.0+k3s1"])
def test_the_sleep_is_refused_on_a_cluster_that_does_not_know_it(version: str):
    with cluster(version) as (_, config):
        with pytest.raises(helm.HelmError, match=r"Kubernetes 1\.30 .* set preStopSeconds=0"):
            install(config)
        assert "lifecycle" not in install(config, preStopSeconds=0).container


@pytest.mark.parametrize("version", ["v1.30.0", "v1.30.0-rc.1", "v1.30.4-eks-a737599", "v1.31.2+k3s1"])
def test_the_sleep_is_taken_from_kubernetes_1_30_on(version: str):
    with cluster(version) as (_, config):
        assert "lifecycle" in install(config).container


def test_the_notes_say_how_to_read_the_key_and_what_goes_with_the_pod():
    notes = render().notes
    assert (
        f"kubectl get secret -n agents {NAME} -o jsonpath='{{.data.AIRLOCK_JWT_SECRET}}' | base64 -d" in notes
    )
    assert "/approve" in notes
    assert "goes with its pod" in notes
    assert "kubectl get secret" not in render(existingSecret="mine").notes
    assert "goes with its pod" not in render(dataVolume=CLAIM).notes


def test_every_value_is_documented_and_known_to_the_schema():
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    assert values.keys() == schema["properties"].keys() - {"global"}
    lines = text.splitlines()
    for key in ["image", "replicaCount", *list(values)[2:]]:
        if key in {"tolerations", "affinity", "nodeSelector", "service", "image"}:
            continue
        at = next(n for n, line in enumerate(lines) if line.startswith(f"{key}:"))
        assert lines[at - 1].startswith("#"), key
    assert "replicaCounts" in refusal(replicaCounts=3)


def test_the_defaults_are_the_promised_ones():
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    promised = {
        "replicaCount": 1, "upstream": "", "environment": "", "policy": "", "existingSecret": "",
        "generateJwtSecret": True, "sharedStore": False, "env": {}, "extraEnv": [], "envFrom": [], "strict": True,
        "extraArgs": [], "preStopSeconds": 5, "terminationGracePeriodSeconds": 30,
        "dataVolume": {"emptyDir": {"sizeLimit": "1Gi"}}, "service": {"type": "ClusterIP", "port": 9000},
        "nodeSelector": {}, "tolerations": [], "affinity": {},
    }  # fmt: skip
    assert {key: values[key] for key in promised} == promised
    assert values["image"] == {"repository": "mcp-airlock", "tag": "", "pullPolicy": "IfNotPresent"}
    assert values.keys() - promised.keys() == {"image", "resources"}
