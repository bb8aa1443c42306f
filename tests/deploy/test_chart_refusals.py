"""What the chart refuses to render, each by its schema and, where that is skipped, by its templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.deploy.rendered import CHART, SHARED, helm, refusal, render, without_schema

MARK = "hunter" + "2" * 9
FROM = {"secretKeyRef": {"name": "other", "key": "k"}}
CLAIM = {"emptyDir": None, "persistentVolumeClaim": {"claimName": "audit"}}
CREDENTIALS = [
    "AIRLOCK_SECRET",
    "AIRLOCK_JWT_SECRET",
    "AIRLOCK_STORE_DSN",
    "AIRLOCK_AUDIT_DSN",
    "AIRLOCK_UPSTREAM_AUTH",
    "AIRLOCK_APPROVAL_WEBHOOK",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
    "PGPASSWORD",
]

# name: (values, what the templates say)
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no upstream": ({"upstream": ""}, "upstream is required"),
    "blank upstream": ({"upstream": "  "}, "upstream is required"),
    "no policy": ({"policy": ""}, "policy is required"),
    "policy that is a map": ({"policy": {"version": 1}}, "policy is required"),
    "replicas 0": ({"replicaCount": 0}, "at least 1"),
    "replicas negative": ({"replicaCount": -1}, "at least 1"),
    "replicas broken": ({"replicaCount": 1.5, **SHARED}, "replicaCount must be a whole number"),
    "replicas text": ({"replicaCount": "3", **SHARED}, "replicaCount must be a whole number"),
    "replicas none": ({"replicaCount": None}, "replicaCount must be a whole number"),
    "replicas apart": ({"replicaCount": 2}, "above 1 needs sharedStore"),
    "replicas on one file": ({"replicaCount": 2, **SHARED, "dataVolume": CLAIM}, "needs an emptyDir"),
    "two volumes": ({"dataVolume": {"persistentVolumeClaim": {"claimName": "a"}}}, "dataVolume.emptyDir=null"),
    "two kept volumes": ({"dataVolume": {**CLAIM, "hostPath": {"path": "/x"}}}, "exactly one volume source"),
    "no volume": ({"dataVolume": {"emptyDir": None}}, "dataVolume is empty"),
    "volume none": ({"dataVolume": None}, "dataVolume is empty"),
    "shared without a secret": ({"sharedStore": True}, "sharedStore needs existingSecret"),
    "env map": ({"env": {"A": {"b": "c"}}}, "env.A must be a text, a number or a boolean"),
    "env list": ({"env": {"A": ["b"]}}, "env.A must be a text, a number or a boolean"),
    "env null": ({"env": {"A": None}}, "env.A must be a text, a number or a boolean"),
    "args map": ({"extraArgs": ["--x", {"b": "c"}]}, r"extraArgs\[1\] must be a text"),
    "args list": ({"extraArgs": [["b"]]}, r"extraArgs\[0\] must be a text"),
    "args null": ({"extraArgs": [None]}, r"extraArgs\[0\] must be a text"),
    "extra not a map": ({"extraEnv": ["A=b"]}, r"extraEnv\[0\] must be a map"),
    "extra nameless": ({"extraEnv": [{"value": "b"}]}, r"extraEnv\[0\] has no name"),
    "extra blank name": ({"extraEnv": [{"name": " ", "value": "b"}]}, r"extraEnv\[0\] has no name"),
    "extra twice": ({"extraEnv": [{"name": "A", "value": "b"}] * 2}, "extraEnv lists A twice"),
    "extra in env": ({"env": {"A": "b"}, "extraEnv": [{"name": "A", "value": "c"}]}, "A stands in env and in"),
    "extra number": ({"extraEnv": [{"name": "A", "value": 1}]}, "value of A in extraEnv must be a string"),
    "extra boolean": ({"extraEnv": [{"name": "A", "value": True}]}, "value of A in extraEnv must be a string"),
    "extra null": ({"extraEnv": [{"name": "A", "value": None}]}, "value of A in extraEnv must be a string"),
    "extra DSN": ({**SHARED, "extraEnv": [{"name": "AIRLOCK_STORE_DSN", "valueFrom": FROM}]}, "with sharedStore"),
    "extra key": ({**SHARED, "extraEnv": [{"name": "AIRLOCK_SECRET", "valueFrom": FROM}]}, "with sharedStore"),
    "sleep broken": ({"preStopSeconds": 1.5}, "preStopSeconds must be a whole number"),
    "sleep text": ({"preStopSeconds": "5"}, "preStopSeconds must be a whole number"),
    "sleep negative": ({"preStopSeconds": -1}, "preStopSeconds must not be negative"),
    "grace equal": ({"terminationGracePeriodSeconds": 5}, "must be more than preStopSeconds"),
    "grace shorter": ({"preStopSeconds": 40}, "must be more than preStopSeconds"),
    "grace broken": ({"terminationGracePeriodSeconds": 30.5}, "PeriodSeconds must be a whole number"),
}  # fmt: skip


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return without_schema(tmp_path_factory.mktemp("chart"))


@pytest.mark.case("T66")
@pytest.mark.parametrize("case", list(REFUSED))
def test_the_chart_refuses(case: str, bare: Path):
    values, words = REFUSED[case]
    refusal(CHART, **values)
    with pytest.raises(helm.HelmError, match=words):
        render(bare, **values)


@pytest.mark.case("T66")
@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_credential_in_the_open_is_refused_and_not_shown(name: str, bare: Path):
    for chart in (CHART, bare):
        said = refusal(chart, env={name: MARK})
        assert f"env.{name} is a credential" in said
        assert MARK not in said
        for entry in (
            {"name": name, "value": MARK},
            {"name": name},
            {"name": name, "value": "", "valueFrom": FROM},
        ):
            said = refusal(chart, extraEnv=[entry])
            assert f"extraEnv sets {name} in the open" in said
            assert MARK not in said


@pytest.mark.case("T66")
@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_credential_from_another_secret_is_taken(name: str):
    assert render(extraEnv=[{"name": name, "valueFrom": FROM}]).env[name]["valueFrom"] == FROM


def test_a_value_of_the_wrong_type_is_refused_without_being_shown():
    said = refusal(extraEnv=[{"name": "A", "value": {"x": MARK}}]) + refusal(env={"A": [MARK]})
    assert MARK not in said


@pytest.mark.parametrize(
    "values",
    [
        {"strict": "false"},
        {"sharedStore": "false"},
        {"generateJwtSecret": "false"},
        {"image": {"tag": 0.1}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"service": {"port": 0}},
        {"service": {"type": "ExternalName"}},
        {"env": {"NOT A NAME": "x"}},
        {"unknown": 1},
    ],
    ids=str,
)
def test_the_schema_refuses_what_would_mean_something_else(values: dict[str, Any]):
    assert "schema" in refusal(**values)
