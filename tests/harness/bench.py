"""What each client is tried with: the operations server, the gateway before it as it starts by default, an approver.

    with bench(tmp_path, oob=True, hold_s=30) as one:
        ...                                    # point a client at one.url with one.token, in one.home
        one.approve()                          # open the newest link and press its button
        one.rules("delete_service")            # what the audit says became of its calls
        one.effects("delete_service")          # how often it was really done
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes.processes import START_S, Running, bearer, clean_env, gateway, ops_server
from tests.fakes.webhook import Message, Receiver
from tests.harness.parts import Part
from tests.harness.wire import Wire

__all__ = ["DELETE", "DENIED", "LISTED", "READ", "UNLISTED", "Bench", "bench", "run"]

READ = ("get_service", {"name": "shop"})
DELETE = ("delete_service", {"name": "shop"})
DENIED = ("delete_service", {"name": "payments"})  # a rule of the policy
UNLISTED = ("drop_database", {"name": "shop"})  # not in the policy
LISTED = {"get_service", "read_runbook", "read_logs", "restart_service", "set_replicas", "delete_service"}
PRESS_S = 30


class Bench:
    """One gateway and what stands around it. Its client gets an empty home and an empty folder to work in."""

    def __init__(self, folder: Path, gate: Running, wire: Wire, chat: Receiver | None) -> None:
        self.folder, self.gate, self.wire, self.url = folder, gate, wire, wire.url
        self.token = bearer()
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self._chat = chat
        self._pressed = 0

    @property
    def messages(self) -> list[Message]:
        """What the approvers were told so far."""
        assert self._chat is not None
        return list(self._chat.taken)

    def approve(self) -> None:
        """Wait for a message that was not yet answered, open its link and press the button."""
        assert self._chat is not None
        message = self._chat.wait(self._pressed + 1)[self._pressed]
        self._pressed += 1
        path = message.link.partition("/approve/")[2]
        link = f"{self.wire.url.removesuffix('/mcp')}/approve/{path}"
        with urllib.request.urlopen(link, timeout=PRESS_S) as page:
            assert b"<form" in page.read()
        with urllib.request.urlopen(urllib.request.Request(link, b"", method="POST"), timeout=PRESS_S) as done:
            assert done.status == 200

    @contextlib.contextmanager
    def approving(self) -> Iterator[None]:
        """Approve the next question while the client waits for it."""
        person = threading.Thread(target=self.approve, daemon=True)
        person.start()
        yield
        person.join(PRESS_S)
        assert not person.is_alive()

    def records(self, method: str = "tools/call") -> list[dict[str, Any]]:
        """The outcomes in the audit file."""
        place = self.folder / "audit.jsonl"
        lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
        found: list[dict[str, Any]] = [json.loads(line) for line in lines]
        return [r for r in found if r["phase"] == "outcome" and r["method"] == method]

    def rules(self, tool: str) -> list[str]:
        """The rule of each outcome for a tool; a question that was found still open counts once."""
        found: list[str] = []
        for record in self.records():
            if record["tool"] == tool and not (found and found[-1] == record["rule_id"] == "mrtr.pending"):
                found.append(record["rule_id"])
        return found

    def effects(self, tool: str) -> int:
        """How often the server really did it."""
        place = self.folder / "effects.jsonl"
        lines = place.read_text(encoding="utf-8").splitlines() if place.exists() else []
        return sum(json.loads(line)["tool"] == tool for line in lines)


@contextlib.contextmanager
def bench(
    folder: Path, *, oob: bool = False, hold_s: int = 30, stdio: bool = False, front: str | None = None, **env: str
) -> Iterator[Bench]:
    """Start it all. `oob`: people approve by a link of the webhook; `stdio`: the gateway starts the server itself."""
    effects = folder / "effects.jsonl"
    with contextlib.ExitStack() as stack:
        wire = stack.enter_context(Wire())
        chat = stack.enter_context(Receiver()) if oob else None
        if chat is not None:
            env["AIRLOCK_APPROVAL_WEBHOOK"] = chat.slack_url
        env = {"AIRLOCK_ALLOWED_HOSTS": f"127.0.0.1:{wire.port}", "AIRLOCK_HOLD_S": str(hold_s), **env}
        flags = [] if front is None else ["--front", front]
        ops = stack.enter_context(ops_server(effects))
        gate = stack.enter_context(gateway(folder, ops.url, *flags, name="airlock", **env))
        wire.to = gate.port
        yield Bench(folder, gate, wire, chat)


def run(
    part: Part, one: Bench, *arguments: str, stdin: str = "", within_s: float = 150, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a client to its end, in its own home, with nothing of this environment."""
    settings = {"HOME": str(one.home), "PATH": part.path(), "LANG": "C.UTF-8", "NO_COLOR": "1", **env}
    return subprocess.run(
        [*part.command(), *arguments], env=settings, cwd=one.work, input=stdin, capture_output=True, text=True,
        timeout=within_s, check=False,
    )  # fmt: skip
