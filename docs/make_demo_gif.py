"""Record docs/demo.gif: the gateway in front of the example server, for real, drawn as a terminal.

    uv run --with pillow python docs/make_demo_gif.py [FILE]

Starts examples/ops_server.py and a gateway under examples/policy.yaml, makes the calls, checks that each ended as
the picture is to show, and draws what came back with the font that Pillow brings. The same answers and the same
Pillow make the same file: random ids are not drawn. Exits with 1 and writes nothing when an answer is another one.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import importlib
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Screen", "main", "record"]

ROOT = Path(__file__).resolve().parents[1]
VERSION = "2026-07-28"
OURS = "io.mcp-airlock/"
YES = {"airlock-confirm": {"action": "accept", "content": {"confirm": True}}}

WIDTH, HEIGHT, MARGIN, LINE, SIZE = 960, 540, 22, 24, 19
PAPER = (22, 27, 34)
INK = {"text": (230, 237, 243), "dim": (139, 148, 158), "green": (86, 211, 100), "red": (255, 123, 114),
       "amber": (227, 179, 65), "blue": (121, 192, 255)}  # fmt: skip
SHADES = 8  # of each ink, from paper to full, for smooth letters
TYPED_PER_FRAME = 6
TYPING_MS, LINE_MS, READ_MS, LAST_MS = 60, 140, 2000, 4500

Json = dict[str, Any]


class Screen:
    """A terminal of fixed size: lines go in, frames come out."""

    def __init__(self) -> None:
        try:
            self._image = importlib.import_module("PIL.Image")
            self._draw = importlib.import_module("PIL.ImageDraw")
            font = importlib.import_module("PIL.ImageFont")
        except ImportError:
            raise SystemExit("needs Pillow: uv run --with pillow python docs/make_demo_gif.py") from None
        self._font = font.load_default(SIZE)
        self._lines: list[tuple[str, str, int]] = []
        self.frames: list[tuple[Any, int]] = []

    def clear(self) -> None:
        """Begin with an empty screen."""
        self._lines = []

    def type(self, prompt: str, text: str) -> None:
        """Show `text` being typed after a prompt."""
        if self._lines:
            self._lines.append(("", "text", 0))
        self._lines.append(("", "blue", 0))
        for end in range(0, len(text) + TYPED_PER_FRAME, TYPED_PER_FRAME):
            self._lines[-1] = (f"{prompt}  {text[:end]}", "blue", 0)
            self._frame(TYPING_MS)
        self.pause(READ_MS // 4)

    def say(self, text: str, ink: str = "text") -> None:
        """Show lines of output, wrapped at the edge."""
        for part in text.splitlines():
            line = ""
            for word in part.split():
                longer = f"{line} {word}".strip()
                if self._font.getlength(longer) > WIDTH - 3 * MARGIN:
                    self._line(line, ink)
                    longer = word
                line = longer
            self._line(line, ink)

    def pause(self, ms: int = READ_MS) -> None:
        """Leave the screen as it is for a while."""
        image, shown = self.frames[-1]
        self.frames[-1] = (image, shown + ms)

    def save(self, path: Path) -> None:
        """Write the frames as an endless GIF."""
        images, durations = [image for image, _ in self.frames], [ms for _, ms in self.frames]
        images[0].save(
            path, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False
        )

    def _line(self, text: str, ink: str) -> None:
        self._lines.append((text, ink, MARGIN))
        self._frame(LINE_MS)

    def _frame(self, ms: int) -> None:
        """Draw the last lines that fit; each ink has its own shades in the palette."""
        frame = self._image.new("P", (WIDTH, HEIGHT), 0)
        frame.putpalette([value for colour in _palette() for value in colour])
        for row, (text, ink, indent) in enumerate(self._lines[-((HEIGHT - 2 * MARGIN) // LINE) :]):
            mask = self._image.new("L", (WIDTH, LINE), 0)
            self._draw.Draw(mask).text((MARGIN + indent, 2), text, fill=255, font=self._font)
            first = 1 + list(INK).index(ink) * SHADES
            shades = [first + (value * SHADES >> 8) - 1 if value * SHADES >> 8 else 0 for value in range(256)]
            frame.paste(mask.point(shades), (0, MARGIN + row * LINE))
        self.frames.append((frame, ms))


def _palette() -> Iterator[tuple[int, ...]]:
    """Paper, then the shades of each ink."""
    yield PAPER
    for ink in INK.values():
        for shade in range(1, SHADES + 1):
            yield tuple(p + (i - p) * shade // SHADES for p, i in zip(PAPER, ink, strict=True))


class Agent:
    """Makes calls through the gateway, and checks how they end."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._token = _token(secret)

    def call(self, tool: str, arguments: Json, rule: str, **params: Any) -> Json:
        """One `tools/call`; its result. Raises SystemExit when another rule decided."""
        meta = {"io.modelcontextprotocol/protocolVersion": VERSION,
                "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}  # fmt: skip
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"_meta": meta, "name": tool, "arguments": arguments, **params}}  # fmt: skip
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json",
                   "MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool}  # fmt: skip
        request = urllib.request.Request(self._url, json.dumps(body).encode(), headers)  # noqa: S310 - loopback
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            result: Json = json.load(answer)["result"]
        if result["_meta"][f"{OURS}rule_id"] != rule:
            raise SystemExit(f"{tool}: {result['_meta'][f'{OURS}rule_id']} instead of {rule}")
        return result


