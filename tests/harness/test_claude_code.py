"""Claude Code through the gateway: the real program, headless and on a terminal, with a scripted model on loopback.

`make test-harness` installs it and runs this. The program is $AIRLOCK_TEST_CLAUDE, else `claude` on the PATH. It gets
a home of its own and reaches nothing but loopback. What is held here is what docs/clients.md says of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.server
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.processes import Running, bearer, gateway, ops_server

TOOL = "mcp__ops__"
CALLS = [
    ("get_service", {"name": "shop"}),
    ("delete_service", {"name": "shop"}),
    ("restart_service", {"name": "shop"}),
]
WANTED = "2.1.332"
SPACE, ENTER, DOWN, RIGHT = " ", "\r", "\x1b[B", "\x1b[C"


def program() -> str:
    found = os.environ.get("AIRLOCK_TEST_CLAUDE") or shutil.which("claude")
    if found is None:
        pytest.skip(
            f"needs Claude Code: make test-harness, or npm install @anthropic-ai/claude-code@{WANTED}"
        )
    return os.path.abspath(found)


class Model(http.server.ThreadingHTTPServer):
    """Answers POST /v1/messages: one tool call after the other, then the end. Keeps what it was told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.offered: set[str] = set()
        self.results: dict[str, tuple[bool, str]] = {}

    def next(self, body: dict[str, Any]) -> dict[str, Any]:
        """The next content block for a conversation."""
        self.offered |= {tool["name"] for tool in body["tools"]}
        for message in body["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_result":
                    name = CALLS[int(block["tool_use_id"].removeprefix("toolu_"))][0]
                    self.results[name] = bool(block.get("is_error")), json.dumps(block["content"])
        done = len(self.results)
        if done == len(CALLS):
            return {"type": "text", "text": "done"}
        name, arguments = CALLS[done]
        return {"type": "tool_use", "id": f"toolu_{done}", "name": TOOL + name, "input": arguments}


class Handler(http.server.BaseHTTPRequestHandler):
    """One request to the model."""

    server: Model

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        block = self.server.next(body) if body.get("tools") else {"type": "text", "text": "a title"}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for event in events(block):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *args: Any) -> None:
        """Stay quiet."""


