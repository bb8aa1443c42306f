"""Which limits and numbers a process has: off in the one program, on in the other, as set in both."""

from __future__ import annotations

import pytest

from airlock.core.errors import ConfigError
from airlock.core.limits import Rate
from airlock.edge.recording import Recorder
from airlock.edge.settings import Environment
from airlock.gateway.metrics import CountingRecorder
from airlock.gateway.settings import DIFFERENCES, Defaults, Flags, Rates, collapses, rates
from airlock.gateway.watching import Watching, recorder
from tests.fakes.world import World

SEED = Defaults("mcp-airlock", durable=False)
OURS = Defaults("airlock", durable=True)
HERE = Flags("policy.yaml")
RATES = ("AIRLOCK_RATE_PRINCIPAL", "AIRLOCK_RATE_TOOL", "AIRLOCK_RATE_ADDRESS", "AIRLOCK_RATE_PROMPTS")


def watching(defaults: Defaults, **env: str) -> Watching:
    return Watching(HERE, Environment(env), defaults)


def test_the_one_program_limits_and_counts_nothing_by_default():
    world, made = World(), watching(SEED)
    assert made.metrics() is None
    assert made.prompts(world.store, world.clock) is None
    assert made.limits(world.gate, None) is None


def test_the_other_has_generous_limits():
    assert rates(Environment({}), OURS) == Rates(
        Rate(600, 60, 600), Rate(300, 60, 300), Rate(60, 60, 60), Rate(20, 60, 20)
    )
    assert rates(Environment({}), SEED) == Rates()
    assert (collapses(Environment({}), OURS), collapses(Environment({}), SEED)) == (True, False)
    world, made = World(), watching(OURS)
    metrics = made.metrics()
    assert metrics is not None
    limits, prompts = made.limits(world.gate, metrics), made.prompts(world.store, world.clock)
    assert limits is not None
    assert limits._uncounted == metrics.outcome
    assert prompts is not None
    assert prompts.rate == Rate(20, 60, 20)


def test_the_defaults_in_the_documents_are_those_of_the_code():
    said = {name: (seed, ours) for name, seed, ours in DIFFERENCES if name in RATES}
    for name, rate in zip(RATES, ("600/60", "300/60", "60/60", "20/60"), strict=True):
        assert said[name] == ("`0`: no limit", f"`{rate}`")


@pytest.mark.parametrize("defaults", [SEED, OURS], ids=lambda defaults: defaults.program)
def test_what_is_set_counts_in_both(defaults: Defaults):
    env = Environment({"AIRLOCK_RATE_PRINCIPAL": "5/1:9", **dict.fromkeys(RATES[1:], "0")})
    assert rates(env, defaults) == Rates(Rate(5, 1, 9))
    assert collapses(Environment({"AIRLOCK_COLLAPSE": "1"}), defaults)
    assert not collapses(Environment({"AIRLOCK_COLLAPSE": "0"}), defaults)


@pytest.mark.parametrize("name", RATES)
@pytest.mark.parametrize("text", ["many", "60", "0/60", "60/60:0", "-1/60"])
def test_a_rate_that_makes_no_sense_stops_the_start(name: str, text: str):
    with pytest.raises(ConfigError) as failed:
        watching(SEED, **{name: text})
    assert str(failed.value) == (
        f"{name} must be 0 or <count>/<seconds>[:burst], whole numbers from 1, such as 600/60"
    )


@pytest.mark.parametrize("name", ["AIRLOCK_COLLAPSE", "AIRLOCK_METRICS"])
def test_a_switch_is_on_or_off(name: str):
    with pytest.raises(ConfigError) as failed:
        watching(OURS, **{name: "yes"})
    assert str(failed.value) == f"{name} must be 0 or 1"


@pytest.mark.parametrize(
    ("env", "exists"),
    [
        ({"AIRLOCK_COLLAPSE": "1"}, True),
        ({"AIRLOCK_RATE_PROMPTS": "1/60"}, True),
        ({"AIRLOCK_METRICS": "1"}, True),
        ({"AIRLOCK_RATE_PRINCIPAL": "1/60"}, False),
    ],
)
def test_questions_are_remembered_where_anything_needs_it(env: dict[str, str], exists: bool):
    world = World()
    assert (watching(SEED, **env).prompts(world.store, world.clock) is not None) is exists


@pytest.mark.parametrize("name", RATES[:3])
def test_one_limit_is_enough_to_limit(name: str):
    world = World()
    assert watching(SEED, **{name: "1/60"}).limits(world.gate, None) is not None


def test_records_are_counted_only_where_numbers_are_shown():
    world, metrics = World(), watching(OURS).metrics()
    assert type(recorder(None, world.sink, world.clock, print)) is Recorder
    assert type(recorder(metrics, world.sink, world.clock, print)) is CountingRecorder


@pytest.mark.parametrize(("workers", "label"), [(1, {}), (2, {"worker": "1"})])
def test_of_several_processes_each_names_itself(workers: int, label: dict[str, str]):
    world, made = World(), Watching(Flags("p", workers=workers), Environment({}), OURS)
    page = made.page(
        world.gate, made.metrics(), None, port=9000, worker=1, queued=lambda: 0, sessions=lambda: 0
    )
    assert page is not None
    assert page._common == label
