"""One tool call on its way through the steps of the flow: what is known of it so far, and how it is refused.

Knows what the steps leave behind; the order is `flow`'s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airlock.core.action import Action
from airlock.core.decision import Deny, Tier, Verdict
from airlock.core.policy.decide import Facts
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge.recording import Open
from airlock.edge.trace import Trace
from airlock.gateway import body, composing, results
from airlock.gateway.confirm import Standing, State
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import Request

if TYPE_CHECKING:
    from airlock.gateway.hygiene import Cleaner

__all__ = ["Call"]

_NOTHING_KNOWN = Facts()
_CONFIRMED = Facts(confirmed=True)
_CONTINUED = Facts(confirmed=True, used=0)  # what it counts was charged when it began
_NOTHING_TOLD: dict[str, object] = {}


class Call:
    """One call on its way through the steps."""

    __slots__ = (
        "action", "charged_at", "cleaner", "entry", "gate", "mirror", "opened", "outstanding", "principal",
        "request", "snapshot", "spent", "standing", "suspicious", "told", "trace",
    )  # fmt: skip

    def __init__(self, gate: Gate, request: Request, principal: Principal, trace: Trace) -> None:
        assert request.name is not None
        self.gate = gate
        self.request = request
        self.principal = principal
        self.trace = trace
        # 1: the snapshot is taken once; a reload does not touch this call.
        self.snapshot = gate.snapshot
        target = gate.target or gate.upstream.target(request.name)
        self.action = Action(request.name, request.arguments, self.snapshot.policy.environment, target)
        self.mirror: str | None = None
        self.standing: Standing | None = None
        self.outstanding: composing.Outstanding | None = None  # what a server asked that this call answers
        self.told = _NOTHING_TOLD  # what both records of a call that answers it say
        self.opened: Open | None = None
        self.charged_at = 0.0
        self.spent = False  # a yes was burned for this call
        self.suspicious = 0  # injection findings in what came back
        self.cleaner: Cleaner | None = None
        self.entry = recording.entry(
            gate.ids.hex(16),
            principal=values.name(principal.name),
            method="tools/call",
            tool=values.name(request.name),
            args_json=values.args_json(request.arguments),
            trace_id=trace.trace_id,
        )

    def deny(self, deny: Deny, detail: object = None, *, wait_s: int = 0) -> Answer:
        """Record a refusal and answer it as a tool result the model can read. `wait_s` is told as in `results`."""
        entry = self.entry
        entry.verdict = Verdict.DENY
        entry.rule_id = deny.rule
        entry.tier = deny.tier
        entry.detail_json = values.detail_json(detail if detail is not None else deny.reason or None)
        self.gate.recorder.refusal(entry)
        return self.reply(results.denied(deny.rule, deny.reason, spent=self.spent, wait_s=wait_s))

    def facts(self) -> Facts:
        """What is known before anything is fetched."""
        if self.standing is None:
            return _NOTHING_KNOWN
        if self.standing.state is State.CONTINUES:
            return _CONTINUED
        return _CONFIRMED if self.standing.state is State.ACCEPTED else _NOTHING_KNOWN

    def tier(self) -> Tier | None:
        """The tier that policy gives this call, for refusals that come before the decision."""
        return self.snapshot.policy.tier(self.action.name, self.principal)

    def reply(self, result: dict[str, object]) -> Answer:
        """Answer with a result of our own."""
        return Answer(200, body.encode(jsonrpc.result(self.request.id, result)))
