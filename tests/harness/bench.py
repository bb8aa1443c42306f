"""What each client is tried with: the operations server, a gateway before it as it starts by default, approvers.

with bench(tmp_path, oob=True, hold_s=8) as one:
    ...                                    # point a client at one.url with one.token, in one.home
    one.approve()                          # open the newest link and press its button
    one.rules("delete_service")            # what the audit says became of its calls
    one.effects("delete_service")          # what was really done
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.fakes.processes import ROOT, Running, bearer, gateway, ops_server
from tests.fakes.webhook import Message, Receiver
from tests.harness.parts import Part
from tests.harness.wire import Wire

__all__ = ["LISTED", "Bench", "bench", "run"]

LISTED = {"get_service", "read_runbook", "read_logs", "restart_service", "set_replicas", "delete_service"}
"""What the policy gives its caller; the server has two tools more."""
PRESS_S = 30
RUN_S = 150


class Bench:
    """One gateway and what stands around it. Its client gets an empty home and an empty folder to work in."""

    def __init__(self, folder: Path, gate: Running, wire: Wire, chat: Receiver | None, policy: Path) -> None:
        self.folder, self.gate, self.wire, self.url = folder, gate, wire, wire.url
        self.token = bearer()
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self._chat, self._policy = chat, policy
        self._pressed = 0

    @property
    def messages(self) -> list[Message]:
        """What the approvers were told so far."""
        assert self._chat is not None
        return list(self._chat.taken)

    def approve(self) -> None:
        """Wait for a message that was not answered yet, open its link and press the button."""
        assert self._chat is not None
        message = self._chat.wait(self._pressed + 1)[self._pressed]
        self._pressed += 1
        link = f"{self.url.removesuffix('/mcp')}/approve/{message.link.partition('/approve/')[2]}"
        with urllib.request.urlopen(link, timeout=PRESS_S) as page:
            assert b"<form" in page.read()
        with urllib.request.urlopen(
            urllib.request.Request(link, b"", method="POST"), timeout=PRESS_S
        ) as page:
            assert page.status == 200

    def approve_later(self) -> threading.Thread:
        """Approve the next question as soon as there is one."""
        person = threading.Thread(target=self.approve, daemon=True)
        person.start()
        return person

    @contextlib.contextmanager
    def approving(self) -> Iterator[None]:
        """Approve the next question while the client waits for it."""
        person = self.approve_later()
        yield
        person.join(PRESS_S)
        assert not person.is_alive()

    def forbid(self, tool: str) -> None:
        """Take a tool out of the policy, and let the running gateway read it again."""
        yaml = YAML()
        policy = yaml.load(self._policy)
        del policy["tools"][tool]
        yaml.dump(policy, self._policy)
        assert self.gate.stderr is not None
        self.gate.process.send_signal(signal.SIGHUP)
        self.gate.stderr.until("policy reloaded")

    def records(self, method: str = "tools/call") -> list[dict[str, Any]]:
        """The outcomes in the audit file."""
        return [
            r
            for r in _lines(self.folder / "audit.jsonl")
            if r["phase"] == "outcome" and r["method"] == method
        ]

    def rules(self, tool: str) -> list[str]:
        """The rule of each outcome for a tool; a question that is looked at again and again counts once."""
        found: list[str] = []
        for record in self.records():
            if record["tool"] == tool and not (found and found[-1] == record["rule_id"] == "mrtr.pending"):
                found.append(record["rule_id"])
        return found

    def effects(self, tool: str) -> list[str]:
        """What the server really did with a tool: the names it was given."""
        return [line["name"] for line in _lines(self.folder / "effects.jsonl") if line["tool"] == tool]


def _lines(place: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(line) for line in place.read_text(encoding="utf-8").splitlines()]
        if place.exists()
        else []
    )


@contextlib.contextmanager
def bench(
    folder: Path, *, oob: bool = False, hold_s: int = 8, program: str = "airlock", **env: str
) -> Iterator[Bench]:
    """Start it all. `oob`: people approve by a link of the webhook; `hold_s`: how long a call waits for them."""
    effects, policy = folder / "effects.jsonl", folder / "policy.yaml"
    policy.write_bytes((ROOT / "examples/policy.yaml").read_bytes())
    with contextlib.ExitStack() as stack:
        wire = stack.enter_context(Wire())
        chat = stack.enter_context(Receiver()) if oob else None
        if chat is not None:
            env["AIRLOCK_APPROVAL_WEBHOOK"] = chat.slack_url
        if program == "airlock":
            env = {"AIRLOCK_ALLOWED_HOSTS": f"127.0.0.1:{wire.port}", "AIRLOCK_HOLD_S": str(hold_s), **env}
        ops = stack.enter_context(ops_server(effects))
        gate = stack.enter_context(gateway(folder, ops.url, name=program, policy=str(policy), **env))
        wire.to = gate.port
        yield Bench(folder, gate, wire, chat, policy)


def run(part: Part, one: Bench, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a client to its end, in its own home, with nothing of this environment."""
    settings = {"HOME": str(one.home), "PATH": part.path(), "LANG": "C.UTF-8", "NO_COLOR": "1", **env}
    return subprocess.run(
        [*part.command(), *arguments], env=settings, cwd=one.work, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
