"""The tutorial's agent: sends one tool call to the gateway on 127.0.0.1:9000 and prints the result.

    python docs/tutorial/call.py TOOL [ARGUMENTS] [--as NAME] [--yes | --no]

`--yes` and `--no` answer the last question, as a client does for its user: the same call, with the
`requestState` of that question, which is kept in ./last-question. The token is made here from
AIRLOCK_JWT_SECRET; a real agent is given one.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import hmac
import http.client
import json
import os
import sys
import time
from pathlib import Path

__all__ = ["call", "main", "token"]

VERSION = "2026-07-28"
QUESTION = Path("last-question")
Json = dict[str, object]


def token(name: str, secret: str) -> str:
    """An HS256 token for `name`, good for one hour."""

    def part(raw: bytes) -> str:
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    claims = {"sub": name, "exp": int(time.time()) + 3600}
    body = part(b'{"alg":"HS256","typ":"JWT"}') + "." + part(json.dumps(claims).encode())
    return body + "." + part(hmac.new(secret.encode(), body.encode(), hashlib.sha256).digest())


def call(
    tool: str, arguments: dict[str, object], bearer: str, answer: dict[str, object]
) -> dict[str, object]:
    """Send one `tools/call`; `answer` holds `requestState` and `inputResponses`, or nothing."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    }
    params = {"_meta": meta, "name": tool, "arguments": arguments, **answer}
    headers = {
        "Authorization": f"Bearer {bearer}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": VERSION,
        "Mcp-Method": "tools/call",
        "Mcp-Name": tool,
    }
    connection = http.client.HTTPConnection("127.0.0.1", 9000, timeout=60)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    connection.request("POST", "/mcp", body, headers)
    reply: Json = json.loads(connection.getresponse().read())
    return reply


def main() -> int:
    """Read the command line, make the call, keep its question, print its result."""
    parser = argparse.ArgumentParser(description="Send one tool call to the gateway.")
    parser.add_argument("tool")
    parser.add_argument("arguments", nargs="?", default="{}", help="a JSON object")
    parser.add_argument("--as", dest="name", default="alice")
    parser.add_argument("--yes", dest="action", action="store_const", const="accept")
    parser.add_argument("--no", dest="action", action="store_const", const="decline")
    options = parser.parse_args()
    answer: Json = {}
    if options.action and not QUESTION.exists():
        parser.error("there is no question to answer: make a call that asks one first")
    if options.action:
        given: Json = {"action": options.action}
        if options.action == "accept":
            given["content"] = {"confirm": True}
        answer = {"requestState": QUESTION.read_text(), "inputResponses": {"airlock-confirm": given}}
    bearer = token(options.name, os.environ["AIRLOCK_JWT_SECRET"])
    reply = call(options.tool, json.loads(options.arguments), bearer, answer)
    result = reply.get("result")
    if isinstance(result, dict) and result.get("resultType") == "input_required":
        QUESTION.write_text(result["requestState"])
        result["requestState"] = "... (kept in ./last-question)"
    sys.stdout.write(json.dumps(result or reply, indent=2, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
