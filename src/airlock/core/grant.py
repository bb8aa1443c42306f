"""Authority as a value: proof, inside the process, that one action may run now, once.

This is the only module that can make a `Grant`, and each maker states what must have happened first. Every
function that touches the world takes one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from airlock.core.action import Action
from airlock.core.decision import Allow, Confirm

__all__ = ["Basis", "Grant", "by_approval", "by_policy", "for_preview"]


class Basis(StrEnum):
    """Why an action may run."""

    POLICY = "policy"
    APPROVAL = "approval"
    PREVIEW = "preview"


_MINT = object()


class Grant:
    """One action may run now, once, with `dry_run` forced to the given value (None: as sent)."""

    __slots__ = ("_spent", "action", "basis", "dry_run")

    def __init__(self, mint: object, action: Action, basis: Basis, dry_run: bool | None) -> None:
        if mint is not _MINT:
            raise TypeError("a Grant is minted by core.grant alone")
        self.action = action
        self.basis = basis
        self.dry_run = dry_run
        self._spent = False

    def spend(self) -> Action:
        """Use the grant up and return its action. A second use is a bug and raises."""
        if self._spent:
            raise RuntimeError("this grant was already spent")
        self._spent = True
        return self.action

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Grant cannot be copied or stored")


def by_policy(action: Action, allow: Allow) -> Grant:
    """Mint because policy allows this exact action by itself."""
    return Grant(_MINT, action, Basis.POLICY, allow.dry_run)


def by_approval(action: Action, allow: Allow, *, burned: bool) -> Grant:
    """Mint because a person said yes to this action and that yes has just been burned."""
    if not burned:
        raise TypeError("an approval that was not burned grants nothing")
    return Grant(_MINT, action, Basis.APPROVAL, allow.dry_run)


def for_preview(action: Action, confirm: Confirm) -> Grant:
    """Mint a dry run that shows a person what the action would do."""
    if not confirm.preview:
        raise TypeError("a tool without dry_run cannot be previewed")
    return Grant(_MINT, action, Basis.PREVIEW, dry_run=True)
