"""A gateway in front of real servers, and what they are told: policy, addresses, one server process on a port.

It knows flags and files of the gateway; it must not know a client.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from tests.compat.programs import HTTP, Server, Site
from tests.compat.witness import TcpWitness, stdio
from tests.fakes.processes import Lines, Running, clean_env, command, wait_port

__all__ = ["CAREFUL", "Process", "audit", "described", "gateway", "policy", "spoken"]

CAREFUL: Final = "bob"
"""The principal who is asked before every call; for everybody else the same tools are at L0."""


def policy(tools: list[str], **sections: Any) -> str:
    """A policy under which everybody calls these tools freely and `CAREFUL` is asked first (JSON is YAML)."""
    tiers = {"tiers": {"prod": "L0"}, "principals": {CAREFUL: {"prod": "L2"}}}
    return json.dumps(
        {"version": 1, "environment": "prod", "tools": dict.fromkeys(tools, tiers), **sections}, indent=1
    )


@contextlib.contextmanager
def gateway(folder: Path, rules: str, *where: str, **env: str) -> Iterator[Running]:
    """`airlock gateway serve` as it comes, which believes the principal that a header names."""
    (folder / "policy.yaml").write_text(rules, encoding="utf-8")
    argv = [*command("airlock"), "gateway", "serve", "--policy", "policy.yaml", "--port", "0", *where]
    settings = clean_env(AIRLOCK_TRUST_PRINCIPAL_HEADER="1", XDG_STATE_HOME=str(folder / "state"), **env)
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, env=settings, cwd=folder) as process:
        lines = Lines(process.stderr)
        try:
            port = int(lines.until(r"listening on http://127\.0\.0\.1:(\d+)/mcp")[1])
            yield Running(process, port, lines)
        finally:
            process.terminate()


def audit(folder: Path) -> list[dict[str, Any]]:
    """The records of a gateway that ran in `folder`."""
    text = (folder / "audit.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


class Process:
    """A server on a port, with all of its children."""

    def __init__(self, server: Server, site: Site) -> None:
        assert server.http_argv is not None
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self._log = (site.folder / "server.log").open("wb")
        env = clean_env(**{**server.env(site), **server.http_env(self.port)})
        argv = server.http_argv(site, self.port)
        self._process = subprocess.Popen(
            argv,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )

    def __enter__(self) -> Process:
        wait_port(self.port)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)
        self._log.close()


@contextlib.contextmanager
def described(server: Server, transport: str, site: Site, kept: Path) -> Iterator[Mapping[str, Any]]:
    """Start a server where it is to be found by address; yield its entry for a file of upstreams, a witness before it."""
    if transport == HTTP:
        with Process(server, site) as process, TcpWitness(kept, process.port) as witness:
            yield {"url": f"http://127.0.0.1:{witness.port}/mcp"}
    else:
        yield {"command": stdio(kept, server.argv(site)), "env": dict(server.env(site))}


def spoken(lines: Lines) -> str:
    """What the gateway said that the server speaks, without how it found out."""
    said = [re.search(r"the server speaks (\S+ \S+)", line) for line in lines.seen]
    found = [match[1] for match in said if match is not None]
    return found[-1] if found else ""
