from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
import pickle
from typing import Any

import msgspec
import pytest

from airlock.core.approval import ticket
from airlock.core.approval.ticket import Answer, Claims, Keys, Mode, Refused, Stage
from airlock.core.rules import Rule
from tests.vectors import make_tickets

SECRET = b"x" * 32
KEYS = Keys.derive(SECRET)
BAD = Refused(Rule.MRTR_BAD_SIGNATURE)
CALL: dict[str, Any] = {
    "principal": "alice",
    "tool": "drop_bucket",
    "digest": hashlib.sha256(b"{}").hexdigest(),
    "environment": "prod",
    "upstream": "http://127.0.0.1:8080/mcp",
}
CLAIMS = Claims(
    p=CALL["principal"],
    t=CALL["tool"],
    h=CALL["digest"],
    e=CALL["environment"],
    u=CALL["upstream"],
    k="0b5c8b1e6a6f4d0f8a63a1f7c9d2e410",
    exp=1_700_000_600.0,
    m="oob",
)
VECTORS = json.loads(make_tickets.FILE.read_text(encoding="utf-8"))


# --- vectors


def test_the_vectors_are_what_their_script_makes():
    assert make_tickets.FILE.read_text(encoding="utf-8") == make_tickets.document()


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["name"])
def test_a_ticket_opens_as_the_vectors_say(case: dict[str, Any]):
    keys = Keys.derive(bytes.fromhex(VECTORS["secret_hex"]))
    opened = (ticket.open_agent if case["as"] == "agent" else ticket.open_approver)(keys, case["ticket"])
    match case["expect"]:
        case "claims":
            assert isinstance(opened, Claims)
            assert msgspec.structs.asdict(opened) == case["claims"]
        case "refused":
            assert opened == BAD
        case other:
            pytest.fail(f"unknown expectation {other}")


# --- keys


def test_an_empty_secret_is_refused():
    with pytest.raises(ValueError):
        Keys.derive(b"")


def test_keys_show_and_give_away_nothing():
    secret = b"hunter2hunter2"
    keys = Keys.derive(secret)
    assert repr(keys) == str(keys) == f"{keys}" == "Keys(***)"
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copying(keys)
    with pytest.raises(AttributeError):
        keys._agent = b"mine"
    assert not hasattr(keys, "__dict__")


def test_the_two_keys_differ():
    assert KEYS.sign("al1", b"part") != KEYS.sign("al2", b"part")


def test_what_a_ticket_carries_is_sealed_under_a_key_that_signs_nothing():
    sealing = KEYS.for_sealing()
    assert len(sealing) == 32
    assert sealing not in (SECRET, hmac.digest(SECRET, b"approve", "sha256"))
    assert sealing == Keys.derive(SECRET).for_sealing() != Keys.derive(b"y" * 32).for_sealing()


# --- minting and opening


def test_both_forms_open_to_what_was_minted():
    agent, approver = ticket.mint(KEYS, CLAIMS), ticket.approve_token(KEYS, CLAIMS)
    assert agent.startswith("al1.")
    assert approver.startswith("al2.")
    assert agent.split(".")[1] == approver.split(".")[1]
    assert ticket.open_agent(KEYS, agent) == CLAIMS
    assert ticket.open_approver(KEYS, approver) == CLAIMS


def test_a_ticket_holds_only_what_a_url_path_may_hold():
    text = ticket.approve_token(KEYS, msgspec.structs.replace(CLAIMS, p="a/b?c#d é\ud800\x00"))
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")


@pytest.mark.case("T09")
def test_neither_form_verifies_as_the_other():
    agent, approver = ticket.mint(KEYS, CLAIMS), ticket.approve_token(KEYS, CLAIMS)
    for text in (agent, "al2" + agent[3:]):
        assert ticket.open_approver(KEYS, text) == BAD
    for text in (approver, "al1" + approver[3:]):
        assert ticket.open_agent(KEYS, text) == BAD


@pytest.mark.case("T09")
def test_editing_the_mode_breaks_the_signature():
    oob = ticket.mint(KEYS, CLAIMS).split(".")
    inband = ticket.mint(KEYS, msgspec.structs.replace(CLAIMS, m="inband")).split(".")
    assert ticket.open_agent(KEYS, f"al1.{inband[1]}.{oob[2]}") == BAD


def test_another_secret_opens_nothing():
    other = Keys.derive(b"y" * 32)
    assert ticket.open_agent(other, ticket.mint(KEYS, CLAIMS)) == BAD
    assert ticket.open_approver(other, ticket.approve_token(KEYS, CLAIMS)) == BAD


def test_a_ticket_without_an_end_cannot_be_minted():
    with pytest.raises(ValueError):
        ticket.mint(KEYS, msgspec.structs.replace(CLAIMS, exp=float("inf")))


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ("al1.", True), ("al1.x.y", True), ("al1", False), ("al2.x.y", False), ("AL1.x", False),
        (" al1.x", False), ("", False), (None, False), (1, False), (["al1."], False), ({"al1.": 1}, False),
    ],
)  # fmt: skip
def test_only_a_string_with_our_prefix_is_ours(text: object, ours: bool):
    assert ticket.is_ours(text) is ours


