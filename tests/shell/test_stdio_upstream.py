"""The upstream over real processes: started when needed, gone when done, lost and started again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.edge import child, respawn
from tests.fakes.stdio_upstream import Ear, call, outgoing, raw, stdio_upstream


async def failure(awaited: Any) -> UpstreamError:
    with pytest.raises(UpstreamError) as caught:
        await awaited
    return caught.value


def gone(pid: int) -> bool:
    """Whether the process runs no more; one that waits to be reaped does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        pass
    else:
        return stat.rpartition(")")[2].split()[0] in "ZX"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def all_gone(*pids: int) -> None:
    async with asyncio.timeout(30):
        while not all(map(gone, pids)):
            await asyncio.sleep(0.01)


async def result(awaited: Any) -> Any:
    answer = await awaited
    assert answer.result is not None
    return answer.result


async def pid_of(upstream: Any) -> int:
    found: int = (await result(upstream.ask(call("environment"))))["pid"]
    return found


async def test_a_process_that_is_begun_is_there_for_the_first_request():
    async with stdio_upstream() as upstream:
        upstream.begin()
        process = await upstream._process.running()
        assert await pid_of(upstream) == process.pid


async def test_nothing_is_started_before_the_first_request_and_nothing_is_left():
    async with stdio_upstream() as upstream:
        assert upstream._process.current is None
        pid = await pid_of(upstream)
        assert await pid_of(upstream) == pid != os.getpid()
        assert not gone(pid)
    assert gone(pid)
    error = await failure(upstream.ask(call("echo")))
    assert (error.kind, error.cause, error.reached) == (
        UpstreamFailure.UNREACHABLE,
        "the upstream is closed",
        False,
    )
    await upstream.close()


async def test_requests_that_come_at_once_start_one_process():
    async with stdio_upstream() as upstream:
        assert len(set(await asyncio.gather(*(pid_of(upstream) for _ in range(20))))) == 1


async def test_the_server_sees_the_fixed_environment_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AIRLOCK_JWT_SECRET", "of the gateway")
    async with stdio_upstream() as upstream:
        seen = await result(upstream.ask(call("environment")))
        assert "AIRLOCK_JWT_SECRET" not in seen["env"]
        assert seen["pid"] == seen["group"]


async def test_a_server_that_dies_fails_what_is_under_way_and_is_started_again():
    said: list[str] = []
    async with stdio_upstream(said=said) as upstream:
        first = await pid_of(upstream)
        ear = Ear()
        listens = asyncio.ensure_future(upstream.listen(outgoing("subscriptions/listen", {}), ear))
        await ear.until(lambda: ear.heard)
        hangs = asyncio.ensure_future(upstream.ask(call("hang")))
        half = '{"jsonrpc":"2.0","id":4,"result":{"content":'
        dies = asyncio.ensure_future(upstream.ask(call("die", {"status": 3, "last": half})))
        for task in (dies, hangs, listens):
            error = await failure(task)
            assert (error.kind, error.cause, error.reached) == (
                UpstreamFailure.UNREACHABLE,
                "the server process ended (exit status 3)",
                True,
            )
        assert await pid_of(upstream) != first
        assert said == ["the server process ended (exit status 3)"]
        error = await failure(upstream.ask(call("kill")))
        assert error.cause == "the server process ended (signal 9)"
        own = (await result(upstream.ask(call("echo"))))["echo"]["id"]
        assert own > 6


async def test_an_answer_written_right_before_the_end_is_an_answer():
    async with stdio_upstream() as upstream:
        for _ in range(3):
            last = f'{{"jsonrpc":"2.0","id":{upstream._last_id + 1},"result":{{"last":true}}}}\n'
            assert (await result(upstream.ask(call("die", {"status": 0, "last": last}))))["last"] is True
            async with asyncio.timeout(30):
                while upstream._process.current is not None:
                    await asyncio.sleep(0.01)


