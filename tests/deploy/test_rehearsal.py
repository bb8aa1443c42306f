"""The drivers of e2e/ without containers: the same scripts, policies and MCP servers, as processes on loopback.

Postgres is real. Grafana and Kubernetes are stand-ins that keep what they are told; the MCP servers in front of them
are the real ones. So a driver that would fail in its stack for a reason of its own fails here first.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.stand_ins import Grafana, Kubernetes, serving
from tests.fakes.postgres import PostgresServer
from tests.fakes.processes import JWT_SECRET, clean_env, gateway, run, wait_port

ROOT = Path(__file__).resolve().parents[2]
E2E = ROOT / "e2e"
SECRET = "of-this-test-only-" + "fedcba9876543210" * 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def process(port: int, *command: str | Path, **env: str) -> Iterator[None]:
    """A server of a stack, until the block ends."""
    with subprocess.Popen(
        command, env=clean_env(PYTHONPATH=str(E2E), **env), stdout=subprocess.DEVNULL
    ) as running:
        try:
            wait_port(port)
            yield
        finally:
            running.kill()


def drive(stack: str, *parts: str, **env: str) -> None:
    """Run a driver to its end; it exits with 1 when anything differs."""
    command = [sys.executable, str(E2E / stack / "driver.py"), *parts]
    settings = clean_env(PYTHONPATH=str(E2E), E2E_JWT_SECRET=JWT_SECRET, **env)
    done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def verified(*folders: Path) -> None:
    for folder in folders:
        assert run("airlock-audit", "verify", cwd=folder).stdout.startswith("OK: ")


def test_the_postgres_stack_goes_as_told(postgres_server: PostgresServer, tmp_path: Path):
    if not postgres_server.owned:
        pytest.skip("freezes the database: unset AIRLOCK_TEST_PG_DSN")
    dsn = postgres_server.database()
    upstream, approver, second = free_port(), free_port(), free_port()
    shared = {
        "AIRLOCK_SECRET": SECRET,
        "AIRLOCK_STORE_DSN": dsn,
        "AIRLOCK_AUDIT_DSN": dsn,
        "AIRLOCK_STORE_CONNECT_TIMEOUT": "3",
        "AIRLOCK_APPROVAL_WEBHOOK": f"http://127.0.0.1:{approver}/hook",
        "AIRLOCK_PUBLIC_URL": f"http://127.0.0.1:{second}",
    }
    flags = ["--env", "e2e", "--strict"]
    folders = [tmp_path / str(number) for number in range(1, 6)]
    with contextlib.ExitStack() as stack:
        listens = {"E2E_LISTEN": f"127.0.0.1:{upstream}", "E2E_DSN": dsn}
        stack.enter_context(process(upstream, sys.executable, E2E / "postgres/server.py", **listens))
        listens = {"E2E_LISTEN": f"127.0.0.1:{approver}"}
        stack.enter_context(process(approver, sys.executable, E2E / "postgres/approver.py", **listens))
        urls = []
        for number, folder in enumerate(folders, 1):
            folder.mkdir()
            port = ["--port", str(second)] if number == 2 else []
            made = gateway(folder, f"http://127.0.0.1:{upstream}/mcp", *flags, *port,
                           policy=str(E2E / "postgres/policy.yaml"), **shared)  # fmt: skip
            urls.append(stack.enter_context(made).url.removesuffix("/mcp"))
        env = {
            "E2E_GATEWAYS": " ".join(urls),
            "E2E_DSN": dsn,
            "E2E_APPROVER": f"http://127.0.0.1:{approver}",
        }
        drive("postgres", "story", **env)
        postgres_server.freeze()
        try:
            drive("postgres", "outage", **env)
        finally:
            postgres_server.thaw()
        drive("postgres", "recovery", **env)
    verified(*folders)


def test_the_grafana_stack_goes_as_told(tmp_path: Path):
    server = Path(sys.executable).parent / "mcp-grafana"
    if not server.exists():
        pytest.skip("needs the wheel mcp-grafana: uv sync --group servers")
    port = free_port()
    with serving(Grafana()) as grafana, contextlib.ExitStack() as stack:
        names = {"GRAFANA_URL": grafana, "GRAFANA_USERNAME": "admin", "GRAFANA_PASSWORD": "x"}
        names["MCP_GRAFANA_SERVER_TOKEN"] = SECRET
        address = ["-t", "streamable-http", "-address", f"127.0.0.1:{port}"]
        stack.enter_context(process(port, server, *address, **names))
        made = gateway(tmp_path, f"http://127.0.0.1:{port}/mcp", "--env", "e2e", "--strict",
                       policy=str(E2E / "grafana/policy.yaml"), AIRLOCK_UPSTREAM_AUTH=f"Bearer {SECRET}")  # fmt: skip
        url = stack.enter_context(made).url.removesuffix("/mcp")
        drive("grafana", E2E_GATEWAY=url, E2E_GRAFANA=grafana, E2E_PASSWORD="x")
    verified(tmp_path)


def test_the_kubernetes_stack_goes_as_told(tmp_path: Path):
    server = shutil.which("kubernetes-mcp-server", path=os.environ["PATH"])
    if server is None:
        pytest.skip("needs kubernetes-mcp-server on the PATH: npm install kubernetes-mcp-server@0.0.67")
    policy = ROOT / "examples/policies/kubernetes.yaml"
    port = free_port()
    with serving(Kubernetes()) as cluster, contextlib.ExitStack() as stack:
        kubeconfig = tmp_path / "config"
        here = {"name": "here"}
        kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{**here, "cluster": {"server": cluster}}], "users": [{**here, "user": {}}],
            "contexts": [{**here, "context": {"cluster": "here", "user": "here"}}],
        }), encoding="utf-8")  # fmt: skip
        flags = [
            "--kubeconfig",
            str(kubeconfig),
            "--port",
            str(port),
            "--bind-address",
            "127.0.0.1",
            "--stateless",
        ]
        stack.enter_context(process(port, server, *flags))
        made = gateway(
            tmp_path, f"http://127.0.0.1:{port}/mcp", "--env", "prod", "--strict", policy=str(policy)
        )
        url = stack.enter_context(made).url.removesuffix("/mcp")
        drive("kubernetes", E2E_GATEWAY=url, E2E_KUBECONFIG=str(kubeconfig), E2E_CLUSTER=cluster)
    verified(tmp_path)
