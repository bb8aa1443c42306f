from __future__ import annotations

import copy
import pickle

import pytest

from airlock.core.secret import Secret

HIDDEN = "hunter" + "2" * 8


def test_only_reveal_gives_the_value_out():
    secret = Secret(HIDDEN)
    assert secret.reveal() == HIDDEN
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret:>40}", f"{secret!r}", repr([secret])):
        assert HIDDEN not in shown


@pytest.mark.parametrize("taken", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_secret_is_neither_stored_nor_copied(taken):
    with pytest.raises(TypeError, match="pickled"):
        taken(Secret(HIDDEN))
