"""Limits, questions and numbers of a process, made from its settings. The composition root puts them in place.

Knows which of them a set of settings asks for; limits nobody and counts nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable

from airlock.core.ports import AuditSink, Clock, Store
from airlock.edge.recording import Recorder
from airlock.edge.settings import Environment
from airlock.gateway import settings
from airlock.gateway.door import Door, loopback_hosts
from airlock.gateway.gate import Gate
from airlock.gateway.limits import Limits
from airlock.gateway.metrics import CountingRecorder, Metrics, Page
from airlock.gateway.pending import Prompts
from airlock.gateway.settings import Defaults, Flags, Metering

__all__ = ["Watching", "recorder"]


class Watching:
    """What is limited and counted. Raises ConfigError for a setting that makes no sense."""

    def __init__(self, flags: Flags, env: Environment, defaults: Defaults) -> None:
        self._rates = settings.rates(env, defaults)
        self._collapse = settings.collapses(env, defaults)
        self._metering = settings.metering(flags, env, defaults)
        self._workers = flags.workers

    def metrics(self) -> Metrics | None:
        """The counters of one process, where its numbers are shown."""
        return None if self._metering is Metering.OFF else Metrics()

    def prompts(self, store: Store, clock: Clock) -> Prompts | None:
        """What remembers questions, where they are shared, limited or counted."""
        rate, shown = self._rates.prompts, self._metering is not Metering.OFF
        if not self._collapse and rate is None and not shown:
            return None
        return Prompts(store, clock, collapse=self._collapse, rate=rate)

    def limits(self, gate: Gate, metrics: Metrics | None) -> Limits | None:
        """What refuses requests, where any limit is set."""
        rates = self._rates
        if rates.principal is None and rates.tool is None and rates.address is None:
            return None
        return Limits(gate, rates) if metrics is None else Limits(gate, rates, metrics.outcome)

    def page(
        self,
        gate: Gate,
        metrics: Metrics | None,
        limits: Limits | None,
        *,
        port: int,
        worker: int,
        queued: Callable[[], int],
        sessions: Callable[[], int],
    ) -> Page | None:
        """The page of `metrics`, for a process that listens on `port` and is number `worker`."""
        if metrics is None:
            return None
        metrics.watch(gate)
        return Page(
            metrics,
            gate,
            door=Door(loopback_hosts(port), frozenset()) if self._metering is Metering.LOCAL else None,
            limits=limits,
            sessions=sessions,
            queued=queued,
            worker=worker if self._workers > 1 else None,
        )


def recorder(metrics: Metrics | None, sink: AuditSink, clock: Clock, log: Callable[[str], None]) -> Recorder:
    """What writes records, and counts them where numbers are shown."""
    return Recorder(sink, clock, log) if metrics is None else CountingRecorder(sink, clock, log, metrics)
