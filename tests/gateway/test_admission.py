"""The admission ladder through the whole app: order, codes, statuses, and what the audit keeps."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.fakes.world import REVISION, World

META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(**changes: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 4,
        "method": "tools/call",
        "params": {"name": "read", "arguments": {}, "_meta": dict(META)},
    }
    whole.update(changes)
    return whole


def headers(**changes: str | None) -> list[tuple[bytes, bytes]]:
    values: dict[str, str | None] = {
        "content-type": "application/json",
        "mcp-protocol-version": REVISION,
        "mcp-method": "tools/call",
        "mcp-name": "read",
        "x-airlock-principal": "alice",
    }
    values.update({name.replace("_", "-"): value for name, value in changes.items()})
    return [(name.encode(), value.encode("latin-1")) for name, value in values.items() if value is not None]


def encoded(message: Any) -> bytes:
    return json.dumps(message).encode()


async def refused(world: World, body: bytes, lines: list[tuple[bytes, bytes]]) -> tuple[int, int, Any]:
    got = await world.http(body, lines)
    assert world.client.sent == []
    return got.status, got.code, got.message["id"]


REFUSALS = [
    ("not UTF-8", b"\xff{}", headers(), 400, -32700, None),
    ("a byte order mark", b"\xef\xbb\xbf" + encoded(request()), headers(), 400, -32700, None),
    ("not JSON", b"{", headers(), 400, -32700, None),
    ("NaN", b'{"id":1,"method":"x","params":{"a":NaN}}', headers(), 400, -32700, None),
    ("a number over a double", b'{"id":1,"method":"x","params":{"a":1e400}}', headers(), 400, -32700, None),
    ("1,100 levels", b'{"id":1,"method":"x","params":' + b"[" * 1100 + b"]" * 1100 + b"}", headers(), 400, -32700, None),
    ("a batch", b"[" + encoded(request()) + b"]", headers(), 400, -32600, None),
    ("a notification", encoded({"jsonrpc": "2.0", "method": "tools/call"}), headers(), 400, -32600, None),
    ("no method", encoded({"id": 4}), headers(), 400, -32600, None),
    ("an id that is an object", encoded(request(id={})), headers(), 400, -32600, None),
    ("a boolean id", encoded(request(id=True)), headers(), 400, -32600, None),
    ("65 levels", b'{"id":4,"method":"x","params":' + b"[" * 64 + b"]" * 64 + b"}", headers(), 400, -32600, 4),
    ("no envelope", encoded(request(params={"name": "read"})), headers(), 400, -32602, 4),
    ("params that are a list", encoded(request(params=[1])), headers(), 400, -32602, 4),
    ("an initialize", encoded({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}), headers(), 400, -32602, 1),
    ("no version header", encoded(request()), headers(mcp_protocol_version=None), 400, -32020, 4),
    ("another version header", encoded(request()), headers(mcp_protocol_version="2025-11-25"), 400, -32020, 4),
    ("another method header", encoded(request()), headers(mcp_method="Tools/call"), 400, -32020, 4),
    ("no name header", encoded(request()), headers(mcp_name=None), 400, -32020, 4),
    ("another name header", encoded(request()), headers(mcp_name="drop"), 400, -32020, 4),
    ("a malformed sentinel", encoded(request()), headers(mcp_name="=?base64?cmVhZA?="), 400, -32020, 4),
]  # fmt: skip


@pytest.mark.case("T28", "T29")
@pytest.mark.parametrize(("body", "lines", "status", "code", "id_"), [row[1:] for row in REFUSALS],
                         ids=[row[0] for row in REFUSALS])  # fmt: skip
async def test_each_rung_of_the_ladder_answers_its_code_and_leaves_two_records(
    body: bytes, lines: list[tuple[bytes, bytes]], status: int, code: int, id_: object
) -> None:
    world = World()
    assert await refused(world, body, lines) == (status, code, id_)
    intent, outcome = world.last_pair
    assert intent["rule_id"] == outcome["rule_id"] == f"protocol.{code}"
    assert intent["verdict"] == outcome["verdict"] == "deny"
    assert (intent["latency_ms"], outcome["latency_ms"]) == (None, 0)
    assert intent["args"] is None
    assert intent["principal"] == "alice"


@pytest.mark.case("T73")
@pytest.mark.parametrize("where", ["top", "params", "arguments", "deep"])
async def test_a_duplicate_key_at_any_depth_is_refused_before_policy(where: str) -> None:
    text = encoded(request()).decode()
    body = {
        "top": text.replace('"id": 4', '"id": 4, "id": 5'),
        "params": text.replace('"name": "read"', '"name": "read", "name": "drop"'),
        "arguments": text.replace('"arguments": {}', '"arguments": {"a": 1, "a": 2}'),
        "deep": text.replace('"arguments": {}', '"arguments": {"a": [{"b": {"c" : 1, "c": "x:y"}}]}'),
    }[where].encode()
    world = World()
    assert (await refused(world, body, headers()))[:2] == (400, -32700)


@pytest.mark.parametrize("name", ["mcp-protocol-version", "mcp-method", "mcp-name"])
async def test_a_routing_header_that_appears_twice_is_refused(name: str) -> None:
    lines = headers()
    lines.append(next(line for line in lines if line[0] == name.encode()))
    assert await refused(World(), encoded(request()), lines) == (400, -32020, 4)


async def test_an_encoded_name_header_is_decoded_before_it_is_compared() -> None:
    world = World()
    name = "=?base64?" + base64.b64encode(b"read").decode() + "?="
    got = await world.http(encoded(request()), headers(mcp_name=name))
    assert got.rule == "tier.L0.read"
    assert world.client.sent[0].headers["mcp-name"] == name


async def test_a_version_that_is_no_string_is_an_invalid_parameter() -> None:
    message = request()
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = 20260728
    # the header can never equal a number, so the contradiction is heard first
    assert (await refused(World(), encoded(message), headers()))[1] == -32020


async def test_an_unknown_revision_is_told_which_one_is_served() -> None:
    world = World()
    message = request()
    message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = "2031-02-03"
    got = await world.http(encoded(message), headers(mcp_protocol_version="2031-02-03"))
    assert (got.status, got.code) == (400, -32022)
    assert got.message["error"]["data"] == {"supported": [REVISION], "requested": "2031-02-03"}


@pytest.mark.parametrize(
    "method", ["initialize", "ping", "resources/read", "prompts/get", "resources/list", "x"]
)
async def test_any_other_method_is_not_found(method: str) -> None:
    message = request(method=method)
    got = await World().http(encoded(message), headers(mcp_method=method))
    assert (got.status, got.code, got.message["id"]) == (404, -32601, 4)


@pytest.mark.parametrize(
    "params", [{"name": 5}, {}, {"name": "read", "arguments": []}, {"name": "read", "arguments": False},
               {"name": "read", "arguments": ""}, {"name": "read", "arguments": 0}],
)  # fmt: skip
async def test_a_call_needs_a_name_and_an_object_of_arguments(params: dict[str, Any]) -> None:
    world = World()
    message = request(params={**params, "_meta": dict(META)})
    name = params.get("name")
    lines = headers(mcp_name=str(name) if name is not None else None)
    status, code, id_ = await refused(world, encoded(message), lines)
    assert (status, id_) == (400, 4)
    assert code == (-32020 if name == 5 else -32602)
    assert world.last_pair[0]["tool"] is None


@pytest.mark.parametrize("arguments", [{}, None])
async def test_absent_or_null_arguments_are_none(arguments: object) -> None:
    world = World()
    message = request(
        params={"name": "read", "_meta": dict(META), **({} if arguments == {} else {"arguments": None})}
    )
    got = await world.http(encoded(message), headers())
    assert got.rule == "tier.L0.read"
    assert world.last_pair[0]["args"] == {}


async def test_without_a_principal_it_is_401_after_the_protocol_errors() -> None:
    world = World()
    got = await world.rpc("tools/call", {"name": "read", "arguments": {"password": "x"}}, principal=None)
    assert (got.status, got.code) == (401, -32011)
    intent, outcome = world.last_pair
    assert intent["rule_id"] == outcome["rule_id"] == "principal.missing"
    assert intent["args"] is None
    assert intent["trace_id"] is not None
    assert (await world.http(b"{", headers(x_airlock_principal=None))).status == 400


@pytest.mark.case("T36")
async def test_a_refused_request_logs_no_arguments_and_cuts_its_names() -> None:
    world = World()
    long = "n" * 5000
    got = await world.rpc("tools/call", {"name": long, "arguments": {"blob": "x" * 10_000}}, principal=None)
    assert got.status == 401
    message = request(method="m" * 5000)
    await world.http(encoded(message), headers(mcp_method="m" * 5000))
    for record in world.records:
        assert record["args"] is None
        assert len(record["tool"] or "") <= 128
        assert len(record["method"] or "") <= 128
    assert max(len(line) for line in world.sink.lines) < 1500


@pytest.mark.case("T62")
async def test_a_body_declared_too_large_is_refused_before_identity_and_exactly_the_limit_passes() -> None:
    world = World()
    lines = [*headers(x_airlock_principal=None), (b"content-length", b"1048577")]
    got = await world.http(b"", lines)
    assert (got.status, got.code, got.message["id"]) == (413, -32600, None)
    intent, _ = world.last_pair
    assert (intent["rule_id"], intent["principal"], intent["method"]) == ("request.too_large", None, None)
    body = encoded(request()) + b" " * (1_048_576 - len(encoded(request())))
    assert (await world.http(body, headers())).status == 200
    assert (await world.http(body + b" ", headers())).status == 413


async def test_a_refusal_that_cannot_be_recorded_is_an_internal_error_with_json() -> None:
    world = World()
    world.sink.failing = True
    got = await world.http(b"{", headers())
    assert (got.status, got.code) == (500, -32603)


@pytest.mark.case("T30")
@pytest.mark.parametrize("id_text", ['"\\ud800"', '"\\uDFFF x"'])
async def test_a_lone_surrogate_in_the_id_travels_as_its_escape(id_text: str) -> None:
    world = World()
    body = encoded(request()).replace(b'"id": 4', f'"id": {id_text}'.encode())
    got = await world.http(body, headers())
    assert got.status == 200
    assert got.message["id"] == json.loads(id_text)
    body = b'{"id": ' + id_text.encode() + b', "method": "x", "params": {}}'
    got = await world.http(body, headers())
    assert (got.code, got.message["id"]) == (-32602, json.loads(id_text))


async def test_other_verbs_and_paths_have_plain_answers() -> None:
    world = World()
    got = await world.http(b"", [], method="GET")
    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert (await world.http(b"", [], path="/nothing")).status == 404
    assert (await world.http(b"", [], path="/healthz", method="GET")).raw == b'{"status":"ok"}'
    assert (await world.http(b"", [], path="/healthz", method="POST")).status == 405
    assert (await world.http(b"", [], path="/readyz", method="GET")).raw == b'{"status":"ok"}'
    await world.store.close()
    got = await world.http(b"", [], path="/readyz", method="GET")
    assert (got.status, got.raw) == (503, b'{"status":"unavailable"}')
    assert world.sink.lines == []
