from __future__ import annotations

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.clock import SystemClock
from airlock.edge.settings import Environment
from airlock.edge.stores import postgres

pytest.importorskip("psycopg", reason="needs the extra postgres: uv sync --all-extras")


async def test_nothing_is_connected_before_the_first_call():
    store = postgres.open("postgresql://alice:hunter2@no.such.host.invalid/d", SystemClock())
    await store.close()


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"AIRLOCK_STORE_POOL_SIZE": "0"}, "AIRLOCK_STORE_POOL_SIZE must be a positive integer"),
        (
            {"AIRLOCK_STORE_CONNECT_TIMEOUT": "86401"},
            "AIRLOCK_STORE_CONNECT_TIMEOUT must be an integer from 1 to 86400",
        ),
    ],
)
def test_a_setting_out_of_range_stops_the_start(env: dict[str, str], said: str):
    with pytest.raises(ConfigError, match=f"^{said}$"):
        postgres.open("postgresql://alice:hunter2@h/d", SystemClock(), Environment(env))


@pytest.mark.case("T50")
def test_a_dsn_that_does_not_parse_names_its_variable_only():
    with pytest.raises(ConfigError, match=r"^AIRLOCK_STORE_DSN: does not parse as a Postgres DSN$"):
        postgres.open("postgresql://u:hunter2@[", SystemClock())


def test_names_that_look_alike_together_do_not_share_a_lock():
    locks = {
        postgres._charge(principal, tool, 1, 0.0, 0.0, 1)["lock"]
        for principal, tool in [("a", "bc"), ("ab", "c"), ("", "abc"), ("1:a", "bc"), ("a", "b"), ("b", "a")]
    }
    assert len(locks) == 6
    assert all(isinstance(lock, int) and -(2**63) <= lock < 2**63 for lock in locks)


def test_names_that_are_stored_alike_share_a_lock():
    assert (
        postgres._charge("a\0", "\ud800", 1, 0.0, 0.0, 1)["lock"]
        == postgres._charge("a\ufffd", "\ufffd", 1, 0.0, 0.0, 1)["lock"]
    )
