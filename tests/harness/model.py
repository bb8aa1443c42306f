"""A model that follows a script, on loopback, in the three forms that the agents want: it calls one tool after the
other and says what it was told.

    script = [Turn("get_service", {"name": "shop"}), Turn("delete_service", {...}, before=approve)]
    with Model("mcp__ops__", script) as model: ...      # model.base, then model.results, model.offered

POST /v1/messages is Anthropic's, /v1/responses OpenAI's, /v1/chat/completions what everybody else speaks.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

__all__ = ["Model", "Result", "Turn"]

Event = tuple[str | None, Any]


@dataclass(frozen=True)
class Turn:
    """A tool to call. `before` runs first, in the model's time: what a person does meanwhile."""

    tool: str
    arguments: dict[str, Any]
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Result:
    """What the agent handed the model for a call."""

    tool: str
    text: str


class Model:
    """Listens while it is entered. `prefix` stands before each tool's name; `namespace` is told beside it."""

    def __init__(self, script: list[Turn], prefix: str = "", namespace: str | None = None) -> None:
        self.script, self.prefix, self.namespace = script, prefix, namespace
        self.offered: set[str] = set()
        self.results: list[Result] = []
        self._lock = threading.Lock()
        self._told = 0  # how many turns' `before` have run
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.send_response(200)
                self.end_headers()

            def do_GET(self) -> None:
                answer = json.dumps(
                    {"object": "list", "data": [{"id": "x", "object": "model"}], "models": []}
                )
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer.encode())

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                form = _FORMS.get(self.path.partition("?")[0])
                if form is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                for name, data in form(model, json.loads(raw or b"{}")):
                    head = "" if name is None else f"event: {name}\n"
                    body = data if isinstance(data, str) else json.dumps(data)
                    self.wfile.write(f"{head}data: {body}\n\n".encode())
                self.close_connection = True

            def log_message(self, *args: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def texts(self, tool: str) -> list[str]:
        """What came back for each call of a tool."""
        return [result.text for result in self.results if result.tool == tool]

    def next(self, offered: set[str], results: list[str]) -> tuple[int, Turn] | None:
        """The next call of a conversation that has these results so far; None: the script is over."""
        with self._lock:
            self.offered |= {name.removeprefix(self.prefix) for name in offered}
            self.results = [Result(turn.tool, text) for turn, text in zip(self.script, results, strict=False)]
            done = len(self.results)
            if done == len(self.script):
                return None
            turn = self.script[done]
            if self._told == done:
                self._told += 1
                if turn.before is not None:
                    turn.before()
            return done, turn

    def __enter__(self) -> Model:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _text(content: Any) -> str:
    """What the blocks of a tool's result say, each on its own line."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content)
    return "\n".join(
        str(block.get("text", block)) if isinstance(block, dict) else str(block) for block in content
    )


def _messages(model: Model, body: dict[str, Any]) -> Iterator[Event]:
    """Anthropic's Messages API."""
    results = [
        _text(block["content"])
        for message in body.get("messages", ())
        for block in (message["content"] if isinstance(message["content"], list) else ())
        if block.get("type") == "tool_result"
    ]
    # A request without tools wants a title for the session.
    found = model.next({tool["name"] for tool in body["tools"]}, results) if body.get("tools") else None
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": "done"}
    if found is not None:
        number, turn = found
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": model.prefix + turn.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
    reason = {"stop_reason": "end_turn" if found is None else "tool_use", "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": reason, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield event["type"], event


def _responses(model: Model, body: dict[str, Any]) -> Iterator[Event]:
    """OpenAI's Responses API. Tools of a server are a namespace of their own."""
    results = [
        _text(item["output"]) for item in body.get("input", ()) if item.get("type") == "function_call_output"
    ]
    offered: set[str] = set()
    for tool in body.get("tools", ()):
        inner = tool.get("tools") if tool.get("type") == "namespace" else None
        offered |= {one["name"] for one in inner} if inner else {str(tool.get("name"))}
    found = model.next(offered, results)
    if found is None:
        item: dict[str, Any] = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}]}  # fmt: skip
    else:
        number, turn = found
        item = {"type": "function_call", "id": f"f{number}", "call_id": f"call_{number}", "status": "completed",
                "name": model.prefix + turn.tool, "arguments": json.dumps(turn.arguments)}  # fmt: skip
        if model.namespace is not None:
            item["namespace"] = model.namespace
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2,
             "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    response = {"id": "r1", "object": "response", "status": "in_progress", "model": "x", "output": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed",
         "response": {**response, "status": "completed", "output": [item], "usage": usage}},
    ]  # fmt: skip
    for event in events:
        yield event["type"], event


def _completions(model: Model, body: dict[str, Any]) -> Iterator[Event]:
    """The chat completions that most servers of models speak."""
    results = [_text(m["content"]) for m in body.get("messages", ()) if m.get("role") == "tool"]
    offered = {tool["function"]["name"] for tool in body.get("tools") or ()}
    found = model.next(offered, results) if offered else None
    delta: dict[str, Any] = {"role": "assistant", "content": "done"}
    if found is not None:
        number, turn = found
        call = {"name": model.prefix + turn.tool, "arguments": json.dumps(turn.arguments)}
        delta = {"role": "assistant", "content": None, "tool_calls": [
            {"index": 0, "id": f"call_{number}", "type": "function", "function": call}]}  # fmt: skip
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "x"}
    reason = "stop" if found is None else "tool_calls"
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    yield None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}
    yield None, "[DONE]"


_FORMS = {"/v1/messages": _messages, "/v1/responses": _responses, "/v1/chat/completions": _completions}
