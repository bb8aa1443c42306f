"""How often a call asks the store: on a database each question is a round trip."""

from __future__ import annotations

from typing import Any

import pytest

from airlock.core.approval import ticket
from airlock.core.ports import Store
from tests.fakes.world import World

ARGS = {"names": ["x"]}
OPERATIONS = [name for name in vars(Store) if not name.startswith("_")]


class Counting:
    """A store that counts what it is asked; what it does inside one operation is its own business."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in OPERATIONS:
            self.asked.append(name)
        return getattr(self.real, name)

    def told(self) -> list[str]:
        asked, self.asked = self.asked, []
        return asked


def counted(mode: str) -> tuple[World, Counting]:
    world = World(mode=mode, notified=mode == "oob")
    store = Counting(world.store)
    world.gate.store = store
    return world, store


@pytest.mark.parametrize("mode", ["inband", "oob"])
async def test_a_gated_call_asks_the_store_at_most_three_times(mode: str) -> None:
    world, store = counted(mode)
    asked = await world.call("drop", ARGS)
    assert store.told() == ["used"]
    if mode == "oob":
        claims = ticket.open_agent(world.gate.confirmations.keys, asked.state)
        assert isinstance(claims, ticket.Claims)
        await world.store.approve(claims.k, claims.exp)
        done = await world.call("drop", ARGS, state=asked.state)
        assert store.told() == ["standing", "used", "burn_and_reserve"]
    else:
        done = await world.yes("drop", ARGS, asked.state)
        assert store.told() == ["used", "burn_and_reserve"]
    assert done.rule == "tier.L2.confirmed"


async def test_a_charged_call_asks_the_store_once_and_a_read_never() -> None:
    world, store = counted("inband")
    await world.call("push", {})
    assert store.told() == ["reserve"]
    await world.call("read", {})
    await world.rpc("tools/list")
    assert store.told() == []
