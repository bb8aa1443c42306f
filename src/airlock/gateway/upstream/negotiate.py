"""One server, spoken to in the era that fits: the client's where it speaks both, else the only one it has.

Knows verdicts, their dates and what makes them doubtful; how they are found is the probe's.
SPEC: mcp.md 19 (Back), 20.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.grant import Grant
from airlock.core.ports import Clock, Ids
from airlock.core.wire import jsonrpc
from airlock.edge.httpanswer import Reply
from airlock.gateway.modern.admission import REVISION
from airlock.gateway.upstream import http, parks
from airlock.gateway.upstream.evidence import Finding, Wire
from airlock.gateway.upstream.mirrored import Mirrored
from airlock.gateway.upstream.port import Answer, Era, Heard, Outgoing, Upstream
from airlock.gateway.upstream.probe import Probe

__all__ = ["PATIENCE_S", "TRUSTED_S", "Negotiated", "Verdict"]

PATIENCE_S: Final = 10.0
"""How long a request waits for a verdict."""

TRUSTED_S: Final = 900.0
"""How old a finding about the legacy era may be before the server is asked again, behind the back of requests."""

# LIMIT: after a vain attempt every request of this long fails at once, so that a dead server is not asked by each.
_REST_S: Final = 1.0
# LIMIT: how often a legacy verdict is looked at again because calls fail.
_DOUBT_S: Final = 30.0

# A modern server answers whatever is well formed with a response of its own; these, without one, are another's.
_NOT_MODERN: Final = frozenset({400, 404, 405, 406, 415})

_SHORT: Final = 4096


class Verdict(msgspec.Struct, frozen=True):
    """What a server speaks. `version` is the revision used first, `at` Unix seconds, `how` the evidence."""

    eras: frozenset[Era]
    version: str
    at: float
    how: str

    def __str__(self) -> str:
        return f"{'+'.join(sorted(self.eras, reverse=True))} {self.version} ({self.how})"


class Negotiated:
    """The port over one server. Belongs to one event loop.

    `modern` speaks to it in the modern era; `legacy` makes what does in the other, for the way that was found to
    work; either is None when that era is not spoken here. `forced` takes an era without asking for the other.
    `target` is what tickets bind, in both eras. `say` takes a line when a verdict changes or cannot be had.
    `prepare` is called when it is known that `modern` will be needed: what takes long to start can start then.
    """

    def __init__(
        self,
        modern: Upstream | None,
        legacy: Callable[[Wire], Upstream] | None,
        *,
        probe: Probe,
        clock: Clock,
        ids: Ids,
        say: Callable[[str], None],
        target: str = "",
        forced: Era | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        self._modern = modern
        self._prepare = prepare
        self._mirrored = None if modern is None else Mirrored(modern, ids)
        self._make_legacy = legacy
        self._probe = probe
        self._clock = clock
        self._say = say
        self._target = target
        self._forced = forced
        self._legacies: dict[Wire, Upstream] = {}
        self._verdict: Verdict | None = None
        self._wire: Wire | None = None
        self._trouble = ""
        self._finding: asyncio.Task[None] | None = None
        self._widening: asyncio.Task[None] | None = None
        # Times of the monotonic clock.
        self._asked_at = self._rest_until = self._widen_from = self._look_again = 0.0
        self._doubted = self._closed = False
        self._told = ""
        if forced is Era.MODERN:
            self._settle(Finding(frozenset({Era.MODERN}), "as configured", REVISION))

    @property
    def verdict(self) -> Verdict | None:
        """What the server speaks; None while that is not known."""
        return self._verdict

    @property
    def trouble(self) -> str:
        """Why there is no verdict, in our own words; empty when there is one or nobody has asked."""
        return self._trouble

    def begin(self) -> None:
        """Start to find out, before anybody waits for it."""
        if self._verdict is None and self._finding is None and not self._closed:
            self._find()
        elif self._verdict is not None:
            self._ready(self._verdict.eras)

    # The port

    async def call(
        self, grant: Grant, outgoing: Outgoing, *, exact: bool, heard: Heard | None = None
    ) -> Answer:
        """Send a tool call. The grant is spent by the implementation that sends it, before any wait of its own."""
        upstream = self._at_once(outgoing) or await self._choose(outgoing)
        if upstream is self._modern and self._mirrored is not None and outgoing.era is Era.LEGACY:
            return await self._judged(
                upstream, outgoing, self._mirrored.call(grant, outgoing, exact=exact, heard=heard)
            )
        return await self._judged(
            upstream, outgoing, upstream.call(grant, outgoing, exact=exact, heard=heard)
        )

    async def ask(self, outgoing: Outgoing, *, exact: bool = False, heard: Heard | None = None) -> Answer:
        """Send a request that changes nothing."""
        upstream = self._at_once(outgoing) or await self._choose(outgoing)
        return await self._judged(upstream, outgoing, upstream.ask(outgoing, exact=exact, heard=heard))

    async def send(self, outgoing: Outgoing) -> Reply:
        """Send a request that changes nothing, and return its answer unread."""
        upstream = self._at_once(outgoing) or await self._choose(outgoing)
        reply = await upstream.send(outgoing)
        if upstream is self._modern and _may_refuse(reply):
            try:
                self._answered(outgoing, http.read(reply, outgoing))
            except UpstreamError as error:
                self._failed(upstream, error)
        return reply

    async def listen(self, outgoing: Outgoing, heard: Heard) -> Answer:
        """Send `subscriptions/listen`."""
        upstream = self._at_once(outgoing) or await self._choose(outgoing)
        return await self._judged(upstream, outgoing, upstream.listen(outgoing, heard))

    def compares_headers(self, _name: str) -> bool:
        """Tell whether the server compares `Mcp-Param-*` headers with arguments: a modern one does, over HTTP."""
        verdict = self._verdict
        return (
            verdict is not None and Era.MODERN in verdict.eras and isinstance(self._modern, http.HttpUpstream)
        )

    def target(self, name: str | None) -> str:
        """Return the one name of the server, whatever it speaks."""
        return self._target

    def abandon(self, state: object) -> None:
        """Forget a question of the server, in the era in which it was asked."""
        if _parked(state):
            for legacy in self._legacies.values():
                legacy.abandon(state)
        elif self._modern is not None:
            self._modern.abandon(state)

    async def close(self) -> None:
        """End the probe and both implementations; the modern one last, for they may share its connections."""
        self._closed = True
        tasks = [task for task in (self._finding, self._widening) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for legacy in self._legacies.values():
            await legacy.close()
        await self._probe.close()
        if self._modern is not None:
            await self._modern.close()

    # The choice

    def _at_once(self, outgoing: Outgoing) -> Upstream | None:
        """Return who sends this request; None when that has to be found out first."""
        if self._closed:
            return None
        state = outgoing.params.get("requestState")
        if state is not None and self._make_legacy is not None and _parked(state):
            # The call is parked there, whatever is known of the server by now.
            return self._speaking_legacy()
        verdict = self._verdict
        if verdict is None:
            return None
        eras = verdict.eras
        if self._modern is None or Era.MODERN not in eras:
            self._refresh()
            return self._speaking_legacy()
        if outgoing.era is Era.MODERN or state is not None:
            # A question is answered in the era in which it was asked.
            return self._modern
        if Era.LEGACY in eras:
            return self._speaking_legacy()
        return None if self._may_widen() else self._modern

    async def _choose(self, outgoing: Outgoing) -> Upstream:
        """Find out who sends this request. Raises UpstreamError, nothing sent, when it cannot be told in time."""
        until = asyncio.get_running_loop().time() + PATIENCE_S
        if self._verdict is None and not self._closed:
            if self._finding is None and self._clock.monotonic() >= self._rest_until:
                self._find()
            await _wait(self._finding, until)
        if outgoing.era is Era.LEGACY and self._may_widen() and not self._closed:
            if self._widening is None:
                self._widening = self._task(self._widen())
            await _wait(self._widening, until)
        if self._closed:
            raise _none("the upstream is closed")
        if self._verdict is None:
            raise _none(self._trouble or "it is not known yet what the server speaks")
        # When it was not told in time whether the server speaks the older era too: the newer one it does.
        return self._at_once(outgoing) or self._speaking_modern()

    def _speaking_modern(self) -> Upstream:
        assert self._modern is not None
        return self._modern

    def _speaking_legacy(self) -> Upstream:
        wire = self._wire or Wire.HTTP
        found = self._legacies.get(wire)
        if found is None:
            assert self._make_legacy is not None
            found = self._legacies[wire] = self._make_legacy(wire)
        return found

    # The verdict

    def _find(self) -> None:
        self._finding = self._task(self._look())

    async def _look(self) -> None:
        """Ask the server what it speaks, and draw the conclusions."""
        known = None
        if self._verdict is not None and not self._doubted:
            known = Finding(self._verdict.eras, self._verdict.how, self._verdict.version, self._wire)
        self._asked_at = self._clock.monotonic()
        finding = await self._asked(
            self._probe.legacy() if self._forced is Era.LEGACY else self._probe.find(known)
        )
        finding = self._spoken_here(finding)
        now = self._clock.monotonic()
        self._doubted = False
        self._look_again = now + TRUSTED_S if self._forced is None else math.inf
        if finding.eras:
            self._settle(finding)
            self._ready(finding.eras)
        elif self._verdict is None:
            self._rest_until = now + _REST_S
            self._trouble = f"it cannot be told what the server speaks: {finding.how}"
            self._tell(self._trouble)

    async def _widen(self) -> None:
        """Try whether a modern server speaks the older era too, for the sake of clients that do."""
        finding = await self._asked(self._probe.legacy())
        self._widen_from = self._clock.monotonic() + TRUSTED_S
        verdict = self._verdict
        if Era.LEGACY in finding.eras and verdict is not None:
            how = f"{verdict.how}, {finding.how}"
            self._settle(Finding(verdict.eras | finding.eras, how, verdict.version, finding.wire))

    async def _asked(self, question: Awaitable[Finding]) -> Finding:
        try:
            return await question
        except Exception as error:  # noqa: BLE001 - the boundary of a probe: what breaks is no evidence
            return Finding(frozenset(), type(error).__name__)

    def _spoken_here(self, finding: Finding) -> Finding:
        """Leave out what this side does not speak."""
        ours = {Era.MODERN: self._modern, Era.LEGACY: self._make_legacy}
        eras = frozenset(era for era in finding.eras if ours[era] is not None)
        if finding.eras and not eras:
            return Finding(eras, f"only the {'+'.join(finding.eras)} era, which is switched off")
        return Finding(eras, finding.how, finding.version, finding.wire)

    def _settle(self, finding: Finding) -> None:
        self._verdict = Verdict(finding.eras, finding.version, self._clock.now(), finding.how)
        self._wire = finding.wire or self._wire
        self._trouble = ""
        self._tell(f"the server speaks {self._verdict}")

    def _ready(self, eras: frozenset[Era]) -> None:
        if self._prepare is not None and Era.MODERN in eras and not self._closed:
            self._prepare()

    def _tell(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self._say(line)

    def _refresh(self) -> None:
        """Ask again in the background when a legacy verdict is old, or calls fail."""
        if self._finding is None and self._clock.monotonic() >= self._look_again:
            self._find()

    def _may_widen(self) -> bool:
        return (
            self._verdict is not None
            and Era.LEGACY not in self._verdict.eras
            and self._make_legacy is not None
            and self._forced is None
            and self._probe.legacy_is_cheap
            and self._clock.monotonic() >= self._widen_from
        )

    def _task(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is self._finding:
            self._finding = None
        if task is self._widening:
            self._widening = None

    # What answers say about it

    async def _judged(self, upstream: Upstream, outgoing: Outgoing, answering: Awaitable[Answer]) -> Answer:
        try:
            answer = await answering
        except UpstreamError as error:
            self._failed(upstream, error)
            raise
        if answer.result is None and upstream is self._modern:
            self._answered(outgoing, answer)
        return answer

    def _answered(self, outgoing: Outgoing, answer: Answer) -> None:
        """SPEC: mcp.md 19: a stale modern verdict fails at once: the server says itself that it is not so."""
        error = answer.message.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if code == jsonrpc.UNSUPPORTED_VERSION or (
            code == jsonrpc.METHOD_NOT_FOUND and outgoing.method == "server/discover"
        ):
            self._drop()

    def _failed(self, upstream: Upstream, error: UpstreamError) -> None:
        if upstream is not self._modern:
            # A legacy verdict that is stale never fails by itself, but what fails may be a stale one, or another
            # transport than before.
            if error.kind in (UpstreamFailure.BAD_REPLY, UpstreamFailure.UNREACHABLE):
                self._doubted = True
                self._look_again = min(self._look_again, self._asked_at + _DOUBT_S)
        elif error.kind is UpstreamFailure.BAD_REPLY and error.status in _NOT_MODERN:
            self._drop()

    def _drop(self) -> None:
        # LIMIT: a server that answers so to some requests only is not asked before each of them.
        if self._forced is None and self._clock.monotonic() >= self._asked_at + _REST_S:
            self._verdict = None
            self._widen_from = self._rest_until = 0.0


def _parked(state: object) -> bool:
    return isinstance(state, str) and state.startswith(parks.PREFIX)


def _may_refuse(reply: Reply) -> bool:
    """Tell whether an unread answer is worth reading: over stdio an error has the status 200 too."""
    return reply.status >= 400 or (len(reply.body) < _SHORT and b'"error"' in reply.body)


def _none(cause: str) -> UpstreamError:
    return UpstreamError(UpstreamFailure.UNREACHABLE, cause, reached=False)


async def _wait(task: asyncio.Task[None] | None, until: float) -> None:
    """Wait for a task that others may wait for too, up to a time of the event loop."""
    if task is not None:
        await asyncio.wait((task,), timeout=max(0.0, until - asyncio.get_running_loop().time()))
