"""`--workers`: several processes on one port and one store, each with an audit chain of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fakes.backend import Backend
from tests.fakes.postgres import PostgresServer
from tests.fakes.probing import LONG_S, Health, alone, children, records, until, verified
from tests.fakes.processes import YES, Running, gateway, post, rule, run

SECRET = "unit-test-confirmation-key-0123456789"
POLICY = Path(__file__).resolve().parents[2] / "examples/policy.yaml"
FILES = ("audit.jsonl", "audit.jsonl.w1")


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend() as made:
        yield made


def sqlite(folder: Path) -> dict[str, str]:
    return {"AIRLOCK_SECRET": SECRET, "AIRLOCK_STORE_DSN": f"sqlite:///{folder}/state.db"}


@contextlib.contextmanager
def pair(
    folder: Path, backend: Backend, policy: Path = POLICY, env: dict[str, str] | None = None
) -> Iterator[Running]:
    """A gateway of two workers."""
    settings = {**sqlite(folder), **(env or {})}
    with gateway(folder, backend.url, "--workers", "2", "--strict", policy=str(policy), **settings) as gate:
        try:
            until(lambda: len(children(gate.process.pid)) == 2, "both workers are there")
            yield gate
        finally:
            left = children(gate.process.pid)
            if gate.process.poll() is None:
                gate.stop()
            for pid in left:
                until(lambda pid=pid: not alive(pid), "the workers ended")  # type: ignore[misc]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def read(gate: Running, name: str = "x") -> str:
    return rule(post(gate.url, "get_service", {"name": name}))


def worker_pids(gate: Running) -> dict[int, int]:
    """Number to process id, by the audit file each worker has open."""
    found = {}
    for pid in children(gate.process.pid):
        with contextlib.suppress(OSError):
            names = {os.readlink(each).rpartition("/")[2] for each in Path(f"/proc/{pid}/fd").iterdir()}
            for number, name in enumerate(FILES):
                if name in names:
                    found[number] = pid
    return found


def both(gate: Running) -> dict[int, int]:
    return until(lambda: (len(found := worker_pids(gate)) == 2 and found) or {}, "both workers serve")


def busy(gate: Running, folder: Path, more: int = 1) -> None:
    """Call until each worker has written so many more records."""
    before = {name: len(records(folder, name)) for name in FILES}

    def written() -> bool:
        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(lambda _: read(gate), range(8))) == {"tier.L0.read"}
        return all(len(records(folder, name)) >= before[name] + more for name in FILES)

    until(written, "both workers were asked")


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_one_yes_is_used_once_across_workers_and_their_chains_are_read_together(
    tmp_path: Path, backend: Backend, store: str, request: pytest.FixtureRequest
) -> None:
    env: dict[str, str] = {}
    if store == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        env = {"AIRLOCK_STORE_DSN": server.database()}
    name = f"once-{store}"
    with pair(tmp_path, backend, env=env) as gate:
        both(gate)
        state = post(gate.url, "delete_service", {"name": name})["result"]["requestState"]

        def resume(_: int) -> str:
            return rule(
                post(gate.url, "delete_service", {"name": name}, requestState=state, inputResponses=YES)
            )

        def scale(n: int) -> str:
            return rule(post(gate.url, "set_replicas", {"names": [f"{name}-{n}"], "replicas": 1}))

        with ThreadPoolExecutor(50) as pool:
            assert Counter(pool.map(resume, range(50))) == {"tier.L2.confirmed": 1, "mrtr.replay": 49}
            assert Counter(pool.map(scale, range(20))) == {
                "tier.L3.auto": 5,
                "blast_radius.per_principal": 15,
            }
        busy(gate, tmp_path)
        assert gate.stop() == 0
    assert backend.landed("delete_service", name=name) == 1
    found = {each: records(tmp_path, each) for each in FILES}
    assert all(rows and rows[0]["prev"] == "0" * 64 for rows in found.values())
    verify = run("airlock-audit", "verify", cwd=tmp_path)
    assert (verify.returncode, verify.stderr) == (0, "")
    first, second = verify.stdout.splitlines()
    assert first.startswith(f"OK: {len(found[FILES[0]])} records in 1 file")
    assert second.startswith(f"OK: {len(found[FILES[1]])} records in 1 file")
    assert second.endswith("(audit.jsonl.w1)")
    query = run("airlock-audit", "query", "--rule", "mrtr.replay", cwd=tmp_path)
    assert len(query.stdout.splitlines()) == 98
    stats = run("airlock-audit", "query", "--stats", "--phase", "outcome", cwd=tmp_path)
    counts = {row["rule_id"]: row["count"] for row in map(json.loads, stats.stdout.splitlines())}
    assert (counts["tier.L2.confirmed"], counts["mrtr.replay"], counts["tier.L3.auto"]) == (1, 49, 5)
    if store == "postgres":
        server.wait_backends(env["AIRLOCK_STORE_DSN"], 0)
        server.drop(env["AIRLOCK_STORE_DSN"])


def test_a_killed_worker_is_started_again_and_its_chain_goes_on(tmp_path: Path, backend: Backend) -> None:
    with pair(tmp_path, backend) as gate:
        for number in (0, 1):
            busy(gate, tmp_path)
            pids = both(gate)
            os.kill(pids[number], signal.SIGKILL)
            with Health(gate):  # who connects to a worker that is gone waits for the next one
                assert gate.stderr is not None
                gate.stderr.until(f"worker {number} ended with status -9 and is started again")
                assert both(gate)[number] != pids[number]
            busy(gate, tmp_path)
        assert gate.stop() == 0
    verify = run("airlock-audit", "verify", cwd=tmp_path)
    assert verify.returncode == 0, verify.stdout
    assert [alone(tmp_path, name) for name in FILES] == [[], []]


def test_a_worker_killed_in_the_middle_of_a_call_leaves_a_lone_intent_in_its_own_chain(
    tmp_path: Path, backend: Backend
) -> None:
    with pair(tmp_path, backend) as gate, ThreadPoolExecutor(1) as pool:
        busy(gate, tmp_path)
        pids = both(gate)
        backend.hold()
        arrived = len(backend.calls)
        call = pool.submit(read, gate, "cut")
        until(lambda: len(backend.calls) > arrived, "the call arrived")
        number = next(n for n, name in enumerate(FILES) if alone(tmp_path, name))
        os.kill(pids[number], signal.SIGKILL)
        backend.release()
        assert isinstance(call.exception(), OSError)
        until(lambda: worker_pids(gate).get(number, pids[number]) != pids[number], "it is there again")
        busy(gate, tmp_path)
        assert gate.stop() == 0
    verify = run("airlock-audit", "verify", cwd=tmp_path)
    assert verify.returncode == 0
    notes = [line for line in verify.stdout.splitlines() if line.startswith("NOTE: 1 intent has no outcome")]
    assert len(notes) == 1
    assert notes[0].endswith(f"{FILES[number]}:{alone(tmp_path, FILES[number])[0]}")


@pytest.mark.case("T59")
def test_a_hangup_reaches_every_worker_and_those_that_come_later(tmp_path: Path, backend: Backend) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY.read_text())
    with pair(tmp_path, backend, policy=policy) as gate:
        both(gate)
        assert gate.stderr is not None

        def everywhere(tool: str) -> set[str]:
            with ThreadPoolExecutor(16) as pool:
                return set(pool.map(lambda _: rule(post(gate.url, tool, {"name": "x"})), range(32)))

        assert everywhere("get_service") == {"tier.L0.read"}
        policy.write_text("environment: dev\ntools: {restart_service: {tiers: {prod: L3}}}\n")
        os.kill(gate.process.pid, signal.SIGHUP)
        for _ in range(2):
            gate.stderr.until(r"policy reloaded: 1 tools \(was 6\)")
        policy.write_text("tools: [")
        os.kill(gate.process.pid, signal.SIGHUP)
        for _ in range(2):
            gate.stderr.until("policy reload failed, keeping the current policy")
        for pid in both(gate).values():
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            gate.stderr.until("is started again")
        both(gate)
        # SECURITY: a worker that comes back with the policy of the start would let through what was forbidden since.
        assert everywhere("get_service") == {"allowlist.deny"}
        assert everywhere("restart_service") == {"tier.L3.auto"}
        assert gate.stop() == 0


HOW = ["the supervisor alone", "all of them at once"]


@pytest.mark.parametrize("how", HOW)
def test_sigterm_finishes_open_calls_of_every_worker_and_takes_no_new_ones(
    tmp_path: Path, backend: Backend, how: str
) -> None:
    with pair(tmp_path, backend) as gate, ThreadPoolExecutor(64) as pool:
        pids = both(gate)
        backend.hold()
        arrived = len(backend.calls)
        calls: list[Future[str]] = []
        while not all(alone(tmp_path, name) for name in FILES) and len(calls) < 64:
            calls.append(pool.submit(read, gate, f"open-{len(calls)}"))
            until(lambda: len(backend.calls) == arrived + len(calls), "the call arrived")
        # A service manager signals the whole group; the workers hear it twice then, and once is meant.
        for pid in (gate.process.pid, *(pids.values() if how == HOW[1] else ())):
            os.kill(pid, signal.SIGTERM)
        until(lambda: refused(gate.port), "new connections are refused")
        threading.Event().wait(0.2)
        backend.release()
        assert {call.result() for call in calls} == {"tier.L0.read"}
        assert gate.process.wait(LONG_S) == 0
    assert [alone(tmp_path, name) for name in FILES] == [[], []]
    assert gate.stderr is not None
    assert "started again" not in gate.stderr.rest()


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


def test_ctrl_c_ends_all_with_status_130(tmp_path: Path, backend: Backend) -> None:
    with pair(tmp_path, backend) as gate:
        for pid in (*both(gate).values(), gate.process.pid):
            os.kill(pid, signal.SIGINT)
        assert gate.process.wait(LONG_S) == 130
    assert gate.stderr is not None
    assert "Traceback" not in gate.stderr.rest()


def test_workers_do_not_outlive_a_supervisor_that_was_killed(tmp_path: Path, backend: Backend) -> None:
    with pair(tmp_path, backend) as gate:
        pids = both(gate)
        backend.hold()
        arrived = len(backend.calls)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(read, gate, "orphan")
            until(lambda: len(backend.calls) > arrived, "the call arrived")
            gate.kill()
            backend.release()
            assert call.result() == "tier.L0.read"  # they end as SIGTERM ends them
        until(lambda: not any(alive(pid) for pid in pids.values()), "the workers ended")
        assert refused(gate.port)
    assert [alone(tmp_path, name) for name in FILES] == [[], []]


def test_a_worker_that_cannot_write_its_file_says_so_and_is_tried_again(
    tmp_path: Path, backend: Backend
) -> None:
    with pair(tmp_path, backend) as gate:
        pids = both(gate)
        (tmp_path / "audit.jsonl.w1").unlink()
        (tmp_path / "audit.jsonl.w1").mkdir()
        os.kill(pids[1], signal.SIGKILL)
        assert gate.stderr is not None
        gate.stderr.until("worker 1 failed: IsADirectoryError")
        gate.stderr.until("worker 1 ended with status 1 and is started again")
        (tmp_path / "audit.jsonl.w1").rmdir()
        both(gate)
        busy(gate, tmp_path)
        assert gate.stop() == 0
    verified(*(tmp_path / name for name in FILES))


def test_a_link_pressed_at_one_worker_counts_at_all(tmp_path: Path, backend: Backend) -> None:
    from tests.fakes.webhook import Receiver

    public = "https://approve.example"
    with Receiver() as chat:
        env = {"AIRLOCK_APPROVAL_WEBHOOK": chat.slack_url, "AIRLOCK_PUBLIC_URL": public}
        with pair(tmp_path, backend, env=env) as gate:
            both(gate)
            state = post(gate.url, "delete_service", {"name": "pressed"})["result"]["requestState"]
            (message,) = chat.wait(1)
            page = urllib.request.Request(
                f"http://127.0.0.1:{gate.port}{message.link.removeprefix(public)}", b""
            )
            with urllib.request.urlopen(page, timeout=LONG_S) as answer:
                assert answer.status == 200

            def poll(_: int) -> str:
                return rule(post(gate.url, "delete_service", {"name": "pressed"}, requestState=state))

            with ThreadPoolExecutor(16) as pool:
                assert Counter(pool.map(poll, range(16))) == {"tier.L2.confirmed": 1, "mrtr.replay": 15}
            assert gate.stop() == 0
    assert backend.landed("delete_service", name="pressed") == 1