async def test_a_server_that_cannot_start_is_left_alone_for_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
):
    said: list[str] = []
    told = ["cannot start: no configuration", "the server process ended (exit status 2)"]
    monkeypatch.setattr(respawn, "FIRST_S", 0.01)
    async with stdio_upstream("--fail", said=said) as upstream:
        for _ in range(2):
            assert (await failure(upstream.ask(call("echo")))).cause == told[1]
    assert said == told * 2
    monkeypatch.setattr(respawn, "FIRST_S", 100.0)
    async with stdio_upstream("--fail") as upstream:
        assert (await failure(upstream.ask(call("echo")))).cause == told[1]
        error = await failure(upstream.ask(call("echo")))
        assert (error.cause, error.reached) == (
            "the server process ended too often to be started again now",
            False,
        )


async def test_a_command_that_is_not_there_is_told_and_nothing_was_reached():
    async with stdio_upstream(argv=("no-such-server-here",)) as upstream:
        error = await failure(upstream.ask(call("echo")))
        assert (error.cause, error.reached) == ("the server command was not found", False)


async def test_a_server_that_lets_go_of_its_stdout_is_replaced(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "LINGER_S", 0.05)
    async with stdio_upstream() as upstream:
        first = await pid_of(upstream)
        error = await failure(upstream.ask(call("close_output")))
        assert error.cause == "the server process closed its output"
        assert await pid_of(upstream) != first
        await all_gone(first)


async def test_a_server_that_stops_reading_does_not_stop_the_gateway(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airlock.edge.stdio.MAX_UNSENT", 200_000)
    monkeypatch.setattr(child, "EOF_S", 0.05)
    async with stdio_upstream(total_s=0.3) as upstream:
        await upstream.ask(call("stop_reading"))
        failures = await asyncio.gather(
            *(upstream.ask(call("echo", {"text": "x" * 100_000})) for _ in range(10)), return_exceptions=True
        )
        causes = {error.cause: error.reached for error in failures if isinstance(error, UpstreamError)}
        assert causes == {"TimeoutError": True, "the server process does not read its input": False}


async def test_a_close_leaves_no_family_of_the_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "EOF_S", 0.05)
    monkeypatch.setattr(child, "TERM_S", 0.1)
    async with stdio_upstream("--stubborn") as upstream:
        pids = (await result(upstream.ask(call("family", {"stubborn": True}))))["pids"]
        pids.append(await pid_of(upstream))
        assert len(set(pids)) == 3
        assert not any(map(gone, pids))
        waiting = asyncio.ensure_future(upstream.ask(call("hang")))
        await asyncio.sleep(0)
    assert (await failure(waiting)).cause == "the upstream is closed"
    await all_gone(*pids)


async def test_a_server_that_dies_takes_its_family_along(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "LINGER_S", 0.05)
    monkeypatch.setattr(child, "TERM_S", 0.1)
    async with stdio_upstream() as upstream:
        pids = (await result(upstream.ask(call("family"))))["pids"]
        await failure(upstream.ask(call("die", {"status": 1})))
        await pid_of(upstream)
        await all_gone(*pids)


async def hostile_hour(runner_said: list[str]) -> None:
    """Banners, half lines, a line of two megabytes, a death in the middle, and a restart."""
    async with stdio_upstream("--banner", "--chatty", said=runner_said) as upstream:
        assert (await result(upstream.ask(call("big", {"bytes": 2_000_000}))))["padding"] == "x" * 2_000_000
        sent = await result(upstream.ask(call("echo", {"text": "y" * 2_000_000})))
        assert sent["echo"]["params"]["arguments"]["text"] == "y" * 2_000_000
        half = '{"jsonrpc":"2.0","id":$ID,"result":{"half":'
        assert (await result(upstream.ask(raw(half, "true}}\r\n"))))["half"] is True
        await failure(upstream.ask(call("die", {"status": 1, "last": half})))
        answers = await asyncio.gather(*(result(upstream.ask(call("echo", {"n": n}))) for n in range(200)))
        assert [answer["echo"]["params"]["arguments"]["n"] for answer in answers] == list(range(200))
        ear = Ear()
        await upstream.ask(call("progress", {"steps": 1000}, progressToken="t"), heard=ear)
        assert [notice["params"]["progress"] for notice in ear.heard] == list(range(1, 1001))
        pid = await pid_of(upstream)
    await all_gone(pid)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_hostile_server_is_served_on_every_loop(run: Callable[[Any], None]):
    said: list[str] = []
    run(hostile_hour(said))
    assert "the server process ended (exit status 1)" in said
    assert sum("is no JSON object" in line for line in said) == 2
