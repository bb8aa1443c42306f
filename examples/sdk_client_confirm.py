"""The official Python SDK's client at a gateway: a call is confirmed, one is declined, and one waits for a link.

    python examples/sdk_client_confirm.py                          # starts a server and a gateway of its own
    AIRLOCK_TOKEN=... python examples/sdk_client_confirm.py --url http://127.0.0.1:9000/mcp \
        --tool delete_service --arguments '{"name": "shop"}'                    # asks you on the terminal

A confirmation comes back as `input_required`: a question, and a `requestState` to repeat the call with. Where the
client may answer (`inband`), its elicitation callback does, and the SDK repeats the call by itself. Where only the
approve link counts (`oob`), a person takes minutes and the SDK's own loop gives up after about two seconds with
InputRequiredRoundsExceededError; `patiently` below shows what to do then. Exits with 1 when a call did not run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.server
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import mcp
from httpx2 import AsyncClient
from mcp import types
from mcp.client.streamable_http import streamable_http_client

HERE = Path(__file__).resolve().parent
OURS = "io.mcp-airlock/"
CHECK_EVERY_S = 1.0
APPROVER_TAKES_S = 3.0


class Person:
    """Answers the client's questions: as scripted, or on the terminal."""

    def __init__(self, answer: str | None) -> None:
        self.answer = answer

    async def __call__(self, context: Any, params: Any) -> types.ElicitResult:
        """The elicitation callback. SECURITY: what it returns is the yes; never let a model decide it."""
        print("\n".join(f"   | {line}" for line in params.message.splitlines()))
        if (answer := self.answer) is None:
            answer = await asyncio.to_thread(input, "   yes or no? ")
        print(f"   the person says {answer}")
        if answer.strip().lower() in {"y", "yes"}:
            return types.ElicitResult(action="accept", content={"confirm": True})
        return types.ElicitResult(action="decline")


@contextlib.asynccontextmanager
async def agent(url: str, bearer: str, person: Person) -> AsyncIterator[mcp.Client]:
    """A client of revision 2026-07-28, with its token and a person behind it."""
    async with AsyncClient(headers={"Authorization": f"Bearer {bearer}"}, timeout=90) as http_client:
        transport = streamable_http_client(url, http_client=http_client)
        async with mcp.Client(transport, mode="2026-07-28", elicitation_callback=person) as client:
            yield client


async def patiently(
    client: mcp.Client, person: Person, tool: str, arguments: dict[str, Any], for_s: float
) -> Any:
    """Call a tool and wait for its confirmation for up to `for_s` seconds, longer than the SDK itself would.

    The first call is made through the session, which hands the question out: the exception that ends the SDK's
    loop does not carry the `requestState`, and without it another call is another question.
    """
    first: Any = await client.session.call_tool(tool, arguments, allow_input_required=True)
    if not isinstance(first, types.InputRequiredResult):
        return first
    state, deadline = first.request_state, time.monotonic() + for_s
    asked: dict[str, Any] = dict(first.input_requests or {})
    answers: dict[str, Any] | None = {key: await person(None, ask.params) for key, ask in asked.items()}
    while True:
        try:
            return await client.call_tool(tool, arguments, request_state=state, input_responses=answers)
        except mcp.InputRequiredRoundsExceededError:
            if time.monotonic() > deadline:
                raise
            print("   nobody pressed the button yet; later again, with the same requestState")
            answers = None  # an answer is sent once; from now on the call only asks how things stand
            await asyncio.sleep(CHECK_EVERY_S)


def show(result: Any) -> str:
    """Print the text of a result and the rule behind it; return the rule."""
    meta: dict[str, Any] = result.model_dump(by_alias=True).get("_meta") or {}
    rule = str(meta.get(f"{OURS}rule_id"))
    print("   " + " ".join(block.text for block in result.content if block.type == "text") + f"   [{rule}]")
    return rule


async def once(
    title: str, url: str, bearer: str, answer: str | None, call: tuple[str, dict[str, Any]], for_s: float
) -> str:
    """One call with one person; the rule of its result."""
    print(f"\n{title}")
    person = Person(answer)
    async with agent(url, bearer, person) as client:
        return show(await patiently(client, person, *call, for_s))


