"""The few exceptions of Airlock, each with the fields a handler needs to decide what to do.

Refusing an agent is normal work and a value (`core.decision.Deny`), never an exception. Three parties can be
at fault: the operator (`ConfigError`), the agent (`ProtocolError`), the upstream (`UpstreamError`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

__all__ = [
    "AirlockError",
    "ConfigError",
    "Fault",
    "IntegrityError",
    "ProtocolError",
    "StoreUnavailable",
    "UpstreamError",
    "UpstreamFailure",
]


class AirlockError(Exception):
    """Base of everything Airlock raises on purpose."""


class Fault:
    """One thing wrong in a file an operator wrote: where (a dotted path), what, and what to do about it."""

    __slots__ = ("hint", "path", "problem")

    def __init__(self, path: str, problem: str, hint: str = "") -> None:
        self.path = path
        self.problem = problem
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.path}: {self.problem}" if self.path else self.problem
        return f"{text} ({self.hint})" if self.hint else text

    def __repr__(self) -> str:
        return f"Fault({self.path!r}, {self.problem!r}, {self.hint!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fault) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class ConfigError(AirlockError):
    """The operator's side is wrong: a flag, a variable or a file. Carries every fault found, not just the first.

    `str()` is one line: `<source>: <fault>` or `<source>: <n> faults: <fault>; <fault>`.
    """

    def __init__(self, source: str, faults: str | Sequence[Fault]) -> None:
        self.source = source
        self.faults: tuple[Fault, ...] = (Fault("", faults),) if isinstance(faults, str) else tuple(faults)
        super().__init__(str(self))

    def __str__(self) -> str:
        texts = [str(fault) for fault in self.faults]
        body = texts[0] if len(texts) == 1 else f"{len(texts)} faults: " + "; ".join(texts)
        return f"{self.source}: {body}" if self.source else body


class ProtocolError(AirlockError):
    """The agent's side broke the protocol. `code` is the JSON-RPC error code, `problem` our own words."""

    def __init__(self, code: int, problem: str) -> None:
        self.code = code
        self.problem = problem
        super().__init__(f"{code}: {problem}")


class UpstreamFailure(StrEnum):
    """How an upstream failed; the value is the rule id of the audit (gateway.md 11)."""

    UNREACHABLE = "upstream.unreachable"
    ENCODED = "upstream.encoded"
    BAD_REPLY = "upstream.bad_reply"
    TOO_LARGE = "upstream.too_large"


class UpstreamError(AirlockError):
    """The upstream's side failed.

    `reached` says whether any byte of the request may have arrived: only when it is False may a charge be
    given back. `cause` is safe to show: our own words or a class name, never an exception's text.
    `status` is the HTTP status when one was read.
    """

    def __init__(
        self, kind: UpstreamFailure, cause: str, *, reached: bool, status: int | None = None
    ) -> None:
        self.kind = kind
        self.cause = cause
        self.reached = reached
        self.status = status
        super().__init__(f"{kind.value}: {cause}")


class StoreUnavailable(AirlockError):
    """The store did not answer. A store that answers with a complaint raises something else: that is a bug."""


class IntegrityError(AirlockError):
    """Something that is signed or chained does not hold. `where` names the place, `problem` the reason."""

    def __init__(self, where: str, problem: str) -> None:
        self.where = where
        self.problem = problem
        super().__init__(f"{where}: {problem}")
