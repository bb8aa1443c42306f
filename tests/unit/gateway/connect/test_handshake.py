"""A visit to a server as a client would make it: how it opens, what it counts, and what it says when it fails."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from airlock.gateway.connect import handshake
from airlock.gateway.connect.clients import Endpoint, Opening
from airlock.gateway.connect.handshake import Visit, visit

MODERN = "2026-07-28"
DISCOVERING = Opening("2025-11-25", discovers=True)
LEGACY = Opening("2025-11-25")


class Seen(NamedTuple):
    verb: str
    headers: dict[str, str]
    body: dict[str, Any]


class Said(NamedTuple):
    """One answer; `body` gets the id of the request where it says `ID`."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    kind: str = "application/json"


def result(**fields: Any) -> Said:
    return Said(body={"jsonrpc": "2.0", "id": "ID", "result": fields})


def error(code: int, message: str, status: int = 200, request_id: Any = "ID", **headers: str) -> Said:
    return Said(status, {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}},
                {name.replace("_", "-"): value for name, value in headers.items()})  # fmt: skip


DISCOVERED = result(supportedVersions=[MODERN], capabilities={})
OPENED = Said(body={"jsonrpc": "2.0", "id": "ID", "result": {"protocolVersion": "2025-11-25", "capabilities": {}}},
              headers={"Mcp-Session-Id": "s1"})  # fmt: skip
DONE = Said(202)
TOOLS = result(tools=[{"name": "a"}, {"name": "b"}])
Script = dict[str, Said | list[Said] | Callable[[Seen], Said]]


