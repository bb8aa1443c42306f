from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.approval import ticket
from airlock.core.approval.ticket import Answer, Claims, Keys, Refused
from airlock.core.rules import Rule

BAD = Refused(Rule.MRTR_BAD_SIGNATURE)
KEYS = Keys.derive(b"x" * 32)

texts = st.text(st.characters(), max_size=20)  # lone surrogates too
finite = st.floats(allow_nan=False, allow_infinity=False)
claims = st.builds(Claims, texts, texts, texts, texts, texts, texts, finite, st.none() | texts)
likely = st.sampled_from(string.ascii_letters + string.digits + "-_.=+/ \n") | st.characters()
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | finite
    | st.sampled_from(["accept", "decline", "true", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["airlock-confirm", "action", "content", "confirm", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(claims)
def test_what_was_minted_opens_as_it_was_and_only_in_its_own_form(made: Claims):
    agent, approver = ticket.mint(KEYS, made), ticket.approve_token(KEYS, made)
    assert ticket.open_agent(KEYS, agent) == made
    assert ticket.open_approver(KEYS, approver) == made
    for text in (approver, "al1" + approver[3:]):
        assert ticket.open_agent(KEYS, text) == BAD
    for text in (agent, "al2" + agent[3:]):
        assert ticket.open_approver(KEYS, text) == BAD


@settings(max_examples=150, deadline=None)
@given(claims, st.data())
def test_a_ticket_with_any_character_changed_added_or_left_out_is_refused(made: Claims, data: st.DataObject):
    for sealed, opened in ((ticket.mint, ticket.open_agent), (ticket.approve_token, ticket.open_approver)):
        text = sealed(KEYS, made)
        at = data.draw(st.integers(0, len(text) - 1))
        new = data.draw(likely)
        changed = {
            text[:at] + new + text[at + 1 :],
            text[:at] + new + text[at:],
            text[:at] + text[at + 1 :],
            text[:at],
        }
        for other in changed - {text}:
            assert opened(KEYS, other) == BAD


def test_a_ticket_with_any_one_character_changed_is_refused():
    text = ticket.mint(KEYS, Claims("alice", "drop", "h", "prod", "u", "k", 1.5, "oob"))
    for at, old in enumerate(text):
        for new in set(string.ascii_letters + string.digits + "-_.") - {old}:
            assert ticket.open_agent(KEYS, text[:at] + new + text[at + 1 :]) == BAD


@settings(max_examples=150, deadline=None)
@given(claims, st.binary(min_size=1, max_size=80))
def test_another_secret_opens_nothing(made: Claims, secret: bytes):
    other = Keys.derive(secret)
    if other.sign("al1", b"") != KEYS.sign("al1", b""):
        assert ticket.open_agent(other, ticket.mint(KEYS, made)) == BAD


@settings(max_examples=200, deadline=None)
@given(json_values)
def test_only_the_exact_accept_is_a_yes(sent: object):
    exact = False
    if isinstance(sent, dict) and isinstance(sent.get("airlock-confirm"), dict):
        answer = sent["airlock-confirm"]
        content = answer.get("content")
        exact = (
            answer.get("action") == "accept" and isinstance(content, dict) and content.get("confirm") is True
        )
    assert (ticket.read_answer(sent) is Answer.YES) is exact
