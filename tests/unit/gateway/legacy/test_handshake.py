"""The handshake of the older eras in terms of the newer."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest

from airlock.gateway.legacy import handshake

INFO = "io.modelcontextprotocol/serverInfo"


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
def test_a_served_version_is_agreed_to(version: str):
    assert handshake.agreed(version) == version


@pytest.mark.parametrize("version", ["2024-11-05", "2026-07-28", "2099-01-01", "", "x"])
def test_any_other_version_is_answered_with_the_newest_of_this_front(version: str):
    assert handshake.agreed(version) == "2025-11-25"


@pytest.mark.parametrize(
    ("version", "declared", "found"),
    [
        ("2025-11-25", {"elicitation": {}}, {"elicitation": {"form": {}}}),
        ("2025-11-25", {"elicitation": {"form": {}}}, {"elicitation": {"form": {}}}),
        ("2025-11-25", {"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}),
        ("2025-11-25", {"elicitation": {"form": {}, "url": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        ("2025-06-18", {"elicitation": {"form": {}, "url": {}}}, {"elicitation": {"form": {}}}),
        ("2025-06-18", {"elicitation": True}, {}),
        ("2025-06-18", {"sampling": {}}, {"sampling": {}}),
        ("2025-11-25", {"sampling": {"tools": {}, "context": {}, "x": {}}}, {"sampling": {"context": {}, "tools": {}}}),
        ("2025-11-25", {"roots": {"listChanged": True}}, {"roots": {}}),
        ("2025-11-25", {"experimental": {"x": {}}, "extensions": {"y": {}}, "tasks": {}}, {}),
        ("2025-11-25", None, {}),
        ("2025-11-25", "elicitation", {}),
    ],
)  # fmt: skip
def test_what_a_client_declares_is_translated_and_nothing_is_added(version: str, declared: Any, found: Any):
    assert handshake.declared(declared, version) == found


def test_who_a_client_is_needs_a_name_and_a_version_and_is_cut_short():
    assert handshake.named({"name": "a", "version": "1", "title": "A", "icons": ["x"]}) == {
        "name": "a", "version": "1", "title": "A",
    }  # fmt: skip
    assert handshake.named({"name": "a" * 1000, "version": "1"}) == {"name": "a" * 256, "version": "1"}
    for info in (None, 5, {}, {"name": "a"}, {"name": "a", "version": 1}):
        assert handshake.named(info) is None


def test_a_server_is_advertised_without_what_the_older_eras_do_not_have():
    found = handshake.advertised(
        {
            "tools": {"listChanged": True, "other": 1}, "resources": {"subscribe": True, "listChanged": False},
            "prompts": {}, "completions": {"x": 1}, "logging": {}, "extensions": {"tasks": {}}, "experimental": {},
        },
        listen=True,
    )  # fmt: skip
    assert found == {
        "tools": {"listChanged": True}, "prompts": {}, "resources": {"subscribe": True}, "completions": {},
        "logging": {},
    }  # fmt: skip
    assert handshake.advertised(5, listen=True) == {}
    assert handshake.advertised({"tools": True}, listen=True) == {}


@pytest.mark.parametrize("member", ["tools", "resources", "prompts"])
def test_nothing_is_promised_that_no_listen_could_bring(member: str):
    found = handshake.advertised({member: {"listChanged": True, "subscribe": True}}, listen=False)
    assert found == {member: {}}


def test_the_kinds_of_changes_are_those_that_were_promised():
    opened = handshake.opened(
        {"capabilities": {"tools": {"listChanged": True}, "prompts": {}, "resources": {"listChanged": True}}},
        "2025-11-25",
        listen=True,
    )
    assert handshake.change_kinds(opened) == ("toolsListChanged", "resourcesListChanged")


def test_the_answer_to_initialize_holds_version_capabilities_name_and_instructions():
    discovered = {
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
        "instructions": "read first", "ttlMs": 5, "cacheScope": "private",
        "_meta": {INFO: {"name": "k8s", "version": "3", "title": "K", "icons": []}},
    }  # fmt: skip
    newest = handshake.opened(discovered, "2025-11-25", listen=True)
    assert newest == {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "instructions": "read first",
        "serverInfo": {"name": "k8s", "version": "3", "title": "K", "icons": []},
    }  # fmt: skip
    middle = handshake.opened(discovered, "2025-06-18", listen=True)
    assert middle["serverInfo"] == {"name": "k8s", "version": "3", "title": "K"}
    oldest = handshake.opened(discovered, "2025-03-26", listen=True)
    assert oldest["serverInfo"] == {"name": "k8s", "version": "3"}


@pytest.mark.parametrize(
    "own", [None, {}, {INFO: 5}, {INFO: {"name": "x"}}, {INFO: {"name": 1, "version": "2"}}]
)
def test_a_server_without_a_usable_name_gets_ours(own: Any):
    found = handshake.opened({"_meta": own, "instructions": 5}, "2025-06-18", listen=True)
    info = found["serverInfo"]
    assert isinstance(info, dict)
    assert info["name"] == "airlock"
    assert "instructions" not in found
    assert found["capabilities"] == {}


def test_an_installation_without_metadata_still_has_a_version(monkeypatch: pytest.MonkeyPatch):
    def missing(_name: str) -> str:
        raise metadata.PackageNotFoundError

    handshake._own_version.cache_clear()
    monkeypatch.setattr(metadata, "version", missing)
    assert handshake._own_version() == "0"
    handshake._own_version.cache_clear()
