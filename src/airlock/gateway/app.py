"""The gateway's routes as one bare ASGI callable: `/mcp`, the probes, the approve page, and 404 for the rest.

Knows the order of admission (gateway.md 2); what an admitted request means is `flow`'s and `listing`'s.
"""

from __future__ import annotations

import asyncio

from airlock.core.decision import Verdict
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.text.cut import cut
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge import trace as traces
from airlock.edge.asgi import BodyTooLarge, ClientGone, Receive, Scope, Send, read_body, respond
from airlock.edge.frontlimits import Direct, Line
from airlock.edge.headers import Headers, declared_length
from airlock.edge.identity.resolve import CHALLENGE, Identity
from airlock.edge.trace import Trace
from airlock.gateway import body, boundary, flow, listing, tracing
from airlock.gateway.approve import PREFIX, ApprovePage
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import Refusal, Request, admit, missing_principal, oversized

__all__ = ["App"]

NAME_CHARS = 128
READY_WAIT_S = 2.0

_TEXT = b"text/plain; charset=utf-8"
_OK = b'{"status":"ok"}'
_UNAVAILABLE = b'{"status":"unavailable"}'


class App:
    """Answers HTTP requests for one `Gate`."""

    def __init__(self, gate: Gate, identity: Identity, max_request_bytes: int) -> None:
        self._gate = gate
        self._identity = identity
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
        self._ping: asyncio.Task[None] | None = None

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
            await self._probe(scope, send)
        elif path.startswith(PREFIX):
            await self._page(scope, receive, send)
        else:
            await respond(send, 404, b"not found\n", _TEXT)

    async def _mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await respond(send, 405, b"use POST\n", _TEXT, [(b"allow", b"POST")])
            return
        lines: list[Line] = scope["headers"]
        # A1: the size, before anything else.
        raw: bytes | None
        try:
            raw = await read_body(receive, self._max_request_bytes, declared_length(lines))
        except BodyTooLarge:
            raw = None
        except ClientGone:
            return
        status, answer = await self.answer(lines, raw)
        await respond(send, status, answer, headers=[CHALLENGE] if status == 401 else ())

    async def answer(self, lines: list[Line], raw: bytes | None) -> tuple[int, bytes]:
        """Answer one POST to `/mcp`, given its header lines and its body (None: over the limit). Never raises."""
        try:
            answer = await self._answer(raw, Headers(lines))
        except Exception as error:  # noqa: BLE001 - the last boundary: what nobody else caught is recorded here
            entry = recording.entry(self._gate.ids.hex(16))
            answer = boundary.broke(self._gate, entry, None, None, error)
        return answer.status, answer.body

    async def _answer(self, raw: bytes | None, lines: Headers) -> Answer:
        """A2 to A12, then the method. `raw` is None for a body over the limit."""
        gate = self._gate
        if raw is None:
            return self._refused(oversized(self._max_request_bytes), None, None)
        # A2: who is asking; answered only at A12.
        started = gate.clock.now()
        found = self._identity.resolve(lines, started)
        principal = found if found is None or isinstance(found, Principal) else await found
        # A3-A11
        admitted = admit(raw, lines)
        if type(admitted) is Refusal:
            return self._refused(admitted, principal, None)
        assert type(admitted) is Request
        trace = _trace(admitted, gate, started)
        # A12
        if principal is None:
            refusal = missing_principal(admitted)
            answer = self._refused(refusal, None, trace)
            if gate.tracer is not None:
                told = (Verdict.DENY, refusal.rule) if answer.status == 401 else boundary.BROKEN
                tracing.note(gate, gate.tracer, admitted, trace, *told)
            return answer
        if admitted.name is not None:
            return await flow.tools_call(gate, admitted, principal, trace)
        return await listing.passed(gate, admitted, principal, trace)

    def _refused(self, refusal: Refusal, principal: Principal | None, trace: Trace | None) -> Answer:
        """Record a refused request, without its arguments, and answer its JSON-RPC error."""
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

    async def _probe(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in {"GET", "HEAD"}:
            await respond(send, 405, b"use GET\n", _TEXT, [(b"allow", b"GET, HEAD")])
        elif scope["path"] == "/healthz" or await self._ready():
            await respond(send, 200, _OK)
        else:
            await respond(send, 503, _UNAVAILABLE)

    async def _ready(self) -> bool:
        """Ask the store, sharing one question among concurrent probes.

        A question that outlasts the wait is abandoned, not cancelled; the next probe asks anew, so one stuck
        connection never pins the answer. SPEC: gateway.md 1.5.
        """
        ping = self._ping
        if ping is None or ping.done():
            ping = asyncio.create_task(self._gate.store.ping())
            ping.add_done_callback(_seen)
            self._ping = ping
        done, _ = await asyncio.wait({ping}, timeout=READY_WAIT_S)
        if not done:
            if self._ping is ping:
                self._ping = None
            return False
        return not ping.cancelled() and ping.exception() is None


def _seen(task: asyncio.Task[None]) -> None:
    """Look at an abandoned ping's exception, so that nothing complains that nobody did."""
    if not task.cancelled():
        task.exception()


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
