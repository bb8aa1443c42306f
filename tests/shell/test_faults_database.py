"""A real gateway whose database is killed, frozen, emptied, cut off, slow, locked, or of another opinion.

The store is Postgres, with the shortest bound that libpq knows: W is 2 s, so that every answer is due after 4 s.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import Backend
from tests.fakes.faultproxy import BLACKHOLE, NONE, SWALLOW, FaultProxy, delay, truncate
from tests.fakes.postgres import PostgresServer
from tests.fakes.probing import Health, get, pairs, records, until, verified
from tests.fakes.processes import YES, Running, gateway, post, rule

WAIT_S = 2
BOUND_S = 2 * WAIT_S + 4  # what the seed allows, and what a busy machine needs
POOL = 3
SECRET = "unit-test-confirmation-key-0123456789"


class Scene:
    """A gateway whose store is in a database of its own, reached directly and through a proxy."""

    def __init__(
        self, folder: Path, gate: Running, backend: Backend, server: PostgresServer, dsn: str
    ) -> None:
        self.folder = folder
        self.gate = gate
        self.backend = backend
        self.server = server
        self.dsn = dsn
        self.log_seen = 0

    def ask(self, name: str) -> str:
        """Ask for a deletion; return the state that a yes goes with."""
        state: str = post(self.gate.url, "delete_service", {"name": name})["result"]["requestState"]
        return state

    def yes(self, name: str, state: str) -> dict[str, Any]:
        """Say yes; the answer must come within the bound."""
        began = time.monotonic()
        message = post(
            self.gate.url, "delete_service", {"name": name}, requestState=state, inputResponses=YES
        )
        assert time.monotonic() - began < BOUND_S
        return message

    def fill(self, name: str) -> None:
        """Make the pool hold all the connections it may."""
        states = {f"{name}-{n}": self.ask(f"{name}-{n}") for n in range(4 * POOL)}
        with ThreadPoolExecutor(4 * POOL) as pool:
            assert {rule(each) for each in pool.map(self.yes, states, states.values())} == {
                "tier.L2.confirmed"
            }
        assert 0 < len(self.server.backends(self.dsn)) <= POOL

    def read(self) -> str:
        return rule(post(self.gate.url, "get_service", {"name": "x"}))

    def recovers(self, name: str, state: str) -> None:
        """Until the yes is taken, it is refused as before; then it ran once."""

        def taken() -> bool:
            found = rule(self.yes(name, state))
            assert found in {"store.unavailable", "tier.L2.confirmed"}
            return found == "tier.L2.confirmed"

        until(taken, "the store came back")
        until(lambda: get(self.gate, "/readyz") == 200, "the gateway is ready")
        assert rule(self.yes(name, state)) == "mrtr.replay"
        assert self.backend.landed("delete_service", name=name) == 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer) -> Iterator[Scene]:
    if not postgres_server.owned:
        pytest.skip("the server of AIRLOCK_TEST_PG_DSN is not ours to break: unset it")
    folder = tmp_path_factory.mktemp("gate")
    dsn = postgres_server.database(connect_timeout=str(WAIT_S), application_name="s3cr3t-name")
    settings = {"AIRLOCK_SECRET": SECRET, "AIRLOCK_STORE_DSN": dsn, "AIRLOCK_STORE_POOL_SIZE": str(POOL)}
    with Backend() as backend, gateway(folder, backend.url, "--strict", **settings) as gate:
        yield Scene(folder, gate, backend, postgres_server, dsn)
        postgres_server.mend()
        assert gate.stop() == 0
        postgres_server.wait_backends(dsn, 0)
    assert gate.stderr is not None
    log = gate.stderr.rest()
    assert "Traceback" not in log
    assert "s3cr3t-name" not in log
    assert str(postgres_server.folder) not in log
    warnings = [line for line in log.splitlines() if "the state store did not answer" in line]
    assert len(warnings) == len(pairs(folder, "store.unavailable"))
    postgres_server.drop(dsn)


@pytest.fixture
def scene(whole: Scene) -> Iterator[Scene]:
    yield whole
    whole.server.mend()
    until(lambda: get(whole.gate, "/readyz") == 200, "the gateway is ready again")
    whole.server.wait_backends(whole.dsn, POOL)
    verified(whole.folder / "audit.jsonl")


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def refused(scene: Scene, message: dict[str, Any]) -> None:
    """It is a tool error that carries the rule, and it is recorded twice as a denial."""
    assert rule(message) == "store.unavailable"
    assert message["result"]["isError"] is True
    assert message["result"]["_meta"]["io.mcp-airlock/verdict"] == "deny"
    intent, outcome = pairs(scene.folder, "store.unavailable")[-1]
    assert (intent["verdict"], intent["rule_id"], outcome["verdict"]) == ("deny", "store.unavailable", "deny")
    assert outcome["detail"]
    assert "s3cr3t-name" not in outcome["detail"]
    assert str(scene.server.folder) not in outcome["detail"]


@pytest.mark.case("T38")
@pytest.mark.case("T39")
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_database_that_is_gone_denies_within_the_bound_and_is_found_again(scene: Scene, how: str) -> None:
    scene.fill(how)
    state = scene.ask(how)
    before = len(scene.backend.calls)
    if how == "killed":
        scene.server.kill()
    else:
        scene.server.freeze()
    with Health(scene.gate), ThreadPoolExecutor(9) as pool:
        probe = pool.submit(get, scene.gate, "/readyz")
        for message in pool.map(lambda _: scene.yes(how, state), range(8)):
            refused(scene, message)
        assert probe.result() == 503
        assert len(scene.backend.calls) == before
        assert scene.read() == "tier.L0.read"  # a read asks no store
    scene.server.mend()
    scene.recovers(how, state)


def test_a_frozen_audit_database_holds_nobody_up_and_gets_its_rows_later(
    scene: Scene, tmp_path: Path, postgres_server: PostgresServer
) -> None:
    dsn = postgres_server.database(connect_timeout=str(WAIT_S))
    postgres_server.freeze()  # from the start: the first attempt to connect hangs
    with gateway(tmp_path, scene.backend.url, AIRLOCK_AUDIT_DSN=dsn) as gate:
        with Health(gate):
            for n in range(40):
                assert rule(post(gate.url, "get_service", {"name": f"n{n}"})) == "tier.L0.read"
            pause(WAIT_S + 0.5)  # the attempt is given up, and another one begins
        postgres_server.thaw()
        lines = [line.strip() for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
        assert len(lines) == 80
        until(lambda: rows(postgres_server, dsn) == [json.loads(line)["hash"] for line in lines], "all rows")
        postgres_server.wait_backends(dsn, 1)
    postgres_server.drop(dsn)


def rows(server: PostgresServer, dsn: str) -> list[str]:
    if server.sql("SELECT to_regclass('airlock_audit') IS NULL", dsn=dsn) == [(True,)]:
        return []
    found = server.sql("SELECT rec->>'hash' FROM airlock_audit ORDER BY ctid", dsn=dsn)
    return [digest for (digest,) in found]


@pytest.mark.case("T40")
def test_a_database_made_again_empty_takes_a_yes_once_more_and_is_ready(scene: Scene) -> None:
    used, kept = scene.ask("remade-used"), scene.ask("remade-kept")
    assert rule(scene.yes("remade-used", used)) == "tier.L2.confirmed"
    scene.server.remake(scene.dsn)
    scene.recovers("remade-kept", kept)
    # LIMIT of the seed: used keys go with the database that knew them.
    assert rule(scene.yes("remade-used", used)) == "tier.L2.confirmed"
    scene.server.sql("DROP TABLE airlock_keys, airlock_usage, airlock_prompts", dsn=scene.dsn)
    assert get(scene.gate, "/readyz") == 200
    found = scene.server.sql("SELECT to_regclass('airlock_prompts') IS NOT NULL", dsn=scene.dsn)
    assert found == [(True,)]


@pytest.mark.case("T40")
def test_ready_is_503_until_the_tables_can_be_made(postgres_server: PostgresServer, tmp_path: Path) -> None:
    import psycopg
    from psycopg.conninfo import make_conninfo

    dsn = postgres_server.database()
    role = f"reader_{os.getpid()}"
    postgres_server.sql(f"CREATE ROLE {role} LOGIN")
    postgres_server.sql("REVOKE CREATE ON SCHEMA public FROM PUBLIC", dsn=dsn)
    settings = {
        "AIRLOCK_STORE_DSN": make_conninfo(dsn, user=role),
        "AIRLOCK_SECRET": "s" * 32,
        "AIRLOCK_STORE_CONNECT_TIMEOUT": "2",
    }
    try:
        try:
            psycopg.connect(settings["AIRLOCK_STORE_DSN"], connect_timeout=20).close()
        except psycopg.OperationalError:
            pytest.skip(
                "lets no new role in: unset AIRLOCK_TEST_PG_DSN, and the tests start one of their own"
            )
        with gateway(tmp_path, "http://127.0.0.1:1/mcp", **settings) as gate:
            assert get(gate, "/healthz") == 200
            assert get(gate, "/readyz") == 503
            postgres_server.sql(f"GRANT CREATE ON SCHEMA public TO {role}", dsn=dsn)
            assert get(gate, "/readyz") == 200
    finally:
        postgres_server.drop(dsn)
        postgres_server.sql(f"DROP ROLE {role}")


def test_connections_that_were_cut_while_idle_cost_no_call(scene: Scene) -> None:
    for n in range(3):
        state = scene.ask(f"cut-{n}")
        assert scene.server.terminate(scene.dsn) >= 1
        assert rule(scene.yes(f"cut-{n}", state)) == "tier.L2.confirmed"


@pytest.mark.case("T39")
def test_a_locked_table_ends_the_wait(scene: Scene) -> None:
    import psycopg

    state = scene.ask("locked")
    assert get(scene.gate, "/readyz") == 200
    with psycopg.connect(scene.dsn) as other, Health(scene.gate):
        other.execute("LOCK TABLE airlock_keys")
        refused(scene, scene.yes("locked", state))
        other.rollback()
    scene.recovers("locked", state)


@pytest.mark.case("T38")
def test_a_database_that_complains_is_an_error_of_ours(scene: Scene) -> None:
    state = scene.ask("complains")
    assert get(scene.gate, "/readyz") == 200
    scene.server.sql("ALTER TABLE airlock_keys RENAME COLUMN exp_ts TO gone", dsn=scene.dsn)
    message = scene.yes("complains", state)
    scene.server.sql("ALTER TABLE airlock_keys RENAME COLUMN gone TO exp_ts", dsn=scene.dsn)
    assert message["error"]["code"] == -32603
    assert "exp_ts" not in str(message)
    intent, outcome = pairs(scene.folder, "internal.error")[-1]
    assert (intent["verdict"], outcome["verdict"]) == ("error", "error")
    assert "42703" in outcome["detail"]
    assert rule(scene.yes("complains", state)) == "tier.L2.confirmed"


def test_what_is_on_file_about_refusals_names_every_call(scene: Scene) -> None:
    found = records(scene.folder)
    assert len(found) % 2 == 0
    assert {each["phase"] for each in found} == {"intent", "outcome"}


# --- over a network that breaks


@pytest.fixture(scope="module")
def far(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[tuple[Scene, FaultProxy]]:
    """A gateway that reaches its database over TCP, through a proxy that breaks things."""
    from psycopg.conninfo import make_conninfo

    if not postgres_server.owned:
        pytest.skip("the server of AIRLOCK_TEST_PG_DSN is not ours to break: unset it")
    folder = tmp_path_factory.mktemp("far")
    near = postgres_server.database(connect_timeout=str(WAIT_S))
    with Backend() as backend, FaultProxy(f"{postgres_server.folder}/.s.PGSQL.5432") as proxy:
        dsn = make_conninfo(near, host="127.0.0.1", port=proxy.port)
        settings = {"AIRLOCK_SECRET": SECRET, "AIRLOCK_STORE_DSN": dsn, "AIRLOCK_STORE_POOL_SIZE": str(POOL)}
        with gateway(folder, backend.url, "--strict", **settings) as gate:
            yield Scene(folder, gate, backend, postgres_server, near), proxy
            proxy.fault = NONE
            assert gate.stop() == 0
            postgres_server.wait_backends(near, 0)
    postgres_server.drop(near)


@pytest.mark.case("T39")
@pytest.mark.parametrize("how", ["silent", "silent to new", "slow", "torn", "deaf"])
def test_a_network_that_breaks_denies_within_the_bound_and_leaves_no_backend(
    far: tuple[Scene, FaultProxy], how: str
) -> None:
    scene, proxy = far
    state = scene.ask(how)
    assert get(scene.gate, "/readyz") == 200
    with Health(scene.gate), ThreadPoolExecutor(2) as pool:
        if how == "deaf":
            proxy.deaf()
        else:
            proxy.fault = {
                "silent": SWALLOW, "silent to new": BLACKHOLE, "slow": delay(WAIT_S + 1.0), "torn": truncate(0),
            }[how]  # fmt: skip
            if how == "silent to new":
                proxy.cut()
        answers = list(pool.map(lambda _: scene.yes(how, state), range(2)))
        proxy.fault = NONE
        proxy.listen()
    assert [rule(answer) for answer in answers] == ["store.unavailable"] * 2
    # A burn whose answer got lost may have happened: then the yes is spent, and nothing ran.
    burned = how in {"silent", "slow", "torn"}
    until(lambda: get(scene.gate, "/readyz") == 200, "the gateway is ready again")
    last = rule(scene.yes(how, state))
    assert last in ({"mrtr.replay", "tier.L2.confirmed"} if burned else {"tier.L2.confirmed"})
    assert scene.backend.landed("delete_service", name=how) == (last == "tier.L2.confirmed")
    scene.server.wait_backends(scene.dsn, POOL)
    verified(scene.folder / "audit.jsonl")


def test_a_database_that_is_merely_slow_is_waited_for(far: tuple[Scene, FaultProxy]) -> None:
    scene, proxy = far
    state = scene.ask("merely")
    proxy.fault = delay(0.2)
    answer = scene.yes("merely", state)
    proxy.fault = NONE
    assert rule(answer) == "tier.L2.confirmed"


def test_connections_reset_under_a_call_deny_and_the_next_one_is_served(
    far: tuple[Scene, FaultProxy],
) -> None:
    scene, proxy = far
    state = scene.ask("reset")
    proxy.cut()
    assert rule(scene.yes("reset", state)) == "tier.L2.confirmed"  # noticed before it was used
