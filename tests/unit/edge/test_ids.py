from __future__ import annotations

import re

import pytest

from airlock.core.ports import Ids
from airlock.edge.ids import SystemIds


def test_an_identifier_is_lower_case_hex_of_the_length_asked_for():
    ids: Ids = SystemIds()
    assert re.fullmatch("[0-9a-f]{32}", ids.hex(16))
    assert re.fullmatch("[0-9a-f]{2}", ids.hex(1))


def test_identifiers_do_not_repeat():
    ids = SystemIds()
    assert len({ids.hex(16) for _ in range(1000)}) == 1000


@pytest.mark.parametrize("nbytes", [0, -1])
def test_an_empty_identifier_is_refused(nbytes: int):
    with pytest.raises(ValueError):
        SystemIds().hex(nbytes)
