"""Lists and descriptions of several servers as one."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.gateway.upstream.merge import (
    LISTS,
    MAX_INSTRUCTIONS,
    MAX_NAME,
    Entries,
    discovered,
    joined,
    plain,
    ttl_ms,
    usable,
)

PREFIXES = frozenset({"git", "time"})


def named(*names: Any) -> list[Any]:
    return [{"name": name} for name in names]


def test_only_the_name_gets_the_prefix():
    tool = {
        "name": "push",
        "title": "Push",
        "inputSchema": {"type": "object", "$defs": {}},
        "_meta": {"x": 1},
    }
    entries = usable("tools/list", [tool], "git", PREFIXES)
    assert entries == Entries({"push": {**tool, "name": "git__push"}}, 0)
    assert tool["name"] == "push"


@pytest.mark.parametrize("method", ["resources/list", "resources/templates/list"])
def test_resources_stay_as_they_are(method: str):
    key = "uri" if method == "resources/list" else "uriTemplate"
    item: dict[str, object] = {key: "file:///a", "name": "a"}
    bad: list[object] = [{key: bad} for bad in ("", "a\n", "x" * 8193, None)]
    assert usable(method, [item, *bad], "git", PREFIXES) == Entries({"file:///a": item}, 4)


@pytest.mark.parametrize(
    "item",
    [None, 3, "push", [], {}, {"name": None}, {"name": 1}, {"name": ["a"]}, {"name": ""}, {"name": "a\nb"},
     {"name": "a\x00"}, {"name": "a\u202eb"}, {"name": "a\u200b"}, {"name": "\ud800"}, {"name": "x" * 124}],
)  # fmt: skip
def test_an_entry_without_a_usable_name_is_left_out_and_counted(item: Any):
    entries = usable("tools/list", [*named("a"), item, *named("b")], "git", PREFIXES)
    assert (list(entries.of), entries.isolated) == (["a", "b"], 1)


def test_the_longest_name_counts_its_prefix():
    own = "x" * (MAX_NAME - len("git__"))
    assert list(usable("tools/list", named(own), "git", PREFIXES).of) == [own]
    assert usable("tools/list", named(own + "x"), "git", PREFIXES).isolated == 1


def test_of_a_name_that_stands_twice_nobody_knows_which_is_meant():
    entries = usable("tools/list", named("a", "b", "a", "a", "c"), "git", PREFIXES)
    assert (list(entries.of), entries.isolated) == (["b", "c"], 3)


def test_a_server_without_a_prefix_cannot_list_a_tool_of_another():
    entries = usable("tools/list", named("git__push", "push", "x__y", "__z", "git__"), "", PREFIXES)
    assert (list(entries.of), entries.isolated) == (["push", "x__y", "__z"], 2)
    assert list(usable("tools/list", named("git__push"), "git", PREFIXES).of) == ["git__push"]


def test_lists_are_joined_in_order_for_the_caller_alone():
    parts = [usable("tools/list", named(name), name, PREFIXES) for name in ("time", "git")]
    result, isolated = joined("tools/list", parts, 500)
    assert result == {
        "resultType": "complete",
        "tools": named("time__time", "git__git"),
        "ttlMs": 500,
        "cacheScope": "private",
    }
    assert isolated == 0


def test_an_address_that_two_servers_list_is_left_out_of_both():
    parts = [
        usable("resources/list", [{"uri": uri} for uri in uris], "", PREFIXES)
        for uris in (["a:1", "a:2", "a:2"], ["a:1", "a:3"])
    ]
    result, isolated = joined("resources/list", parts, 0)
    assert (result["resources"], isolated) == ([{"uri": "a:3"}], 4)


def test_every_list_has_its_member():
    for method, key in LISTS.items():
        assert joined(method, [], 0)[0][key] == []


def test_a_description_has_what_any_server_has():
    made = discovered(
        [
            ("git", {"capabilities": {"tools": {"listChanged": False}, "experimental": {"x": {"a": 1}}},
                     "instructions": "use git", "supportedVersions": ["2025-11-25"]}),
            ("time", {"capabilities": {"tools": {"listChanged": True}, "resources": {"subscribe": True},
                                       "experimental": {"x": {"a": 2}, "y": {}}, "logging": None, "completions": {}}}),
            ("odd", {"capabilities": [], "instructions": 3}),
            ("fs", {"instructions": "files", "capabilities": {"resources": {"subscribe": False}}}),
        ],
        9,
    )  # fmt: skip
    assert made == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": {
            "tools": {"listChanged": True},
            "experimental": {"x": {"a": 1}, "y": {}},
            "resources": {"subscribe": True},
            "completions": {},
        },
        "instructions": "git: use git\n\nfs: files",
        "ttlMs": 9,
        "cacheScope": "private",
    }


def test_tasks_are_not_offered_since_their_ids_lead_nowhere():
    extensions: dict[str, object] = {"io.modelcontextprotocol/tasks": {}, "io.modelcontextprotocol/ui": {}}
    made = discovered([("git", {"capabilities": {"extensions": extensions}})], 0)
    assert made["capabilities"] == {"extensions": {"io.modelcontextprotocol/ui": {}}}


def test_no_server_crowds_out_the_instructions_of_another():
    made = discovered([("a", {"instructions": "x" * 10**6}), ("b", {"instructions": "short"})], 0)
    text = made["instructions"]
    assert isinstance(text, str)
    assert len(text) <= MAX_INSTRUCTIONS
    assert text.endswith(" (cut)\n\nb: short")
    assert "instructions" not in discovered([("a", {"instructions": ""})], 0)


@pytest.mark.parametrize(
    ("value", "ms"),
    [(5, 5), (0, 0), (-1, 0), (None, 0), (True, 0), (1.5, 0), ("9", 0), (10**12, 86_400_000)],
)
def test_how_long_a_list_holds(value: Any, ms: int):
    assert ttl_ms(value) == ms


def test_what_is_plain():
    assert plain("a b/ü", 5)
    assert not plain("a b/ü", 4)
    assert not plain("", 4)
