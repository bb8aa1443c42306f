"""A real gateway before an upstream that is torn, slow, dead, reset, half-closed or silent."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import processes
from tests.fakes.backend import Backend
from tests.fakes.faultproxy import (
    NONE,
    RESET,
    RESET_LATE,
    SWALLOW,
    Fault,
    FaultProxy,
    delay,
    drip,
    half_close,
    truncate,
)
from tests.fakes.probing import Health, pairs, records, until, verified
from tests.fakes.processes import YES, Running, bearer, gateway, post, rule

# Half a second to connect and two in all, where the gateway has ten and sixty: nothing else is changed.
IMPATIENT = (
    "from airlock.gateway import oneback as s; real = s.ClientLimits;"
    " s.ClientLimits = lambda **given: real(**{**given, 'connect_s': 0.5, 'total_s': 2.0});"
    " from airlock.cli.compat import mcp_airlock as m; m()"
)


class Scene:
    """A gateway, the proxy behind it, and the upstream behind that."""

    def __init__(self, folder: Path, gate: Running, proxy: FaultProxy, backend: Backend) -> None:
        self.folder = folder
        self.gate = gate
        self.proxy = proxy
        self.backend = backend

    def call(self, tool: str, arguments: dict[str, Any], **params: Any) -> dict[str, Any]:
        return post(self.gate.url, tool, arguments, **params)

    def text(self, message: dict[str, Any]) -> str:
        text: str = message["result"]["content"][0]["text"]
        return text

    def confirmed(self, name: str, fault: Fault) -> tuple[dict[str, Any], dict[str, Any]]:
        """The answer to a yes while `fault` holds, and the answer to the same yes afterwards."""
        arguments = {"name": name}
        state = self.call("delete_service", arguments)["result"]["requestState"]
        self.proxy.fault = fault
        try:
            first = self.call("delete_service", arguments, requestState=state, inputResponses=YES)
        finally:
            self.proxy.fault = NONE
        return first, self.call("delete_service", arguments, requestState=state, inputResponses=YES)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("gate")
    plain = processes.command("mcp-airlock")
    with contextlib.ExitStack() as opened:
        backend = opened.enter_context(Backend())
        proxy = opened.enter_context(FaultProxy(("127.0.0.1", backend.port)))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(processes, "command", lambda _: [*plain[:2], IMPATIENT])
            gate = opened.enter_context(gateway(folder, f"http://127.0.0.1:{proxy.port}/mcp"))
        yield Scene(folder, gate, proxy, backend)


@pytest.fixture
def scene(impatient: Scene) -> Iterator[Scene]:
    """The gateway in order, before and after each test."""
    yield impatient
    impatient.proxy.fault = NONE
    impatient.proxy.listen()
    impatient.backend.release()
    assert rule(impatient.call("get_service", {"name": "after"})) == "tier.L0.read"
    verified(impatient.folder / "audit.jsonl")


TORN = [
    ("reset before it arrived", RESET, 0), ("reset after", RESET_LATE, 1), ("closed without a word", truncate(0), 1),
    ("torn in the head", truncate(30), 1), ("torn in the body", truncate(150), 1), ("half-closed", half_close(30), 1),
    ("silent", SWALLOW, 1), ("one byte at a time", drip(0.1), 1),
]  # fmt: skip


@pytest.mark.case("T26")
@pytest.mark.parametrize(("fault", "landed"), [row[1:] for row in TORN], ids=[row[0] for row in TORN])
def test_an_answer_that_does_not_come_whole_may_have_run_and_the_yes_is_spent(
    scene: Scene, request: pytest.FixtureRequest, fault: Fault, landed: int
) -> None:
    name = request.node.callspec.id
    with Health(scene.gate):
        first, again = scene.confirmed(name, fault)
    assert rule(first) == "upstream.unreachable"
    assert first["result"]["isError"] is True
    assert first["result"]["_meta"]["io.mcp-airlock/verdict"] == "error"
    assert "may have run" in scene.text(first)
    assert rule(again) == "mrtr.replay"
    assert scene.backend.landed("delete_service", name=name) == landed
    (intent, outcome) = pairs(scene.folder, "upstream.unreachable")[-1]
    assert (intent["verdict"], intent["rule_id"], outcome["verdict"]) == (
        "allow",
        "tier.L2.confirmed",
        "error",
    )


def test_a_slow_answer_is_an_answer(scene: Scene) -> None:
    with Health(scene.gate):
        first, again = scene.confirmed("slow", delay(0.3))
    assert (rule(first), rule(again)) == ("tier.L2.confirmed", "mrtr.replay")
    assert scene.backend.landed("delete_service", name="slow") == 1


@contextlib.contextmanager
def crowded(port: int) -> Iterator[None]:
    """Make a port take no connection and refuse none, as behind a firewall that drops."""
    with contextlib.ExitStack() as held:
        listener = held.enter_context(socket.socket())
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(0)
        while True:
            sock = held.enter_context(socket.socket())
            sock.settimeout(0.3)
            try:
                sock.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        yield


@pytest.mark.case("T25")
@pytest.mark.parametrize("how", ["dead", "dropping"])
def test_an_upstream_that_takes_no_connection_costs_nothing_of_the_window(scene: Scene, how: str) -> None:
    token = bearer(f"carol-{how}")

    def scale(names: list[str]) -> dict[str, Any]:
        return scene.call("set_replicas", {"names": names, "replicas": 1}, token=token)

    before = len(scene.backend.calls)
    scene.proxy.deaf()
    with Health(scene.gate), crowded(scene.proxy.port) if how == "dropping" else contextlib.nullcontext():
        refused = [scale(["a", "b", "c"]) for _ in range(2)]
    scene.proxy.listen()
    for message in refused:
        assert rule(message) == "upstream.unreachable"
        assert "may have run" not in scene.text(message)
    assert len(scene.backend.calls) == before
    assert [rule(scale(names)) for names in (["a", "b", "c"], ["d", "e"], ["f"])] == [
        "tier.L3.auto", "tier.L3.auto", "blast_radius.per_principal",
    ]  # fmt: skip


def test_a_kept_connection_that_died_meanwhile_costs_no_call(scene: Scene) -> None:
    for round_ in range(5):
        assert rule(scene.call("get_service", {"name": f"kept-{round_}"})) == "tier.L0.read"
        accepted = scene.proxy.accepted
        scene.proxy.cut()
        until(lambda: not established(scene.gate.process.pid, scene.proxy.port), "the gateway saw the end")
    assert scene.proxy.accepted == accepted


def established(pid: int, port: int) -> bool:
    """Whether some connection to a port is up, by the tables of the system."""
    lines = Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[2].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


@pytest.mark.case("T61")
def test_a_catalog_that_cannot_be_had_refuses_gated_calls_and_lists(scene: Scene) -> None:
    token = bearer("nobody-asked-for-yet")  # the catalog is kept for each principal
    for fault in (RESET, truncate(30), SWALLOW):
        scene.proxy.fault = fault
        message = scene.call("delete_service", {"name": "unlisted"}, token=token)
        assert rule(message) == "catalog.unavailable"
    scene.proxy.fault = NONE
    assert rule(scene.call("delete_service", {"name": "unlisted"}, token=token)) == "tier.L2.confirm"
    assert scene.backend.landed("delete_service", name="unlisted") == 0


def test_every_one_of_many_calls_ends_when_all_their_connections_are_cut(scene: Scene) -> None:
    scene.backend.hold()
    before = len(scene.backend.calls)
    with ThreadPoolExecutor(24) as pool, Health(scene.gate):
        calls = [pool.submit(scene.call, "get_service", {"name": f"cut-{n}"}) for n in range(24)]
        until(lambda: len(scene.backend.calls) == before + 24, "all of them arrived")
        scene.proxy.cut()
        assert {rule(call.result()) for call in calls} == {"upstream.unreachable"}
    assert len(pairs(scene.folder, "upstream.unreachable")) >= 24
    assert len(records(scene.folder)) % 2 == 0
