"""The flow of `subscriptions/listen`: what a client may hear of an upstream, for as long as it stays.

Knows kinds of notifications and whom they may reach; does not know how a stream is written.

SPEC: mcp.md 12, 23, 25f.
LIMIT: a subscription outlives the token that opened it; it ends with its connection.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

import msgspec

from airlock.core.decision import Verdict
from airlock.core.errors import UpstreamError
from airlock.core.policy.model import Policy
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import Rule, protocol_rule
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge.recording import Entry, Open
from airlock.edge.trace import Trace
from airlock.gateway import body, boundary, meta, outgoing, questions, tracing
from airlock.gateway.changes import Changes
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import Request
from airlock.gateway.upstream.port import Heard, Outgoing

__all__ = [
    "ACKNOWLEDGED",
    "ACK_WAIT_S",
    "FIRST_WAIT_S",
    "LONGEST_WAIT_S",
    "MOST_URIS",
    "SUBSCRIPTION",
    "listen",
]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

ACK_WAIT_S = 10.0
"""How long the upstream may take to say what it honours, before the client hears what we do."""

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
"""How long is waited before an upstream that ended the stream is asked again; doubled each time."""

MOST_URIS = 1000
"""SECURITY: resources in one subscription."""

_UPDATED = "notifications/resources/updated"
_URIS = "resourceSubscriptions"
_METHOD_OF = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}
_KIND_OF = {method: kind for kind, method in _METHOD_OF.items()}
_LEFT = "the client closed the stream"


async def listen(
    gate: Gate, request: Request, principal: Principal, trace: Trace, changes: Changes
) -> Answer:
    """Serve one subscription until its client leaves, which is told by cancellation.

    `request.heard` gets the acknowledgement first, then events; every message carries the request's own id as
    `subscriptionId`. An answer comes only for a refusal: of ours, or of the upstream before it acknowledged
    anything. Too many open subscriptions: -32603 with status 200. Raises nothing but CancelledError, whose text
    the record keeps as the reason.
    """
    entry = recording.entry(
        gate.ids.hex(16),
        principal=values.name(principal.name),
        method=request.method,
        args_json="{}",
        trace_id=trace.trace_id,
    )
    entry.verdict, entry.rule_id = Verdict.ALLOW, Rule.PASSTHROUGH
    opened: Open | None = None
    try:
        wanted = _wanted(request, gate.snapshot.policy, principal)
        if isinstance(wanted, str):
            return _refused(gate, entry, request, jsonrpc.INVALID_PARAMS, wanted)
        full = changes.full(principal.name)
        if full is not None:
            return _refused(gate, entry, request, jsonrpc.INTERNAL, full, status=200)
        opened = gate.recorder.intent(entry)
        stream = _Stream(gate, request, principal, wanted)
        with changes.subscribe(principal.name, stream.changed):
            try:
                answer = await _followed(gate, stream, _sent(gate, request, principal, trace, wanted))
            except asyncio.CancelledError as error:
                ended = {"events": stream.events, "ended": str(error) or _LEFT}
                opened.close(detail_json=values.detail_json(ended))
                raise
        opened.close(upstream_status=answer.status, detail_json=values.detail_json({"events": stream.events}))
        return answer
    except Exception as error:  # noqa: BLE001 - the boundary: recorded as internal.error, fails closed
        return boundary.broke(gate, entry, opened, request.id, error)
    finally:
        if gate.tracer is not None:
            tracing.note(
                gate, gate.tracer, request, trace, entry.verdict, entry.rule_id, principal=principal.name
            )


class _Wanted(msgspec.Struct, frozen=True):
    """What a client asked for and may have: kinds of list changes, and URIs as it wrote them."""

    kinds: tuple[str, ...]
    uris: tuple[str, ...]

    def as_params(self) -> dict[str, object]:
        """Return it as the member `notifications` of a request or an acknowledgement."""
        told: dict[str, object] = dict.fromkeys(self.kinds, True)
        if self.uris:
            told[_URIS] = list(self.uris)
        return told


class _Stream:
    """One client's subscription. It is the `Heard` of the upstream's stream, however often that is opened again."""

    __slots__ = (
        "_gate",
        "_heard",
        "_id",
        "_principal",
        "_stale",
        "_wanted",
        "acknowledged",
        "events",
        "missed",
    )

    def __init__(self, gate: Gate, request: Request, principal: Principal, wanted: _Wanted) -> None:
        assert request.heard is not None
        self._heard: Heard = request.heard
        self._gate = gate
        self._id = request.id
        self._principal = principal
        self._wanted = wanted
        self._stale = False  # a change of our own came before the acknowledgement
        self.acknowledged = False
        self.missed = False  # the upstream's stream ended: what it would have said is lost
        self.events = 0

    def acknowledge(self, uris: tuple[str, ...] = ()) -> None:
        """Tell the client what is honoured, once: the kinds, since we announce changes of our own, and `uris`."""
        if self.acknowledged:
            return
        self.acknowledged = True
        honoured = _Wanted(self._wanted.kinds, uris)
        self._tell(ACKNOWLEDGED, {"notifications": honoured.as_params()})
        if self._stale:
            self.changed()

    def changed(self) -> None:
        """Tell the client that each list it listens to may have changed."""
        if not self.acknowledged:
            self._stale = True
            return
        for kind in self._wanted.kinds:
            self._event(kind, {})

    def notify(self, message: dict[str, object]) -> None:
        """Take one notification of the upstream and pass on what the client may hear."""
        method, params = message.get("method"), message.get("params")
        told = params if isinstance(params, dict) else {}
        if method == ACKNOWLEDGED:
            self._began(told.get("notifications"))
        elif not self.acknowledged:
            return  # SPEC: mcp.md 12: the acknowledgement comes first
        elif method == _UPDATED:
            uri = told.get("uri")
            if self._wanted.uris and isinstance(uri, str):
                self._updated(uri, told)
        elif isinstance(method, str) and method in _KIND_OF and _KIND_OF[method] in self._wanted.kinds:
            self._event(_KIND_OF[method], told)

    def _began(self, notifications: object) -> None:
        honoured = notifications.get(_URIS) if isinstance(notifications, dict) else None
        named = (
            {uri for uri in honoured if isinstance(uri, str)} if isinstance(honoured, list) else frozenset()
        )
        self.acknowledge(tuple(uri for uri in self._wanted.uris if uri in named))
        if self.missed:
            # SPEC: mcp.md 12: nothing is repeated; whoever listens has to look again.
            self.missed = False
            self.changed()
            for uri in self._wanted.uris:
                self._updated(uri, {"uri": uri})

    def _updated(self, uri: str, params: dict[str, object]) -> None:
        # SECURITY: asked again for each event: the policy may have changed, and the upstream says what it likes.
        if self._gate.snapshot.policy.resource(uri, self._principal) is not None:
            self.events += 1
            self._tell(_UPDATED, params)

    def _event(self, kind: str, params: dict[str, object]) -> None:
        if _served(kind, self._gate.snapshot.policy):
            self.events += 1
            self._tell(_METHOD_OF[kind], params)

    def _tell(self, method: str, params: dict[str, object]) -> None:
        tags = params.get("_meta")
        own = (
            {key: tag for key, tag in tags.items() if not key.startswith(meta.PREFIX)}
            if isinstance(tags, dict)
            else {}
        )
        # INVARIANT: the id is the client's own, type and all, whatever the upstream calls its stream.
        own[SUBSCRIPTION] = self._id
        self._heard.notify({"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": own}})


def _served(kind: str, policy: Policy) -> bool:
    if kind == "toolsListChanged":
        return True
    return (policy.prompts if kind == "promptsListChanged" else policy.resources) is not None


def _wanted(request: Request, policy: Policy, principal: Principal) -> _Wanted | str:
    """Read what is asked for, without what is not served to this caller; a text is what is wrong with it."""
    asked = request.params.get("notifications")
    if not isinstance(request.meta.get(questions.CAPABILITIES), dict):
        return f"{questions.CAPABILITIES} must be an object"
    if not isinstance(asked, dict):
        return "subscriptions/listen needs an object of notifications"
    if not all(isinstance(asked.get(kind, False), bool) for kind in _METHOD_OF):
        return "a kind of notification is asked for with true"
    uris = asked.get(_URIS, [])
    if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in uris):
        return f"{_URIS} must be a list of URIs"
    if len(uris) > MOST_URIS:
        return f"{_URIS} may hold {MOST_URIS} URIs"
    return _Wanted(
        tuple(kind for kind in _METHOD_OF if asked.get(kind) is True and _served(kind, policy)),
        tuple(uri for uri in dict.fromkeys(uris) if policy.resource(uri, principal) is not None),
    )


def _sent(
    gate: Gate, request: Request, principal: Principal, trace: Trace, wanted: _Wanted
) -> Outgoing | None:
    """Build what the upstream is asked; None when there is nothing to hear of it."""
    if not wanted.kinds and not wanted.uris:
        return None
    params = {**request.params, "notifications": wanted.as_params()}
    asked = questions.narrowed(
        msgspec.structs.replace(request, params=params), gate.snapshot.policy, principal
    )
    return outgoing.passed_through(asked, principal, trace)


async def _followed(gate: Gate, stream: _Stream, sent: Outgoing | None) -> Answer:
    """Keep the upstream's stream open, again and again, until it refuses or the client leaves."""
    if sent is None:
        stream.acknowledge()
        await _forever()
    late = asyncio.get_running_loop().call_later(ACK_WAIT_S, stream.acknowledge)
    wait = FIRST_WAIT_S
    upstream = gate.upstream if gate.listens is None else gate.listens
    try:
        while True:
            began = gate.clock.monotonic()
            try:
                answer = await upstream.listen(sent, stream)
            except UpstreamError as error:
                if not stream.missed:
                    gate.log.line(f"a subscription lost its upstream: {error.kind}: {error.cause}")
            else:
                refusal = answer.message.get("error")
                if isinstance(refusal, dict) and refusal.get("code") == jsonrpc.METHOD_NOT_FOUND:
                    stream.acknowledge()  # what we announce ourselves is all there is to hear
                    await _forever()
                if answer.result is None and not stream.acknowledged:
                    return Answer(answer.status, body.encode(answer.message))
            stream.acknowledge()
            stream.missed = True
            if gate.clock.monotonic() - began >= LONGEST_WAIT_S:
                wait = FIRST_WAIT_S
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)
    finally:
        late.cancel()


async def _forever() -> NoReturn:
    """Wait until cancelled."""
    while True:
        await asyncio.get_running_loop().create_future()


def _refused(
    gate: Gate, entry: Entry, request: Request, code: int, reason: str, status: int | None = None
) -> Answer:
    """Record a refusal and answer its JSON-RPC error."""
    entry.verdict, entry.rule_id = Verdict.DENY, protocol_rule(code)
    gate.recorder.refusal(entry, reason)
    message = jsonrpc.error(request.id, code, f"airlock: {reason}")
    return Answer(jsonrpc.STATUS[code] if status is None else status, body.encode(message))
