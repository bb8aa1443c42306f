"""Questions of a server in a call behind a confirmation: put to the client in their turn, the answers carried back.

Knows the stages, what a ticket carries for the server and how its questions are shown. Does not know what may be
asked (`questions`), what a ticket is worth (`confirm`), or when something is sent (`flow`).
SPEC: mcp.md 10 (rules 0 to 9), 25c.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from airlock.core import grant as grants
from airlock.core.action import Action
from airlock.core.approval import ticket
from airlock.core.approval.ticket import Claims, Stage
from airlock.core.decision import Allow, Confirm, Deny, Verdict
from airlock.core.grant import Grant
from airlock.core.policy.model import Policy, UpstreamQuestions
from airlock.core.principal import Principal
from airlock.core.rules import Rule
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line, safe
from airlock.core.text.scan import EXCERPT_CHARS, MAX_FINDINGS
from airlock.core.wire import strict
from airlock.edge import seal
from airlock.gateway import asking, body, confirm, meta, questions, results
from airlock.gateway.confirm import Standing, State
from airlock.gateway.gate import Gate, Snapshot
from airlock.gateway.modern.admission import Request
from airlock.gateway.upstream import bridge

__all__ = [
    "MOST_QUESTIONS",
    "MOST_QUESTION_BYTES",
    "MOST_STATE_CHARS",
    "Outstanding",
    "Put",
    "abandon",
    "answering",
    "check",
    "composes",
    "continued",
    "judged",
    "put",
    "told",
]

# SECURITY: the ticket travels in every answer and comes back in a request: a server does not say how large it is.
MOST_STATE_CHARS: Final = 65_536
"""LIMIT: of a server's `requestState`, as it is written in JSON."""

MOST_QUESTION_BYTES: Final = 65_536
"""LIMIT: of the questions of one round, as they are written in JSON."""

MOST_QUESTIONS: Final = 16
"""LIMIT: questions of one round; more would bury a person in windows."""

# SECURITY: an answer under such a key is one to us; a server that asks under one would get it, or pass for us.
_RESERVED: Final = "airlock-"

_ELICIT: Final = "elicitation/create"
_FORM_MARK: Final = "asks_for_secret"
_WARNING: Final = "(careful: this asks for what looks like a secret) "
_MORE: Final = "..."
_MOVED_ON: Final = "the policy has changed since the server asked; start again without requestState"

_ACTIONS = ("accept", "decline", "cancel")
_OTHER = "other"
_BINARY = frozenset({"data", "blob"})
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_WORD = re.compile(r"[\W_]+")
# LIMIT: English words, as they name a field or ask for one; other languages are not looked through.
_SECRET_WORDS = re.compile(
    r"\b(?:pass ?(?:word|phrase|code)s?|passwd|pwd|pin(?: ?(?:code|number))?|secrets?|token|credentials?"
    r"|(?:api|access|private|secret|signing|encryption|recovery|ssh) ?keys?|t?otp|one time code|(?:2fa|mfa) code"
    r"|(?:credit|debit|bank|payment) ?cards?|card ?(?:number|no)|cv[vc]2?|security code|iban"
    r"|account number|social security|ssn|seed phrase|mnemonic)\b"
)


