from __future__ import annotations

import pytest

from airlock.core.principal import UNPROVEN, Principal, Proof, Source, groups_from, usable_name
from airlock.core.secret import Secret


@pytest.mark.case("T01")
@pytest.mark.parametrize("name", ["", " ", " alice", "alice ", "\talice", "alice\u00a0", None, 5, ["alice"]])
def test_a_blank_or_padded_name_names_nobody(name: object):
    assert usable_name(name) is False


@pytest.mark.parametrize("name", ["alice", "a b", "group:ops", "密"])
def test_any_other_text_is_a_name(name: str):
    assert usable_name(name) is True


@pytest.mark.parametrize(
    ("value", "groups"),
    [
        ("dev, ops  sre", ("dev", "ops", "sre")),
        ("", ()),
        (" ,, ", ()),
        (["ops", " dev ", "", 5, None], ("ops", "dev")),
        (("b", "a"), ("b", "a")),
        (None, ()),
        ({"dev": 1}, ()),
    ],
)
def test_groups_are_an_array_or_a_split_text_in_their_own_order(value: object, groups: tuple[str, ...]):
    assert groups_from(value) == groups


def test_a_principal_cannot_be_changed():
    who = Principal("alice")
    assert (who.groups, who.source) == ((), Source.TOKEN)
    with pytest.raises(AttributeError):
        who.name = "root"  # type: ignore[misc]


def test_a_principal_is_the_same_whatever_proves_it():
    proved = Principal("alice", proof=Proof(200.0, frozenset({"a"}), Secret("t.o.k")))
    assert proved == Principal("alice")
    assert hash(proved) == hash(Principal("alice"))
    assert proved != Principal("bob", proof=proved.proof)
    assert UNPROVEN != "a proof"


def test_a_principal_does_not_show_its_token():
    shown = repr(Principal("alice", proof=Proof(200.0, token=Secret("t.o.k"))))
    assert "t.o.k" not in shown
    assert "until=200.0" in shown


def test_a_name_that_came_without_a_token_has_no_scope_and_no_end():
    assert (UNPROVEN.until, UNPROVEN.scopes, UNPROVEN.token) == (None, frozenset(), None)
