"""The flow of one tool call, in the numbered steps of gateway.md 6. The same for every front.

Everything it decides it asks the pure core; everything it does goes through a port of the `Gate`.
"""

from __future__ import annotations

import asyncio
import math

import msgspec

from airlock.core import grant as grants
from airlock.core.decision import Allow, Confirm, Deny, Fact, Need, Verdict
from airlock.core.errors import StoreUnavailable, UpstreamError
from airlock.core.grant import Grant
from airlock.core.policy.decide import decide, over_window
from airlock.core.principal import Principal
from airlock.core.redact import values
from airlock.core.rules import Rule
from airlock.edge.trace import Trace
from airlock.gateway import asking, body, boundary, composing, outgoing, questions, results, shaping, tracing
from airlock.gateway.call import Call
from airlock.gateway.catalog import CatalogUnavailable
from airlock.gateway.confirm import Standing, State
from airlock.gateway.gate import Answer, Gate
from airlock.gateway.modern.admission import Request
from airlock.gateway.pending import Prompts
from airlock.gateway.upstream.port import Answer as UpstreamAnswer
from airlock.gateway.waiting import OPEN, waiting

__all__ = ["tools_call"]


async def tools_call(gate: Gate, request: Request, principal: Principal, trace: Trace) -> Answer:
    """Govern one admitted `tools/call` and answer it. Never raises for anything a client or upstream does."""
    call = Call(gate, request, principal, trace)
    try:
        try:
            return await _decided(call)
        except StoreUnavailable as error:
            gate.log.warning(f"the state store did not answer: {error}")
            gone = Deny(Rule.STORE_UNAVAILABLE, "the state store did not answer", call.tier())
            return call.deny(gone, detail=str(error))
    except Exception as error:  # noqa: BLE001 - the boundary: recorded as internal.error, fails closed
        return boundary.broke(gate, call.entry, call.opened, request.id, error)
    except asyncio.CancelledError:
        boundary.left(gate, call.entry, call.opened)
        raise
    finally:
        if gate.tracer is not None:
            entry = call.entry
            tracing.note(
                gate,
                gate.tracer,
                request,
                trace,
                entry.verdict,
                entry.rule_id,
                entry.tier,
                principal.name,
                call.suspicious,
            )


async def _decided(call: Call) -> Answer:
    """Steps 2 to 10: decide, and hand what may run to `_forwarded`."""
    gate = call.gate
    # 2: a confirmation that comes back.
    if "requestState" in call.request.params:
        checked = await composing.check(gate, call.action, call.principal, call.request.params)
        if isinstance(checked, Rule):
            if gate.prompts is not None and checked is Rule.MRTR_DECLINED:
                gate.prompts.declined(gate.confirmations.keys, call.request.params["requestState"])
            return call.deny(Deny(checked, "", call.tier()))
        call.standing, call.outstanding = checked
    # 3-5: allowlist, where, tier, radius, schema.
    decision = decide(call.action, call.principal, call.snapshot.policy, call.facts())
    if isinstance(decision, Need):
        decision = await _judged(call, decision)
    if call.standing is not None and call.outstanding is not None:
        decision = composing.judged(
            gate, call.snapshot.policy, call.standing, call.outstanding, call.action, decision
        )
        call.told = composing.told(call.standing, call.outstanding, call.request.params)
        call.entry.detail_json = values.detail_json(call.told or None)
    # 6
    if isinstance(decision, Deny):
        return call.deny(decision)
    call.entry.tier = decision.tier
    call.entry.rule_id = decision.rule
    if isinstance(decision, Confirm):
        call.entry.verdict = Verdict.CONFIRM
        # 7: still waiting; nothing is sent and nobody is asked again.
        if call.standing is not None and call.standing.state in OPEN:
            waited = await waiting(call, call.standing)
            return await _decided(call) if waited is None else waited
        if gate.prompts is not None:
            return await _once(call, decision, gate.prompts)
        return await _asking(call, decision)
    call.entry.verdict = Verdict.ALLOW
    if call.standing is not None and call.outstanding is not None:
        return await _continued(call, call.standing, call.outstanding, decision)
    # 8-9: use the yes up, then reserve; either can still refuse. A read or a dry run touches no store.
    if decision.charge is None and call.standing is None:
        return await _forwarded(call, decision, grants.by_policy(call.action, decision))
    granted = await _granted(call, decision)
    if isinstance(granted, Deny):
        return call.deny(granted)
    return await _forwarded(call, decision, granted)


