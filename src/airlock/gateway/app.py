"""The gateway's routes as one bare ASGI callable: `/mcp`, the probes, the approve page, and 404 for the rest.

Knows the order of admission (gateway.md 2, mcp.md 5) and which front a request belongs to; what an admitted request
means is `methods`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import msgspec

from airlock.core.decision import Verdict
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.core.text.cut import cut
from airlock.core.wire import jsonrpc
from airlock.core.wire.strict import StrictError
from airlock.edge import recording
from airlock.edge import trace as traces
from airlock.edge.asgi import (
    BodyTooLarge,
    ClientGone,
    Receive,
    Responder,
    Scope,
    Send,
    left,
    read_body,
    respond,
)
from airlock.edge.frontlimits import Direct, Line, Peer
from airlock.edge.headers import Headers, declared_length
from airlock.edge.identity.resolve import CHALLENGE, Identity
from airlock.edge.tasks import inside_task
from airlock.edge.trace import Trace
from airlock.gateway import body, boundary, methods, repeated, streams, tracing
from airlock.gateway.approve import PREFIX, ApprovePage
from airlock.gateway.door import Door, era_of
from airlock.gateway.eras import Era, Heard
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.legacy.replies import Plain
from airlock.gateway.limits import Limits, ScopePeer
from airlock.gateway.metrics import PATH, Page, timed
from airlock.gateway.modern.admission import (
    LOG_LEVEL,
    REVISION,
    Refusal,
    Request,
    admit,
    faulty_wish,
    oversized,
    unauthenticated,
)
from airlock.gateway.oauth import ResourceServer
from airlock.gateway.probes import Probes
from airlock.gateway.responders import later, older
from airlock.gateway.streams import Told

if TYPE_CHECKING:
    from airlock.gateway.legacy.front import LegacyFront

__all__ = ["App", "Fronts"]

NAME_CHARS = 128
_LONGEST_S = 365 * 86400.0

_TEXT = b"text/plain; charset=utf-8"
_MODERN = REVISION.encode("ascii")
_LISTEN = "subscriptions/listen"
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


class Fronts(msgspec.Struct, frozen=True):
    """What the endpoint serves beside the seed's own door: `door` checks before it, `legacy` is the older eras'.

    `oauth` says what clients are told about tokens; with it nobody comes further without a good one. `limits`
    refuses who sends too much, `page` shows numbers: without them nothing is limited and nothing is counted.
    """

    door: Door | None = None
    legacy: LegacyFront | None = None
    oauth: ResourceServer | None = None
    limits: Limits | None = None
    page: Page | None = None


_SEED = Fronts()


class App:
    """Answers HTTP requests for one `Gate`."""

    def __init__(
        self, gate: Gate, identity: Identity, max_request_bytes: int, fronts: Fronts = _SEED
    ) -> None:
        self._gate = gate
        self._identity = identity
        self._door, self._legacy, self._oauth = fronts.door, fronts.legacy, fronts.oauth
        self._limits, self._numbers = fronts.limits, fronts.page
        self._metrics = None if fronts.page is None else fronts.page.metrics
        govern = methods.entry(gate)
        self._govern = govern if self._metrics is None else timed(self._metrics, govern)
        self._draining = asyncio.Event()
        self._probes = Probes(gate)
        self._page = ApprovePage(
            keys=gate.confirmations.keys,
            store=gate.store,
            recorder=gate.recorder,
            clock=gate.clock,
            ids=gate.ids,
            log=gate.log,
            who=identity.approver,
        )
        self._max_request_bytes = max_request_bytes

    @property
    def direct(self) -> Direct:
        """The short way of the front to `answer`: for plain POSTs, which is what clients send."""
        return Direct(b"/mcp", self._max_request_bytes, self.answer, {401: CHALLENGE})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path == "/mcp":
            await self._mcp(scope, receive, send)
        elif path in {"/healthz", "/readyz"}:
            await self._probes(scope, send)
        elif path.startswith(PREFIX):
            await self._page(scope, receive, send)
        elif self._oauth is not None and (told := self._oauth.metadata(scope["method"], path)) is not None:
            await respond(send, told[0], told[1], headers=told[2])
        elif self._numbers is not None and path == PATH:
            await self._numbers(scope, receive, send)
        else:
            await respond(send, 404, b"not found\n", _TEXT)

    def drain(self) -> None:
        """End what has no end of its own: the server stops."""
        self._draining.set()
        if self._legacy is not None:
            self._legacy.drain()

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        lines: list[Line] = scope["headers"]
        if scope["method"] != "POST":
            known = self._legacy is not None or self._oauth is not None
            if known and scope["method"] in {"GET", "DELETE"}:
                try:
                    await self._session(scope["method"], Headers(lines), ScopePeer(scope), receive, send)
                except Exception as error:
                    # The last boundary: recorded; the server answers 500, or ends a stream that has begun.
                    boundary.broke(self._gate, recording.entry(self._gate.ids.hex(16)), None, None, error)
                    raise
            else:
                await respond(send, 405, b"use POST\n", _TEXT, [(b"allow", b"POST")])
            return
        # A1: the size, before anything else.
        raw: bytes | None
        try:
            raw = await read_body(receive, self._max_request_bytes, declared_length(lines))
        except BodyTooLarge:
            raw = None
        except ClientGone:
            return
        answering = asyncio.ensure_future(self.answer(lines, raw, ScopePeer(scope)))
        leaving = asyncio.ensure_future(left(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                return
        finally:
            leaving.cancel()
            answering.cancel()
            await asyncio.wait({answering, leaving})
        answered = answering.result()
        if isinstance(answered, tuple):
            await respond(send, *answered, headers=[CHALLENGE] if answered[0] == 401 else ())
        else:
            await answered(receive, send)

    async def answer(
        self, lines: list[Line], raw: bytes | None, peer: Peer | None = None
    ) -> tuple[int, bytes] | Responder:
        """Answer one POST to `/mcp`, given its header lines, its body (None: over the limit) and who sent it.

        Never raises.
        """
        try:
            answer = await self._answer(raw, Headers(lines), peer)
            if not isinstance(answer, Answer):
                return answer
        except Exception as error:  # noqa: BLE001 - the last boundary: what nobody else caught is recorded here
            entry = recording.entry(self._gate.ids.hex(16))
            answer = boundary.broke(self._gate, entry, None, None, error)
        return (answer.status, answer.body) if not answer.retry_after_s else later(answer)

    async def _answer(self, raw: bytes | None, lines: Headers, peer: Peer | None) -> Answer | Responder:
        """A2 to A12, then the method. `raw` is None for a body over the limit."""
        gate = self._gate
        if self._door is not None:
            foreign = self._door.refused(lines)
            if foreign is not None:
                return self._refused(foreign, None, None, peer)
        if raw is None:
            return self._refused(oversized(self._max_request_bytes), None, None, peer)
        # A2: who is asking; answered only at A12.
        started = gate.clock.now()
        found = self._identity.resolve(lines, started)
        principal = found if found is None or isinstance(found, Principal) else await found
        if self._oauth is not None:
            barred = self._barred(self._oauth, lines, principal, started, peer)
            if barred is not None:
                return barred
        if self._legacy is not None and lines.first.get(b"mcp-protocol-version") != _MODERN:
            other = await self._older(self._legacy, raw, lines, principal, peer)
            if other is not None:
                return other
        # A3-A11
        admitted = admit(raw, lines, gate.snapshot.methods)
        if type(admitted) is Refusal:
            return self._refused(admitted, principal, None, peer)
        assert type(admitted) is Request
        trace = _trace(admitted, gate, started)
        # A12
        if principal is None:
            refusal = unauthenticated(admitted.id, admitted.method, admitted.name)
            answer = self._refused(refusal, None, trace, peer)
            if gate.tracer is not None:
                rule = Rule.RATE_LIMITED if answer.retry_after_s else refusal.rule
                told = (Verdict.DENY, rule) if answer.status in {401, 429} else boundary.BROKEN
                tracing.note(gate, gate.tracer, admitted, trace, *told)
            return answer
        if self._limits is not None:
            over = self._limits.request(admitted, principal, trace)
            if over is not None:
                return over
        # SPEC: mcp.md 5, step 9.
        if gate.snapshot.wide and repeated.in_doubt(gate, admitted):
            amiss = await repeated.refused(gate, admitted, principal, trace)
            if amiss is not None:
                return self._refused(amiss, principal, trace, peer)
        meta = admitted.meta
        if gate.snapshot.wide and (
            "progressToken" in meta or LOG_LEVEL in meta or admitted.method == _LISTEN
        ):
            faulty = faulty_wish(admitted)
            if faulty is not None:
                return self._refused(faulty, principal, trace, peer)
            return self._streamed(admitted, principal, trace)
        return await self._govern(gate, admitted, principal, trace)

    def _streamed(self, request: Request, principal: Principal, trace: Trace) -> Responder:
        """Answer a request whose client wants to hear what comes before the answer."""
        gate, meta = self._gate, request.meta
        minted = None
        if "progressToken" in meta:
            # SPEC: mcp.md 13: two clients may use the same token; the upstream gets one of ours.
            minted = "airlock-" + gate.ids.hex(8)
            meta = {**meta, "progressToken": minted}
        told = Told(minted, request.meta.get("progressToken"))

        def work(heard: Heard) -> Awaitable[Answer]:
            params = {**request.params, "_meta": meta}
            asked = msgspec.structs.replace(request, params=params, meta=meta, heard=heard)
            return self._kept(
                self._until_drained(self._govern(gate, asked, principal, trace), request, principal),
                request.id,
            )

        return self._counted(streams.streamed(work, told))

    async def _kept(self, work: Awaitable[Answer], request_id: object) -> Answer:
        """Return what `work` answers; the last boundary of an answer that may be an event stream."""
        try:
            return await work
        except Exception as error:  # noqa: BLE001 - the last boundary: what nobody else caught is recorded here
            entry = recording.entry(self._gate.ids.hex(16))
            return boundary.broke(self._gate, entry, None, request_id, error)

    def _counted(self, responder: Responder) -> Responder:
        """Count an event stream, where anything is counted."""
        return responder if self._metrics is None else self._metrics.streaming(responder)

    async def _until_drained(
        self, governed: Awaitable[Answer], request: Request, principal: Principal
    ) -> Answer:
        """Wait for an answer; a subscription has none of its own and is ended in order when the server stops.

        SPEC: mcp.md 16: so is one whose caller's token has expired; the client comes back with a new one.
        """
        if request.method != _LISTEN:
            return await governed
        running, draining = asyncio.ensure_future(governed), asyncio.ensure_future(self._draining.wait())
        left_s, ended = _left_s(principal, self._gate.clock.now()), None
        try:
            await asyncio.wait({running, draining}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return running.result()
            ended = "the caller's token expired"
        finally:
            draining.cancel()
            running.cancel("the gateway stops" if self._draining.is_set() else ended)
            await asyncio.wait({running, draining})
        result = {"resultType": "complete", "_meta": {_SUBSCRIPTION: request.id}}
        return Answer(200, body.encode(jsonrpc.result(request.id, result)))

    async def _older(
        self,
        legacy: LegacyFront,
        raw: bytes,
        lines: Headers,
        principal: Principal | None,
        peer: Peer | None,
    ) -> Answer | Responder | None:
        """Answer a POST of an older era; None when it belongs to the modern ladder after all."""
        try:
            message, too_deep = body.decode_request(raw)
        except StrictError:
            return None  # the ladder says what is wrong with it
        if too_deep or era_of(lines, message) is Era.MODERN:
            return None
        # SPEC: mcp.md 5, step 10: probing clients expect the 401 before anything else is judged.
        if principal is None:
            return self._refused(_nobody(message), None, None, peer)
        over = None if self._limits is None else self._limits.message(message, principal)
        if over is not None:
            return over
        await inside_task()
        answered = await legacy.post(lines, raw, message, principal)
        return older(answered) if isinstance(answered, Plain) else self._counted(older(answered))

    async def _session(self, method: str, lines: Headers, peer: Peer, receive: Receive, send: Send) -> None:
        """GET and DELETE: the stream and the end of a session of the older eras."""
        foreign = self._door.foreign(lines) if self._door is not None else None
        now = self._gate.clock.now()
        found = self._identity.resolve(lines, now)
        principal = found if found is None or isinstance(found, Principal) else await found
        if foreign is None and self._oauth is not None:
            # SPEC: mcp.md 16: whoever probes without a token gets its 401, not a 405.
            barred = self._barred(self._oauth, lines, principal, now, peer)
            if barred is not None:
                await barred(receive, send)
                return
        legacy = self._legacy
        if legacy is None or (foreign is None and b"mcp-session-id" not in lines.first):
            await respond(send, 405, b"use POST\n", _TEXT, [(b"allow", b"POST")])
            return
        if foreign is not None or principal is None:
            answer = self._refused(foreign or _nobody(None), None, None, peer)
            if answer.retry_after_s:
                await later(answer)(receive, send)
                return
            await respond(
                send, answer.status, answer.body, headers=[CHALLENGE] if answer.status == 401 else ()
            )
            return
        over = None if self._limits is None else self._limits.session(principal)
        if over is not None:
            await later(over)(receive, send)
            return
        answered = await (legacy.get if method == "GET" else legacy.delete)(lines, principal)
        responder = older(answered, _left_s(principal, now))
        await (responder if isinstance(answered, Plain) else self._counted(responder))(receive, send)

    def _barred(
        self,
        oauth: ResourceServer,
        lines: Headers,
        principal: Principal | None,
        now: float,
        peer: Peer | None,
    ) -> Responder | None:
        """Refuse a caller without a token that is good here, with what tells its client where to get one."""
        why = None if principal is not None else self._identity.why(lines, now)
        found = oauth.unknown(why) if principal is None else oauth.lacking(principal)
        if found is None:
            return None
        refusal, challenge = found
        answer = self._refused(refusal, principal, None, peer)
        if answer.retry_after_s:
            return later(answer)
        lines_of = (challenge,) if answer.status == refusal.status else ()
        return older(Plain(answer.status, answer.body, lines_of))

    def _refused(
        self, refusal: Refusal, principal: Principal | None, trace: Trace | None, peer: Peer | None
    ) -> Answer:
        """Record a refused request, without its arguments, and answer its JSON-RPC error."""
        over = None if self._limits is None else self._limits.refusal(refusal, principal, peer)
        if over is not None:
            return over
        # SECURITY: names are cut and arguments left out, or whoever reaches the port fills the log (T36).
        entry = recording.entry(
            self._gate.ids.hex(16),
            principal=values.name(principal.name) if principal is not None else None,
            method=_name(refusal.method),
            tool=_name(refusal.tool),
            trace_id=trace.trace_id if trace is not None else None,
        )
        entry.verdict, entry.rule_id = Verdict.DENY, refusal.rule
        entry.detail_json = values.detail_json(refusal.reason)
        try:
            self._gate.recorder.refusal(entry)
        except OSError as error:
            return boundary.unrecorded(self._gate, refusal.id, error)
        message = jsonrpc.error(refusal.id, refusal.code, f"airlock: {refusal.reason}", refusal.data)
        return Answer(refusal.status, body.encode(message))


def _left_s(principal: Principal, now: float) -> float | None:
    """How long the caller's token is good after `now`, in seconds; None for a caller without one."""
    until = principal.proof.until
    return None if until is None else min(max(until - now, 0.0), _LONGEST_S)


def _nobody(message: object) -> Refusal:
    """A request of an older era that nobody is known to have sent."""
    request_id, method = None, None
    if isinstance(message, dict):
        request_id = message.get("id") if jsonrpc.usable_id(message.get("id")) else None
        method = message["method"] if isinstance(message.get("method"), str) else None
    return unauthenticated(request_id, method, None)


def _name(text: str | None) -> str | None:
    """A client-chosen name for the log: scrubbed, then cut."""
    clean = values.name(text)
    return None if clean is None else cut(clean, NAME_CHARS, "…[cut]")


def _trace(request: Request, gate: Gate, started: float) -> Trace:
    """SPEC: gateway.md 14: the header first, else strings of `_meta`."""
    first = request.headers.first
    parent = first.get(b"traceparent")
    if parent is not None:
        state = first.get(b"tracestate")
        text = None if state is None else state.decode("latin-1")
        return traces.begin(parent.decode("latin-1"), text, gate.ids, started)
    return traces.begin(request.meta.get("traceparent"), request.meta.get("tracestate"), gate.ids, started)
