"""What a gateway process counts, where it counts it, and the page that shows it: `/metrics`.

Knows the names of the numbers and that their labels stay few; their text form is `edge.metrics`'. What is counted
is what was recorded, so the two never disagree. SPEC: issue 4, item 7.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Awaitable, Callable
from typing import Final

from airlock.core.audit.record import Subject
from airlock.core.errors import UpstreamFailure
from airlock.core.ports import AuditSink, Clock
from airlock.core.principal import Principal
from airlock.core.rules import Rule
from airlock.edge import metrics as numbers
from airlock.edge.asgi import Receive, Responder, Scope, Send, respond
from airlock.edge.headers import Headers
from airlock.edge.metrics import Family, Sample
from airlock.edge.recording import Entry, Recorder
from airlock.edge.trace import Trace
from airlock.gateway.advertised import LISTEN
from airlock.gateway.door import Door
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.limits import Limits
from airlock.gateway.modern.admission import METHODS, Request

__all__ = ["MOST_SERIES", "OTHER", "PATH", "CountingRecorder", "Metrics", "Page", "timed"]

PATH: Final = "/metrics"

MOST_SERIES: Final = 500
"""LIMIT: of series of one counter; then a tool or method that is new counts as `other`."""

OTHER: Final = "other"

_CALL: Final = "tools/call"
_METHODS: Final = METHODS | {
    "approve", "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list",
    "resources/list", "resources/read", "resources/subscribe", "resources/templates/list", "resources/unsubscribe",
    LISTEN,
}  # fmt: skip
_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_ONLY: Final = "upstream"
_FAILURES: Final = frozenset(str(kind) for kind in UpstreamFailure)
_PLAIN: Final = b"text/plain; charset=utf-8"

Govern = Callable[[Gate, Request, Principal, Trace], Awaitable[Answer]]


class Metrics:
    """The counters of one process. `watch` comes before the first request."""

    def __init__(self) -> None:
        self._calls = numbers.Counter(
            "airlock_calls_total",
            "Tool calls by the verdict and rule of their outcome record; 'other' is what the policy does not list.",
            ("verdict", "rule", "tool"),
            (None, None, OTHER),
            MOST_SERIES,
        )
        self._requests = numbers.Counter(
            "airlock_requests_total",
            "Outcome records of everything but tool calls; no method: it could not be read.",
            ("verdict", "rule", "method"),
            (None, None, OTHER),
            MOST_SERIES,
        )
        self._seconds = numbers.Histogram(
            "airlock_request_seconds",
            "Time to answer an admitted request, its upstream included; each round of a confirmation is one.",
            "method",
            _BOUNDS,
        )
        self._gate: Gate | None = None
        self.streams = 0
        self.reachable = True

    def watch(self, gate: Gate) -> None:
        """Name the gate, whose policy says which tools there are."""
        self._gate = gate

    def outcome(self, entry: Entry) -> None:
        """Count one outcome: of a record, or of a refusal that has none of its own."""
        subject = entry.subject
        if subject.method == _CALL:
            tool = subject.tool
            known = self._gate is not None and tool in self._gate.snapshot.policy.tools
            self._calls.add(entry.verdict, entry.rule_id, tool if known and tool is not None else OTHER)
        else:
            self._requests.add(entry.verdict, entry.rule_id, _method(subject))

    def took(self, method: str, seconds: float) -> None:
        """Count how long an admitted request took."""
        self._seconds.observe(method, seconds)

    def streaming(self, responder: Responder) -> Responder:
        """Count an event stream while it is open."""

        async def counted(receive: Receive, send: Send) -> None:
            self.streams += 1
            try:
                await responder(receive, send)
            finally:
                self.streams -= 1

        return counted

    def families(self) -> list[Family]:
        """Return what was counted until now."""
        failed = dict.fromkeys(sorted(_FAILURES), 0)
        for counter in (self._calls, self._requests):
            for (_, rule, _), count in counter.series():
                if rule in failed:
                    failed[rule] += count
        kinds = {kind.rpartition(".")[2]: count for kind, count in failed.items()}
        return [
            self._calls.family(),
            self._requests.family(),
            self._seconds.family(),
            _family(
                "airlock_upstream_errors_total",
                "counter",
                "Requests that an upstream failed, by kind.",
                "kind",
                kinds,
            ),
        ]


class CountingRecorder(Recorder):
    """Counts what it records. Exists only where numbers are shown: without them nothing is counted."""

    def __init__(self, sink: AuditSink, clock: Clock, log: Callable[[str], None], metrics: Metrics) -> None:
        super().__init__(sink, clock, log)
        self._metrics = metrics

    def outcome(
        self, entry: Entry, latency_ms: int | None, upstream_status: int | None, detail_json: str
    ) -> None:
        """Write an outcome and count it."""
        super().outcome(entry, latency_ms, upstream_status, detail_json)
        self._metrics.outcome(entry)
        if upstream_status is not None:
            self._metrics.reachable = True
        elif entry.rule_id == Rule.UPSTREAM_UNREACHABLE:
            self._metrics.reachable = False

    def refusal(self, entry: Entry, detail: str | None = None) -> None:
        """Write a refusal and count it."""
        super().refusal(entry, detail)
        self._metrics.outcome(entry)


def timed(metrics: Metrics, govern: Govern) -> Govern:
    """Return `govern`, measured. A subscription has no end of its own and is left out."""

    async def measured(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
        begun = time.perf_counter()
        try:
            return await govern(gate, request, principal, trace)
        finally:
            if request.method != LISTEN:
                metrics.took(request.method, time.perf_counter() - begun)

    return measured


class Page:
    """Answers GET and HEAD of `/metrics`; no record is written of that.

    `door` refuses who does not name this machine, None: whoever reaches the port may look. `queued` tells how many
    records wait for the audit table, `sessions` how many of older clients are open; `worker` is the number of this
    process among several.
    """

    def __init__(
        self,
        metrics: Metrics,
        gate: Gate,
        *,
        door: Door | None = None,
        limits: Limits | None = None,
        sessions: Callable[[], int] = lambda: 0,
        queued: Callable[[], int] = lambda: 0,
        worker: int | None = None,
    ) -> None:
        self.metrics = metrics
        self._gate, self._door, self._limits, self._sessions = gate, door, limits, sessions
        self._queued = queued
        self._common = {} if worker is None else {"worker": str(worker)}
        self._about = {
            "version": _version(),
            "python": platform.python_version(),
        }

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] not in {"GET", "HEAD"}:
            await respond(send, 405, b"use GET\n", _PLAIN, [(b"allow", b"GET, HEAD")])
            return
        # SECURITY: a page of another site can have a browser on this machine ask, under a name of its own.
        if self._door is not None and self._door.foreign(Headers(scope["headers"])) is not None:
            await respond(send, 403, b"this Host or Origin is not served\n", _PLAIN)
            return
        await respond(send, 200, self.text(), numbers.CONTENT_TYPE, [(b"cache-control", b"no-store")])

    def text(self) -> bytes:
        """Return everything as it is now."""
        families = [*self.metrics.families(), *self._upstreams(), *self._gauges(), *numbers.process()]
        return numbers.render(families, self._common)

    def _upstreams(self) -> list[Family]:
        """How the servers are: of several each tells, of one what the last request showed."""
        health = getattr(self._gate.upstream, "health", None)
        told = health() if health is not None else None
        up = {_ONLY: int(self.metrics.reachable)} if told is None else {it.name: int(it.up) for it in told}
        flying = {} if told is None else {it.name: it.in_flight for it in told}
        found = [_family("airlock_upstream_up", "gauge", "1: the last request reached it.", "upstream", up)]
        if flying:
            text = "Requests on their way to an upstream."
            found.append(_family("airlock_upstream_in_flight", "gauge", text, "upstream", flying))
        return found

    def _gauges(self) -> list[Family]:
        prompts, limits = self._gate.prompts, self._limits
        refused = {} if limits is None else dict(limits.refused)
        asked = {}
        if prompts is not None:
            refused["prompt"] = prompts.limited
            asked = {"asked": prompts.asked, "collapsed": prompts.collapsed, "lost": prompts.lost}
        return [
            _one("airlock_audit_queue", "Records that wait for the audit table.", self._queued()),
            _one(
                "airlock_pending_approvals",
                "Questions of this process that no person has answered, as far as it knows.",
                0 if prompts is None else prompts.open,
            ),
            _one(
                "airlock_sessions", "Open sessions of clients that opened with initialize.", self._sessions()
            ),
            _one("airlock_streams", "Open event streams to clients.", self.metrics.streams),
            _family(
                "airlock_prompts_total",
                "counter",
                "Questions to people: asked, shown again to an identical call, not delivered.",
                "result",
                asked,
            ),
            _family(
                "airlock_rate_limited_total", "counter", "Requests refused over a limit.", "limit", refused
            ),
            Family(
                "airlock_build_info",
                "gauge",
                "What is running; always 1.",
                (Sample(tuple(self._about.items()), 1),),
            ),
        ]


def _method(subject: Subject) -> str:
    method = subject.method
    if method is None:
        return ""
    return method if method in _METHODS else OTHER


def _family(name: str, kind: str, text: str, label: str, values: dict[str, int]) -> Family:
    """A family with one label."""
    return Family(name, kind, text, tuple(Sample(((label, key),), value) for key, value in values.items()))


def _one(name: str, text: str, value: int) -> Family:
    return Family(name, "gauge", text, (Sample((), value),))


def _version() -> str:
    from importlib.metadata import version  # it costs more than all of this module

    return version("airlock")
