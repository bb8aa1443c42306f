"""SIGHUP at a real gateway: a new policy and new pins as one pair or not at all, whatever is under way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airlock.core.policy.pins import pin_of
from tests.fakes.backend import Backend
from tests.fakes.probing import LONG_S, Health, listed, until, verified
from tests.fakes.processes import JWT_SECRET, YES, Lines, Running, clean_env, command, gateway, post, rule

OURS = "io.mcp-airlock/"


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with Backend() as made:
        yield made


def policy(*tools: str, environment: str | None = "prod", tier: str = "L0", chars: int = 4000) -> str:
    """A policy with these tools; the tier stands for `prod` alone."""
    rows = [
        f"  {tool}: {{description: d, tiers: {{prod: {tier}}}, output: {{max_chars: {chars}}}}}"
        for tool in tools
    ]
    head = [] if environment is None else [f"environment: {environment}"]
    return "\n".join([*head, "tools:", *rows]) + "\n"


class Scene:
    """A gateway with a policy and pins of its own. `reloaded` counts the reloads that were told so far."""

    def __init__(self, folder: Path, gate: Running) -> None:
        self.gate = gate
        self.policy = folder / "policy.yaml"
        self.pins = folder / "pins.json"
        self.audit = folder / "audit.jsonl"

    def hangup(self) -> str:
        """Send SIGHUP and return the line that says what came of it."""
        os.kill(self.gate.process.pid, signal.SIGHUP)
        assert self.gate.stderr is not None
        found: str = self.gate.stderr.until(r"^mcp-airlock: policy reload.*$").group()
        return found

    def put(self, text: str, pins: object = None) -> str:
        """Write the pair, and reload it."""
        self.policy.write_text(text)
        self.pins.write_text(pins if isinstance(pins, str) else json.dumps(pins or {}))
        return self.hangup()

    def rules(self, *tools: str) -> list[str]:
        return [rule(post(self.gate.url, tool, {"name": "x"})) for tool in tools]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, backend: Backend) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("gate")
    (folder / "policy.yaml").write_text(policy("get_service"))
    (folder / "pins.json").write_text("{}")
    flags = ("--pins", "pins.json")
    with gateway(folder, backend.url, *flags, policy="policy.yaml") as gate:
        yield Scene(folder, gate)
        assert gate.stop() == 0
    assert gate.stderr is not None
    assert "Traceback" not in gate.stderr.rest()
    verified(folder / "audit.jsonl")


@pytest.fixture
def scene(running: Scene) -> Scene:
    """The gateway with one tool that may be read and no pins."""
    assert "policy reloaded: 1 tools" in running.put(policy("get_service"))
    return running


def pins_of(scene: Scene) -> dict[str, str]:
    """The right pins of what the upstream lists to us."""
    return {tool["name"]: pin_of(tool) for tool in listed(scene.gate)["tools"]}


@pytest.mark.case("T59")
def test_a_new_policy_decides_at_once(scene: Scene) -> None:
    assert scene.rules("get_service", "restart_service") == ["tier.L0.read", "allowlist.deny"]
    line = scene.put(policy("restart_service", "set_replicas", tier="L3"))
    assert line == "mcp-airlock: policy reloaded: 2 tools (was 1)"
    assert scene.rules("get_service", "restart_service") == ["allowlist.deny", "tier.L3.auto"]
    assert [tool["name"] for tool in listed(scene.gate)["tools"]] == ["restart_service", "set_replicas"]


@pytest.mark.case("T59")
def test_policy_and_pins_are_swapped_together(scene: Scene) -> None:
    scene.put(policy("get_service", "restart_service"))
    good = pins_of(scene)
    bad = {**good, "get_service": good["restart_service"]}
    scene.put(policy("get_service", "restart_service", "set_replicas"), bad)
    result = listed(scene.gate)
    assert [tool["name"] for tool in result["tools"]] == ["restart_service", "set_replicas"]
    assert result["_meta"][OURS + "pin_mismatch"] == 1
    scene.put(policy("get_service", "restart_service"), good)
    result = listed(scene.gate)
    assert [tool["name"] for tool in result["tools"]] == ["get_service", "restart_service"]
    assert OURS + "pin_mismatch" not in result["_meta"]


@pytest.mark.case("T59")
def test_the_environment_stays_the_one_it_was_started_with(scene: Scene) -> None:
    for environment in ("dev", None):
        assert "policy reloaded" in scene.put(policy("get_service", environment=environment))
        assert scene.rules("get_service") == ["tier.L0.read"]


BAD = [
    ("not YAML", "tools: [", "policy.yaml: line"),
    ("a list", "- a\n", "mapping"),
    ("an unknown tier", "environment: prod\ntools: {get_service: {tiers: {prod: L9}}}\n", "tools.get_service.tiers.prod"),
    ("two faults", "environment: prod\ntools: {x: {tiers: {prod: L9}, extra: 1}}\n", "extra"),
    ("not text", "\x00", "policy.yaml"),
]  # fmt: skip


@pytest.mark.case("T59")
@pytest.mark.parametrize(("text", "words"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_policy_that_does_not_load_keeps_the_old_pair_and_costs_one_line(
    scene: Scene, text: str, words: str
) -> None:
    line = scene.put(text)
    assert line.startswith("mcp-airlock: policy reload failed, keeping the current policy: ")
    assert words in line
    assert scene.rules("get_service", "restart_service") == ["tier.L0.read", "allowlist.deny"]


@pytest.mark.case("T59")
def test_a_file_that_is_gone_keeps_the_old_pair_and_is_named(scene: Scene) -> None:
    scene.policy.unlink()
    assert "keeping the current policy: policy.yaml: No such file or directory" in scene.hangup()
    scene.policy.write_text(policy("get_service", "restart_service"))
    scene.pins.unlink()
    assert "keeping the current policy: pins.json: No such file or directory" in scene.hangup()
    assert scene.rules("get_service", "restart_service") == ["tier.L0.read", "allowlist.deny"]


@pytest.mark.case("T57")
@pytest.mark.case("T59")
@pytest.mark.parametrize(
    "pins", ["{", "[]", '{"get_service": "sha256:' + "0" * 64 + '"}', '{"get_service": 1}']
)
def test_pins_that_do_not_load_keep_the_old_policy_too(scene: Scene, pins: str) -> None:
    scene.put(policy("get_service", "restart_service"))
    good = pins_of(scene)
    scene.put(policy("get_service"), {**good, "get_service": good["restart_service"]})
    assert listed(scene.gate)["tools"] == []
    line = scene.put(policy("get_service", "restart_service"), pins)
    assert line.startswith("mcp-airlock: policy reload failed, keeping the current policy: pins.json: ")
    assert scene.rules("restart_service") == ["allowlist.deny"]
    result = listed(scene.gate)
    assert (result["tools"], result["_meta"][OURS + "pin_mismatch"]) == ([], 1)


@pytest.mark.case("T59")
def test_a_call_under_way_keeps_the_pair_it_began_with(scene: Scene, backend: Backend) -> None:
    scene.put(policy("get_service", chars=5))
    backend.hold()
    before = len(backend.calls)
    with ThreadPoolExecutor(2) as pool:
        call = pool.submit(post, scene.gate.url, "get_service", {"name": "old"})
        until(lambda: len(backend.calls) > before, "the call arrived")
        assert "reloaded" in scene.put(policy("restart_service"))
        backend.release()
        message = call.result()
    assert rule(message) == "tier.L0.read"
    assert message["result"]["_meta"][OURS + "output"]["truncated"] is True
    assert scene.rules("get_service") == ["allowlist.deny"]


@pytest.mark.case("T59")
def test_what_people_were_asked_and_what_was_charged_outlives_a_reload(scene: Scene) -> None:
    window = "blast_radius: {max_per_call: 5, max_per_principal: 2, window_s: 3600}\n"
    text = (
        window
        + policy("delete_service", tier="L2")
        + "  set_replicas: {tiers: {prod: L3}, count_arg: names}\n"
    )
    scene.put(text)
    asked = post(scene.gate.url, "delete_service", {"name": "kept"})
    state = asked["result"]["requestState"]
    scaled = {"names": ["a", "b"], "replicas": 1}
    assert rule(post(scene.gate.url, "set_replicas", scaled)) == "tier.L3.auto"
    assert "policy reloaded: 2 tools (was 2)" in scene.hangup()
    assert rule(post(scene.gate.url, "set_replicas", scaled)) == "blast_radius.per_principal"
    answers = [
        rule(post(scene.gate.url, "delete_service", {"name": "kept"}, requestState=state, inputResponses=YES))
        for _ in range(2)
    ]
    assert answers == ["tier.L2.confirmed", "mrtr.replay"]


@pytest.mark.case("T59")
def test_every_call_among_many_reloads_is_decided_by_one_of_the_policies(scene: Scene) -> None:
    stop = threading.Event()

    def flip() -> int:
        count = 0
        while not stop.is_set():
            draft = scene.policy.with_name("draft")
            draft.write_text(policy("get_service") if count % 2 else policy("get_service", tier="L3"))
            draft.rename(scene.policy)
            os.kill(scene.gate.process.pid, signal.SIGHUP)
            count += 1
            stop.wait(0.002)
        return count

    with ThreadPoolExecutor(5) as pool, Health(scene.gate):
        flipping = pool.submit(flip)
        found = [
            rule for each in pool.map(lambda _: scene.rules(*["get_service"] * 50), range(4)) for rule in each
        ]
        stop.set()
        assert flipping.result() > 5
    assert set(found) == {"tier.L0.read", "tier.L3.auto"}


# --- with a pipe in the policy's place a test says how far the reading is


class Piped:
    """A gateway that is starting, whose policy comes through a pipe."""

    def __init__(self, folder: Path, upstream: str) -> None:
        self.path = folder / "pipe.yaml"
        os.mkfifo(self.path)
        argv = [*command("mcp-airlock"), "--policy", str(self.path), "--upstream", upstream, "--port", "0"]
        self.process = subprocess.Popen(
            argv, stderr=subprocess.PIPE, text=True, env=clean_env(AIRLOCK_JWT_SECRET=JWT_SECRET), cwd=folder
        )
        self.lines = Lines(self.process.stderr)

    def feed(self, text: str, during: Any = lambda: None) -> None:
        """Let the gateway read `text`; `during` is called when it has opened the file and waits."""
        with self.path.open("w") as pipe:
            during()
            pipe.write(text)

    def hangups(self, count: int) -> None:
        for _ in range(count):
            os.kill(self.process.pid, signal.SIGHUP)
            threading.Event().wait(0.002)

    def running(self) -> Running:
        port = int(self.lines.until(r"listening on http://127\.0\.0\.1:(\d+)/mcp")[1])
        return Running(self.process, port, self.lines)

    def __enter__(self) -> Piped:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(LONG_S)


def test_a_hangup_during_the_start_kills_nothing_and_is_made_up_for(tmp_path: Path, backend: Backend) -> None:
    with Piped(tmp_path, backend.url) as piped:
        until(lambda: not terminable(piped.process.pid), "the command runs")
        piped.hangups(5)
        piped.feed(policy("get_service"), during=lambda: piped.hangups(5))
        gate = piped.running()
        piped.feed(policy("get_service", "restart_service"))
        piped.lines.until("policy reloaded: 2 tools \\(was 1\\)")
        assert rule(post(gate.url, "restart_service", {"name": "x"})) == "tier.L0.read"
        assert gate.stop() == 0
    assert piped.lines.rest().count("reload") == 1


def terminable(pid: int) -> bool:
    """Whether SIGHUP would end a process, by what the system says of it."""
    fields = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
    )
    return not (int(fields["SigIgn"], 16) | int(fields["SigCgt"], 16)) & 1 << signal.SIGHUP - 1


def test_many_hangups_during_one_reload_are_one_more_reload(tmp_path: Path, backend: Backend) -> None:
    with Piped(tmp_path, backend.url) as piped:
        piped.feed(policy("get_service"))
        gate = piped.running()
        piped.hangups(1)
        piped.feed(policy("get_service", "restart_service"), during=lambda: piped.hangups(50))
        piped.lines.until("policy reloaded: 2 tools \\(was 1\\)")
        piped.feed(policy("set_replicas"))
        piped.lines.until("policy reloaded: 1 tools \\(was 2\\)")
        with Health(gate):
            assert rule(post(gate.url, "get_service", {"name": "x"})) == "allowlist.deny"
        assert gate.stop() == 0
    assert piped.lines.rest().count("policy reload") == 2


def test_a_reload_that_hangs_holds_up_neither_calls_nor_the_end(tmp_path: Path, backend: Backend) -> None:
    with Piped(tmp_path, backend.url) as piped:
        piped.feed(policy("get_service"))
        gate = piped.running()
        piped.hangups(1)
        with Health(gate):
            assert rule(post(gate.url, "get_service", {"name": "x"})) == "tier.L0.read"
        assert gate.stop() == 0
