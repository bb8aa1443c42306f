from __future__ import annotations

import pytest

from airlock.core.principal import Principal, Source, groups_from, usable_name


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
