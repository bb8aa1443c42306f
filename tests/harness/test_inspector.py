"""MCP Inspector's command line through the gateway: the real program.

`make test-harness` installs it and runs this. What is held here is what docs/clients.md says of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness.bench import LISTED, Bench, bench, run
from tests.harness.parts import INSPECTOR
from tests.harness.rows import Row
from tests.harness.story import RESUME

FAILED_TOOL = 5  # its exit status when a tool's result is an error, or there is no such tool


def ask(one: Bench, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run it; returns its exit status, the result it prints, and what it says about it."""
    header = f"Authorization: Bearer {one.token}"
    done = run(INSPECTOR, one, "--cli", one.url, "--transport", "http", "--header", header, *arguments)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def call(one: Bench, tool: str, name: str) -> tuple[int, dict[str, Any], str]:
    return ask(one, "--method", "tools/call", "--tool-name", tool, "--tool-arg", f"name={name}")


def text(result: dict[str, Any]) -> str:
    found: str = result["content"][0]["text"]
    return found


def test_it_lists_calls_is_refused_held_and_released(tmp_path: Path):
    row = Row(INSPECTOR)
    with bench(tmp_path, oob=True) as one:
        with row.proving("lists"):
            status, listed, _ = ask(one, "--method", "tools/list")
            assert (status, {tool["name"] for tool in listed["tools"]}) == (0, LISTED)
        assert row.opened(one.wire) == ("initialize 2025-11-25", "2025-11-25")
        with row.proving("calls"):
            status, result, _ = call(one, "get_service", "shop")
            assert (status, text(result)) == (0, "service shop: 3 replicas, healthy, owner team-shop")
        with row.proving("refused"):
            status, _, said = call(one, "drop_database", "shop")
            assert (status, "Tool 'drop_database' not found" in said) == (FAILED_TOOL, True)
            status, result, _ = call(one, "delete_service", "payments")
            assert (status, "airlock: denied (args.violation)" in text(result)) == (FAILED_TOOL, True)
        with row.proving("held"):
            status, result, _ = call(one, "delete_service", "shop")
            assert status == FAILED_TOOL
            assert "airlock: not confirmed: nobody has answered yet" in text(result)
            assert RESUME in text(result)
            key = result["_meta"]["io.mcp-airlock/idempotency_key"]
        with row.proving("released"):
            # A session of its own each time, and still the same approval.
            assert f"Idempotency key: {key}" in one.messages[0].text
            one.approve()
            status, result, _ = call(one, "delete_service", "shop")
            assert (status, text(result)) == (0, "deleted shop")
            with one.approving():
                status, result, _ = call(one, "delete_service", "cart")
            assert (status, text(result)) == (0, "deleted cart")
            assert one.effects("delete_service") == ["shop", "cart"]
            assert len(one.messages) == 2


def test_without_an_approver_it_is_told_who_can_be_asked(tmp_path: Path):
    with bench(tmp_path) as one:
        status, result, _ = call(one, "delete_service", "shop")
        assert status == FAILED_TOOL
        assert "this client cannot ask a person" in text(result)
        assert one.effects("delete_service") == []


def test_it_speaks_the_newest_revision_when_told_to(tmp_path: Path):
    with bench(tmp_path) as one:
        entry = {"type": "streamable-http", "url": one.url, "protocolEra": "modern",
                 "headers": {"Authorization": f"Bearer {one.token}"}}  # fmt: skip
        servers = one.work / "servers.json"
        servers.write_text(json.dumps({"mcpServers": {"ops": entry}}), encoding="utf-8")
        flags = ("--method", "tools/call", "--tool-name", "get_service", "--tool-arg", "name=shop")
        done = run(INSPECTOR, one, "--cli", "--config", str(servers), "--server", "ops", *flags)
        assert text(json.loads(done.stdout)) == "service shop: 3 replicas, healthy, owner team-shop"
        (asked,) = one.wire.sent("tools/call")
        assert asked.headers["mcp-protocol-version"] == "2026-07-28"