def events(block: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A message of one block, as the stream of the messages API."""
    call = block["type"] == "tool_use"
    empty = {**block, "input": {}} if call else {**block, "text": ""}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])} if call else {
        "type": "text_delta", "text": block["text"]}  # fmt: skip
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": empty}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 1}}
    yield {"type": "message_stop"}


class Terminal:
    """A program on a terminal: what it shows is read until it says something, keys are pressed."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str]) -> None:
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execve(argv[0], argv, env)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def until(self, words: str, within_s: float = 60) -> None:
        """Read until `words` stand on the screen; raises TimeoutError with what was shown instead."""
        shown, end = b"", time.monotonic() + within_s
        while words not in self._plain(shown):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(self._plain(shown))
            if select.select([self._fd], [], [], left)[0]:
                shown += os.read(self._fd, 65536)

    def press(self, key: str, words: str) -> None:
        """Press a key until `words` are shown: what comes while a dialog opens is dropped by it."""
        for _ in range(15):
            os.write(self._fd, key.encode())
            with contextlib.suppress(TimeoutError):
                return self.until(words, 4)
        raise TimeoutError(f"{key!r} never showed {words}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._fd)

    @staticmethod
    def _plain(shown: bytes) -> str:
        text = re.sub(r"\x1b\[([0-9]+)C", lambda skip: " " * int(skip[1]), shown.decode(errors="replace"))
        return re.sub(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;?<>=u]*[a-zA-Z]|\x1b[=>78]", "", text)


class Session:
    """Claude Code in a home of its own, in front of a gateway and a model."""

    def __init__(self, folder: Path, gate: Running, model: Model) -> None:
        self.gate, self.model, self.folder = gate, model, folder
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.env = {
            "HOME": str(self.home), "PATH": "/usr/bin:/bin", "ENABLE_TOOL_SEARCH": "false",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_address[1]}", "ANTHROPIC_API_KEY": "x",
            "DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }  # fmt: skip

    def claude(self, *arguments: str) -> str:
        done = subprocess.run([program(), *arguments], env=self.env, cwd=self.work, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def answering(self, answer: dict[str, Any]) -> None:
        """Answer questions of MCP servers by an Elicitation hook, which stands in for the person at the terminal."""
        output = {"hookSpecificOutput": {"hookEventName": "Elicitation", **answer}}
        command = f"cat > {self.folder}/asked.json; echo '{json.dumps(output)}'"
        settings = {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": command}]}]}}
        (self.home / ".claude").mkdir(exist_ok=True)
        (self.home / ".claude/settings.json").write_text(json.dumps(settings), encoding="utf-8")

    def connect(self) -> None:
        """Add the gateway as docs/clients.md says."""
        header = f"Authorization: Bearer {bearer()}"
        self.claude("mcp", "add", "-s", "user", "-t", "http", "ops", self.gate.url, "--header", header)

    def seated(self) -> Terminal:
        """Start it on a terminal, in a home that has answered the questions of a first start."""
        self.connect()
        place = self.home / ".claude.json"
        state = json.loads(place.read_text(encoding="utf-8"))
        trusted = {str(self.work): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}}
        key = "x" * 24
        state |= {"hasCompletedOnboarding": True, "theme": "dark", "projects": trusted,
                  "customApiKeyResponses": {"approved": [key[-20:]], "rejected": []}}  # fmt: skip
        place.write_text(json.dumps(state), encoding="utf-8")
        env = {**self.env, "ANTHROPIC_API_KEY": key, "TERM": "xterm-256color", "IS_SANDBOX": "1"}
        allowed = ",".join(TOOL + name for name, _ in CALLS)
        return Terminal([program(), "do it", "--allowedTools", allowed], self.work, env)

    def work_off(self) -> None:
        """Connect, and let the agent make its calls with nobody there."""
        self.connect()
        allowed = ",".join(TOOL + name for name, _ in CALLS)
        said = json.loads(self.claude("-p", "do it", "--allowedTools", allowed, "--output-format", "json"))
        assert (said["is_error"], said["result"]) == (False, "done")

    def decided(self, method: str = "tools/call") -> list[tuple[str | None, str]]:
        """Tool and rule of each outcome."""
        lines = (self.folder / "audit.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        return [
            (r["tool"], r["rule_id"]) for r in records if r["phase"] == "outcome" and r["method"] == method
        ]

    def deleted(self) -> int:
        effects = self.folder / "effects.jsonl"
        return effects.read_text(encoding="utf-8").count("delete_service") if effects.exists() else 0


@contextmanager
def serving() -> Iterator[Model]:
    model = Model()
    threading.Thread(target=model.serve_forever, daemon=True).start()
    try:
        yield model
    finally:
        model.shutdown()
        model.server_close()


@contextmanager
def session(folder: Path, **env: str) -> Iterator[Session]:
    program()
    with (
        serving() as model,
        ops_server(folder / "effects.jsonl") as ops,
        gateway(folder, ops.url, **env) as gate,
    ):
        yield Session(folder, gate, model)


def test_it_connects_sees_what_the_policy_gives_it_and_cancels_a_question_that_nobody_is_there_for(
    tmp_path: Path,
):
    with session(tmp_path) as one:
        one.work_off()
        assert "Connected" in one.claude("mcp", "list")
        assert {name for name in one.model.offered if name.startswith(TOOL)} == {
            TOOL + name
            for name in (
                "get_service",
                "read_runbook",
                "read_logs",
                "restart_service",
                "set_replicas",
                "delete_service",
            )
        }
        assert one.decided("server/discover")[0] == (None, "passthrough")
        assert one.decided("initialize") == []
        assert one.decided() == [
            ("get_service", "tier.L0.read"),
            ("delete_service", "tier.L2.confirm"),
            ("delete_service", "mrtr.declined"),
            ("restart_service", "tier.L1.dry_run"),
        ]
        assert one.model.results["delete_service"] == (True, '"airlock: denied (mrtr.declined)"')
        assert "would restart shop" in one.model.results["restart_service"][1]
        assert one.deleted() == 0


def test_an_accepted_question_runs_the_call_once(tmp_path: Path):
    with session(tmp_path) as one:
        one.answering({"action": "accept", "content": {"confirm": True}})
        one.work_off()
        asked = json.loads((tmp_path / "asked.json").read_text(encoding="utf-8"))
        assert asked["message"].startswith("[prod] delete_service: permanently delete a service")
        assert "Dry-run preview: would delete shop" in asked["message"]
        assert one.decided()[1:3] == [
            ("delete_service", "tier.L2.confirm"),
            ("delete_service", "tier.L2.confirmed"),
        ]
        assert "deleted shop" in one.model.results["delete_service"][1]
        assert one.deleted() == 1


def test_a_person_at_the_terminal_accepts(tmp_path: Path):
    with session(tmp_path) as one, contextlib.closing(one.seated()) as terminal:
        terminal.until("requests your input")
        assert one.deleted() == 0
        terminal.press(SPACE, "☒")
        terminal.press(DOWN, "❯ Accept")
        terminal.press(ENTER, "done")
        assert one.decided()[1:3] == [
            ("delete_service", "tier.L2.confirm"),
            ("delete_service", "tier.L2.confirmed"),
        ]
        assert one.deleted() == 1


def test_a_person_at_the_terminal_declines(tmp_path: Path):
    with session(tmp_path) as one, contextlib.closing(one.seated()) as terminal:
        terminal.until("requests your input")
        terminal.press(DOWN, "❯ Accept")
        terminal.press(RIGHT, "❯ Decline")
        terminal.press(ENTER, "done")
        assert one.decided()[1:3] == [
            ("delete_service", "tier.L2.confirm"),
            ("delete_service", "mrtr.declined"),
        ]
        assert one.deleted() == 0


def test_it_gives_up_on_the_approve_link_after_ten_rounds(tmp_path: Path):
    with serving() as chat, session(
        tmp_path, AIRLOCK_APPROVAL_WEBHOOK=f"http://127.0.0.1:{chat.server_address[1]}/"
    ) as one:  # fmt: skip
        one.answering({"action": "accept", "content": {"confirm": True}})
        one.work_off()
        rules = [rule for tool, rule in one.decided() if tool == "delete_service"]
        assert rules == ["tier.L2.confirm", *["mrtr.pending"] * 10]
        failed, said = one.model.results["delete_service"]
        assert failed
        assert "still required input after 10 rounds" in said
        assert one.deleted() == 0
