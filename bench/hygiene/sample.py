"""What a sample of the corpus is."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Sample"]


class Sample(NamedTuple):
    """One text. `kind` names what is in it, or what sort of harmless text it is.

    `gone` are the parts that may not be readable afterwards; without any, the text must stay as it is.
    """

    kind: str
    text: str
    gone: tuple[str, ...] = ()
