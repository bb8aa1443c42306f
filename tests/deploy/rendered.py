"""The chart as manifests: rendered by the Helm library, parsed the way Kubernetes parses YAML.

`Cluster` is a Kubernetes API just wide enough for a server-side dry run, for what a plain render cannot reach:
the version of the cluster, and a Secret that is already there.
"""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/mcp-airlock"
NAME = "airlock-mcp-airlock"
MINIMAL: dict[str, Any] = {"upstream": "http://server:8080/mcp", "policy": "version: 1\nenvironment: prod\n"}
SHARED: dict[str, Any] = {"existingSecret": "mine", "sharedStore": True}

helm = pytest.importorskip("helm_python", reason="needs the wheel helm-python-sdk: uv sync --group deploy")
yaml = pytest.importorskip("yaml", reason="needs the wheel kubernetes-validate: uv sync --group deploy")


def documents(text: str) -> list[dict[str, Any]]:
    """The manifests of a YAML stream, without empty ones; a key that stands twice is an error."""
    return [document for document in yaml.load_all(text, Loader=_strict()) if document]


def _strict() -> Any:
    class Strict(yaml.SafeLoader):  # type: ignore[misc, name-defined]
        pass

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        keys = [loader.construct_object(key) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key stands twice: {node.start_mark}"
        found: dict[Any, Any] = loader.construct_mapping(node, deep=True)
        return found

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    return Strict


class Manifests:
    """What one render gave."""

    def __init__(self, text: str, notes: str = "") -> None:
        self.text = text
        self.notes = notes
        self.all = documents(text)

    def one(self, kind: str) -> dict[str, Any]:
        (found,) = [document for document in self.all if document["kind"] == kind]
        return found

    @property
    def kinds(self) -> list[str]:
        return sorted(document["kind"] for document in self.all)

    @property
    def pod(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.one("Deployment")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        (found,) = self.pod["containers"]
        container: dict[str, Any] = found
        return container

    @property
    def args(self) -> list[str]:
        args: list[str] = self.container["args"]
        return args

    @property
    def env(self) -> dict[str, dict[str, Any]]:
        """Name to entry; a name that stands twice is an error."""
        entries = self.container.get("env", [])
        assert len({entry["name"] for entry in entries}) == len(entries)
        return {entry["name"]: entry for entry in entries}


def render(chart: Path = CHART, name: str = "airlock", **values: Any) -> Manifests:
    """Render with the two required values and `values`."""
    with helm.Chart.load(chart) as loaded:
        parts = loaded.render({**MINIMAL, **values}, name=name, namespace="agents")
    manifests = {place: text for place, text in parts.items() if place.endswith(".yaml")}
    (notes,) = [text for place, text in parts.items() if place.endswith("NOTES.txt")]
    return Manifests("\n---\n".join(manifests.values()), notes)


def refusal(chart: Path = CHART, **values: Any) -> str:
    """The message a render is refused with."""
    with pytest.raises(helm.HelmError) as caught:
        render(chart, **values)
    return str(caught.value)


def without_schema(folder: Path) -> Path:
    """A copy of the chart that has only its templates to refuse with (helm --skip-schema-validation)."""
    copy = folder / "mcp-airlock"
    shutil.copytree(CHART, copy)
    (copy / "values.schema.json").unlink()
    return copy


class Cluster:
    """A running API that helm can ask for its version and for one Secret."""

    KINDS = (("secrets", "", "Secret"), ("configmaps", "", "ConfigMap"), ("services", "", "Service"),
             ("deployments", "apps", "Deployment"))  # fmt: skip

    def __init__(self, version: str, secret: bytes | None) -> None:
        self.version = version
        self.secret = secret
        self.asked: list[str] = []

    def answer(self, path: str) -> dict[str, Any] | None:
        """The JSON for a GET, or None for what is not there."""
        self.asked.append(path)
        if path == "/version":
            minor = self.version.split(".")[1]
            return {"major": "1", "minor": minor, "gitVersion": self.version}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        if path == "/apis":
            apps = {"groupVersion": "apps/v1", "version": "v1"}
            groups = [{"name": "apps", "versions": [apps], "preferredVersion": apps}]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if path in {"/api/v1", "/apis/apps/v1"}:
            return self._resources("apps" if "apps" in path else "")
        if path == "/openapi/v3":
            places = ("api/v1", "apis/apps/v1")
            return {"paths": {place: {"serverRelativeURL": f"/openapi/v3/{place}"} for place in places}}
        if path.startswith("/openapi/v3/"):
            return self._openapi("apps" if "apps" in path else "")
        if path == f"/api/v1/namespaces/agents/secrets/{NAME}" and self.secret is not None:
            return self._secret(self.secret)
        return None

    def _resources(self, group: str) -> dict[str, Any]:
        resources = [
            {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "create"]}
            for name, of, kind in self.KINDS
            if of == group
        ]
        version = f"{group}/v1".lstrip("/")
        return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}

    def _openapi(self, group: str) -> dict[str, Any]:
        paths = {
            f"/{name}": {"patch": {
                "parameters": [{"name": "fieldValidation", "in": "query"}],
                "x-kubernetes-group-version-kind": {"group": of, "version": "v1", "kind": kind},
                "responses": {},
            }}
            for name, of, kind in self.KINDS
            if of == group
        }  # fmt: skip
        return {"openapi": "3.0.0", "info": {"title": "", "version": ""}, "paths": paths}

    @staticmethod
    def _secret(key: bytes) -> dict[str, Any]:
        owner = {"meta.helm.sh/release-name": "airlock", "meta.helm.sh/release-namespace": "agents"}
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": NAME,
                "namespace": "agents",
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
                "annotations": owner,
            },
            "data": {"AIRLOCK_JWT_SECRET": base64.b64encode(key).decode()},
        }


@contextmanager
def cluster(version: str = "v1.31.0", secret: bytes | None = None) -> Iterator[tuple[Cluster, Any]]:
    """A cluster of that version, and a helm configuration that talks to it."""
    state = Cluster(version, secret)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = state.answer(self.path.partition("?")[0])
            missing = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": "NotFound",
                "code": 404,
            }
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        named = {"name": "here"}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{**named, "user": {}}],
            "contexts": [{**named, "context": {"cluster": "here", "user": "here", "namespace": "agents"}}],
        }
        try:
            with helm.Config(
                kubeconfig_content=json.dumps(kubeconfig), namespace="agents", storage_driver="memory"
            ) as config:
                yield state, config
        finally:
            server.shutdown()
            thread.join()


def install(config: Any, **values: Any) -> Manifests:
    """Render against the cluster, without writing to it."""
    with helm.Chart.load(CHART) as loaded:
        release = config.install(
            loaded, "airlock", {**MINIMAL, **values}, namespace="agents", dry_run="server"
        )
    return Manifests(release["manifest"])
