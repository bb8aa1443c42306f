"""What stands behind the real servers: one small HTTP server that is a web page, a Grafana and a Kubernetes API.

It knows just what the calls of `programs` need answered, and keeps what it was asked; anything else is 404.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections import Counter
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

__all__ = ["Behind"]

_DASHBOARD = {
    "uid": "d1",
    "title": "Airlock board",
    "type": "dash-db",
    "url": "/d/d1/airlock-board",
    "tags": [],
}
_FOLDER = {"uid": "f1", "title": "made", "url": "/dashboards/f/f1", "id": 1, "version": 1}
_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "1", "labels": {}},
    "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    "status": {"phase": "Running"},
}
_PODS = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [_POD]}
_RESOURCES = [
    {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod",
     "verbs": ["get", "list", "create", "delete"]},
    {"name": "namespaces", "singularName": "namespace", "namespaced": False, "kind": "Namespace",
     "verbs": ["get", "list"]},
]  # fmt: skip
_GROUP = {"apiVersion": "v1", "kind": "APIGroupList", "groups": []}
_ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/page"): "the page behind the server\n",
    ("GET", "/robots.txt"): "User-agent: *\nAllow: /\n",
    ("GET", "/api/search"): [_DASHBOARD],
    ("POST", "/api/folders"): _FOLDER,
    ("GET", "/api/health"): {"database": "ok", "version": "12.0.0"},
    ("GET", "/version"): {"major": "1", "minor": "37", "gitVersion": "v1.37.0"},
    ("GET", "/api"): {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []},
    ("GET", "/apis"): _GROUP,
    ("GET", "/api/v1"): {"kind": "APIResourceList", "groupVersion": "v1", "resources": _RESOURCES},
    ("GET", "/api/v1/pods"): _PODS,
    ("GET", "/api/v1/namespaces/default/pods"): _PODS,
    ("GET", "/api/v1/namespaces/shop/pods/web"): _POD,
    ("DELETE", "/api/v1/namespaces/shop/pods/web"): _POD,
}


class Behind:
    """Listens on a loopback port while it is entered. `asked` counts (method, path)."""

    def __init__(self) -> None:
        self.asked: Counter[tuple[str, str]] = Counter()
        behind = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                what = (self.command, urlsplit(self.path).path)
                behind.asked[what] += 1
                found = _ANSWERS.get(what)
                kind = "text/plain" if isinstance(found, str) else "application/json"
                text = found if isinstance(found, str) else json.dumps(found or {"message": "not found"})
                self.send_response(HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

            do_GET = do_POST = do_DELETE = handle_any

            def log_message(self, *args: object) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Behind:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
