"""The person at the other end of the webhook: reads each prompt, opens its link, and presses the button.

Prompts that name something to keep are left alone. `GET /seen` says what came and what the pages answered.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
seen: list[dict[str, Any]] = []


def visit(url: str, method: str) -> int:
    """Open the link, or press its button; the status."""
    body = b"" if method == "POST" else None
    request = urllib.request.Request(url, body, {"X-Forwarded-User": "bob"}, method=method)  # noqa: S310
    try:
        with opener.open(request, timeout=30) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        with error:
            status = error.code
    return status


def approve(entry: dict[str, Any], url: str) -> None:
    """Look first, as link previews do, then approve."""
    entry["looked"] = visit(url, "GET")
    entry["pressed"] = visit(url, "POST")


class Handler(BaseHTTPRequestHandler):
    """`POST /hook` takes a message, `GET /seen` tells."""

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(json.dumps(seen).encode())

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))["text"]
        entry: dict[str, Any] = {"text": message.rsplit("\n", 1)[0]}
        link = re.fullmatch(r"Approve: (\S+/approve/\S+)", message.rsplit("\n", 1)[-1])
        entry["link"] = link is not None
        seen.append(entry)
        self.answer(b"{}")
        if link is not None and "keep" not in message:
            threading.Thread(target=approve, args=(entry, link[1]), daemon=True).start()

    def log_message(self, *args: object) -> None: ...


def main() -> None:
    """Serve until the stack goes down."""
    host, _, port = os.environ["E2E_LISTEN"].rpartition(":")
    sys.stdout.write("approver: ready\n")
    ThreadingHTTPServer((host, int(port)), Handler).serve_forever()


if __name__ == "__main__":
    main()
