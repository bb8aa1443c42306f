"""Who hears of a new policy, and how many may listen."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from airlock.gateway.changes import MOST, MOST_PER_PRINCIPAL, Changes


def test_every_open_subscription_hears_of_a_change_until_it_ends() -> None:
    changes, heard = Changes(), []
    with changes.subscribe("alice", lambda: heard.append("a")):
        with changes.subscribe("alice", lambda: heard.append("b")):
            changes.announce()
        changes.announce()
    changes.announce()
    assert heard == ["a", "b", "a"]


def test_a_subscription_that_ends_while_others_are_told_is_harmless() -> None:
    changes, heard = Changes(), []
    inner = ExitStack()
    with changes.subscribe("alice", inner.close):
        inner.enter_context(changes.subscribe("bob", lambda: heard.append("b")))
        changes.announce()
        changes.announce()
    assert heard == ["b"]


def test_one_principal_has_a_bounded_number_of_subscriptions() -> None:
    changes = Changes()
    with ExitStack() as open_ones:
        for _ in range(MOST_PER_PRINCIPAL):
            assert changes.full("alice") is None
            open_ones.enter_context(changes.subscribe("alice", lambda: None))
        assert str(changes.full("alice")).startswith("this caller has 1024 subscriptions open")
        assert changes.full("bob") is None
    assert changes.full("alice") is None


def test_all_principals_together_have_a_bounded_number_of_subscriptions() -> None:
    changes = Changes()
    with ExitStack() as open_ones:
        for n in range(MOST):
            assert changes.full(f"p{n}") is None
            open_ones.enter_context(changes.subscribe(f"p{n}", lambda: None))
        assert str(changes.full("alice")).startswith("4096 subscriptions are open")


def test_a_subscription_that_fails_is_no_longer_counted() -> None:
    changes = Changes()
    with pytest.raises(KeyError), changes.subscribe("alice", lambda: None):
        raise KeyError
    assert changes._of == {}
    assert changes._told == {}
