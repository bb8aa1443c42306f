from __future__ import annotations

import copy
import pickle

import pytest

from airlock.core import grant
from airlock.core.action import Action
from airlock.core.decision import Allow, Confirm, Tier
from airlock.core.grant import Basis, Grant
from airlock.core.rules import Rule

ACTION = Action("drop", {}, "prod", "http://up/mcp")
READ = Allow(Rule.L0_READ, Tier.L0)
CONFIRMED = Allow(Rule.L2_CONFIRMED, Tier.L2, dry_run=False, charge=1)


def test_policy_mints_what_it_allows():
    made = grant.by_policy(ACTION, READ)
    assert (made.action, made.basis, made.dry_run) == (ACTION, Basis.POLICY, None)


def test_a_yes_mints_only_once_it_is_burned():
    assert grant.by_approval(ACTION, CONFIRMED, burned=True).basis is Basis.APPROVAL
    with pytest.raises(TypeError, match="not burned"):
        grant.by_approval(ACTION, CONFIRMED, burned=False)


def test_a_preview_is_a_dry_run_or_nothing():
    assert grant.for_preview(ACTION, Confirm(Rule.L2_CONFIRM, Tier.L2, preview=True)).dry_run is True
    with pytest.raises(TypeError, match="cannot be previewed"):
        grant.for_preview(ACTION, Confirm(Rule.L2_CONFIRM, Tier.L2, preview=False))


def test_nobody_else_can_make_one():
    with pytest.raises(TypeError, match=r"core\.grant"):
        Grant(object(), ACTION, Basis.POLICY, None)


def test_a_grant_is_spent_once():
    made = grant.by_policy(ACTION, READ)
    assert made.spend() is ACTION
    with pytest.raises(RuntimeError, match="already spent"):
        made.spend()


@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_grant_is_neither_stored_nor_copied(taken):
    with pytest.raises(TypeError, match="copied"):
        taken(grant.by_policy(ACTION, READ))
