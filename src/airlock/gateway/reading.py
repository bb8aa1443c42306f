"""The flow of resources, prompts and completions: shape, policy, record, forward, shape again, record.

Knows the order; what a policy says the core knows, what results look like `readshape`. SPEC: mcp.md 4, 7, 10, 23.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from airlock.core.audit.record import raw
from airlock.core.decision import Verdict
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.policy.model import AccessRule, OutputLimits
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import Rule, protocol_rule
from airlock.core.text.cut import cut
from airlock.core.wire import jsonrpc
from airlock.edge import recording
from airlock.edge.recording import Open
from airlock.edge.trace import Trace
from airlock.gateway import advertised, body, boundary, outgoing, questions, readshape, tracing
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import Request
from airlock.gateway.shaping import Shaped
from airlock.gateway.upstream import http
from airlock.gateway.upstream.port import Answer as UpstreamAnswer
from airlock.gateway.upstream.port import MergedReply

if TYPE_CHECKING:
    from airlock.gateway.hygiene import Cleaner

__all__ = ["NAME_CHARS", "read"]

NAME_CHARS = 512
"""LIMIT: of a longer URI or prompt name the audit keeps the beginning."""

_MAY_ASK = frozenset({"resources/read", "prompts/get"})
_LISTS = {
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
    "prompts/list": ("prompts", "name"),
}
_NOT_FOUND = "not found, or not for this caller"


async def read(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
    """Govern one request of `resources/*`, `prompts/*` or `completion/complete`, and answer it.

    Raises nothing but CancelledError.
    """
    reading = _Reading(gate, request, principal, trace)
    try:
        return await _governed(reading)
    except Exception as error:  # noqa: BLE001 - the boundary: recorded as internal.error, fails closed
        return boundary.broke(gate, reading.entry, reading.opened, request.id, error)
    except asyncio.CancelledError:
        boundary.left(gate, reading.entry, reading.opened)
        raise
    finally:
        if gate.tracer is not None:
            entry = reading.entry
            tracing.note(
                gate, gate.tracer, request, trace, entry.verdict, entry.rule_id, principal=principal.name,
                suspicious=reading.suspicious,
            )  # fmt: skip


class _Target(msgspec.Struct, frozen=True):
    """What a request is about, and what the policy says to that.

    `name` and `args` are for the record. `rule` is the one that allows or denies; `limits` are those of the
    answer, where it has any.
    """

    name: str | None
    rule: Rule
    denied: bool = False
    limits: OutputLimits = OutputLimits()
    hygiene: Mapping[str, str] | None = None
    args: dict[str, object] = {}


class _Reading:
    """One request on its way through the steps."""

    __slots__ = (
        "cleaner",
        "entry",
        "gate",
        "opened",
        "principal",
        "request",
        "snapshot",
        "suspicious",
        "trace",
    )

    def __init__(self, gate: Gate, request: Request, principal: Principal, trace: Trace) -> None:
        self.gate = gate
        self.request = request
        self.principal = principal
        self.trace = trace
        self.snapshot = gate.snapshot  # taken once; a reload does not touch this request
        self.opened: Open | None = None
        self.suspicious = 0
        self.cleaner: Cleaner | None = None
        self.entry = recording.entry(
            gate.ids.hex(16),
            principal=values.name(principal.name),
            method=request.method,
            trace_id=trace.trace_id,
        )

    def about(self, target: _Target) -> None:
        """Put into the record what the request is about."""
        entry, name = self.entry, values.name(target.name)
        entry.subject = msgspec.structs.replace(
            entry.subject,
            tool=None if name is None else cut(name, NAME_CHARS, "…[cut]"),
            args=raw(values.args_json(target.args)),
        )
        entry.verdict = Verdict.DENY if target.denied else Verdict.ALLOW
        entry.rule_id = target.rule

    def misshapen(self, code: int, reason: str) -> Answer:
        """Refuse a request that breaks the protocol, as admission does."""
        self.entry.verdict, self.entry.rule_id = Verdict.DENY, protocol_rule(code)
        self.gate.recorder.refusal(self.entry, reason)
        return self.error(jsonrpc.STATUS[code], code, reason)

    def error(self, status: int, code: int, reason: str, data: object = None) -> Answer:
        """Answer a JSON-RPC error of our own."""
        return Answer(status, body.encode(jsonrpc.error(self.request.id, code, f"airlock: {reason}", data)))


async def _governed(reading: _Reading) -> Answer:
    gate, request, principal = reading.gate, reading.request, reading.principal
    policy = reading.snapshot.policy
    # 1: a family without a section is not served, whoever asks.
    if request.method not in advertised.served(policy):
        return reading.misshapen(jsonrpc.METHOD_NOT_FOUND, "this method is not served")
    # 2
    problem = _problem(request)
    if problem is not None:
        return reading.misshapen(jsonrpc.INVALID_PARAMS, problem)
    # 3
    target = _target(reading)
    reading.about(target)
    if target.denied:
        gate.recorder.refusal(reading.entry)
        return _refused(reading)
    # 4: the intent is on file before anything is sent.
    opened = reading.opened = gate.recorder.intent(reading.entry)
    sent = outgoing.passed_through(questions.narrowed(request, policy, principal), principal, reading.trace)
    # 5
    heard = request.heard
    if reading.snapshot.hygiene is not None:
        allow = policy.hygiene if target.hygiene is None else target.hygiene
        reading.cleaner = reading.snapshot.hygiene(allow)
        heard = reading.cleaner.hearing(heard)
    try:
        if request.method in _LISTS:
            reply = await gate.upstream.send(sent)
            told = reply.own if isinstance(reply, MergedReply) else {}
            return _answered(reading, opened, target, http.read(reply, sent), told)
        answer = await gate.upstream.ask(sent, heard=heard)
        return _answered(reading, opened, target, answer, {})
    except UpstreamError as error:
        opened.close(
            verdict=Verdict.ERROR,
            rule_id=error.kind,
            upstream_status=error.status,
            detail_json=values.detail_json(error.cause),
        )
        return reading.error(502, jsonrpc.INTERNAL, f"upstream failed ({error.kind}): {error.cause}")


def _problem(request: Request) -> str | None:
    """Say what is wrong with the parameters, or None."""
    params = request.params
    if not isinstance(request.meta.get(questions.CAPABILITIES), dict):
        return f"{questions.CAPABILITIES} must be an object"
    match request.method:
        case "resources/read":
            return None if isinstance(params.get("uri"), str) else "resources/read needs a string uri"
        case "prompts/get":
            good = isinstance(params.get("name"), str) and _texts(params.get("arguments"))
            return (
                None if good else "prompts/get needs a string name, and an object of string arguments if any"
            )
        case "completion/complete":
            argument, context = params.get("argument"), params.get("context", {})
            good = (
                _reference(params.get("ref")) is not None
                and isinstance(argument, dict)
                and isinstance(argument.get("name"), str)
                and isinstance(argument.get("value"), str)
                and isinstance(context, dict)
                and _texts(context.get("arguments"))
            )
            return (
                None if good else "completion/complete needs a ref and an argument with string name and value"
            )
        case _:
            good = isinstance(params.get("cursor", ""), str)
            return None if good else "the cursor must be a string"


def _texts(value: object) -> bool:
    """Tell whether `value` is an object of strings, or absent."""
    return value is None or (
        isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    )


def _reference(ref: object) -> tuple[bool, str] | None:
    """Read what a completion is about: whether it is a resource, and its URI or name; None when it is neither."""
    if not isinstance(ref, dict) or ref.get("type") not in ("ref/resource", "ref/prompt"):
        return None
    resource = ref["type"] == "ref/resource"
    name = ref.get("uri" if resource else "name")
    return (resource, name) if isinstance(name, str) else None


def _target(reading: _Reading) -> _Target:
    """Ask the policy. The parameters are in shape."""
    policy, principal, params = reading.snapshot.policy, reading.principal, reading.request.params
    match reading.request.method:
        case "resources/read":
            uri = str(params["uri"])
            return _judged(uri, policy.resource(uri, principal), Rule.RESOURCE_ALLOW, Rule.RESOURCE_DENY, {})
        case "prompts/get":
            name, arguments = str(params["name"]), params.get("arguments")
            args = arguments if isinstance(arguments, dict) else {}
            return _judged(name, policy.prompt(name, principal), Rule.PROMPT_ALLOW, Rule.PROMPT_DENY, args)
        case "completion/complete":
            about = _reference(params["ref"])
            assert about is not None
            resource, name = about
            # SECURITY: completions of what the caller may not see would tell its names one by one.
            seen = (
                policy.template(name, principal) if resource else policy.prompt(name, principal) is not None
            )
            if seen and policy.grants(policy.completion, principal):
                return _Target(name, Rule.COMPLETION_ALLOW)
            return _Target(name, Rule.COMPLETION_DENY, denied=True)
        case _:
            return _Target(None, Rule.PASSTHROUGH)


def _judged(name: str, rule: AccessRule | None, allow: Rule, deny: Rule, args: dict[str, object]) -> _Target:
    if rule is None:
        return _Target(name, deny, denied=True, args=args)
    return _Target(name, allow, limits=rule.output, hygiene=rule.hygiene, args=args)


def _refused(reading: _Reading) -> Answer:
    """Answer like a server that knows of no such thing: a refusal does not tell what there is."""
    params = reading.request.params
    match reading.request.method:
        case "resources/read":
            return reading.error(
                400, jsonrpc.INVALID_PARAMS, f"resource {_NOT_FOUND}", {"uri": params["uri"]}
            )
        case "prompts/get":
            return reading.error(400, jsonrpc.INVALID_PARAMS, f"prompt {_NOT_FOUND}")
        case _:
            nothing = {"resultType": "complete", "completion": {"values": [], "total": 0, "hasMore": False}}
            return Answer(200, body.encode(jsonrpc.result(reading.request.id, nothing)))


def _answered(
    reading: _Reading, opened: Open, target: _Target, answer: UpstreamAnswer, told: dict[str, object]
) -> Answer:
    """Step 6: shape what came, and record how it ended. `told` is what several upstreams say of their list.

    Raises UpstreamError for what cannot be governed.
    """
    gate, request, result = reading.gate, reading.request, answer.result
    if result is None:
        noted: dict[str, object] = {}
        if reading.cleaner is not None:
            reading.cleaner.error(answer.message)
            noted = reading.cleaner.noted(noted)
        opened.close(upstream_status=answer.status, detail_json=values.detail_json(noted or None))
        return Answer(answer.status, body.encode(answer.message))
    kind = result.get("resultType", "complete")
    if kind == "input_required" and request.method in _MAY_ASK:
        reason = questions.forbidden(reading.snapshot.policy, reading.principal, result)
        if reason is not None:
            gate.upstream.abandon(result.get("requestState"))
            opened.close(
                verdict=Verdict.DENY,
                rule_id=Rule.MRTR_UPSTREAM_INPUT_REQUIRED,
                upstream_status=answer.status,
                detail_json=values.detail_json(reason),
            )
            return reading.error(
                200, jsonrpc.INTERNAL, f"denied ({Rule.MRTR_UPSTREAM_INPUT_REQUIRED}): {reason}"
            )
        shaped = readshape.bare(result, reading.cleaner)
        asks: dict[str, object] = {"asks": questions.kinds(result)}
        shaped = msgspec.structs.replace(shaped, detail={**shaped.detail, **asks})
    elif kind == "complete":
        shaped = _shaped(reading, target, result, answer.status, told)
    else:
        raise _unusable("the result is of a type that is not known", answer.status)
    reading.suspicious = shaped.suspicious
    opened.close(upstream_status=answer.status, detail_json=values.detail_json(shaped.detail or None))
    return Answer(answer.status, body.with_result(request.id, shaped.encoded))


def _shaped(
    reading: _Reading, target: _Target, result: dict[str, object], status: int, told: dict[str, object]
) -> Shaped:
    policy, principal, scanner = reading.snapshot.policy, reading.principal, reading.snapshot.scanner
    cleaner = reading.cleaner
    match reading.request.method:
        case "resources/read":
            return readshape.contents(result, str(target.name), target.limits, scanner, cleaner)
        case "prompts/get":
            return readshape.messages(result, target.limits, scanner, cleaner)
        case "completion/complete":
            return readshape.bare(result)
        case method:
            member, key = _LISTS[method]

            def may_see(name: str) -> bool:
                if key == "uriTemplate":
                    return policy.template(name, principal)
                found = policy.resource if key == "uri" else policy.prompt
                return found(name, principal) is not None

            cut_down = readshape.listing(result, member, key, may_see, scanner, told, cleaner)
            if cut_down is None:
                raise _unusable(f"the listing holds no list of {member}", status)
            return cut_down


def _unusable(cause: str, status: int) -> UpstreamError:
    return UpstreamError(UpstreamFailure.BAD_REPLY, cause, reached=True, status=status)