def record(screen: Screen, agent: Agent, effects: Path) -> None:
    """Make the calls and draw them."""

    def deleted() -> int:
        return effects.read_text(encoding="utf-8").count("delete_service") if effects.exists() else 0

    screen.type("agent>", 'drop_database {"name": "prod-db"}')
    screen.say(_text(agent.call("drop_database", {"name": "prod-db"}, "allowlist.deny")), "red")
    screen.pause()
    screen.type("agent>", 'restart_service {"name": "shop", "dry_run": false}')
    result = agent.call("restart_service", {"name": "shop", "dry_run": False}, "tier.L1.dry_run")
    screen.say(_text(result))
    screen.say("dry_run was forced to true: in prod this tool is for proposals only", "dim")
    screen.pause()

    shop = {"name": "shop"}
    screen.type("agent>", 'delete_service {"name": "shop"}')
    question = agent.call("delete_service", shop, "tier.L2.confirm")
    asked = question["inputRequests"]["airlock-confirm"]["params"]
    screen.say("input_required: a person has to say yes", "amber")
    screen.say("\n".join(asked["message"].splitlines()[:3]))
    screen.say(asked["requestedSchema"]["properties"]["confirm"]["title"], "amber")
    _must(deleted() == 0)
    screen.pause(2 * READ_MS)
    screen.type("person>", "yes")
    answer = {"requestState": question["requestState"], "inputResponses": YES}
    screen.say(_text(agent.call("delete_service", shop, "tier.L2.confirmed", **answer)), "green")
    screen.pause()
    screen.type("agent>", "the same call and the same yes, once more")
    screen.say(_text(agent.call("delete_service", shop, "mrtr.replay", **answer)), "red")
    _must(deleted() == 1)
    screen.say("deleted on the server: 1 service", "dim")
    screen.pause(2 * READ_MS)

    screen.clear()
    screen.type("agent>", 'read_runbook {"topic": "disk"}')
    result = agent.call("read_runbook", {"topic": "disk"}, "tier.L0.read")
    screen.say(_text(result))
    found = sorted({finding["rule"] for finding in result["_meta"][f"{OURS}suspicious"]})
    _must("override_phrase" in found)
    screen.say(f"flagged as suspicious: {', '.join(found)}", "amber")
    screen.pause(2 * READ_MS)
    screen.type("agent>", 'delete_service {"name": "prod-db"}')
    question = agent.call("delete_service", {"name": "prod-db"}, "tier.L2.confirm")
    screen.say("input_required: an agent that obeys meets a person again", "amber")
    screen.say(question["inputRequests"]["airlock-confirm"]["params"]["message"].splitlines()[2])
    _must(deleted() == 1)
    screen.pause(READ_MS // 2)
    screen.type("person>", "no")
    answer = {
        "requestState": question["requestState"],
        "inputResponses": {"airlock-confirm": {"action": "decline"}},
    }
    screen.say(_text(agent.call("delete_service", {"name": "prod-db"}, "mrtr.declined", **answer)), "red")
    _must(deleted() == 1)
    screen.say("deleted on the server: still 1 service", "dim")
    screen.pause(LAST_MS)


def _text(result: Json) -> str:
    return "\n".join(block["text"] for block in result["content"])


def _must(holds: bool) -> None:
    if not holds:
        raise SystemExit("the server did something else than the picture is to show")


def _token(secret: str) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    claims = json.dumps({"sub": "alice", "exp": int(time.time()) + 600}).encode()
    signed = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(claims)
    return signed + "." + part(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(command: list[str], port: int, env: dict[str, str]) -> Iterator[None]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, env=env, stdout=quiet, stderr=quiet)  # noqa: S603 - our own words
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


def main(arguments: list[str]) -> int:
    """Record into the named file, or docs/demo.gif; 0 when it was written."""
    target = Path(arguments[0]) if arguments else ROOT / "docs/demo.gif"
    screen = Screen()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder, server, front, secret = Path(name), _free_port(), _free_port(), secrets.token_hex(32)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRLOCK_", "OTEL_"))}
        env["AIRLOCK_JWT_SECRET"] = secret
        effects = folder / "effects.jsonl"
        upstream = [sys.executable, str(ROOT / "examples/ops_server.py"), "--port", str(server)]
        gateway = [sys.executable, "-c", "from airlock.cli.compat import mcp_airlock; mcp_airlock()",
                   "--policy", str(ROOT / "examples/policy.yaml"), "--upstream", f"http://127.0.0.1:{server}/mcp",
                   "--audit", str(folder / "audit.jsonl"), "--port", str(front)]  # fmt: skip
        stack.enter_context(_running([*upstream, "--effects", str(effects)], server, env))
        stack.enter_context(_running(gateway, front, env))
        record(screen, Agent(f"http://127.0.0.1:{front}/mcp", secret), effects)
    screen.save(target)
    sys.stdout.write(f"{target}: {len(screen.frames)} frames, {target.stat().st_size} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