class Outstanding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a server waits for: the keys of its questions, and its own state (None: it gave none)."""

    keys: tuple[str, ...]
    state: str | None = None


class Put(msgspec.Struct, frozen=True):
    """Questions on their way to the client, what the outcome record says of them, and how many findings."""

    result: dict[str, object]
    detail: dict[str, object]
    suspicious: int


def composes(policy: Policy, name: str) -> bool:
    """Tell whether the questions of a tool behind a confirmation are put to the client."""
    tool = policy.tools.get(name)
    return tool is not None and tool.questions is UpstreamQuestions.COMPOSE


async def check(
    gate: Gate, action: Action, principal: Principal, params: dict[str, object]
) -> Rule | tuple[Standing | None, Outstanding | None]:
    """Check the state that came with a call, and open what it carries for the server.

    Returns a Rule to deny with, or where the call stands (None: the state is not ours) and what a server waits for.
    """
    checked = await confirm.check(gate.confirmations, gate.store, action, principal, params, gate.clock.now())
    if isinstance(checked, Rule):
        if checked is Rule.MRTR_EXPIRED:
            abandon(gate, params.get("requestState"))
        return checked
    if checked is None or checked.claims.us is None:
        return checked, None
    outstanding = _unsealed(gate, checked.claims)
    return Rule.MRTR_BAD_SIGNATURE if outstanding is None else (checked, outstanding)


def judged(
    gate: Gate,
    policy: Policy,
    standing: Standing,
    outstanding: Outstanding,
    action: Action,
    decision: Allow | Deny | Confirm,
) -> Allow | Deny | Confirm:
    """Return `decision` where it lets the exchange go on as it was begun, else why it ends.

    SECURITY: a ticket of the dry run leads to a dry run and nothing else, one of the real run to the run that a
    person said yes to and nothing else, whatever the policy says by now.
    """
    if not isinstance(decision, Deny):
        dry = isinstance(decision, Confirm) and decision.preview
        runs = decision.rule is Rule.L2_CONFIRMED
        if not composes(policy, action.name) or not (dry if standing.state is State.DRYRUN else runs):
            decision = Deny(Rule.MRTR_MISMATCH, _MOVED_ON, decision.tier)
    # A catalog that is down comes back, and the same state with it.
    if isinstance(decision, Deny) and decision.rule is not Rule.CATALOG_UNAVAILABLE:
        gate.upstream.abandon(outstanding.state)
    return decision


async def continued(
    gate: Gate, standing: Standing, outstanding: Outstanding, action: Action, allow: Allow
) -> tuple[Allow, Grant] | Deny:
    """Grant the next leg of an execution that a burned yes began: nothing is burned or charged for it again."""
    if outstanding.state is None:
        # SECURITY: a server without a state cannot know a repetition; to it each is a call of its own, and one yes
        # would run as often as the client likes. Of a state the server itself decides how often it is good.
        claims = standing.claims
        assert claims.us is not None
        leg = hashlib.sha256(claims.us.encode("ascii")).hexdigest()[:32]
        if not await gate.store.burn(leg, claims.exp):
            return Deny(Rule.MRTR_REPLAY, "", allow.tier)
    allow = msgspec.structs.replace(allow, charge=None)
    # INVARIANT: `confirm.check` found the key burned.
    return allow, grants.by_approval(action, allow, burned=True)


def answering(request: Request, outstanding: Outstanding) -> Request:
    """Return `request` with the server's own state and the answers to its own questions, and no others.

    A key without an answer is left out, and so are answers that are no object: the server asks again.
    """
    params = dict(request.params)
    params.pop("requestState", None)
    given = params.pop("inputResponses", None)
    if outstanding.state is not None:
        params["requestState"] = outstanding.state
    if isinstance(given, dict) and outstanding.keys:
        params["inputResponses"] = {key: given[key] for key in outstanding.keys if key in given}
    return msgspec.structs.replace(request, params=params)


def told(standing: Standing, outstanding: Outstanding, params: dict[str, object]) -> dict[str, object]:
    """Return what the records of a call that answers a server say: the yes it goes on with, and how it answers."""
    said: dict[str, object] = {}
    if standing.state is State.CONTINUES:
        said["continues"] = standing.claims.k
    given = params.get("inputResponses")
    if isinstance(given, dict):
        answers = [given[key] for key in outstanding.keys if key in given]
        actions = [answer.get("action") if isinstance(answer, dict) else None for answer in answers]
        words = {action if action in _ACTIONS else _OTHER for action in actions}
        if words:
            said["answers"] = sorted(words)
    return said


def put(
    gate: Gate,
    snapshot: Snapshot,
    request: Request,
    action: Action,
    principal: Principal,
    standing: Standing | None,
    decision: Allow | Confirm,
    result: dict[str, object],
) -> Put | str:
    """Make the client's question of a server's `result`, or say in one line why it may not be asked."""
    problem = _problem(snapshot.policy, principal, request, result)
    if problem is not None:
        return problem
    requests, state = result.get("inputRequests"), result.get("requestState")
    assert requests is None or isinstance(requests, dict)
    assert state is None or isinstance(state, str)
    outstanding = Outstanding(tuple(requests or ()), state)
    if isinstance(decision, Allow):
        # SPEC: mcp.md 10 (3): the same yes, the same end.
        assert standing is not None
        stage, claims = Stage.UPSTREAM, standing.claims
    elif standing is not None and standing.state is State.DRYRUN:
        stage, claims = Stage.DRYRUN, standing.claims
    else:
        stage, claims = Stage.DRYRUN, asking.issued(gate, action, principal)
    own = meta.strip_holder(result)
    own[meta.VERDICT] = Verdict.CONFIRM if isinstance(decision, Confirm) else Verdict.ALLOW
    own[meta.RULE_ID] = decision.rule
    own[meta.DRY_RUN] = decision.dry_run if isinstance(decision, Allow) else True
    detail: dict[str, object] = {"asks": questions.kinds(result)}
    if standing is not None and standing.state is State.ACCEPTED and stage is Stage.UPSTREAM:
        detail["key"] = claims.k
    shown, findings = _shown(snapshot, action.name, requests or {})
    if findings:
        own[meta.SUSPICIOUS] = findings
        told = sorted({str(finding["rule"]) for finding in findings})
        detail["suspicious"] = told
        if _FORM_MARK in told:
            own[meta.ASKS_FOR_SECRET] = True
    sealed = _sealed(gate, msgspec.structs.replace(claims, s=stage), outstanding)
    token = ticket.mint(gate.confirmations.keys, sealed)
    return Put(results.questioned(shown if requests is not None else None, token, own), detail, len(findings))


def abandon(gate: Gate, state: object) -> None:
    """Tell the server that nobody will answer what it asked, given the `requestState` that the client got.

    Does nothing for a state that no server waits on.
    """
    if not ticket.is_ours(state):
        gate.upstream.abandon(state)
        return
    claims = ticket.open_agent(gate.confirmations.keys, state)
    if isinstance(claims, Claims) and claims.us is not None:
        outstanding = _unsealed(gate, claims)
        if outstanding is not None and outstanding.state is not None:
            gate.upstream.abandon(outstanding.state)


# What a ticket carries.


def _sealed(gate: Gate, claims: Claims, outstanding: Outstanding) -> Claims:
    plain = json.dumps(msgspec.to_builtins(outstanding), separators=(",", ":")).encode("ascii")
    nonce = bytes.fromhex(gate.ids.hex(seal.NONCE_BYTES))
    us = seal.seal(gate.confirmations.keys.for_sealing(), nonce, plain, _bound(claims))
    return msgspec.structs.replace(claims, us=us)


def _unsealed(gate: Gate, claims: Claims) -> Outstanding | None:
    assert claims.us is not None
    plain = seal.unseal(gate.confirmations.keys.for_sealing(), claims.us, _bound(claims))
    return None if plain is None else msgspec.convert(strict.parse(plain), Outstanding)


def _bound(claims: Claims) -> bytes:
    """SECURITY: what one stage of one exchange carries opens in no other."""
    return f"{ticket.stage(claims)}.{claims.k}".encode()


# What may be asked.


def _problem(policy: Policy, principal: Principal, request: Request, result: dict[str, object]) -> str | None:
    """Return why a server's questions may not be put to this client, in one line; None when they may."""
    state = result.get("requestState")
    if "inputRequests" not in result and state is None:
        return "the server asks for nothing and gave no state to come back with"
    if state is not None and not isinstance(state, str):
        return "the state of the server is no text"
    if state is not None and len(json.dumps(state)) - 2 > MOST_STATE_CHARS:
        return f"the state of the server is over {MOST_STATE_CHARS} characters"
    reason = questions.forbidden(policy, principal, result)
    if reason is not None or "inputRequests" not in result:
        return reason
    requests = result["inputRequests"]
    assert isinstance(requests, dict)
    if len(requests) > MOST_QUESTIONS:
        return f"the server asks more than {MOST_QUESTIONS} questions at once"
    if any(key.startswith(_RESERVED) for key in requests):
        return f"the server asks under a key that begins with {_RESERVED}, which is the gateway's"
    if len(body.encode(requests)) > MOST_QUESTION_BYTES:
        return f"the questions of the server are over {MOST_QUESTION_BYTES} bytes"
    declared = request.meta.get(questions.CAPABILITIES)
    told = bridge.capabilities(declared if isinstance(declared, dict) else {})
    for question in requests.values():
        # SPEC: mcp.md 10, 26 (14): nothing is asked that was not declared on this request.
        objection = bridge.objection(told, question["method"], question.get("params"))
        if objection is not None:
            return f"the server asks this caller's client for {question['method']}: {objection[1]}"
    return None


