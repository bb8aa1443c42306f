"""The ten-minute story in ten seconds: a real MCP client, a real MCP server, and the gateway between them.

Starts the operations server on port 9001 and the gateway on 9000 (free ports when those are taken), walks
through what the gateway is for, checks every step, and leaves the audit log and the spans beside this file. Exits
with 1 if anything differs from what the story says.   python examples/demo.py   (or: make demo)
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp
from mcp import types

HERE = Path(__file__).resolve().parent
POLICY = HERE / "policy.yaml"
AUDIT = HERE / "audit.jsonl"
SPANS = HERE / "spans.jsonl"
GATEWAY = [sys.executable, "-c", "from airlock.cli.compat import mcp_airlock; mcp_airlock()"]
PIN = [sys.executable, "-c", "from airlock.cli.compat import airlock_policy; airlock_policy()", "pin"]
BOLD, GREEN, RED, PLAIN = ("\033[1m", "\033[32m", "\033[31m", "\033[0m") if sys.stdout.isatty() else ("",) * 4


class Differs(Exception):
    """A step did not go as the story says."""


class Story:
    """Prints the steps and remembers how many there were."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self, title: str) -> None:
        self.steps += 1
        print(f"\n{BOLD}{self.steps}. {title}{PLAIN}")

    @staticmethod
    def say(text: str) -> None:
        for line in text.splitlines() or [""]:
            print(f"   {line[:150]}")

    @staticmethod
    def check(holds: bool, what: str) -> None:
        if not holds:
            raise Differs(what)
        print(f"   {GREEN}ok{PLAIN}  {what}")


def token(secret: str, principal: str) -> str:
    """Sign an HS256 bearer token, good for ten minutes."""

    def part(value: object) -> str:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = {"sub": principal, "groups": ["dev"], "exp": int(time.time()) + 600}
    body = f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}"
    return f"{body}.{part(hmac.digest(secret.encode(), body.encode(), hashlib.sha256))}"


def port(wanted: int) -> int:
    """The wanted port, or a free one when it is taken."""
    for candidate in (wanted, 0):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", candidate)) as listener:
            found: int = listener.getsockname()[1]
            if found != wanted:
                print(f"port {wanted} is taken, using {found}")
            return found
    raise Differs("no free port on loopback")


@contextlib.contextmanager
def running(command: list[str], listens: int, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; wait until it listens."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", listens), 1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise Differs(f"{command[-1]} did not start")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(20)


def text_of(result: Any) -> str:
    """The text of a tool result."""
    return "\n".join(block.text for block in result.content if block.type == "text")


def ours(result: Any) -> dict[str, Any]:
    """The gateway's own keys of a result's `_meta`."""
    meta: dict[str, Any] = result.model_dump(by_alias=True).get("_meta") or {}
    prefix = "io.mcp-airlock/"
    return {key[len(prefix) :]: value for key, value in meta.items() if key.startswith(prefix)}