async def _judged(call: Call, need: Need) -> Allow | Deny | Confirm:
    """Obtain each fact that `decide` needs, and ask again."""
    policy, facts = call.snapshot.policy, call.facts()
    while True:
        if need.fact is Fact.SCHEMA:
            try:
                found = await call.gate.catalog.dry_run(
                    call.action.name, call.request.version, call.principal, call.trace
                )
            except CatalogUnavailable as error:
                return Deny(Rule.CATALOG_UNAVAILABLE, error.reason, call.tier())
            call.mirror = found.mirror
            facts = msgspec.structs.replace(facts, dry_run_declared=found.declared)
        else:
            window = policy.tools[call.action.name].radius.window_s
            since = call.gate.clock.now() - window
            used = await call.gate.store.used(call.principal.name, call.action.name, since)
            facts = msgspec.structs.replace(facts, used=used)
        decision = decide(call.action, call.principal, policy, facts)
        if not isinstance(decision, Need):
            return decision
        need = decision


async def _continued(
    call: Call, standing: Standing, outstanding: composing.Outstanding, decision: Allow
) -> Answer:
    """Go on with an execution that asked something. SPEC: mcp.md 10 (3): it is the one that was begun."""
    granted = await composing.continued(call.gate, standing, outstanding, call.action, decision)
    if isinstance(granted, Deny):
        return call.deny(granted)
    return await _forwarded(call, *granted)


async def _asking(call: Call, decision: Confirm) -> Answer:
    """Step 10: where nothing can be shown, the person is asked without a preview."""
    if not decision.preview:
        return await _asked(call)
    return await _forwarded(call, decision, grants.for_preview(call.action, decision))


async def _once(call: Call, decision: Confirm, prompts: Prompts) -> Answer:
    """Step 10, but an identical question that is still open is shown again, and nobody is asked too often."""
    known = await prompts.find(call.action, call.principal.name)
    if known is not None:
        key, shown = known
        if call.outstanding is not None:
            call.gate.upstream.abandon(call.outstanding.state)
        call.entry.detail_json = values.detail_json({"collapsed": key})
        call.gate.recorder.refusal(call.entry)
        return Answer(200, body.with_result(call.request.id, shown))
    wait = math.ceil(prompts.over(call.principal.name))
    if wait:
        reason = f"a person may be asked {prompts.rate} for one caller; try again in {wait} s"
        return call.deny(Deny(Rule.PROMPT_LIMITED, reason, decision.tier), wait_s=wait)
    with prompts.making(call.action, call.principal.name):
        return await _asking(call, decision)


