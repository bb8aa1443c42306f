"""A Grafana and a Kubernetes just wide enough for the real MCP servers in front of them: they keep what they are told."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


class StandIn:
    """State and answers; `answer` is called with method, path, `Accept` and JSON body."""

    def __init__(self) -> None:
        self.ids = itertools.count(1)
        self.asked: list[str] = []

    def answer(self, method: str, path: str, accept: str, body: Any) -> Answer:
        raise NotImplementedError


class Grafana(StandIn):
    """Folders and annotations."""

    def __init__(self) -> None:
        super().__init__()
        self.folders: list[dict[str, Any]] = []
        self.annotations: list[dict[str, Any]] = []

    def answer(self, method: str, path: str, accept: str, body: Any) -> Answer:
        match (method, path.strip("/").split("/")):
            case ("GET", ["api", "folders"]):
                return 200, self.folders
            case ("POST", ["api", "folders"]):
                number = next(self.ids)
                self.folders.append({"id": number, "uid": f"f{number}", "title": body["title"]})
                return 200, self.folders[-1]
            case ("GET", ["api", "search"]):
                return 200, [{**folder, "type": "dash-folder"} for folder in self.folders]
            case ("GET", ["api", "annotations"]):
                return 200, self.annotations
            case ("POST", ["api", "annotations"]):
                self.annotations.append({"id": next(self.ids), **body})
                return 200, {"id": self.annotations[-1]["id"], "message": "Annotation added"}
            case ("DELETE", ["api", "annotations", number]):
                kept = [entry for entry in self.annotations if entry["id"] != int(number)]
                found, self.annotations = len(kept) < len(self.annotations), kept
                return (200, {"message": "Annotation deleted"}) if found else (404, {"message": "not found"})
            case ("GET", ["api", "frontend", "settings"]):
                return 200, {"buildInfo": {"version": "12.2.0"}}
        return 404, {"message": "not found"}


class Kubernetes(StandIn):
    """Namespaces and pods."""

    RESOURCES = (("namespaces", "Namespace", False), ("pods", "Pod", True), ("events", "Event", True))

    def __init__(self) -> None:
        super().__init__()
        self.pods: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, path: str, accept: str, body: Any) -> Answer:
        match (method, path.strip("/").split("/")):
            case ("GET", ["version"]):
                return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.1"}
            case ("GET", ["api"]):
                return 200, {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
            case ("GET", ["apis"]):
                return 200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
            case ("GET", ["api", "v1"]):
                verbs = ["create", "delete", "get", "list"]
                resources = [
                    {"name": name, "singularName": "", "namespaced": spaced, "kind": kind, "verbs": verbs}
                    for name, kind, spaced in self.RESOURCES
                ]
                return 200, {"kind": "APIResourceList", "groupVersion": "v1", "resources": resources}
            case ("POST", ["apis", *_]):
                return 201, {**body, "status": {"allowed": True}}
            case ("POST", ["api", "v1", "namespaces"]):
                return 201, body
            case ("POST", ["api", "v1", "namespaces", space, "pods"]):
                name = body["metadata"]["name"]
                meta = {"name": name, "namespace": space, "uid": f"u{next(self.ids)}"}
                self.pods[name] = {**body, "metadata": meta, "status": {"phase": "Pending"}}
                return 201, self.pods[name]
            case ("GET", ["api", "v1", "namespaces", _, "pods"]):
                return 200, self._table() if "as=Table" in accept else self._list()
            case ("GET", ["api", "v1", "namespaces", _, "pods", name]) if name in self.pods:
                return 200, self.pods[name]
            case ("DELETE", ["api", "v1", "namespaces", _, "pods", name]) if name in self.pods:
                return 200, self.pods.pop(name)
        missing = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "NotFound",
            "code": 404,
        }
        return 404, missing

    def _list(self) -> dict[str, Any]:
        return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [*self.pods.values()]}

    def _table(self) -> dict[str, Any]:
        column = {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
        pods = [{"kind": "Pod", "apiVersion": "v1", **pod} for pod in self.pods.values()]
        rows = [{"cells": [pod["metadata"]["name"]], "object": pod} for pod in pods]
        head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}}
        return {**head, "columnDefinitions": [column], "rows": rows}


@contextlib.contextmanager
def serving(state: StandIn) -> Iterator[str]:
    """Serve it on loopback; the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def both(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length") or 0))
            place = urllib.parse.urlsplit(self.path)
            state.asked.append(f"{self.command} {self.path}")
            sent = json.loads(raw) if raw.startswith((b"{", b"[")) else None
            status, found = state.answer(self.command, place.path, self.headers.get("accept", ""), sent)
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = both

        def log_message(self, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
