"""Questions as requests to a legacy client: only what it declared, in the form of its revision."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.principal import Source
from airlock.gateway.legacy import pushes
from airlock.gateway.legacy.pushes import Ask
from airlock.gateway.legacy.sessions import Session
from airlock.gateway.legacy.streams import Replay

FORM: dict[str, Any] = {
    "mode": "form",
    "message": "which?",
    "requestedSchema": {"type": "object", "properties": {}},
}
LINK: dict[str, Any] = {"mode": "url", "message": "log in", "url": "https://x.example/a"}
EVERYTHING: dict[str, object] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


def session(capabilities: dict[str, object], version: str = "2025-11-25") -> Session:
    made = Session("s", ("alice", Source.TOKEN), version, Replay(), 0.0)
    made.capabilities = capabilities
    return made


def ask(
    method: Any, params: Any, capabilities: Any = EVERYTHING, version: str = "2025-11-25"
) -> list[Ask] | str:
    return pushes.asked(session(capabilities, version), {"k": {"method": method, "params": params}}, "id")


def one(*args: Any, **more: Any) -> Ask:
    found = ask(*args, **more)
    assert isinstance(found, list)
    return found[0]


def test_every_declared_kind_is_asked_under_its_key():
    requests = {
        "a": {"method": "elicitation/create", "params": FORM}, "b": {"method": "roots/list"},
        "c": {"method": "sampling/createMessage", "params": {"messages": [], "tools": []}},
    }  # fmt: skip
    found = pushes.asked(session(EVERYTHING), requests, "id")
    assert found == [
        Ask("a", "elicitation/create", FORM), Ask("b", "roots/list", {}),
        Ask("c", "sampling/createMessage", {"messages": [], "tools": []}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "params", "capabilities", "named"),
    [
        ("elicitation/create", FORM, {}, "elicitation"),
        ("elicitation/create", FORM, {"elicitation": {"url": {}}}, "elicitation"),
        ("elicitation/create", LINK, {"elicitation": {"form": {}}}, "elicitation.url"),
        ("elicitation/create", LINK, {}, "elicitation.url"),
        ("sampling/createMessage", {}, {}, "sampling"),
        ("sampling/createMessage", {"tools": []}, {"sampling": {}}, "sampling.tools"),
        ("roots/list", {}, {"sampling": {}}, "roots"),
    ],
)
def test_nothing_is_asked_that_the_client_did_not_declare(
    method: str, params: Any, capabilities: Any, named: str
):
    found = ask(method, params, capabilities)
    assert isinstance(found, str)
    assert f"did not declare {named}" in found


def test_a_link_that_cannot_be_asked_about_is_told_in_one_line():
    found = ask("elicitation/create", {**LINK, "message": "log\nin"}, {"elicitation": {"form": {}}})
    assert isinstance(found, str)
    assert "https://x.example/a" in found
    assert r"log\nin" in found
    assert "\n" not in found
    bare = ask("elicitation/create", {"mode": "url"}, {})
    assert isinstance(bare, str)
    assert "(none)" in bare
    assert len(str(ask("elicitation/create", {**LINK, "url": "x" * 5000}, {}))) < 1000


@pytest.mark.parametrize("method", ["tools/call", "ping", None, 5, ["roots/list"]])
def test_a_question_of_an_unknown_kind_is_not_asked(method: Any):
    assert isinstance(ask(method, {}), str)


@pytest.mark.parametrize("mode", ["text", 5, None, ["url"]])
def test_a_question_in_an_unknown_mode_is_not_asked(mode: Any):
    assert isinstance(ask("elicitation/create", {"mode": mode}), str)


@pytest.mark.parametrize("requests", [None, 5, [], "x", {"k": 5}, {"k": None}])
def test_questions_in_an_unknown_form_are_not_asked(requests: Any):
    assert isinstance(pushes.asked(session(EVERYTHING), requests, "id"), str)


def test_one_question_that_cannot_be_asked_stops_all():
    requests = {"a": {"method": "roots/list"}, "b": {"method": "x"}}
    assert isinstance(pushes.asked(session(EVERYTHING), requests, "id"), str)


def test_a_round_has_a_limit():
    requests = {str(n): {"method": "roots/list"} for n in range(pushes.MOST_IN_A_ROUND + 1)}
    assert isinstance(pushes.asked(session(EVERYTHING), requests, "id"), str)
    del requests["0"]
    assert len(pushes.asked(session(EVERYTHING), requests, "id")) == pushes.MOST_IN_A_ROUND


def test_the_mode_is_named_only_where_the_revision_has_one():
    assert "mode" not in one("elicitation/create", FORM, {"elicitation": {"form": {}}}, "2025-06-18").params
    assert one("elicitation/create", FORM).params["mode"] == "form"
    bare = {key: value for key, value in FORM.items() if key != "mode"}
    assert one("elicitation/create", bare).params == bare


def test_each_question_by_link_has_an_id_of_its_own():
    requests = {key: {"method": "elicitation/create", "params": LINK} for key in "ab"}
    found = pushes.asked(session(EVERYTHING), requests, "id")
    assert isinstance(found, list)
    assert [each.params["elicitationId"] for each in found] == ["id-0", "id-1"]
    assert "elicitationId" not in LINK


def test_meta_keys_of_the_newer_revision_and_of_ours_do_not_reach_the_client():
    own = {"io.modelcontextprotocol/x": 1, "io.mcp-airlock/y": 2, "progressToken": 3, "v/w": 4}
    assert one("roots/list", {"_meta": own}).params == {"_meta": {"v/w": 4}}
    assert one("roots/list", {"_meta": {"progressToken": 3}}).params == {}
    assert one("roots/list", {"_meta": 5}).params == {}
    assert one("roots/list", "odd").params == {}


def test_forms_can_be_shown_only_by_a_client_that_declared_them():
    assert pushes.can_show_forms(session({"elicitation": {"form": {}}}))
    assert not pushes.can_show_forms(session({"elicitation": {"url": {}}}))
    assert not pushes.can_show_forms(session({}))
