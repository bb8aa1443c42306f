"""One exact thing asked for, and its digest. Parsed once at the front; nothing after it looks at raw input.

Knows the shape of an ask; does not know how it came in or whether it may run.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum

import msgspec

from airlock.core.wire import canon

__all__ = ["Action", "Kind"]


class Kind(StrEnum):
    """What sort of thing is asked for."""

    CALL = "call"


class Action(msgspec.Struct, frozen=True):
    """An ask: the tool `name` with `arguments` (opaque, never changed in place), where it would land.

    `environment` is the policy column it is judged in and `target` the upstream it would be sent to.
    """

    name: str
    arguments: dict[str, object]
    environment: str
    target: str
    kind: Kind = Kind.CALL

    def arguments_digest(self) -> str:
        """SHA-256 hex of the canonical arguments, without a top-level `dry_run`.

        SPEC: gateway.md 8.1. Leaving `dry_run` out is deliberate: the preview and the real run are one ask.
        """
        bound = {key: value for key, value in self.arguments.items() if key != "dry_run"}
        return hashlib.sha256(canon.encode(bound)).hexdigest()
