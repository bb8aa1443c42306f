"""The real servers of the compatibility table: how each is started, one call that reads, and one that is confirmed.

It knows packages, command lines and what an answer looks like; it must not know what stands between.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["HTTP", "SERVERS", "STDIO", "Call", "Server", "Site", "node", "npm_folder", "version"]

STDIO: Final = "stdio"
HTTP: Final = "HTTP"


@dataclass(frozen=True)
class Site:
    """Where a server runs: a folder of its own, and the address of what it asks."""

    folder: Path
    behind: str

    def make(self) -> None:
        """Make a repository and a folder of files."""
        self.files.mkdir()
        self.repository.mkdir()
        _git(self.repository, "init", "-q", "-b", "main")
        self.renew()

    def renew(self) -> None:
        """Make sure that there is something to change: a staged file, and a text that was not edited yet."""
        (self.files / "notes.txt").write_text("a note\n", encoding="utf-8")
        number = len(list(self.repository.glob("*.txt")))
        (self.repository / f"{number}.txt").write_text("new\n", encoding="utf-8")
        _git(self.repository, "add", ".")

    @property
    def repository(self) -> Path:
        return self.folder / "repository"

    @property
    def files(self) -> Path:
        return self.folder / "files"


@dataclass(frozen=True)
class Call:
    """One tool call; `says` stands in the text of its result."""

    tool: str
    arguments: Callable[[Site], dict[str, Any]]
    says: str


@dataclass(frozen=True)
class Server:
    """One server. `argv` starts it over stdio, `http_argv` on a port; `read` runs at L0 and `change` at L2."""

    name: str
    package: str
    npm: bool
    argv: Callable[[Site], list[str]]
    read: Call
    change: Call
    http_argv: Callable[[Site, int], list[str]] | None = None
    env: Callable[[Site], Mapping[str, str]] = field(default=lambda site: {})
    http_env: Callable[[int], Mapping[str, str]] = field(default=lambda port: {})

    @property
    def transports(self) -> tuple[str, ...]:
        return (STDIO,) if self.http_argv is None else (STDIO, HTTP)


def _git(repository: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=repository, check=True)


def _wheel(program: str) -> str:
    found = Path(sys.executable).parent / program
    if not found.exists():
        pytest.skip(f"needs the wheel {program}: uv sync --inexact --group servers")
    return str(found)


def npm_folder() -> Path:
    """Where `make test-servers` puts the npm packages, or skip."""
    named = os.environ.get("AIRLOCK_TEST_NPM")
    if not named:
        pytest.skip("needs AIRLOCK_TEST_NPM, a folder with the npm packages: make test-servers")
    return Path(named).resolve() / "node_modules"


def node() -> str:
    """The Node of this environment, else the one on the PATH, or skip."""
    beside = Path(sys.executable).parent / "node"
    found = str(beside) if beside.exists() else shutil.which("node")
    if found is None:
        pytest.skip("needs Node: uv sync --inexact --group servers")
    return found


def _script(package: str, program: str) -> list[str]:
    """The argv of an npm program, without the shell's search for `node`."""
    folder = npm_folder() / package
    if not folder.exists():
        pytest.skip(f"needs the npm package {package}: make test-servers")
    programs = json.loads((folder / "package.json").read_text(encoding="utf-8"))["bin"]
    return [node(), str(folder / (programs if isinstance(programs, str) else programs[program]))]


def version(server: Server) -> str:
    """The version that is installed."""
    if not server.npm:
        return metadata.version(server.package)
    file = npm_folder() / server.package / "package.json"
    found: str = json.loads(file.read_text(encoding="utf-8"))["version"]
    return found


def _kubeconfig(site: Site) -> str:
    path = site.folder / "kubeconfig"
    cluster = {"name": "here", "cluster": {"server": site.behind}}
    context = {"name": "here", "context": {"cluster": "here", "user": "here"}}
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "here",
        "clusters": [cluster], "users": [{"name": "here", "user": {}}], "contexts": [context],
    }  # fmt: skip
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def _kubernetes(site: Site) -> list[str]:
    start = _script("kubernetes-mcp-server", "kubernetes-mcp-server")
    flags = ["--kubeconfig", _kubeconfig(site), "--list-output", "yaml"]
    return [*start, *flags, "--log-file", str(site.folder / "kubernetes.log")]