# How it is shown.


def _shown(
    snapshot: Snapshot, tool: str, requests: dict[str, dict[str, object]]
) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Return the questions as the client gets them, and the findings in them; `block` is a question's place."""
    meta.strip_questions(requests)
    shown: dict[str, object] = {}
    secrets: list[dict[str, object]] = []
    texts: list[tuple[int, str]] = []
    for place, (key, question) in enumerate(requests.items()):
        params = question.get("params")
        texts += ((place, text) for text in _texts(params))
        wanted = _secret(params) if question["method"] == _ELICIT and isinstance(params, dict) else None
        if wanted is not None:
            excerpt = cut(one_line(wanted), EXCERPT_CHARS, _MORE)
            secrets.append({"rule": _FORM_MARK, "block": place, "excerpt": excerpt})
        if question["method"] == _ELICIT and isinstance(params, dict):
            # SECURITY: a person must see that it is not the gateway that asks, nor a marker that turns the reading
            # direction and moves the name out of its place.
            warning = "" if wanted is None else _WARNING
            message = f"[{one_line(tool)}] {warning}{safe(str(params['message']))}"
            params = {**params, "message": message}
        shown[key] = {"method": question["method"]} | ({} if params is None else {"params": params})
    return shown, [*secrets, *snapshot.scanner.scan_texts(texts)][:MAX_FINDINGS]


def _texts(value: object) -> Iterator[str]:
    """Yield every text in a question, in its order; what is binary is passed over."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo.extend(reversed([child for key, child in item.items() if key not in _BINARY]))
        elif isinstance(item, list):
            todo.extend(reversed(item))


def _secret(params: dict[str, object]) -> str | None:
    """Return the text by which a form asks for a secret; None when none looks like it."""
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    asked: list[str] = []
    for name, field in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(field, dict) or field.get("type") == "boolean" or field.keys() & {"enum", "oneOf"}:
            continue
        if field.get("format") == "password":
            return str(name)
        texts = (name, field.get("title"), field.get("description"))
        asked += (text for text in texts if isinstance(text, str))
    if asked:
        asked.append(str(params["message"]))
    return next((text for text in asked if _SECRET_WORDS.search(_words(text)) is not None), None)


def _words(text: str) -> str:
    """Return the words of a text or of a name like `apiKey` or `card_number`, in lower case."""
    return _NO_WORD.sub(" ", _HUMP.sub(" ", text)).lower()