async def walk(story: Story, url: str, bearer: str, effects: Path, server: subprocess.Popen[bytes]) -> None:
    """Tell the story with one client."""
    from httpx2 import AsyncClient
    from mcp.client.streamable_http import streamable_http_client

    def landed(tool: str) -> int:
        lines = effects.read_text().splitlines() if effects.exists() else []
        return sum(json.loads(line)["tool"] == tool for line in lines)

    asked: list[str] = []

    async def yes(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"confirm": True})

    async with AsyncClient(headers={"Authorization": f"Bearer {bearer}"}, timeout=30) as http:
        transport = streamable_http_client(url, http_client=http)
        async with mcp.Client(transport, mode="2026-07-28", elicitation_callback=yes) as client:
            call = client.session.call_tool

            story.step("The agent lists tools and sees only what the policy gives it")
            listed = await client.list_tools()
            story.say(", ".join(tool.name for tool in listed.tools))
            story.check(ours(listed)["hidden_tools"] == 2, "drop_database and reboot_node are hidden")

            story.step("A read goes straight through")
            result = await client.call_tool("get_service", {"name": "shop"})
            story.say(text_of(result))
            story.check(ours(result)["rule_id"] == "tier.L0.read", "allowed by tier.L0.read")

            story.step("A tool the policy does not list is refused, and the model is told why")
            result = await client.call_tool("drop_database", {"name": "prod-db"})
            story.say(text_of(result))
            story.check(result.is_error is True and landed("drop_database") == 0, "nothing was dropped")

            story.step("A restart in prod only ever runs as a dry run")
            result = await client.call_tool("restart_service", {"name": "shop", "dry_run": False})
            story.say(text_of(result))
            story.check(ours(result)["dry_run"] is True, "dry_run was forced although the agent sent false")
            story.check(landed("restart_service") == 0, "nothing was restarted")

            story.step("Deleting needs a person, who is shown the dry run and says yes")
            result = await client.call_tool("delete_service", {"name": "shop"})
            story.say(asked[-1])
            story.say(text_of(result))
            story.check(ours(result)["rule_id"] == "tier.L2.confirmed", "ran after the yes")
            story.check(landed("delete_service") == 1, "deleted exactly once")

            story.step("The yes works once: the same call again with the same state is refused")
            question: Any = await call("delete_service", {"name": "cart"}, allow_input_required=True)
            state = question.request_state
            answer: Any = {"airlock-confirm": types.ElicitResult(action="accept", content={"confirm": True})}
            first, second = [
                await call("delete_service", {"name": "cart"}, input_responses=answer, request_state=state)
                for _ in range(2)
            ]
            story.say(text_of(first))
            story.say(text_of(second))
            story.check(ours(second)["rule_id"] == "mrtr.replay", "the replay is refused by mrtr.replay")
            story.check(landed("delete_service") == 2, "and changed nothing")

            story.step("A yes for one call is no yes for another, and a forged state is none at all")
            question = await call("delete_service", {"name": "cart"}, allow_input_required=True)
            state = question.request_state
            other = await call(
                "delete_service", {"name": "prod-db"}, input_responses=answer, request_state=state
            )
            story.say(text_of(other))
            forged = await call(
                "delete_service", {"name": "cart"}, input_responses=answer, request_state="al1.e30.AA"
            )
            story.say(text_of(forged))
            story.check(ours(other)["rule_id"] == "mrtr.mismatch", "swapped arguments: mrtr.mismatch")
            story.check(ours(forged)["rule_id"] == "mrtr.bad_signature", "forged: mrtr.bad_signature")
            story.check(landed("delete_service") == 2, "nothing more was deleted")

            story.step("What the policy forbids is never even shown to a person")
            before = len(asked)
            result = await client.call_tool("delete_service", {"name": "payments"})
            story.say(text_of(result))
            story.check(
                ours(result)["rule_id"] == "args.violation" and len(asked) == before, "nobody was asked"
            )

            story.step("The blast radius: so many objects in a call, so many in an hour")
            result = await client.call_tool("set_replicas", {"names": list("abcd"), "replicas": 0})
            story.say(text_of(result))
            story.check(
                ours(result)["rule_id"] == "blast_radius.per_call", "four objects in one call are too many"
            )
            for names in (["a", "b", "c"], ["d", "e"]):
                await client.call_tool("set_replicas", {"names": names, "replicas": 2})
            result = await client.call_tool("set_replicas", {"names": ["f"], "replicas": 2})
            story.say(text_of(result))
            story.check(
                ours(result)["rule_id"] == "blast_radius.per_principal", "the sixth in an hour as well"
            )
            story.check(landed("set_replicas") == 2, "two calls landed")

            story.step("An answer over the cap is cut, and says so")
            result = await client.call_tool("read_logs", {"name": "shop"})
            story.say(text_of(result)[-110:])
            story.check(
                ours(result)["output"]["truncated"] is True, f"cut from {ours(result)['output']['chars']}"
            )

            story.step("A poisoned page is flagged, and obeying it gets an agent nowhere")
            result = await client.call_tool("read_runbook", {"topic": "disk"})
            found = sorted({finding["rule"] for finding in ours(result)["suspicious"]})
            story.say(text_of(result))
            story.check("override_phrase" in found, f"marked: {', '.join(found)}")
            question = await call("delete_service", {"name": "prod-db"}, allow_input_required=True)
            story.check(question.result_type == "input_required", "the agent that obeys meets a person again")
            story.check(landed("delete_service") == 2, "and nothing was deleted")

            story.step("The server is updated, and what it says of a tool is not what was pinned")
            server.send_signal(signal.SIGHUP)
            listed = await client.list_tools(cache_mode="refresh")
            story.say(", ".join(tool.name for tool in listed.tools))
            story.check("read_logs" not in {tool.name for tool in listed.tools}, "read_logs is left out")
            story.check(
                ours(listed)["pin_mismatch"] == 1, "until someone reads its description and pins it again"
            )