_WHO: Final = {
    f"GIT_{role}_{what}": value
    for role in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "t"), ("EMAIL", "t@example.org"))
}
_EVERYTHING: Final = ("@modelcontextprotocol/server-everything", "mcp-server-everything")
_GRAFANA: Final = {"GRAFANA_SERVICE_ACCOUNT_TOKEN": "x", "GRAFANA_USAGE_STATS": "disabled"}

SERVERS: Final = (
    Server(
        "mcp-server-git", "mcp-server-git", False,
        argv=lambda site: [_wheel("mcp-server-git"), "--repository", str(site.repository)],
        env=lambda site: _WHO,
        read=Call("git_status", lambda site: {"repo_path": str(site.repository)}, "On branch main"),
        change=Call(
            "git_commit", lambda site: {"repo_path": str(site.repository), "message": "one more"}, "ommitted"
        ),
    ),
    Server(
        "mcp-server-time", "mcp-server-time", False,
        argv=lambda site: [_wheel("mcp-server-time"), "--local-timezone", "UTC"],
        read=Call("get_current_time", lambda site: {"timezone": "UTC"}, "datetime"),
        change=Call(
            "convert_time",
            lambda site: {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            "+9.0h",
        ),
    ),
    Server(
        "mcp-server-fetch", "mcp-server-fetch", False,
        argv=lambda site: [_wheel("mcp-server-fetch"), "--allow-private-ips"],
        read=Call("fetch", lambda site: {"url": f"{site.behind}/page"}, "the page behind the server"),
        change=Call("fetch", lambda site: {"url": f"{site.behind}/page"}, "the page behind the server"),
    ),
    Server(
        "server-everything", _EVERYTHING[0], True,
        argv=lambda site: [*_script(*_EVERYTHING), "stdio"],
        http_argv=lambda site, port: [*_script(*_EVERYTHING), "streamableHttp"],
        http_env=lambda port: {"PORT": str(port)},
        read=Call("echo", lambda site: {"message": "hello"}, "Echo: hello"),
        change=Call("get-sum", lambda site: {"a": 1, "b": 2}, "3"),
    ),
    Server(
        "server-filesystem", "@modelcontextprotocol/server-filesystem", True,
        argv=lambda site: [
            *_script("@modelcontextprotocol/server-filesystem", "mcp-server-filesystem"), str(site.files)
        ],
        read=Call("read_text_file", lambda site: {"path": str(site.files / "notes.txt")}, "a note"),
        change=Call(
            "edit_file",
            lambda site: {
                "path": str(site.files / "notes.txt"), "edits": [{"oldText": "a note", "newText": "a note!"}]
            },
            "a note!",
        ),
    ),
    Server(
        "server-memory", "@modelcontextprotocol/server-memory", True,
        argv=lambda site: _script("@modelcontextprotocol/server-memory", "mcp-server-memory"),
        env=lambda site: {"MEMORY_FILE_PATH": str(site.folder / "memory.jsonl")},
        read=Call("read_graph", lambda site: {}, "entities"),
        change=Call(
            "create_entities",
            lambda site: {"entities": [{"name": "shop", "entityType": "service", "observations": ["is up"]}]},
            "[",
        ),
    ),
    Server(
        "mcp-grafana", "mcp-grafana", False,
        argv=lambda site: [_wheel("mcp-grafana")],
        http_argv=lambda site, port: [
            _wheel("mcp-grafana"), "-t", "streamable-http", "--address", f"127.0.0.1:{port}"
        ],
        env=lambda site: {"GRAFANA_URL": site.behind, **_GRAFANA},
        read=Call("search_dashboards", lambda site: {"query": "board"}, "Airlock board"),
        change=Call("create_folder", lambda site: {"title": "made"}, '"f1"'),
    ),
    Server(
        "kubernetes-mcp-server", "kubernetes-mcp-server", True,
        argv=_kubernetes,
        http_argv=lambda site, port: [*_kubernetes(site), "--port", str(port), "--bind-address", "127.0.0.1"],
        read=Call("pods_list", lambda site: {}, "web"),
        change=Call("pods_delete", lambda site: {"name": "web", "namespace": "shop"}, "deleted"),
    ),
)  # fmt: skip
