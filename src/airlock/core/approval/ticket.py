"""The signed texts that carry a confirmation: `al1.` to the agent, `al2.` in the approve link.

Knows their form, their keys and what an answer says; does not know the store, so not whether one was used up.
SPEC: gateway.md 8.1 and 8.3.

Nothing is stored when a ticket is issued: the signature proves that this gateway asked, the claims say for
which call. Both forms carry the same claims under two keys, so what the agent holds never opens the approve
page.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from enum import StrEnum
from typing import Final, NoReturn

import msgspec

from airlock.core.rules import Rule
from airlock.core.wire import strict

__all__ = [
    "ANSWER_KEY",
    "LIFETIME_S",
    "Answer",
    "Claims",
    "Keys",
    "Mode",
    "Refused",
    "Stage",
    "approve_token",
    "is_ours",
    "judge",
    "mint",
    "open_agent",
    "open_approver",
    "read_answer",
    "stage",
    "strict_mode",
]

ANSWER_KEY: Final = "airlock-confirm"
"""The key of our question in `inputRequests`, and of the answer to it in `inputResponses`."""

LIFETIME_S: Final = 600.0
"""How long a ticket is good, in seconds from its issue."""

_AGENT: Final = "al1"
_APPROVER: Final = "al2"


class Mode(StrEnum):
    """Who may say yes: only the holder of the approve link, or the client in its own answer too."""

    OOB = "oob"
    INBAND = "inband"


class Stage(StrEnum):
    """Where a gated call stands that a ticket lets go on. SPEC: mcp.md 10 (rules 1 to 3, 5).

    `confirm`: a person is asked. `dryrun`: the server asks during the dry run, before that. `upstream`: it asks
    during the real run, after it.
    """

    CONFIRM = "confirm"
    DRYRUN = "dryrun"
    UPSTREAM = "upstream"


class Answer(StrEnum):
    """What the client answered to our question."""

    NONE = "none"
    YES = "yes"
    NO = "no"


class Keys:
    """The two signing keys and the one for sealing, made from one secret. Showing them gives nothing away."""

    __slots__ = ("_agent", "_approver", "_sealing")

    _agent: bytes
    _approver: bytes
    _sealing: bytes

    def __init__(self, agent: bytes, approver: bytes, sealing: bytes) -> None:
        object.__setattr__(self, "_agent", agent)
        object.__setattr__(self, "_approver", approver)
        object.__setattr__(self, "_sealing", sealing)

    @classmethod
    def derive(cls, secret: bytes) -> Keys:
        """Make the keys: the agent's is `secret` itself, the others HMAC-SHA256 of `approve` and `seal` under it.

        An empty secret is a ValueError: anyone could sign with it.
        """
        if not secret:
            raise ValueError("the signing secret is empty")
        approver, sealing = (hmac.digest(secret, use, "sha256") for use in (b"approve", b"seal"))
        return cls(secret, approver, sealing)

    def sign(self, form: str, part: bytes) -> bytes:
        """Return the signature part of a ticket of `form` over its claims part."""
        key = self._agent if form == _AGENT else self._approver
        return _encode(hmac.digest(key, part, "sha256"))

    def for_sealing(self) -> bytes:
        """Return the 32 bytes under which what a ticket carries is encrypted. They sign nothing."""
        return self._sealing

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("Keys cannot be changed")

    def __repr__(self) -> str:
        return "Keys(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Keys cannot be pickled or copied")


class Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a ticket says: for whom and what it was issued, under which key, until when.

    `p` principal, `t` tool, `h` SHA-256 hex of the arguments, `e` environment, `u` upstream URL,
    `k` idempotency key, `exp` Unix seconds, `m` mode (None: the ticket names none, which counts as `oob`).
    `s` stage (None: `confirm`), `us` what the server asked, sealed: there in every stage but `confirm`, and in that
    one never. A ticket with any other claim is not ours.
    """

    p: str
    t: str
    h: str
    e: str
    u: str
    k: str
    exp: float
    m: str | None = None
    s: Stage | None = None
    us: str | None = None


class Refused(msgspec.Struct, frozen=True):
    """A ticket that was not signed by this gateway, or not in this form."""

    rule: Rule


_BAD: Final = Refused(Rule.MRTR_BAD_SIGNATURE)


def is_ours(text: object) -> bool:
    """Tell whether a `requestState` is meant for the gateway. SPEC: gateway.md 8.3 step 1."""
    return isinstance(text, str) and text.startswith("al1.")