def verify(story: Story) -> None:
    """Check the audit chain, then that a change to it is found."""
    story.step("Every call left two records in a hash chain")
    audit = [sys.executable, "-c", "from airlock.cli.compat import airlock_audit; airlock_audit()", "verify"]
    good = subprocess.run([*audit, str(AUDIT)], capture_output=True, text=True, check=False)
    story.say(good.stdout)
    story.check(good.returncode == 0, "the chain holds")
    with tempfile.TemporaryDirectory() as folder:
        edited = Path(folder) / "edited.jsonl"
        edited.write_text(AUDIT.read_text().replace('"delete_service"', '"get_service"', 1))
        bad = subprocess.run([*audit, str(edited)], capture_output=True, text=True, check=False)
        story.say(bad.stdout.replace(folder, "."))
        story.check(bad.returncode == 1 and "hash mismatch" in bad.stdout, "one edited word is found")


def main() -> int:
    """Run the demo; 0 when every step went as told."""
    story = Story()
    secret, bearer_secret = secrets.token_hex(32), secrets.token_hex(32)
    for old in (*HERE.glob("audit.jsonl*"), *HERE.glob("spans.jsonl")):
        old.unlink()
    try:
        with tempfile.TemporaryDirectory() as folder:
            effects = Path(folder) / "effects.jsonl"
            upstream, front = port(9001), port(9000)
            env = {
                key: value for key, value in os.environ.items() if not key.startswith(("AIRLOCK_", "OTEL_"))
            }
            url = f"http://127.0.0.1:{upstream}/mcp"
            server = [
                sys.executable,
                str(HERE / "ops_server.py"),
                "--port",
                str(upstream),
                "--effects",
                str(effects),
            ]
            pins = f"{folder}/pins.json"
            gateway = [*GATEWAY, "--policy", str(POLICY), "--upstream", url, "--env", "prod", "--pins", pins,
                       "--audit", str(AUDIT), "--otel-file", str(SPANS), "--port", str(front)]  # fmt: skip
            env |= {"AIRLOCK_JWT_SECRET": bearer_secret, "AIRLOCK_SECRET": secret}
            env["AIRLOCK_STORE_DSN"] = f"sqlite:///{folder}/state.db"
            with running(server, upstream, env) as process:
                subprocess.run([*PIN, str(POLICY), "--upstream", url, "--pins", pins], env=env, check=True)
                with running(gateway, front, env):
                    bearer = token(bearer_secret, "alice")
                    asyncio.run(walk(story, f"http://127.0.0.1:{front}/mcp", bearer, effects, process))
        verify(story)
    except Differs as difference:
        print(f"   {RED}differs{PLAIN}  {difference}", file=sys.stderr)
        return 1
    place = AUDIT.relative_to(Path.cwd()) if AUDIT.is_relative_to(Path.cwd()) else AUDIT
    print(
        f"\n{BOLD}All {story.steps} steps went as told.{PLAIN} The audit log is in {place}, the spans beside it"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
