"""What a server may ask of a caller's client, and what it is told that it may."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.policy.load import build
from airlock.core.policy.model import Policy
from airlock.core.principal import Principal
from airlock.gateway.questions import CAPABILITIES, capabilities, forbidden, kinds, narrowed
from tests.fakes.upstream_port import request

ALICE = Principal("alice")
ELICIT = {"method": "elicitation/create", "params": {}}
SAMPLE = {"method": "sampling/createMessage", "params": {}}
ROOTS = {"method": "roots/list"}


def policy(**sections: Any) -> Policy:
    return build({"environment": "prod", **sections}, "policy.yaml", None)


def asks(*questions: Any) -> dict[str, object]:
    requests = {f"k{n}": question for n, question in enumerate(questions)}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": "s"}


def test_without_sections_a_server_may_ask_people_and_nothing_else() -> None:
    assert forbidden(policy(), ALICE, asks(ELICIT, ELICIT)) is None
    for question, kind in ((SAMPLE, "sampling"), (ROOTS, "roots")):
        reason = f"the policy does not let the server ask this caller's client for {kind}"
        assert forbidden(policy(), ALICE, asks(ELICIT, question)) == reason


def test_a_section_says_whose_client_may_be_asked() -> None:
    rules = policy(sampling={"principals": ["alice"]}, roots={}, elicitation={"principals": ["bob"]})
    assert forbidden(rules, ALICE, asks(SAMPLE, ROOTS)) is None
    assert "elicitation" in str(forbidden(rules, ALICE, asks(ELICIT)))
    assert "sampling" in str(forbidden(rules, Principal("bob"), asks(ELICIT, SAMPLE)))


def test_only_a_result_that_asks_is_looked_at() -> None:
    assert forbidden(policy(), ALICE, {"resultType": "complete", "inputRequests": {"k": SAMPLE}}) is None
    assert forbidden(policy(), ALICE, {"inputRequests": {"k": SAMPLE}}) is None
    assert forbidden(policy(), ALICE, {"resultType": "input_required", "requestState": "s"}) is None


@pytest.mark.parametrize(
    "question", [5, {}, {"method": 5}, {"method": "tasks/get"}, {"method": ["roots/list"]}]
)
def test_a_question_of_an_unknown_kind_is_forbidden(question: Any) -> None:
    everything = policy(sampling={}, roots={}, elicitation={})
    assert str(forbidden(everything, ALICE, asks(question))).startswith(
        "the server asks this caller's client for"
    )


def test_questions_in_an_unknown_form_are_forbidden() -> None:
    result: dict[str, object] = {"resultType": "input_required", "inputRequests": [SAMPLE]}
    assert forbidden(policy(sampling={}), ALICE, result) == "the server asks in a form that is not known"


def test_a_method_chosen_by_the_server_is_told_in_one_short_line() -> None:
    reason = str(forbidden(policy(), ALICE, asks({"method": "a\n\x1b[2J" + "b" * 500})))
    assert reason.isprintable()
    assert len(reason) < 130


def test_the_kinds_of_what_is_asked_are_told_once_each() -> None:
    assert kinds(asks(SAMPLE, ELICIT, SAMPLE)) == ["elicitation/create", "sampling/createMessage"]
    assert kinds({"resultType": "input_required", "requestState": "s"}) == []


def test_a_server_is_told_only_of_what_it_may_ask_for() -> None:
    declared: dict[str, object] = {
        "elicitation": {"form": {}},
        "sampling": {},
        "roots": {},
        "experimental": {"x": {}},
        "extensions": {"io.modelcontextprotocol/tasks": {}},
    }
    assert capabilities(policy(), ALICE, declared) == {"elicitation": {"form": {}}, "experimental": {"x": {}}}
    open_ones = policy(sampling={}, roots={}, elicitation={"principals": ["bob"]})
    assert capabilities(open_ones, ALICE, declared) == {
        "sampling": {},
        "roots": {},
        "experimental": {"x": {}},
    }
    assert "extensions" in declared


def test_capabilities_that_lose_nothing_are_the_same_object() -> None:
    declared: dict[str, object] = {"elicitation": {}, "experimental": {}}
    assert capabilities(policy(), ALICE, declared) is declared


def test_a_request_that_declares_too_much_is_forwarded_with_less() -> None:
    asked = request("resources/read", {"uri": "x:y"}, capabilities={"sampling": {}, "elicitation": {}})
    less = narrowed(asked, policy(), ALICE)
    assert less.meta == {**asked.meta, CAPABILITIES: {"elicitation": {}}}
    assert asked.meta[CAPABILITIES] == {"sampling": {}, "elicitation": {}}
    assert narrowed(less, policy(), ALICE) is less
    assert narrowed(request("x", capabilities=5), policy(), ALICE).meta[CAPABILITIES] == {}