class Approver(http.server.BaseHTTPRequestHandler):
    """The other end of the webhook: gets a message, and presses the button behind its link a little later."""

    def do_POST(self) -> None:
        """Take the message as a chat would, then be the person who reads it."""
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))["text"]
        self.send_response(204)
        self.end_headers()
        links: list[str] = re.findall(r"^Approve: (\S+)$", message, re.M)
        threading.Timer(APPROVER_TAKES_S, self._press, links[-1:]).start()

    @staticmethod
    def _press(link: str) -> None:
        urllib.request.urlopen(urllib.request.Request(link, b""), timeout=30).close()
        print("   the approver pressed the button")

    def log_message(self, *args: Any) -> None:
        """Stay quiet: the path of a webhook is a secret."""


@contextlib.contextmanager
def running(command: list[str], port: int, env: dict[str, str]) -> Iterator[None]:
    """Run a program until the block ends; wait until it listens."""
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise SystemExit(f"{command[1]} did not start")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def demo() -> Iterator[tuple[str, str, str]]:
    """The example server behind two gateways: one takes the client's yes, one only the approve link's; a token."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        secret, server, inband, oob = secrets.token_hex(32), free_port(), free_port(), free_port()
        chat = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Approver)
        threading.Thread(target=chat.serve_forever, daemon=True).start()
        stack.callback(chat.shutdown)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRLOCK_", "OTEL_"))}
        env["AIRLOCK_JWT_SECRET"] = secret
        told = env | {
            "AIRLOCK_APPROVAL_WEBHOOK": f"http://127.0.0.1:{chat.server_address[1]}/",
            "AIRLOCK_PUBLIC_URL": f"http://127.0.0.1:{oob}",
        }
        start = [sys.executable, str(HERE / "ops_server.py"), "--port", str(server)]
        stack.enter_context(running([*start, "--effects", f"{folder}/effects.jsonl"], server, env))
        for port, settings in ((inband, env), (oob, told)):
            command = [sys.executable, "-c", "from airlock.cli.compat import mcp_airlock; mcp_airlock()",
                       "--policy", str(HERE / "policy.yaml"), "--upstream", f"http://127.0.0.1:{server}/mcp",
                       "--audit", f"{folder}/audit-{port}.jsonl", "--port", str(port)]  # fmt: skip
            stack.enter_context(running(command, port, settings))
        make = [sys.executable, str(HERE / "make_token.py"), "alice"]
        bearer = subprocess.run(make, env=env, capture_output=True, text=True, check=True).stdout.strip()
        yield f"http://127.0.0.1:{inband}/mcp", f"http://127.0.0.1:{oob}/mcp", bearer


async def own_demo() -> bool:
    """The three stories at gateways of our own; whether each ended as it should."""
    with demo() as (inband, oob, bearer):
        shop, cart = {"name": "shop"}, {"name": "cart"}
        rules = [
            await once("1. Accept: the client's yes runs the call", inband, bearer, "yes",
                       ("delete_service", shop), 0),
            await once("2. Decline: nothing runs, and the question is used up", inband, bearer, "no",
                       ("delete_service", shop), 0),
            await once("3. By link: the client's yes counts for nothing, an approver's does", oob, bearer, "yes",
                       ("delete_service", cart), 60),
        ]  # fmt: skip
    return rules == ["tier.L2.confirmed", "mrtr.declined", "tier.L2.confirmed"]


def main() -> int:
    """Read the command line; 0 when the calls went as they should."""
    parser = argparse.ArgumentParser(description="Make a call that needs a confirmation.")
    parser.add_argument("--url", help="a gateway's /mcp; its token is read from AIRLOCK_TOKEN")
    parser.add_argument("--tool", default="delete_service")
    parser.add_argument("--arguments", type=json.loads, default={"name": "shop"}, help="a JSON object")
    parser.add_argument("--answer", choices=["yes", "no"], help="instead of asking on the terminal")
    parser.add_argument(
        "--wait", type=float, default=600, metavar="SECONDS", help="for an approver; default 600"
    )
    options = parser.parse_args()
    if options.url is None:
        return 0 if asyncio.run(own_demo()) else 1
    bearer = os.environ.get("AIRLOCK_TOKEN")
    if not bearer:
        parser.error("--url needs a token in AIRLOCK_TOKEN")
    call = (options.tool, options.arguments)
    rule = asyncio.run(
        once(f"{options.tool} at {options.url}", options.url, bearer, options.answer, call, options.wait)
    )
    return 0 if rule.startswith("tier.") else 1


if __name__ == "__main__":
    sys.exit(main())
