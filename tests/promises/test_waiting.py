"""A person takes longer than a client: the SDK gives up, and the same state is good later."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mcp
import pytest
from httpx2 import AsyncClient
from mcp.client.streamable_http import streamable_http_client

from tests.fakes.processes import REVISION, bearer, gateway, ops_server, post, rule
from tests.fakes.webhook import Receiver


async def test_the_sdk_client_gives_up_waiting_and_the_same_state_runs_once_the_link_was_pressed(
    tmp_path: Path,
) -> None:
    import urllib.request

    effects = tmp_path / "effects.jsonl"
    with Receiver() as chat, ops_server(effects) as ops:
        env = {"AIRLOCK_APPROVAL_WEBHOOK": chat.slack_url, "AIRLOCK_PUBLIC_URL": "http://gate.example"}
        with gateway(tmp_path, ops.url, **env) as gate:
            async with (
                AsyncClient(headers={"Authorization": f"Bearer {bearer()}"}, timeout=60) as http,
                mcp.Client(
                    streamable_http_client(gate.url, http_client=http), mode=REVISION,
                    elicitation_callback=_accepts, input_required_max_rounds=3,
                ) as client,
            ):  # fmt: skip
                with pytest.raises(mcp.InputRequiredRoundsExceededError):
                    await client.call_tool("delete_service", {"name": "slow"})
            link = chat.wait(1)[-1].link
            state = post(gate.url, "delete_service", {"name": "later"})["result"]["requestState"]
            assert (
                rule(post(gate.url, "delete_service", {"name": "later"}, requestState=state))
                == "mrtr.pending"
            )
            other = chat.wait(2)[-1].link
            assert other != link
            path = other.removeprefix("http://gate.example")
            with urllib.request.urlopen(gate.url.removesuffix("/mcp") + path, b"", timeout=30) as page:
                assert page.status == 200
            assert (
                rule(post(gate.url, "delete_service", {"name": "later"}, requestState=state))
                == "tier.L2.confirmed"
            )
            assert (
                rule(post(gate.url, "delete_service", {"name": "later"}, requestState=state)) == "mrtr.replay"
            )
    landed = [
        json.loads(line)["name"] for line in effects.read_text().splitlines() if '"delete_service"' in line
    ]
    assert landed == ["later"]
    assert re.match(r"http://gate\.example/approve/", link)


async def _accepts(context: Any, params: Any) -> Any:
    from mcp import types

    return types.ElicitResult(action="accept", content={"confirm": True})
