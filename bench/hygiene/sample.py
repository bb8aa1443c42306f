"""What a sample of the corpus is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Sample", "pick"]


class Sample(NamedTuple):
    """One text. `kind` names what is in it, or what sort of harmless text it is.

    `gone` are the parts that may not be readable afterwards; without any, the text must stay as it is.
    """

    kind: str
    text: str
    gone: tuple[str, ...] = ()


def pick(chance: random.Random, *makers: Callable[[], str]) -> str:
    """Return what one of `makers` makes."""
    return chance.choice(makers)()
