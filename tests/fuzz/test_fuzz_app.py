"""Whole requests into the whole app: no body and no header makes a 500, loses a record or runs unrecorded."""

from __future__ import annotations

import asyncio
import atexit
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.world import POLICY, REVISION, World, raw
from tests.fuzz.profile import fuzz_settings

PERMISSIVE = {**POLICY, "blast_radius": {"max_per_call": 50, "max_per_principal": 1_000_000}}
LOOP = asyncio.new_event_loop()
atexit.register(LOOP.close)
STATUSES = {200, 400, 401, 404, 413}

texts = st.text(max_size=12) | st.sampled_from(
    ["read", "drop", "scale", "\ud800", "\x00", "al1.", "al1.e30.AA"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=6,
)
metas = st.fixed_dictionaries(
    {
        "io.modelcontextprotocol/protocolVersion": st.just(REVISION) | values,
        "io.modelcontextprotocol/clientCapabilities": values,
    },
    optional=dict.fromkeys(("traceparent", "tracestate", "baggage", "io.mcp-airlock/principal"), values),
)
params = st.fixed_dictionaries(
    {"_meta": metas | values},
    optional={
        "name": st.sampled_from(["read", "suggest", "drop", "reboot", "scale", "push", "hidden"]) | values,
        "arguments": st.dictionaries(st.sampled_from(["names", "dry_run", "region", "token"]) | texts, values)
        | values,
        "requestState": values,
        "inputResponses": values | st.fixed_dictionaries({"airlock-confirm": values}),
        "cursor": values,
    },
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | values,
        "id": scalars | values,
        "method": st.sampled_from(["tools/call", "tools/list", "server/discover", "initialize"]) | values,
        "params": params | values,
    },
)
damage = st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=3)), max_size=2)
names = st.sampled_from(
    ["mcp-protocol-version", "mcp-method", "mcp-name", "x-airlock-principal", "x-airlock-groups", "authorization",
     "content-type", "content-length", "traceparent", "tracestate", "mcp-param-dry", "mcp-param-x"]
)  # fmt: skip
visible = st.binary(max_size=12).map(
    lambda raw: bytes(byte for byte in raw if byte >= 32 and byte != 127).strip()
)


def lines_of(message: Any) -> dict[str, bytes]:
    """The headers an honest client would send with `message`, as far as it has any."""
    whole = message if isinstance(message, dict) else {}
    params = whole.get("params")
    inner: dict[str, Any] = params if isinstance(params, dict) else {}
    found: dict[str, str] = {"mcp-protocol-version": REVISION, "x-airlock-principal": "alice"}
    if isinstance(whole.get("method"), str):
        found["mcp-method"] = whole["method"]
    if isinstance(inner.get("name"), str):
        found["mcp-name"] = inner["name"]
    return {name: value.encode("utf-8", "replace") for name, value in found.items()}


@fuzz_settings
@given(
    messages | values,
    damage,
    st.dictionaries(names, visible, max_size=3),
    st.lists(st.tuples(names, visible), max_size=2),
)
def test_no_request_makes_a_500_or_goes_unrecorded(
    message: Any, hits: list[tuple[int, bytes]], changed: dict[str, bytes], added: list[tuple[str, bytes]]
) -> None:
    body = json.dumps(message).encode()
    for place, put in hits:
        body = body[:place] + put + body[place + 1 :]
    headers = [(name.encode(), value) for name, value in ({**lines_of(message), **changed}).items()]
    headers += [(name.encode(), value) for name, value in added]
    world = World(PERMISSIVE)
    got = LOOP.run_until_complete(world.http(body, headers))
    assert got.status in STATUSES, got.raw
    assert isinstance(got.message, dict)
    records = world.records
    assert len(records) % 2 == 0
    assert [record["phase"] for record in records] == ["intent", "outcome"] * (len(records) // 2)
    assert records
    assert len(world.client.sent) <= 1
    if world.client.sent:
        assert records[-2]["verdict"] in {"allow", "confirm"}
    assert not any(record["rule_id"] == "internal.error" for record in records)


blocks = st.fixed_dictionaries(
    {},
    optional={"type": st.just("text") | values, "text": texts | values, "_meta": values, "resource": values},
)
results = st.fixed_dictionaries(
    {},
    optional={
        "resultType": st.sampled_from(["complete", "input_required"]) | values,
        "content": st.lists(blocks, max_size=4) | values,
        "structuredContent": values,
        "isError": values,
        "_meta": values,
        "tools": st.lists(
            st.fixed_dictionaries({}, optional={"name": texts, "inputSchema": values}), max_size=3
        )
        | values,
        "nextCursor": values,
        "ttlMs": values,
    },
)
answers = st.fixed_dictionaries(
    {"id": st.just(1) | values},
    optional={"result": results | values, "error": values, "method": texts, "jsonrpc": values},
)


@fuzz_settings
@given(
    st.sampled_from(["read", "suggest", "drop", "reboot", "push"]),
    answers,
    answers,
    damage,
    st.sampled_from(["application/json", "text/event-stream", "text/html", ""]),
    st.integers(200, 599),
)
def test_no_answer_of_an_upstream_makes_a_500_or_loses_a_record(
    tool: str, answer: Any, listing: Any, hits: list[tuple[int, bytes]], kind: str, status: int
) -> None:
    def scripted(message: Any) -> Any:
        body = json.dumps(message).encode()
        for place, put in hits:
            body = body[:place] + put + body[place + 1 :]
        if kind == "text/event-stream":
            body = b"data: " + body + b"\n\n"
        return lambda sent: raw(body, status, kind)

    world = World({**PERMISSIVE, "output": {"max_chars": 300}})
    world.client.script = scripted(answer)
    if listing.get("id") != 1:
        world.client.catalog = scripted(listing)
    for got in (
        LOOP.run_until_complete(world.call(tool, {"names": ["a"]})),
        LOOP.run_until_complete(world.rpc("tools/list")),
    ):
        assert isinstance(got.message, dict)
        assert got.status in {200, 502} or got.status == status
    records = world.records
    assert [record["phase"] for record in records] == ["intent", "outcome"] * 2
    assert not any(record["rule_id"] == "internal.error" for record in records)
    assert not any("postprocess_error" in (record["detail"] or ()) for record in records)
