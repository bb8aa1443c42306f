"""A server on stdin and stdout that does what it is told: a script, run with `command(...)`, standard library only.

`tools/call` names what to do. `raw` writes the given lines as they are, `$ID` standing for the id of this request
and `$LISTEN` for that of the last `subscriptions/listen`; the others are in `CALLS`. A request without an order of
its own is echoed. `messages` returns everything received so far.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

SEEN: list[Any] = []
LISTEN: list[Any] = []


def command(*flags: str) -> tuple[str, ...]:
    """The argv that runs this script. Isolated and without site packages: it starts in some 20 ms."""
    return (sys.executable, "-I", "-S", str(Path(__file__).resolve()), *flags)


def write(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(1, data) :]


def answer(request: Any, result: Any) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")


def done(request: Any, **more: Any) -> None:
    answer(request, {"resultType": "complete", "content": [{"type": "text", "text": "done"}], **more})


def raw(request: Any, arguments: Any) -> None:
    listen = json.dumps(LISTEN[-1] if LISTEN else None)
    for line in arguments["lines"]:
        write(line.replace("$ID", json.dumps(request["id"])).replace("$LISTEN", listen))
    if arguments.get("then_done"):
        done(request)


def big(request: Any, arguments: Any) -> None:
    done(request, padding="x" * arguments["bytes"])


def die(request: Any, arguments: Any) -> None:
    write(arguments.get("last", ""))
    os._exit(arguments["status"])


def kill(request: Any, arguments: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(request: Any, arguments: Any) -> None:
    """Say nothing, ever."""


def messages(request: Any, arguments: Any) -> None:
    done(request, seen=SEEN[:-1])


def environment(request: Any, arguments: Any) -> None:
    done(request, env=dict(os.environ), cwd=os.getcwd(), pid=os.getpid(), group=os.getpgid(0))


def progress(request: Any, arguments: Any) -> None:
    token = request["params"]["_meta"].get("progressToken")
    for step in range(arguments["steps"]):
        notice = {"progressToken": token, "progress": step + 1}
        write(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": notice}) + "\n")
    if arguments.get("then_done", True):
        done(request)


def family(request: Any, arguments: Any) -> None:
    """Start a process that starts another; both hold our stdout and ignore SIGTERM when asked to."""
    trap = "trap '' TERM; " if arguments.get("stubborn") else ""
    script = (
        f'{trap}sh -c "{trap}echo \\$\\$ >&3; while :; do sleep 60; done" & {trap}while :; do sleep 60; done'
    )
    reading, writing = os.pipe()
    child = subprocess.Popen(
        ["sh", "-c", f"exec 3>&{writing}; {script}"], pass_fds=[writing], stdin=subprocess.DEVNULL
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        grandchild = int(pipe.readline())
    done(request, pids=[child.pid, grandchild])


def close_output(request: Any, arguments: Any) -> None:
    os.close(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def close_input(request: Any, arguments: Any) -> None:
    done(request)
    os.close(0)
    while True:
        signal.pause()


def stop_reading(request: Any, arguments: Any) -> None:
    done(request)
    while True:
        signal.pause()


CALLS = {
    call.__name__: call
    for call in (
        raw, big, die, kill, hang, messages, environment, progress, family, close_output, close_input, stop_reading
    )
}  # fmt: skip


def discover(request: Any) -> None:
    capabilities: dict[str, Any] = {"tools": {}}
    answer(
        request,
        {
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
        },
    )


def listen(request: Any) -> None:
    LISTEN.append(request["id"])
    meta = {"io.modelcontextprotocol/subscriptionId": request["id"]}
    params = {"notifications": request["params"].get("notifications", {}), "_meta": meta}
    notice = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
    write(json.dumps(notice) + "\n")


def main() -> None:
    flags = sys.argv[1:]
    if "--stubborn" in flags:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "--fail" in flags:
        sys.stderr.write("cannot start: no configuration\n")
        sys.exit(2)
    if "--banner" in flags:
        write("Welcome to the server\n\n[info] ready\n")
    if "--chatty" in flags:
        sys.stderr.write("".join(f"line {number}\n" for number in range(150)))
        sys.stderr.flush()
    for line in sys.stdin:
        message = json.loads(line)
        SEEN.append(message)
        if "id" not in message:
            continue
        if message["method"] == "tools/call" and message["params"]["name"] in CALLS:
            CALLS[message["params"]["name"]](message, message["params"].get("arguments", {}))
        elif message["method"] == "subscriptions/listen":
            listen(message)
        elif message["method"] == "server/discover":
            discover(message)
        else:
            done(message, echo=message)
    while "--stubborn" in flags:
        signal.pause()


if __name__ == "__main__":
    main()
