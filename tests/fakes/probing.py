"""What tests with real processes ask again and again: wait for something, watch the health, read the audit."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from click.testing import CliRunner

from airlock.cli.audit import group as audit_commands
from tests.fakes.processes import REVISION, Running, bearer

__all__ = [
    "LONG_S",
    "Health",
    "all_at_once",
    "alone",
    "children",
    "get",
    "pairs",
    "records",
    "until",
    "verified",
]

LONG_S = 30.0
T = TypeVar("T")


def until(seen: Callable[[], T], what: str, within_s: float = LONG_S) -> T:
    """Ask until the answer is true, and return it."""
    deadline = time.monotonic() + within_s
    while True:
        found = seen()
        if found:
            return found
        assert time.monotonic() < deadline, f"did not happen: {what}"
        time.sleep(0.02)


def get(running: Running, path: str, timeout: float = 10.0) -> int:
    """The status of a GET at the gateway."""
    request = urllib.request.Request(f"http://127.0.0.1:{running.port}{path}")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    return status


class Health:
    """Asks for /healthz all the time while a test breaks things: each answer must be 200, and come soon."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.asked = 0
        self.faults: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)

    def __enter__(self) -> Health:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(LONG_S)
        if kind is None:
            assert self.asked
            assert self.faults == []

    def _ask(self) -> None:
        while not (self.asked and self._stop.wait(0.05)):
            try:
                status = get(self.running, "/healthz", timeout=5.0)
            except OSError as error:
                self.faults.append(repr(error))
            else:
                if status != 200:
                    self.faults.append(str(status))
            self.asked += 1


def records(folder: Path, name: str = "audit.jsonl") -> list[dict[str, Any]]:
    """The records of one audit file."""
    return [json.loads(line) for line in (folder / name).read_bytes().splitlines()]


def pairs(folder: Path, rule: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The intents and outcomes of the calls whose outcome has this rule."""
    found = records(folder)
    intents = {each["call_id"]: each for each in found if each["phase"] == "intent"}
    return [
        (intents[each["call_id"]], each)
        for each in found
        if each["phase"] == "outcome" and each["rule_id"] == rule
    ]


def alone(folder: Path, name: str = "audit.jsonl") -> list[int]:
    """The line numbers of intents without an outcome."""
    found = records(folder, name)
    done = {each["call_id"] for each in found if each["phase"] == "outcome"}
    return [
        number
        for number, each in enumerate(found, 1)
        if each["phase"] == "intent" and each["call_id"] not in done
    ]


def verified(*files: Path) -> list[str]:
    """What `airlock audit verify` prints about these files; it must find no break."""
    done = CliRunner().invoke(audit_commands, ["verify", *map(str, files)])
    assert done.exit_code == 0, done.output
    lines: list[str] = done.stdout.splitlines()
    return lines


def children(pid: int) -> list[int]:
    """The processes that a process has forked and not buried."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def all_at_once(contexts: Sequence[AbstractContextManager[T]]) -> Iterator[list[T]]:
    """Enter contexts that take a while to start, side by side."""
    with ExitStack() as opened, ThreadPoolExecutor(len(contexts)) as pool:
        entering = [pool.submit(context.__enter__) for context in contexts]
        entered = []
        failure: BaseException | None = None
        for context, each in zip(contexts, entering, strict=True):
            try:
                entered.append(each.result())
            except BaseException as error:
                failure = error
            else:
                opened.push(context)
        if failure is not None:
            raise failure
        yield entered


def listed(running: Running) -> dict[str, Any]:
    """The result of `tools/list`."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
    headers = {
        "content-type": "application/json", "mcp-protocol-version": REVISION, "mcp-method": "tools/list",
        "authorization": f"Bearer {bearer()}",
    }  # fmt: skip
    request = urllib.request.Request(running.url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=LONG_S) as answer:
        result: dict[str, Any] = json.load(answer)["result"]
    return result
