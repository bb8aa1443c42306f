"""What each answer to the first question says about a server."""

from __future__ import annotations

import pytest

from airlock.gateway.upstream.evidence import Sign, envelope, read_discovery

MODERN, LEGACY, NEWER = "2026-07-28", "2025-11-25", "2027-03-01"


def result(*versions: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"supportedVersions": list(versions), "capabilities": {}}}


def refused(*versions: object) -> dict[str, object]:
    data = {"supported": list(versions), "requested": MODERN}
    return {"jsonrpc": "2.0", "id": 1, "error": {"code": -32022, "message": "no", "data": data}}


@pytest.mark.parametrize("answer", [result, refused])
@pytest.mark.parametrize(
    ("versions", "sign"),
    [
        ([MODERN], Sign.MODERN),
        ([NEWER, MODERN], Sign.MODERN),
        ([MODERN, LEGACY], Sign.BOTH),
        (["2024-11-05", MODERN], Sign.BOTH),
        ([LEGACY], Sign.OLDER),
        ([NEWER, LEGACY], Sign.OLDER),
        ([NEWER], Sign.FOREIGN),
        ([NEWER, "2028-01-01", 7], Sign.FOREIGN),
        ([], Sign.OLDER),
        (["draft", "zzzz"], Sign.OLDER),
        (["2025-12-01x"], Sign.OLDER),
        ([None, {}, 20260728], Sign.OLDER),
    ],
)
def test_the_listed_versions_decide(answer, versions: list[object], sign: Sign):
    assert read_discovery(answer(*versions)) is sign


@pytest.mark.parametrize(
    "response",
    [
        *(
            {"error": {"code": code, "message": "no"}}
            for code in (-32601, -32600, -32602, -32000, -32020, -32021, 0, 404)
        ),
        {"error": {"code": -32022, "message": "no"}},
        {"error": {"code": -32022, "message": "no", "data": [MODERN]}},
        {"error": {"code": -32022, "message": "no", "data": {"supported": MODERN}}},
        {"error": {"code": -32601, "message": "no", "data": {"supported": [MODERN]}}},
        {"error": "text"},
        {"result": {"supportedVersions": MODERN}},
        {"result": {}},
        {"result": [MODERN]},
        {"result": None},
    ],
)
def test_any_other_answer_is_that_of_an_older_server(response: dict[str, object]):
    assert read_discovery({"jsonrpc": "2.0", "id": 1, **response}) is Sign.OLDER


def test_the_gateway_asks_in_its_own_name():
    asked = envelope("9.9")
    assert asked["io.mcp-airlock/principal"] == "airlock"
    assert asked["io.modelcontextprotocol/clientInfo"] == {"name": "airlock", "version": "9.9"}
    assert asked["io.modelcontextprotocol/clientCapabilities"] == {}
    assert asked["io.modelcontextprotocol/protocolVersion"] == MODERN
    assert len(asked) == 4