async def _granted(call: Call, allow: Allow) -> Grant | Deny:
    """Steps 8 and 9, by the clock of this moment. A key that was burned stays burned whatever comes after."""
    standing, store = call.standing, call.gate.store
    now = call.charged_at = call.gate.clock.now()
    burned = charged = False
    radius = call.snapshot.policy.tools[call.action.name].radius
    who, tool, since = call.principal.name, call.action.name, now - radius.window_s
    if standing is not None and standing.state is State.ACCEPTED and allow.dry_run is not True:
        # SPEC: gateway.md 6 [STRICTER]: whatever tier runs it for real, an accepted yes is used up.
        if standing.claims.exp <= now:
            return Deny(Rule.MRTR_EXPIRED, "", allow.tier)
        key, exp = standing.claims.k, standing.claims.exp
        if allow.charge is None:
            burned = await store.burn(key, exp)
        else:
            call.spent = True  # a store that fails in here may have burned it
            burned, charged = await store.burn_and_reserve(
                key, exp, who, tool, allow.charge, now, since, radius.max_per_principal
            )
        call.spent = burned
        if call.gate.prompts is not None:
            call.gate.prompts.settled(key)
        if not burned:
            return Deny(Rule.MRTR_REPLAY, "", allow.tier)
    if allow.charge is not None:
        if not burned:
            charged = await store.reserve(who, tool, allow.charge, now, since, radius.max_per_principal)
        if not charged:
            return over_window(allow.charge, await store.used(who, tool, since), radius, allow.tier)
    if allow.rule is Rule.L2_CONFIRMED:
        return grants.by_approval(call.action, allow, burned=burned)
    return grants.by_policy(call.action, allow)


async def _forwarded(call: Call, decision: Allow | Confirm, grant: Grant) -> Answer:
    """Steps 11 to 16: the intent on file, the call sent, the answer shaped, the outcome recorded."""
    gate, asks = call.gate, isinstance(decision, Confirm)
    gated = asks or decision.rule is Rule.L2_CONFIRMED
    charge = decision.charge if isinstance(decision, Allow) else None
    # 11: whatever fails before the intent is on file, nothing was sent, so nothing is charged.
    call.entry.dry_run = grant.dry_run
    asked = call.request
    policy = call.snapshot.policy
    if call.snapshot.wide or (gated and composing.composes(policy, call.action.name)):
        asked = questions.narrowed(asked, policy, call.principal)
    if call.outstanding is not None:
        asked = composing.answering(asked, call.outstanding)
    try:
        request = outgoing.for_call(
            grant,
            asked,
            call.principal,
            call.trace,
            mirror=call.mirror,
            strip_state=call.outstanding is None and (asks or call.standing is not None),
        )
        call.opened = gate.recorder.intent(call.entry)
    except Exception:
        await _give_back(call, charge)
        raise
    # 12
    heard = call.request.heard
    if call.snapshot.hygiene is not None:
        call.cleaner = call.snapshot.hygiene(policy.tools[call.action.name].hygiene)
        heard = call.cleaner.hearing(heard)
    try:
        answer = await gate.upstream.call(grant, request, exact=gated, heard=heard)
    except UpstreamError as error:
        if not error.reached:
            await _give_back(call, charge)
        call.opened.close(
            verdict=Verdict.ERROR,
            rule_id=error.kind,
            upstream_status=error.status,
            detail_json=values.detail_json(error.cause),
        )
        left = call.outstanding
        # A question that was not answered yet is still open, where its server knows it by a state.
        confirmed = decision.rule is Rule.L2_CONFIRMED and (left is None or left.state is None)
        return call.reply(results.failed(error, dry=grant.dry_run is True, asking=asks, confirmed=confirmed))
    return await _answered(call, decision, grant, answer, gated=gated)