def mint(keys: Keys, claims: Claims) -> str:
    """Return the agent's ticket."""
    return _sealed(_AGENT, keys, claims)


def approve_token(keys: Keys, claims: Claims) -> str:
    """Return the ticket of the approve link. Whoever holds it may say yes."""
    return _sealed(_APPROVER, keys, claims)


def open_agent(keys: Keys, text: object) -> Claims | Refused:
    """Return what an agent's ticket says, if this gateway signed it. Judges nothing else (`judge` does)."""
    return _opened(_AGENT, keys, text)


def open_approver(keys: Keys, text: object) -> Claims | Refused:
    """Return what the ticket of an approve link says, if this gateway signed it. Judges nothing else."""
    opened = _opened(_APPROVER, keys, text)
    # SECURITY: only a question to a person has a link; what a server asks is nothing to approve.
    return opened if isinstance(opened, Refused) or stage(opened) is Stage.CONFIRM else _BAD


def stage(claims: Claims) -> Stage:
    """Return the stage a ticket is for. One that names none is a confirmation: older ones name none."""
    return claims.s or Stage.CONFIRM


def judge(
    claims: Claims, *, principal: str, tool: str, digest: str, environment: str, upstream: str, now: float
) -> Rule | None:
    """Return why an opened ticket is no good for this call at `now`, or None. At its `exp` it is expired."""
    # SPEC: gateway.md 8.3 steps 3 and 4, in this order.
    if now >= claims.exp:
        return Rule.MRTR_EXPIRED
    issued_for = (claims.p, claims.t, claims.h, claims.e, claims.u)
    return Rule.MRTR_MISMATCH if issued_for != (principal, tool, digest, environment, upstream) else None


def strict_mode(claims_mode: str | None, replica_mode: str) -> bool:
    """Tell whether a yes in the client's answer counts for nothing: the stricter of ticket and replica wins.

    SPEC: gateway.md 8.3 step 7. A mode that is missing or unknown is as strict as `oob`.
    """
    return claims_mode != Mode.INBAND or replica_mode != Mode.INBAND


def read_answer(input_responses: object) -> Answer:
    """Read `inputResponses` as the client sent it; None when it sent none (or `null`).

    An object without our key is no answer. What is neither that nor an exact yes is a no: a decline, a
    cancel, an accept whose `confirm` is not true, other JSON. SPEC: gateway.md 8.3 steps 5, 6 and 10.
    """
    if input_responses is None:
        return Answer.NONE
    if not isinstance(input_responses, dict):
        return Answer.NO
    if ANSWER_KEY not in input_responses:
        return Answer.NONE
    answer = input_responses[ANSWER_KEY]
    if not isinstance(answer, dict) or answer.get("action") != "accept":
        return Answer.NO
    content = answer.get("content")
    # SECURITY: exactly true; `1`, `"true"` or a filled form would let a client's default speak for a person.
    return Answer.YES if isinstance(content, dict) and content.get("confirm") is True else Answer.NO


def _encode(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _decode(part: bytes) -> bytes | None:
    """Return the bytes behind a base64url part without padding, or None if we would write them otherwise."""
    try:
        raw = base64.b64decode(part + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except binascii.Error:
        return None
    return raw if _encode(raw) == part else None


def _sealed(form: str, keys: Keys, claims: Claims) -> str:
    body = {name: value for name, value in msgspec.structs.asdict(claims).items() if value is not None}
    # ASCII, so that a name with a lone surrogate comes back as it was.
    part = _encode(json.dumps(body, separators=(",", ":"), allow_nan=False).encode())
    return f"{form}.{part.decode()}.{keys.sign(form, part).decode()}"


def _opened(form: str, keys: Keys, text: object) -> Claims | Refused:
    if not isinstance(text, str) or not text.isascii():
        return _BAD
    prefix, *parts = text.encode().split(b".")
    if prefix != form.encode() or len(parts) != 2:
        return _BAD
    part, signature = parts
    # SECURITY: constant time, and on the written form: of the spellings that decode alike only ours is good.
    if not hmac.compare_digest(keys.sign(form, part), signature):
        return _BAD
    raw = _decode(part)
    if raw is None:
        return _BAD
    try:
        claims = msgspec.convert(strict.parse(raw), Claims)
    except (strict.StrictError, msgspec.ValidationError):
        return _BAD
    return claims if (claims.us is None) is (stage(claims) is Stage.CONFIRM) else _BAD
