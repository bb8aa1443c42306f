"""The numbers of a gateway: counted where records are written, few labels, shown to whom they may be shown."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.limits import Rate
from airlock.edge.asgi import Receive, Send
from airlock.edge.settings import Environment
from airlock.gateway import metrics as counted
from airlock.gateway.door import Door, loopback_hosts
from airlock.gateway.metrics import Metrics, Page
from airlock.gateway.settings import Defaults, Flags, Rates
from airlock.gateway.upstream.member import Health
from airlock.gateway.watching import Watching
from tests.fakes.world import POLICY, Got, World

ARGS = {"names": ["x1"], "region": "north"}


def counting(**more: Any) -> World:
    world = World()
    world.watch(counting=True, **more)
    return world


async def shown(world: World, method: str = "GET", *, host: str = "h") -> Got:
    return await world.http(b"", [(b"host", host.encode())], path="/metrics", method=method)


async def series(world: World) -> dict[str, float]:
    got = await shown(world)
    assert got.status == 200
    lines = [line for line in got.raw.decode().splitlines() if not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def calls(found: dict[str, float]) -> dict[str, float]:
    return {
        key[len("airlock_calls_total") :]: n for key, n in found.items() if key.startswith("airlock_calls")
    }


async def test_without_numbers_the_path_is_not_found():
    world = World()
    got = await shown(world)
    assert (got.status, got.raw) == (404, b"not found\n")


async def test_calls_are_counted_by_the_verdict_and_rule_of_their_outcome():
    world = counting()
    await world.call("read")
    await world.call("read")
    await world.call("suggest")
    state = (await world.call("drop", ARGS)).state
    await world.yes("drop", ARGS, state)
    await world.call("staging_only")
    await world.call("no-such-tool")
    await world.call("read", principal=None)
    assert calls(await series(world)) == {
        '{verdict="allow",rule="tier.L0.read",tool="read"}': 2,
        '{verdict="allow",rule="tier.L1.dry_run",tool="suggest"}': 1,
        '{verdict="confirm",rule="tier.L2.confirm",tool="drop"}': 1,
        '{verdict="allow",rule="tier.L2.confirmed",tool="drop"}': 1,
        '{verdict="deny",rule="tier.unassigned",tool="staging_only"}': 1,
        '{verdict="deny",rule="allowlist.deny",tool="other"}': 1,
        '{verdict="deny",rule="principal.missing",tool="read"}': 1,
    }


async def test_every_outcome_on_record_is_counted_once():
    world = counting()
    for tool in ("read", "drop", "nothing"):
        await world.call(tool, ARGS)
    await world.rpc("tools/list")
    await world.rpc("nonsense/method")
    await world.http(b"{", [(b"x-airlock-principal", b"alice")])
    found = await series(world)
    outcomes = [record for record in world.records if record["phase"] == "outcome"]
    total = sum(n for key, n in found.items() if key.startswith(("airlock_calls_", "airlock_requests_")))
    assert total == len(outcomes) == 6
    assert found['airlock_requests_total{verdict="allow",rule="passthrough",method="tools/list"}'] == 1
    assert found['airlock_requests_total{verdict="deny",rule="protocol.-32601",method="other"}'] == 1
    assert found['airlock_requests_total{verdict="deny",rule="protocol.-32700",method=""}'] == 1


async def test_names_that_callers_make_up_make_no_series():
    world = counting()
    for number in range(50):
        await world.call(f"tool-{number}")
        await world.rpc(f"method/{number}", principal=None)
    assert sum("tool-" in key or "method/" in key for key in await series(world)) == 0


async def test_a_policy_with_many_tools_makes_a_bounded_number_of_series():
    tools = {f"t{number}": {"tiers": {"prod": "L0"}} for number in range(520)}
    world = World({**POLICY, "tools": tools})
    world.watch(counting=True)
    for name in tools:
        await world.call(name)
    found = calls(await series(world))
    assert len(found) == counted.MOST_SERIES + 1
    assert found['{verdict="allow",rule="tier.L0.read",tool="other"}'] == 20


async def test_the_time_of_admitted_requests_is_measured_by_method():
    world = counting()
    await world.call("read")
    await world.call("drop", ARGS)
    await world.rpc("tools/list")
    await world.call("read", principal=None)
    found = await series(world)
    assert found['airlock_request_seconds_count{method="tools/call"}'] == 2
    assert found['airlock_request_seconds_count{method="tools/list"}'] == 1
    assert found['airlock_request_seconds_bucket{method="tools/call",le="+Inf"}'] == 2
    assert 0 < found['airlock_request_seconds_sum{method="tools/call"}'] < 60


async def test_a_subscription_is_not_measured():
    metrics, told = Metrics(), []

    async def govern(*asked: Any) -> Any:
        told.append(asked)
        return None

    class Listen:
        method = "subscriptions/listen"

    await counted.timed(metrics, govern)(None, Listen(), None, None)  # type: ignore[arg-type]
    assert len(told) == 1
    assert metrics._seconds.family().samples == ()


async def test_an_upstream_that_fails_is_down_until_it_answers():
    world = counting()
    up = 'airlock_upstream_up{upstream="upstream"}'
    assert (await series(world))[up] == 1
    kept = world.client.script
    world.client.script = lambda sent: UpstreamError(UpstreamFailure.UNREACHABLE, "down", reached=False)
    await world.call("read")
    found = await series(world)
    assert (found[up], found['airlock_upstream_errors_total{kind="unreachable"}']) == (0, 1)
    world.client.script = lambda sent: UpstreamError(
        UpstreamFailure.TOO_LARGE, "big", reached=True, status=200
    )
    await world.call("read")
    found = await series(world)
    assert (found[up], found['airlock_upstream_errors_total{kind="too_large"}']) == (1, 1)
    world.client.script = kept
    await world.call("read")
    assert (await series(world))[up] == 1


async def test_of_several_upstreams_each_tells_how_it_is():
    world = counting()

    class Several:
        def health(self) -> list[Health]:
            return [Health("a", True, 0.0, None, None, 3), Health("b", False, 0.0, None, None, 0)]

    world.gate.upstream = Several()  # type: ignore[assignment]
    found = await series(world)
    assert {key: n for key, n in found.items() if "upstream=" in key} == {
        'airlock_upstream_up{upstream="a"}': 1,
        'airlock_upstream_up{upstream="b"}': 0,
        'airlock_upstream_in_flight{upstream="a"}': 3,
        'airlock_upstream_in_flight{upstream="b"}': 0,
    }


async def test_questions_and_refusals_over_a_limit_are_counted():
    world = counting(collapse=True, rates=Rates(Rate(4, 60, 4), None, Rate(1, 60, 1), Rate(1, 60, 1)))
    await world.call("drop", ARGS)
    await world.call("drop", ARGS)
    await world.call("reboot")
    await world.call("read")
    for _ in range(3):
        await world.call("read")
        await world.call("read", principal=None)
    found = await series(world)
    assert found["airlock_pending_approvals"] == 1
    assert found['airlock_prompts_total{result="asked"}'] == 1
    assert found['airlock_prompts_total{result="collapsed"}'] == 1
    assert found['airlock_rate_limited_total{limit="prompt"}'] == 1
    assert found['airlock_rate_limited_total{limit="principal"}'] == 3
    assert found['airlock_rate_limited_total{limit="tool"}'] == 0
    assert found['airlock_rate_limited_total{limit="address"}'] == 2
    # Those that share a record are counted one by one.
    assert found['airlock_calls_total{verdict="deny",rule="rate.limited",tool="read"}'] == 5
    assert found['airlock_calls_total{verdict="deny",rule="prompt.limited",tool="reboot"}'] == 1


async def test_what_waits_and_what_is_open_is_asked_for_when_shown():
    world = counting()
    assert world.page is not None
    metrics = world.page.metrics
    page = Page(metrics, world.gate, queued=lambda: 7, sessions=lambda: 3, worker=1)
    text = page.text().decode()
    assert 'airlock_audit_queue{worker="1"} 7\n' in text
    assert 'airlock_sessions{worker="1"} 3\n' in text
    assert re.search(r'airlock_build_info\{worker="1",version="[^"]+",python="3\.[^"]+"\} 1\n', text)
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all('worker="1"' in line for line in lines)


async def test_an_event_stream_counts_while_it_is_open():
    metrics, may = Metrics(), asyncio.Event()

    async def responder(receive: Receive, send: Send) -> None:
        await may.wait()

    async def nothing(*_: Any) -> Any: ...

    running = asyncio.ensure_future(metrics.streaming(responder)(nothing, nothing))
    await asyncio.sleep(0)
    assert metrics.streams == 1
    running.cancel()
    await asyncio.wait({running})
    assert metrics.streams == 0


async def test_the_page_takes_get_and_head_and_writes_no_record():
    world = counting()
    got = await shown(world)
    assert got.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert got.headers["cache-control"] == "no-store"
    assert (await shown(world, "HEAD")).status == 200
    refused = await shown(world, "POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert world.records == []


async def test_a_page_of_another_site_cannot_have_it_read():
    world = counting()
    assert world.page is not None
    world.page._door = Door(loopback_hosts(9000), frozenset())
    assert (await shown(world, host="127.0.0.1:9000")).status == 200
    assert (await shown(world, host="rebound.example:9000")).status == 403
    lines = [(b"host", b"localhost:9000"), (b"origin", b"https://evil.example")]
    assert (await world.http(b"", lines, path="/metrics", method="GET")).status == 403
    assert world.records == []


@pytest.mark.parametrize(
    ("durable", "host", "variable", "shown_to"),
    [
        (False, "127.0.0.1", None, "nobody"),
        (False, "127.0.0.1", "1", "all"),
        (True, "127.0.0.1", None, "this machine"),
        (True, "::1", None, "this machine"),
        (True, "0.0.0.0", None, "nobody"),
        (True, "0.0.0.0", "1", "all"),
        (True, "127.0.0.1", "0", "nobody"),
    ],
)
def test_who_may_see_the_numbers(durable: bool, host: str, variable: str | None, shown_to: str):
    env = Environment({} if variable is None else {"AIRLOCK_METRICS": variable})
    watching = Watching(Flags("p", host=host), env, Defaults("x", durable=durable))
    world, metrics = World(), watching.metrics()
    page = watching.page(world.gate, metrics, None, port=9000, worker=0, queued=lambda: 0, sessions=lambda: 0)
    if page is None:
        assert (metrics, shown_to) == (None, "nobody")
    else:
        assert ("all" if page._door is None else "this machine") == shown_to
        assert page._common == {}
