"""A value that must not be seen: printing, formatting or pickling it shows nothing.

Whoever needs the value calls `reveal()`, a word that can be searched for.
"""

from __future__ import annotations

from typing import NoReturn

__all__ = ["Secret"]


class Secret:
    """Holds bytes or text that only `reveal()` gives out."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(***)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return "Secret(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied")
