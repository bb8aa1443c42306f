from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor

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


@pytest.mark.parametrize("nbytes", [0, -1, 1025])
def test_an_empty_identifier_is_refused(nbytes: int):
    with pytest.raises(ValueError):
        SystemIds().hex(nbytes)


def test_threads_never_share_a_byte():
    ids = SystemIds()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ids.hex(8), range(4000)))
    assert len(set(made)) == len(made)


def test_a_forked_process_makes_identifiers_of_its_own():
    ids = SystemIds()
    ids.hex(1)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, ids.hex(16).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        assert pipe.read() != ids.hex(16)