# --- stages

SEALED = {"us": "c2VhbGVk"}


def test_a_ticket_that_names_no_stage_is_a_confirmation():
    assert ticket.stage(CLAIMS) is Stage.CONFIRM
    for stage in Stage:
        assert ticket.stage(msgspec.structs.replace(CLAIMS, s=stage)) is stage
    assert b'"s"' not in base64.b64decode(ticket.mint(KEYS, CLAIMS).split(".")[1] + "==")


@pytest.mark.parametrize("stage", [None, *Stage])
def test_what_a_server_asked_is_in_a_ticket_of_its_stages_and_only_there(stage: Stage | None):
    bare = msgspec.structs.replace(CLAIMS, s=stage)
    full = msgspec.structs.replace(bare, **SEALED)
    good, bad = (bare, full) if stage in (None, Stage.CONFIRM) else (full, bare)
    assert ticket.open_agent(KEYS, ticket.mint(KEYS, good)) == good
    assert ticket.open_agent(KEYS, ticket.mint(KEYS, bad)) == BAD


@pytest.mark.parametrize("stage", [Stage.DRYRUN, Stage.UPSTREAM])
def test_what_a_server_asks_cannot_be_approved_by_a_link(stage: Stage):
    claims = msgspec.structs.replace(CLAIMS, s=stage, **SEALED)
    assert ticket.open_approver(KEYS, ticket.approve_token(KEYS, claims)) == BAD
    named = msgspec.structs.replace(CLAIMS, s=Stage.CONFIRM)
    assert ticket.open_approver(KEYS, ticket.approve_token(KEYS, named)) == named


# --- judging


def test_a_ticket_for_this_call_is_good_until_its_end():
    assert ticket.judge(CLAIMS, **CALL, now=CLAIMS.exp - 0.001) is None
    assert ticket.judge(CLAIMS, **CALL, now=CLAIMS.exp) == Rule.MRTR_EXPIRED


@pytest.mark.parametrize("name", CALL)
def test_a_ticket_for_anything_else_is_a_mismatch(name: str):
    call = {**CALL, name: CALL[name] + "x"}
    assert ticket.judge(CLAIMS, **call, now=0.0) == Rule.MRTR_MISMATCH


def test_an_expired_ticket_for_another_call_is_expired():
    assert ticket.judge(CLAIMS, **{**CALL, "tool": "other"}, now=CLAIMS.exp + 1) == Rule.MRTR_EXPIRED


@pytest.mark.case("T08")
@pytest.mark.parametrize(
    ("claimed", "replica", "strict"),
    [
        ("inband", "inband", False), ("oob", "inband", True), ("inband", "oob", True), ("oob", "oob", True),
        (None, "inband", True), ("", "inband", True), ("INBAND", "inband", True), ("inband", "", True),
        ("telepathy", "inband", True), ("inbox", "inband", True),
    ],
)  # fmt: skip
def test_the_stricter_of_ticket_and_replica_wins(claimed: str | None, replica: str, strict: bool):
    assert ticket.strict_mode(claimed, replica) is strict


# --- answers

YES = {"action": "accept", "content": {"confirm": True}}


@pytest.mark.case("T06")
@pytest.mark.parametrize("sent", [None, {}, {"other": YES}, YES, {"Airlock-Confirm": YES}])
def test_absent_empty_or_foreign_answers_are_no_answer(sent: object):
    assert ticket.read_answer(sent) is Answer.NONE


@pytest.mark.parametrize(
    "answer",
    [
        YES, {**YES, "_meta": {}}, {"action": "accept", "content": {"confirm": True, "note": "fine"}},
    ],
)  # fmt: skip
def test_an_accept_that_confirms_is_a_yes(answer: object):
    assert ticket.read_answer({"airlock-confirm": answer, "other": None}) is Answer.YES


@pytest.mark.case("T06")
@pytest.mark.parametrize(
    "sent",
    [
        *(
            {"airlock-confirm": answer}
            for answer in (
                {"action": "decline"}, {"action": "cancel"}, {"action": "accept"},
                {**YES, "action": "ACCEPT"},
                {"action": "decline", "content": {"confirm": True}}, {"content": {"confirm": True}},
                {"action": "accept", "content": None}, {"action": "accept", "content": {}},
                {"action": "accept", "content": True}, {"action": "accept", "content": [["confirm", True]]},
                {"action": ["accept"], "content": {"confirm": True}},
                *({**YES, "content": {"confirm": value}} for value in (False, 1, 1.0, "true", [True], None)),
                None, True, "accept", [], [YES], {},
            )
        ),
        [], [YES], True, False, 0, 1, "", "accept",
    ],
)  # fmt: skip
def test_everything_else_is_a_no(sent: object):
    assert ticket.read_answer(sent) is Answer.NO


def test_the_modes_are_the_words_of_the_wire():
    assert (Mode.OOB, Mode.INBAND) == ("oob", "inband")
