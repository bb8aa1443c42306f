"""Requests of the older eras as requests of revision 2026-07-28."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.principal import Source
from airlock.gateway import body
from airlock.gateway.legacy import upward
from airlock.gateway.legacy.sessions import Session
from airlock.gateway.legacy.streams import Replay
from airlock.gateway.modern.admission import Request, admit
from airlock.gateway.modern.headers import decode_name
from airlock.gateway.upstream.port import Era

P = "io.modelcontextprotocol/"


class Deaf:
    def notify(self, message: dict[str, object]) -> None: ...


def session(**members: Any) -> Session:
    made = Session("s", ("alice", Source.TOKEN), "2025-11-25", Replay(), 0.0)
    for name, value in members.items():
        setattr(made, name, value)
    return made


def modern(method: str, params: dict[str, object], made: Session | None = None, **more: Any) -> Request:
    return upward.modern(made or session(), 7, method, params, **more)


def test_a_call_becomes_one_that_the_modern_ladder_takes():
    made = modern("tools/call", {"name": "drop", "arguments": {"a": 1}, "_meta": {"x/y": 2}})
    assert (made.id, made.method, made.name, made.arguments) == (7, "tools/call", "drop", {"a": 1})
    assert (made.era, made.version, made.heard) == (Era.LEGACY, "2026-07-28", None)
    wire = body.encode({"jsonrpc": "2.0", "id": made.id, "method": made.method, "params": made.params})
    admitted = admit(wire, made.headers)
    assert isinstance(admitted, Request)
    assert admitted.meta == made.meta == made.params["_meta"]


def test_the_envelope_is_the_sessions():
    made = modern(
        "tools/list", {}, session(capabilities={"roots": {}}, client_info={"name": "c", "version": "1"}, log_level="info")
    )  # fmt: skip
    assert made.meta == {
        P + "protocolVersion": "2026-07-28", P + "clientCapabilities": {"roots": {}},
        P + "clientInfo": {"name": "c", "version": "1"}, P + "logLevel": "info",
    }  # fmt: skip


def test_a_client_cannot_declare_in_passing_what_its_session_did_not():
    forged = {
        P + "clientCapabilities": {"elicitation": {}}, P + "protocolVersion": "2025-06-18", P + "logLevel": "debug",
        P + "clientInfo": {"name": "root"}, P + "anything": 1, "traceparent": "t", "com.example/x": 1,
    }  # fmt: skip
    made = modern("tools/list", {"_meta": forged})
    assert made.meta == {
        P + "protocolVersion": "2026-07-28", P + "clientCapabilities": {}, "traceparent": "t", "com.example/x": 1,
    }  # fmt: skip
    assert len(forged) == 7  # the client's own mapping is not changed


def test_the_progress_token_is_replaced_or_left_out():
    sent: dict[str, object] = {"_meta": {"progressToken": 5}}
    assert modern("tools/list", sent, token="minted").meta["progressToken"] == "minted"
    assert "progressToken" not in modern("tools/list", sent).meta


def test_a_state_that_a_legacy_client_sends_is_never_taken():
    sent: dict[str, object] = {
        "name": "x",
        "requestState": "al1.x.y",
        "inputResponses": {"airlock-confirm": {"action": "accept"}},
    }
    made = modern("tools/call", sent)
    assert not {"requestState", "inputResponses"} & made.params.keys()
    ours: dict[str, object] = {"requestState": "s", "inputResponses": {"k": {}}}
    made = modern("tools/call", sent, answers=ours)
    assert made.params["requestState"] == "s"
    assert made.params["inputResponses"] == {"k": {}}


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("drop", b"drop"), ("a b", b"a b"), ("", b""), (" a", b"=?base64?IGE=?="), ("a\r\nx-evil: 1", None),
        ("größe", None), ("\U0001f600", None), ("=?base64?YQ==?=", None), ("=?base64?", b"=?base64?"), ("?=", b"?="),
        ("\x7f", None),
    ],
)  # fmt: skip
def test_a_name_goes_into_its_header_so_that_it_comes_out_the_same(name: str, wire: bytes | None):
    value = upward.routing("tools/call", name).first[b"mcp-name"]
    assert decode_name(value) == name
    assert not set(b"\r\n") & set(value)
    if wire is not None:
        assert value == wire
    else:
        assert value.startswith(b"=?base64?")


def test_a_lone_surrogate_in_a_name_breaks_nothing():
    assert upward.routing("tools/call", "\ud800").first[b"mcp-name"].startswith(b"=?base64?")


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("resources/read", {"uri": "file:///a"}, b"file:///a"),
        ("prompts/get", {"name": "p"}, b"p"),
        ("tools/list", {"name": "p", "uri": "u"}, None),
    ],
)
def test_each_method_names_what_it_is_about(method: str, params: dict[str, object], named: bytes | None):
    made = modern(method, params)
    assert made.headers.first.get(b"mcp-name") == named
    assert made.headers.first[b"mcp-method"] == method.encode()
    assert made.name is None


def test_a_discovery_and_a_listen_are_made_for_a_session():
    assert upward.discover(session(), 3, None).method == "server/discover"
    made = upward.listen(session(), "l", ("toolsListChanged",), ["file:///a"], Deaf())
    assert made.params["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["file:///a"]}
    assert made.heard is not None
    assert upward.listen(session(), "l", (), [], Deaf()).params["notifications"] == {}
