"""Taking a new policy and new pins into a running gateway, as one pair or not at all.

Knows how they are read and swapped; does not know signals. SPEC: gateway.md 15.5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Thread

from airlock.core.errors import AirlockError
from airlock.core.policy.model import Policy
from airlock.core.policy.pins import Pins
from airlock.edge.settings import Environment
from airlock.gateway.gate import Gate, Snapshot
from airlock.gateway.parts import load_pins, load_policy
from airlock.gateway.settings import Flags
from airlock.gateway.upstreamsfile import UpstreamSpec

__all__ = ["Reloader", "read_pair"]


def read_pair(
    flags: Flags, env: Environment, environment: str, specs: Sequence[UpstreamSpec] = ()
) -> tuple[Policy, Pins]:
    """Read what flags, variables and upstreams name, for `environment`. Raises ConfigError or OSError."""
    return load_policy(flags.policy, environment, specs), load_pins(flags, env, specs)


class Reloader:
    """Reads again what the flags name, beside the calls, and swaps the snapshot when all of it loads.

    Requests under way keep the pair they began with; store, windows, catalog, keys and mode are not touched.
    """

    def __init__(
        self, gate: Gate, flags: Flags, env: Environment, specs: Sequence[UpstreamSpec] = ()
    ) -> None:
        self._specs = specs
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
            fresh = await self._read(was.environment)
        except Exception as error:  # noqa: BLE001 - the boundary: told, and the pair stays as it was
            known = str(error) if isinstance(error, AirlockError) else None
            words = known or getattr(error, "strerror", None) or type(error).__name__
            gate.log.line(f"policy reload failed, keeping the current policy: {words}")
            return
        gate.snapshot = fresh
        gate.changes.announce()
        gate.log.line(f"policy reloaded: {len(fresh.policy.tools)} tools (was {len(was.tools)})")

    async def _read(self, environment: str) -> Snapshot:
        """Read in a thread that nothing waits for: a pipe or a dead disk must not keep the process from ending."""
        done: Future[Snapshot] = Future()

        def work() -> None:
            try:
                was = self._gate.snapshot
                done.set_result(
                    Snapshot.of(
                        *read_pair(self._flags, self._env, environment, self._specs),
                        wide=was.wide,
                        hygiene=was.hygiene,
                    )
                )
            except Exception as error:  # noqa: BLE001 - the end of a thread: whoever waits gets it
                done.set_exception(error)

        done.set_running_or_notify_cancel()
        Thread(target=work, name="airlock-reload", daemon=True).start()
        return await asyncio.wrap_future(done)
