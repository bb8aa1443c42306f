"""The gateway as a process: the official SDK's client on one side, a server built with the SDK on the other."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mcp
import pytest
from httpx2 import AsyncClient
from mcp import types
from mcp.client.streamable_http import streamable_http_client

from tests.fakes.processes import REVISION, YES, Running, bearer, gateway, ops_server, post, rule, run

SECRET = "unit-test-confirmation-key-0123456789"


class Ops:
    """The operations server and what it did."""

    def __init__(self, running: Running, effects: Path) -> None:
        self.running = running
        self.effects = effects

    def landed(self, tool: str, **match: object) -> int:
        if not self.effects.exists():
            return 0
        rows = [json.loads(line) for line in self.effects.read_text().splitlines()]
        return sum(row["tool"] == tool and match.items() <= row.items() for row in rows)


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ops]:
    effects = tmp_path_factory.mktemp("ops") / "effects.jsonl"
    with ops_server(effects) as running:
        yield Ops(running, effects)


def audit_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


async def test_the_sdk_client_confirms_declines_and_replays_with_the_effect_counted_once(
    ops: Ops, tmp_path: Path
) -> None:
    answers: list[types.ElicitResult] = []
    asked: list[str] = []

    async def person(context: Any, params: Any) -> types.ElicitResult:
        asked.append(params.message)
        return answers.pop(0)

    yes = types.ElicitResult(action="accept", content={"confirm": True})
    with gateway(tmp_path, ops.running.url) as gate:
        async with (
            AsyncClient(headers={"Authorization": f"Bearer {bearer()}"}, timeout=60) as http,
            mcp.Client(
                streamable_http_client(gate.url, http_client=http), mode=REVISION, elicitation_callback=person
            ) as client,
        ):
            assert client.protocol_version == REVISION
            listed = await client.list_tools()
            assert "drop_database" not in [tool.name for tool in listed.tools]
            answers[:] = [yes]
            done = await client.call_tool("delete_service", {"name": "sdk-yes"})
            assert done.is_error is not True
            assert "would delete sdk-yes" in asked[0]
            assert ops.landed("delete_service", name="sdk-yes") == 1
            answers[:] = [types.ElicitResult(action="decline")]
            refused = await client.call_tool("delete_service", {"name": "sdk-no"})
            assert refused.is_error is True
            assert ops.landed("delete_service", name="sdk-no") == 0
            question: Any = await client.session.call_tool(
                "delete_service", {"name": "sdk-replay"}, allow_input_required=True
            )
            responses: Any = {"airlock-confirm": yes}
            rules = []
            for _ in range(3):
                result = await client.session.call_tool(
                    "delete_service",
                    {"name": "sdk-replay"},
                    input_responses=responses,
                    request_state=question.request_state,
                )
                rules.append(result.model_dump(by_alias=True)["_meta"]["io.mcp-airlock/rule_id"])
            assert rules == ["tier.L2.confirmed", "mrtr.replay", "mrtr.replay"]
            assert ops.landed("delete_service", name="sdk-replay") == 1
            dry = await client.call_tool("restart_service", {"name": "sdk"})
            assert dry.is_error is not True
            assert ops.landed("restart_service") == 0
    assert run("airlock-audit", "verify", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_fifty_parallel_resumes_over_sockets_execute_exactly_once(
    ops: Ops, tmp_path: Path, store: str
) -> None:
    env = {} if store == "memory" else {"AIRLOCK_STORE_DSN": "sqlite:///state.db", "AIRLOCK_SECRET": SECRET}
    name = f"parallel-{store}"
    with gateway(tmp_path, ops.running.url, **env) as gate:
        state = post(gate.url, "delete_service", {"name": name})["result"]["requestState"]

        def resume(_: int) -> str:
            return rule(
                post(gate.url, "delete_service", {"name": name}, requestState=state, inputResponses=YES)
            )

        with ThreadPoolExecutor(50) as pool:
            rules = sorted(pool.map(resume, range(50)))
    assert rules == ["mrtr.replay"] * 49 + ["tier.L2.confirmed"]
    assert ops.landed("delete_service", name=name) == 1
    assert run("airlock-audit", "verify", cwd=tmp_path).stdout.startswith("OK: 102 records")


def test_with_sqlite_a_used_yes_stays_used_after_a_crash_and_an_open_one_stays_good(
    ops: Ops, tmp_path: Path
) -> None:
    env = {"AIRLOCK_STORE_DSN": "sqlite:///state.db", "AIRLOCK_SECRET": SECRET}
    with gateway(tmp_path, ops.running.url, "--strict", **env) as gate:
        used = post(gate.url, "delete_service", {"name": "c1"})["result"]["requestState"]
        open_ = post(gate.url, "delete_service", {"name": "c2"})["result"]["requestState"]
        assert (
            rule(post(gate.url, "delete_service", {"name": "c1"}, requestState=used, inputResponses=YES))
            == "tier.L2.confirmed"
        )
        for names in (["a", "b", "c"], ["d"]):
            assert rule(post(gate.url, "set_replicas", {"names": names, "replicas": 1})) == "tier.L3.auto"
        gate.kill()
    with gateway(tmp_path, ops.running.url, "--strict", **env) as gate:
        assert (
            rule(post(gate.url, "delete_service", {"name": "c1"}, requestState=used, inputResponses=YES))
            == "mrtr.replay"
        )
        assert (
            rule(post(gate.url, "delete_service", {"name": "c2"}, requestState=open_, inputResponses=YES))
            == "tier.L2.confirmed"
        )
        assert (
            rule(post(gate.url, "set_replicas", {"names": ["e", "f"], "replicas": 1}))
            == "blast_radius.per_principal"
        )
        assert rule(post(gate.url, "set_replicas", {"names": ["e"], "replicas": 1})) == "tier.L3.auto"
    assert (ops.landed("delete_service", name="c1"), ops.landed("delete_service", name="c2")) == (1, 1)
    assert run("airlock-audit", "verify", cwd=tmp_path).returncode == 0


@pytest.mark.case("T67")
def test_two_gateways_on_one_store_let_through_exactly_what_fits(ops: Ops, tmp_path: Path) -> None:
    env = {"AIRLOCK_STORE_DSN": f"sqlite:///{tmp_path}/shared.db", "AIRLOCK_SECRET": SECRET}
    for sub in ("one", "two"):
        (tmp_path / sub).mkdir()
    with (
        gateway(tmp_path / "one", ops.running.url, **env) as one,
        gateway(tmp_path / "two", ops.running.url, **env) as two,
    ):
        state = post(one.url, "delete_service", {"name": "w"})["result"]["requestState"]
        before = ops.landed("set_replicas")

        def scale(index: int) -> str:
            url = (one if index % 2 else two).url
            return rule(post(url, "set_replicas", {"names": [f"w{index}"], "replicas": 2}))

        with ThreadPoolExecutor(16) as pool:
            rules = list(pool.map(scale, range(16)))
        assert rules.count("tier.L3.auto") == 5
        assert rules.count("blast_radius.per_principal") == 11
        assert ops.landed("set_replicas") - before == 5
        rules = [
            rule(post(g.url, "delete_service", {"name": "w"}, requestState=state, inputResponses=YES))
            for g in (two, one)
        ]
    assert rules == ["tier.L2.confirmed", "mrtr.replay"]


def test_the_durable_defaults_keep_state_and_key_in_private_files(ops: Ops, tmp_path: Path) -> None:
    with gateway(tmp_path, ops.running.url, "--strict", name="airlock") as gate:
        state = post(gate.url, "delete_service", {"name": "d1"})["result"]["requestState"]
        gate.kill()
    folder = tmp_path / "state/airlock"
    assert sorted(path.name for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm"))) == [
        "gateway.db",
        "gateway.key",
    ]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    with gateway(tmp_path, ops.running.url, name="airlock") as gate:
        assert (
            rule(post(gate.url, "delete_service", {"name": "d1"}, requestState=state, inputResponses=YES))
            == "tier.L2.confirmed"
        )
        assert gate.stop() == 0
        assert gate.stderr is not None
        assert "Traceback" not in gate.stderr.rest()


def test_with_the_seeds_defaults_a_restart_forgets_pending_confirmations(ops: Ops, tmp_path: Path) -> None:
    with gateway(tmp_path, ops.running.url) as gate:
        state = post(gate.url, "delete_service", {"name": "m1"})["result"]["requestState"]
    with gateway(tmp_path, ops.running.url) as gate:
        assert (
            rule(post(gate.url, "delete_service", {"name": "m1"}, requestState=state, inputResponses=YES))
            == "mrtr.bad_signature"
        )


async def test_sigterm_finishes_the_open_call_and_its_outcome_record(tmp_path: Path) -> None:
    arrived, go = asyncio.Event(), asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(
            next(
                line.split(b":")[1]
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length")
            )
        )
        request = json.loads(await reader.readexactly(length))
        arrived.set()
        await go.wait()
        body = json.dumps(
            {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", "content": []}}
        ).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(slow, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def started() -> Any:
        context = gateway(tmp_path, f"http://127.0.0.1:{port}/mcp")
        return context, context.__enter__()

    context, gate = await asyncio.to_thread(started)
    try:
        call = asyncio.create_task(asyncio.to_thread(post, gate.url, "get_service", {"name": "x"}))
        await arrived.wait()
        os.kill(gate.process.pid, signal.SIGTERM)
        go.set()
        assert rule(await call) == "tier.L0.read"
        assert await asyncio.to_thread(gate.process.wait, 60) == 0
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
        server.close()
        await server.wait_closed()
    assert [record["phase"] for record in audit_of(tmp_path)] == ["intent", "outcome"]


def test_an_unreachable_upstream_is_a_tool_error_and_health_stays_up(tmp_path: Path) -> None:
    import urllib.request

    with gateway(tmp_path, "http://127.0.0.1:1/mcp") as gate:
        message = post(gate.url, "get_service", {"name": "x"})
        assert rule(message) == "upstream.unreachable"
        for path in ("healthz", "readyz"):
            with urllib.request.urlopen(gate.url.replace("/mcp", f"/{path}"), timeout=30) as answer:
                assert (answer.status, answer.read()) == (200, b'{"status":"ok"}')


def test_a_bad_token_is_401_whatever_else_is_sent(ops: Ops, tmp_path: Path) -> None:
    with gateway(tmp_path, ops.running.url) as gate:
        for token in (bearer() + "x", bearer(exp=1), bearer(" alice"), bearer("")):
            assert post(gate.url, "get_service", {"name": "x"}, token=token)["error"]["code"] == -32011
