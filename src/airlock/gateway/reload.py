"""Taking a new policy and new pins into a running gateway, as one pair or not at all.

Knows how they are read and swapped; does not know signals. SPEC: gateway.md 15.5.
"""

from __future__ import annotations

import asyncio

from airlock.core.errors import AirlockError
from airlock.core.policy.model import Policy
from airlock.core.policy.pins import Pins
from airlock.edge.settings import Environment
from airlock.gateway.gate import Gate, Snapshot
from airlock.gateway.parts import load_pins, load_policy
from airlock.gateway.settings import Flags

__all__ = ["Reloader", "read_pair"]


def read_pair(flags: Flags, env: Environment, environment: str) -> tuple[Policy, Pins]:
    """Read what the flags and variables name, for `environment`. Raises ConfigError or OSError."""
    return load_policy(flags.policy, environment), load_pins(flags, env)


class Reloader:
    """Reads again what the flags name, beside the calls, and swaps the snapshot when all of it loads.

    Requests under way keep the pair they began with; store, windows, catalog, keys and mode are not touched.
    """

    def __init__(self, gate: Gate, flags: Flags, env: Environment) -> None:
        self._gate = gate
        self._flags = flags
        self._env = env
        self._running: asyncio.Task[None] | None = None
        self._again = False

    def hangup(self) -> None:
        """Begin to reload; while one reload runs, any number of requests for another are one."""
        if self._running is not None and not self._running.done():
            self._again = True
            return
        self._running = asyncio.get_running_loop().create_task(self._reload())

    async def _reload(self) -> None:
        while True:
            self._again = False
            await self._once()
            if not self._again:
                return

    async def _once(self) -> None:
        gate = self._gate
        was = gate.snapshot.policy
        try:
            # SPEC: gateway.md 15.5: with the environment the gateway runs in, whatever the file says by now.
            fresh = await asyncio.to_thread(self._read, was.environment)
        except (AirlockError, OSError) as error:
            words = (
                str(error) if isinstance(error, AirlockError) else (error.strerror or type(error).__name__)
            )
            gate.log.line(f"policy reload failed, keeping the current policy: {words}")
            return
        gate.snapshot = fresh
        gate.log.line(f"policy reloaded: {len(fresh.policy.tools)} tools (was {len(was.tools)})")

    def _read(self, environment: str) -> Snapshot:
        return Snapshot.of(*read_pair(self._flags, self._env, environment))