async def _answered(
    call: Call, decision: Allow | Confirm, grant: Grant, answer: UpstreamAnswer, *, gated: bool
) -> Answer:
    """Steps 13 to 16."""
    asks = isinstance(decision, Confirm)
    result = answer.result
    if result is None:
        # A JSON-RPC error goes back unchanged, but for hygiene; behind L2 it is a dry run that failed.
        failed: dict[str, object] = {"no_prompt": "the dry run was answered with an error"} if asks else {}
        if call.cleaner is not None:
            call.cleaner.error(answer.message)
            failed = call.cleaner.noted(failed)
        _closed(call, answer.status, failed or None)
        return Answer(answer.status, body.encode(answer.message))
    # 13
    if result.get("resultType") == "input_required":
        if call.cleaner is not None:
            call.cleaner.questions(result)
        questioned = _questioned(call, decision, result, answer.status, gated=gated)
        if questioned is not None:
            return questioned
    # 14
    own_error = result.get("isError") is True
    limits = call.snapshot.policy.tools[call.action.name].output
    verdict = Verdict.CONFIRM if asks else Verdict.ALLOW
    shaped = shaping.shape(
        result,
        call.snapshot.scanner,
        limits,
        verdict=verdict,
        rule=decision.rule,
        dry_run=grant.dry_run,
        cleaner=call.cleaner,
    )
    call.suspicious = shaped.suspicious
    # 15
    detail = shaped.detail
    if asks:
        if answer.status == 200 and not own_error:
            return await _asked(call, result, answer.status, shaped.detail)
        detail = {**shaped.detail, "no_prompt": "the dry run failed, nobody was asked"}
    # 16
    _closed(call, answer.status, detail or None)
    return Answer(answer.status, body.with_result(call.request.id, shaped.encoded))


def _questioned(
    call: Call, decision: Allow | Confirm, result: dict[str, object], status: int, *, gated: bool
) -> Answer | None:
    """Step 13: a question of the server. None where it goes back to the client as any other result does."""
    gate, snapshot = call.gate, call.snapshot
    reason = None
    if gated and composing.composes(snapshot.policy, call.action.name):
        put = composing.put(
            gate, snapshot, call.request, call.action, call.principal, call.standing, decision, result
        )
        if isinstance(put, composing.Put):
            call.suspicious = put.suspicious
            _closed(call, status, put.detail if call.cleaner is None else call.cleaner.noted(put.detail))
            return call.reply(put.result)
        reason = put
    elif gated:
        reason = "a tool behind a confirmation may not ask questions of its own"
    elif snapshot.wide:
        reason = questions.forbidden(snapshot.policy, call.principal, result)
    if reason is None:
        return None
    gate.upstream.abandon(result.get("requestState"))
    assert call.opened is not None
    call.opened.close(
        verdict=Verdict.DENY,
        rule_id=Rule.MRTR_UPSTREAM_INPUT_REQUIRED,
        upstream_status=status,
        detail_json=values.detail_json(reason),
    )
    return call.reply(results.denied(Rule.MRTR_UPSTREAM_INPUT_REQUIRED, reason))


async def _asked(
    call: Call,
    preview: dict[str, object] | None = None,
    status: int | None = None,
    detail: dict[str, object] | None = None,
) -> Answer:
    """Steps 10 and 15: issue a ticket and ask the person, with the dry run's result where there is one."""
    gate = call.gate
    if call.opened is None:
        call.opened = gate.recorder.intent(call.entry)
    asked = asking.question(gate, call.snapshot.policy, call.action, call.principal, preview)
    lost = None if gate.prompts is None else gate.prompts.keep(asked.claims, asked.result)
    if gate.approvers is not None:
        await gate.approvers.announce(asked.claims, asked.message, lost)
    _closed(call, status, detail or None)
    return call.reply(asked.result)


def _closed(call: Call, status: int | None, detail: dict[str, object] | None) -> None:
    """Write the outcome with the decision's own verdict and rule."""
    assert call.opened is not None
    call.opened.close(
        verdict=call.entry.verdict,
        rule_id=call.entry.rule_id,
        upstream_status=status,
        detail_json=values.detail_json({**call.told, **(detail or {})} if call.told else detail),
    )


async def _give_back(call: Call, charge: int | None) -> None:
    """Undo a charge for a call that was never sent. SPEC: gateway.md 5.6: a failed refund is logged only."""
    if charge is None:
        return
    try:
        await call.gate.store.give_back(call.principal.name, call.action.name, charge, call.charged_at)
    except Exception as error:  # noqa: BLE001 - the boundary: the call's own end must not be lost over a refund
        call.gate.log.warning(f"a charge could not be given back: {boundary.told(error)}")
