"""Five gateways on one Postgres: what one of them did, the others know, however much arrives at once."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.backend import Backend
from tests.fakes.postgres import PostgresServer
from tests.fakes.probing import LONG_S, all_at_once, alone, get, records, until, verified
from tests.fakes.processes import YES, Running, bearer, gateway, post, rule, run
from tests.fakes.webhook import Receiver

REPLICAS = 5
POOL = 2
SECRET = "unit-test-confirmation-key-0123456789"
PUBLIC = "https://approve.example"


class Fleet:
    """The replicas, each in a folder of its own, with one store, one audit table and one chat."""

    def __init__(
        self,
        folders: list[Path],
        gates: list[Running],
        backend: Backend,
        server: PostgresServer,
        dsn: str,
        settings: dict[str, str],
    ) -> None:
        self.folders = folders
        self.gates = gates
        self.backend = backend
        self.server = server
        self.dsn = dsn
        self.settings = settings

    def ask(self, name: str, at: int = 0) -> str:
        message = post(self.gates[at].url, "delete_service", {"name": name})
        assert rule(message) == "tier.L2.confirm"
        state: str = message["result"]["requestState"]
        return state

    def resume(self, name: str, state: str, at: int, **params: Any) -> str:
        url = self.gates[at % REPLICAS].url
        return rule(post(url, "delete_service", {"name": name}, requestState=state, **params))


@pytest.fixture(scope="module")
def chat() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def fleet(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, chat: Receiver
) -> Iterator[Fleet]:
    dsn = postgres_server.database()
    settings = {
        "AIRLOCK_SECRET": SECRET,
        "AIRLOCK_STORE_DSN": dsn,
        "AIRLOCK_AUDIT_DSN": dsn,
        "AIRLOCK_STORE_POOL_SIZE": str(POOL),
        "AIRLOCK_APPROVAL_WEBHOOK": chat.slack_url,
        "AIRLOCK_APPROVAL_MODE": "inband",
        "AIRLOCK_PUBLIC_URL": PUBLIC,
    }
    folders = [tmp_path_factory.mktemp(f"replica{n}") for n in range(REPLICAS)]
    with Backend() as backend:
        starting = [gateway(folder, backend.url, "--strict", **settings) for folder in folders]
        with all_at_once(starting) as gates:
            yield Fleet(folders, gates, backend, postgres_server, dsn, settings)
            with ThreadPoolExecutor(REPLICAS) as pool:
                assert list(pool.map(lambda gate: gate.stop(), gates)) == [0] * REPLICAS
            postgres_server.wait_backends(dsn, 0)
        for folder in folders:
            verified(folder / "audit.jsonl")
            assert alone(folder) == []
        # The table has what the files have: every replica's whole chain.
        written = sorted(each["hash"] for folder in folders for each in records(folder))
        kept = postgres_server.sql("SELECT rec->>'hash' FROM airlock_audit", dsn=dsn)
        assert sorted(digest for (digest,) in kept) == written
    postgres_server.drop(dsn)


@pytest.mark.case("T41")
def test_the_first_calls_of_all_replicas_at_once_find_and_make_their_tables(fleet: Fleet) -> None:
    with ThreadPoolExecutor(2 * REPLICAS) as pool:
        probes = [pool.submit(get, gate, "/readyz") for gate in fleet.gates]
        scaled = [
            pool.submit(
                post, gate.url, "set_replicas", {"names": ["first"], "replicas": n}, token=bearer("first")
            )
            for n, gate in enumerate(fleet.gates)
        ]
    assert [each.result() for each in probes] == [200] * REPLICAS
    assert [rule(each.result()) for each in scaled] == ["tier.L3.auto"] * REPLICAS


def test_fifty_parallel_resumes_of_one_yes_over_five_replicas_have_one_effect(fleet: Fleet) -> None:
    state = fleet.ask("fifty")
    with ThreadPoolExecutor(50) as pool:
        rules = list(pool.map(lambda n: fleet.resume("fifty", state, n, inputResponses=YES), range(50)))
    assert Counter(rules) == {"tier.L2.confirmed": 1, "mrtr.replay": 49}
    assert fleet.backend.landed("delete_service", name="fifty") == 1
    for n in range(REPLICAS):
        assert fleet.resume("fifty", state, n, inputResponses=YES) == "mrtr.replay"
    outcomes = [each for folder in fleet.folders for each in records(folder) if each["phase"] == "outcome"]
    assert sum(each["rule_id"] == "tier.L2.confirmed" for each in outcomes) == 1


def test_a_no_at_one_replica_is_a_no_at_all(fleet: Fleet) -> None:
    state = fleet.ask("no", at=1)
    no = {"airlock-confirm": {"action": "decline"}}
    assert fleet.resume("no", state, 2, inputResponses=no) == "mrtr.declined"
    rules = [fleet.resume("no", state, n, inputResponses=YES) for n in range(REPLICAS)]
    assert rules == ["mrtr.replay"] * REPLICAS
    assert fleet.backend.landed("delete_service", name="no") == 0


@pytest.mark.case("T67")
@pytest.mark.parametrize("size", [1, 2])
def test_at_the_edge_of_the_window_exactly_what_fits_passes_whichever_replica_is_asked(
    fleet: Fleet, size: int
) -> None:
    token = bearer(f"edge-{size}")

    def scale(n: int) -> str:
        names = [f"edge-{size}-{n}-{each}" for each in range(size)]
        url = fleet.gates[n % REPLICAS].url
        return rule(post(url, "set_replicas", {"names": names, "replicas": 1}, token=token))

    with ThreadPoolExecutor(30) as pool:
        rules = Counter(pool.map(scale, range(30)))
    assert rules == {"tier.L3.auto": 5 // size, "blast_radius.per_principal": 30 - 5 // size}
    assert sum(f"edge-{size}-" in str(each) for each in fleet.backend.effects) == 5 // size


@pytest.mark.case("T78")
def test_presses_of_one_link_at_the_same_instant_lead_to_one_execution(fleet: Fleet, chat: Receiver) -> None:
    state = fleet.ask("pressed", at=3)

    def posted() -> str | None:
        return next((each.link for each in chat.taken if '"pressed"' in each.text), None)

    link = until(posted, "the message arrived")
    assert link is not None
    path = link.removeprefix(PUBLIC)

    def press(n: int) -> int:
        url = f"http://127.0.0.1:{fleet.gates[n % REPLICAS].port}{path}"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, b""), timeout=LONG_S) as page:
                status: int = page.status
        except urllib.error.HTTPError as error:
            with error:
                status = error.code
        return status

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(press, range(2 * REPLICAS))) == {200}
        assert fleet.backend.landed("delete_service", name="pressed") == 0
        rules = Counter(pool.map(lambda n: fleet.resume("pressed", state, n), range(20)))
    assert rules == {"tier.L2.confirmed": 1, "mrtr.replay": 19}
    assert fleet.backend.landed("delete_service", name="pressed") == 1
    assert press(0) == 409


def test_what_a_killed_replica_had_begun_is_not_done_again_by_another(fleet: Fleet, tmp_path: Path) -> None:
    state = fleet.ask("killed")
    with gateway(tmp_path, fleet.backend.url, **fleet.settings) as victim, ThreadPoolExecutor(1) as pool:
        fleet.backend.hold()
        call = pool.submit(
            post, victim.url, "delete_service", {"name": "killed"}, requestState=state, inputResponses=YES
        )
        until(lambda: fleet.backend.landed("delete_service", name="killed"), "the call arrived")
        victim.kill()
        fleet.backend.release()
        with pytest.raises(OSError):
            call.result()
    assert fleet.resume("killed", state, 4, inputResponses=YES) == "mrtr.replay"
    assert fleet.backend.landed("delete_service", name="killed") == 1
    lines = verified(tmp_path / "audit.jsonl")
    assert "1 intent has no outcome" in lines[1]
    # What the dead one mirrored is in the table as well: its intent, or nothing.
    fleet.server.sql(
        "DELETE FROM airlock_audit WHERE rec->>'hash' = %s", records(tmp_path)[-1]["hash"], dsn=fleet.dsn
    )


def test_no_replica_holds_more_connections_than_its_pool_and_its_table_need(fleet: Fleet) -> None:
    with ThreadPoolExecutor(40) as pool:
        states = list(pool.map(lambda n: fleet.ask(f"many-{n}", n % REPLICAS), range(40)))
        rules = pool.map(lambda n: fleet.resume(f"many-{n}", states[n], n + 1, inputResponses=YES), range(40))
        assert Counter(rules) == {"tier.L2.confirmed": 40}
    fleet.server.wait_backends(fleet.dsn, REPLICAS * (POOL + 1))


def test_a_query_of_the_table_sees_the_records_of_all(fleet: Fleet) -> None:
    written = Counter(
        each["call_id"]
        for folder in fleet.folders
        for each in records(folder)
        if each["tool"] == "set_replicas"
    )

    def seen() -> Counter[str]:
        done = run("airlock-audit", "query", "--dsn", fleet.dsn, "--tool", "set_replicas")
        assert done.returncode == 0, done.stderr
        return Counter(json.loads(line)["call_id"] for line in done.stdout.splitlines())

    until(lambda: seen() == written, "all rows landed")