class Server(http.server.ThreadingHTTPServer):
    """Answers by method, as scripted, and keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script = script
        self.seen: list[Seen] = []

    @property
    def methods(self) -> list[str]:
        return [seen.body.get("method", seen.verb) for seen in self.seen]

    def answer(self, seen: Seen) -> Said:
        self.seen.append(seen)
        found = self.script.get(seen.body.get("method", seen.verb), Said(404, kind="text/plain"))
        if isinstance(found, list):
            found = found.pop(0)
        return found if isinstance(found, Said) else found(seen)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        self._send(Seen(self.command, {k.lower(): v for k, v in self.headers.items()}, body))

    def do_DELETE(self) -> None:
        self._send(Seen(self.command, {k.lower(): v for k, v in self.headers.items()}, {}))

    def _send(self, seen: Seen) -> None:
        said = self.server.answer(seen)
        text = said.body if isinstance(said.body, str) else "" if said.body is None else json.dumps(said.body)
        data = text.replace('"ID"', json.dumps(seen.body.get("id"))).encode()
        self.send_response(said.status)
        self.send_header("content-type", said.kind)
        for name, value in said.headers.items():
            self.send_header(name, value)
        if said.kind == "text/event-stream":
            self.send_header("connection", "close")
        else:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None: ...


@contextmanager
def serving(script: Script) -> Iterator[Server]:
    server = Server(script)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def went(script: Script, opening: Opening = LEGACY, **headers: str) -> tuple[Visit, Server]:
    with serving(script) as server:
        endpoint = Endpoint(f"http://127.0.0.1:{server.server_address[1]}/mcp", headers)
        return visit(endpoint, opening, "1"), server


def test_a_client_of_the_modern_era_discovers_and_lists():
    found, server = went(
        {"server/discover": DISCOVERED, "tools/list": TOOLS}, DISCOVERING, Authorization="Bearer t"
    )
    assert found == Visit(reachable=True, opened="server/discover", revision=MODERN, accepted=True, tools=2)
    assert server.methods == ["server/discover", "tools/list"]
    for seen in server.seen:
        assert seen.headers["authorization"] == "Bearer t"
        assert seen.headers["mcp-protocol-version"] == MODERN
        assert seen.headers["mcp-method"] == seen.body["method"]
        assert seen.headers["accept"] == "application/json, text/event-stream"
        assert seen.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN
        assert "io.modelcontextprotocol/clientCapabilities" in seen.body["params"]["_meta"]


LEGACY_SCRIPT: Script = {
    "initialize": OPENED,
    "notifications/initialized": DONE,
    "tools/list": TOOLS,
    "DELETE": Said(),
}


def test_a_client_of_the_older_eras_initializes_lists_and_leaves():
    found, server = went({**LEGACY_SCRIPT})
    assert found == Visit(reachable=True, opened="initialize", revision="2025-11-25", accepted=True, tools=2)
    assert server.methods == ["initialize", "notifications/initialized", "tools/list", "DELETE"]
    first, *rest = server.seen
    assert first.body["params"]["protocolVersion"] == "2025-11-25"
    assert "mcp-protocol-version" not in first.headers
    assert "id" not in rest[0].body
    for seen in rest:
        assert (seen.headers["mcp-session-id"], seen.headers["mcp-protocol-version"]) == ("s1", "2025-11-25")


def test_a_server_without_sessions_is_left_without_a_word():
    opened = result(protocolVersion="2025-06-18", capabilities={})
    found, server = went({**LEGACY_SCRIPT, "initialize": opened, "notifications/initialized": Said(200)})
    assert (found.revision, found.tools, found.problem) == ("2025-06-18", 2, None)
    assert "DELETE" not in server.methods
    assert all("mcp-session-id" not in seen.headers for seen in server.seen)


@pytest.mark.parametrize(
    "answer",
    [error(-32601, "unknown"), error(-32601, "unknown", 404), error(-32022, "no", 400, None), Said(400, "?", kind="text/plain"),
     result(supportedVersions=["2027-01-01"]), result(), Said(200, "not json"), Said(405)],
)  # fmt: skip
def test_whoever_discovers_falls_back_to_initialize(answer: Said):
    found, server = went({**LEGACY_SCRIPT, "server/discover": answer}, DISCOVERING)
    assert (found.opened, found.tools, found.problem) == ("initialize", 2, None)
    assert server.methods[:2] == ["server/discover", "initialize"]


@pytest.mark.parametrize("status", [401, 403, 500, 502])
def test_neither_a_refusal_nor_an_outage_says_anything_about_the_era(status: int):
    found, server = went({**LEGACY_SCRIPT, "server/discover": Said(status)}, DISCOVERING)
    assert server.methods == ["server/discover"]
    assert found.problem == f"server/discover was refused with HTTP {status}"
    assert (found.status, found.accepted) == (status, False if status in (401, 403) else None)


def test_all_pages_are_counted():
    pages = [result(tools=[{}] * 3, nextCursor="2"), result(tools=[{}])]
    found, server = went({**LEGACY_SCRIPT, "tools/list": pages})
    assert found.tools == 4
    assert [seen.body["params"] for seen in server.seen if seen.body.get("method") == "tools/list"] == [
        {}, {"cursor": "2"}
    ]  # fmt: skip


def test_pages_without_end_are_not_followed_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handshake, "_MAX_PAGES", 3)
    found, server = went({**LEGACY_SCRIPT, "tools/list": result(tools=[], nextCursor="x")})
    assert found.problem == "tools/list has more than 3 pages"
    assert server.methods.count("tools/list") == 3
    assert server.methods[-1] == "DELETE"


def test_an_answer_on_a_stream_is_found_behind_what_comes_before_it():
    stream = (
        'event: message\ndata: {"jsonrpc":"2.0","method":"notifications/progress"}\n\n: ping\n\n'
        'data: {"jsonrpc":"2.0","id":99,"result":{"tools":[1,2,3]}}\n\n'
        'data: {"jsonrpc":"2.0","id":"ID","result":{"tools":[1]}}\n\n'
    )
    found, _ = went({**LEGACY_SCRIPT, "tools/list": Said(200, stream, kind="text/event-stream")})
    assert found.tools == 1
    found, _ = went({**LEGACY_SCRIPT, "tools/list": Said(200, ": nothing\n\n", kind="text/event-stream")})
    assert found.problem == "tools/list was refused with HTTP 200"


def test_a_refused_caller_is_told_why_and_where_to_sign_in():
    challenge = 'Bearer resource_metadata="https://h/.well-known/x", error="invalid_token", error_description="the token has expired"'
    found, _ = went({"initialize": error(-32011, "no principal", 401, None, www_authenticate=challenge)})
    assert found.problem == "initialize was refused with HTTP 401: the token has expired"
    assert (found.status, found.code, found.accepted, found.signs_in) == (401, -32011, False, True)
    found, _ = went({"initialize": error(-32011, "no principal", 401, None, www_authenticate="Bearer")})
    assert found.problem == "initialize was refused with HTTP 401: no principal"
    assert not found.signs_in


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ({"initialize": error(-32602, "no _meta", 400)}, "initialize was refused with HTTP 400: no _meta"),
        ({"initialize": error(-32603, "broken")}, "initialize was refused: broken"),
        ({"initialize": result(protocolVersion=MODERN)}, "a revision that the client does not know"),
        ({"initialize": result(protocolVersion="2025-12-31")}, "a revision that the client does not know"),
        ({"initialize": result(protocolVersion="1\r\nX: y")}, "a revision that the client does not know"),
        ({"initialize": result()}, "a revision that the client does not know"),
        ({"initialize": Said(200, [1])}, "initialize was refused with HTTP 200"),
        ({"initialize": Said(200, {"jsonrpc": "2.0", "id": 99, "result": {}})}, "initialize was refused with HTTP 200"),
        ({"initialize": Said(200, {"jsonrpc": "2.0", "id": "ID", "result": 1})}, "initialize was refused with HTTP 200"),
        ({}, "initialize was refused with HTTP 404"),
        ({"initialize": OPENED, "notifications/initialized": Said(500)}, "notifications/initialized was refused with HTTP 500"),
        ({**LEGACY_SCRIPT, "tools/list": error(-32601, "none")}, "tools/list was refused: none"),
        ({**LEGACY_SCRIPT, "tools/list": result(tools={})}, "tools/list was refused"),
        ({"initialize": Said(200, "x", {"content-encoding": "gzip"})}, "no answer that can be read: compressed answer"),
    ],
)  # fmt: skip
def test_every_failure_is_one_sentence(script: Script, words: str):
    found, _ = went(dict(script))
    assert found.problem is not None
    assert words in found.problem
    assert "\n" not in found.problem
    assert found.tools is None
    assert found.reachable


def test_what_a_server_says_does_not_drive_the_terminal_or_repeat_a_credential():
    secret = "gh" + "p_" + "x" * 36
    found, _ = went({"initialize": error(-32603, f"\x1b[31m {secret}\nline {'y' * 900}")})
    assert found.problem is not None
    assert "\x1b" not in found.problem
    assert secret not in found.problem
    assert "\n" not in found.problem
    assert len(found.problem) < 300


def test_a_session_that_cannot_be_ended_is_none_of_the_clients_business():
    def drop(_seen: Seen) -> Said:
        raise ConnectionResetError

    with serving({**LEGACY_SCRIPT, "DELETE": drop}) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        found = visit(Endpoint(f"http://127.0.0.1:{server.server_address[1]}/mcp", {}), LEGACY, "1")
    assert (found.tools, found.problem) == (2, None)


def test_where_nothing_listens_nothing_is_reachable():
    with serving({}) as server:
        port = server.server_address[1]
    found = visit(Endpoint(f"http://127.0.0.1:{port}/mcp", {}), LEGACY, "1")
    assert not found.reachable
    assert found.problem is not None
    assert found.problem.startswith("nothing answers there: ")


def test_a_server_that_never_answers_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handshake, "VISIT_S", 0.05)
    release = threading.Event()

    def wait(_seen: Seen) -> Said:
        release.wait(10)
        return Said(500)

    with serving({"initialize": wait}) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        found = visit(Endpoint(f"http://127.0.0.1:{server.server_address[1]}/mcp", {}), LEGACY, "1")
        release.set()
    assert found.problem == "no answer in time"


@pytest.mark.parametrize(
    ("endpoint", "words"),
    [
        (Endpoint("ftp://h/", {}), "the entry cannot be used: an upstream address is"),
        (Endpoint("http://h/", {"Host": "x"}), "the entry cannot be used: this header"),
        (Endpoint("http://h/", {"A": "x\r\nB: y"}), "the entry cannot be used: a header value"),
        (Endpoint("http://h/", {"A": "日"}), "characters that no header can carry"),
    ],
)
def test_an_entry_that_cannot_be_sent_is_a_problem_like_any_other(endpoint: Endpoint, words: str):
    found = visit(endpoint, LEGACY, "1")
    assert found.problem is not None
    assert words in found.problem
    assert not found.reachable
