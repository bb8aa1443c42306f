"""The results the gateway makes itself: refusals, prompts, pending answers, upstream failures.

Knows shapes only (gateway.md 7, 11); the flow knows when. Texts beginning `airlock: ` are anchors.
"""

from __future__ import annotations

from airlock.core.approval.ticket import ANSWER_KEY
from airlock.core.decision import Verdict
from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.rules import Rule
from airlock.core.text.safe import one_line
from airlock.gateway import meta

__all__ = ["denied", "failed", "pending", "prompted", "questioned", "sent_state", "unconfirmed"]


_START_AGAIN = "the confirmation is spent: start again without requestState"


def denied(rule: Rule, reason: str, *, spent: bool = False, wait_s: int = 0) -> dict[str, object]:
    """7.2: a refusal the model can read. `spent`: a yes was already used up for it (8.4).

    `wait_s`: the whole seconds after which the call may be tried again, 0: waiting does not help.
    """
    text = f"airlock: denied ({rule})"
    if spent:
        reason = f"{reason}; {_START_AGAIN}" if reason else _START_AGAIN
    result = _error(f"{text}: {reason}" if reason else text, Verdict.DENY, rule)
    if wait_s and isinstance(own := result["_meta"], dict):
        own[meta.RETRY_AFTER] = wait_s
    return result


def failed(error: UpstreamError, *, dry: bool, asking: bool, confirmed: bool) -> dict[str, object]:
    """7.8: the upstream failed; says what ran, what may have run, and what to do.

    `dry`: a dry run was sent. `asking`: it was the preview of a prompt. `confirmed`: a yes was spent on it.
    """
    text = f"airlock: {_cause(error)}; {_ran(error, dry=dry)}"
    if asking:
        text += ", no confirmation was issued"
    if confirmed and not error.reached:
        text += f", {_START_AGAIN}"
    return _error(text, Verdict.ERROR, error.kind)


def _cause(error: UpstreamError) -> str:
    match error.kind:
        case UpstreamFailure.UNREACHABLE:
            return f"upstream unreachable: {error.cause}"
        case UpstreamFailure.ENCODED:
            return "upstream answered with compressed content"
        case UpstreamFailure.BAD_REPLY:
            return f"upstream sent a bad reply: {error.cause}"
        case UpstreamFailure.TOO_LARGE:
            return f"upstream reply dropped: {error.cause}"


def _ran(error: UpstreamError, *, dry: bool) -> str:
    if not error.reached:
        return "nothing reached the upstream"
    if error.kind is UpstreamFailure.TOO_LARGE:
        return "only the dry run ran, nothing was executed" if dry else "the call ran"
    return "the dry run may have run, nothing was executed" if dry else "the call may have run"


def prompted(
    message: str, title: str, state: str, key: str, carried: dict[str, object], preview: list[object] | None
) -> dict[str, object]:
    """7.4: the question to a person, in the form of an elicitation.

    `carried` is what the preview's own `_meta` held; `preview` its content, scrubbed (None: there was none).
    """
    own: dict[str, object] = {
        **carried,
        meta.VERDICT: Verdict.CONFIRM,
        meta.RULE_ID: Rule.L2_CONFIRM,
        meta.IDEMPOTENCY_KEY: key,
    }
    if preview is not None:
        own[meta.DRY_RUN] = True
        own[meta.DRY_RUN_PREVIEW] = preview
    schema = {
        "type": "object",
        "properties": {"confirm": {"type": "boolean", "title": title}},
        "required": ["confirm"],
    }
    params = {"mode": "form", "message": message, "requestedSchema": schema}
    return {
        "resultType": "input_required",
        "inputRequests": {ANSWER_KEY: {"method": "elicitation/create", "params": params}},
        "requestState": state,
        "_meta": own,
    }


def questioned(requests: dict[str, object] | None, state: str, own: dict[str, object]) -> dict[str, object]:
    """mcp.md 25c: questions of the server under its own keys (None: it asks to be called again), with our state."""
    result: dict[str, object] = {"resultType": "input_required", "requestState": state, "_meta": own}
    if requests is not None:
        result["inputRequests"] = requests
    return result


def pending(state: str, key: str, *, ignored: bool) -> dict[str, object]:
    """7.5: still waiting; the same state goes back. `ignored`: the client said yes where only a link may."""
    message = "waiting for a person to approve by the link; repeat the call with this requestState"
    if ignored:
        message = "the accept sent by the client was ignored: only the approve link approves; " + message
    return {
        "resultType": "input_required",
        "requestState": state,
        "_meta": {
            meta.STATUS: "pending",
            meta.IDEMPOTENCY_KEY: key,
            meta.MESSAGE: message,
            meta.VERDICT: Verdict.CONFIRM,
            meta.RULE_ID: Rule.MRTR_PENDING,
        },
    }


def unconfirmed(tool: str, key: str, why: str, *, attaches: bool) -> dict[str, object]:
    """A question that nobody answered: neither allowed nor denied. `attaches`: the same call again finds it."""
    again = (
        " within 10 minutes: it goes on waiting for the same approval, and runs once a person has said yes"
        if attaches
        else "; a person is then asked once more"
    )
    text = (
        f"airlock: not confirmed: {why}; nothing was executed, and nothing was refused. "
        f"To resume, call {one_line(tool)} again with the same arguments{again}."
    )
    result = _error(text, Verdict.CONFIRM, Rule.MRTR_PENDING)
    own = result["_meta"]
    assert isinstance(own, dict)
    own[meta.STATUS] = "pending"
    own[meta.IDEMPOTENCY_KEY] = key
    return result


def sent_state(params: dict[str, object]) -> str | None:
    """The `requestState` of a request, when it is text."""
    state = params.get("requestState")
    return state if isinstance(state, str) else None


def _error(text: str, verdict: Verdict, rule: str) -> dict[str, object]:
    return {
        "resultType": "complete",
        "isError": True,
        "content": [{"type": "text", "text": text}],
        "_meta": {meta.VERDICT: verdict, meta.RULE_ID: rule},
    }
