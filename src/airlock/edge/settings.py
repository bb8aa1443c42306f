"""The only reader of the process environment. An empty variable counts as unset.

Knows names and plain types; what a setting means is the product's business.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from airlock.core.errors import ConfigError
from airlock.core.secret import Secret

__all__ = ["Environment", "secret_bytes"]


class Environment:
    """A read-once view of environment variables."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name: value for name, value in values.items() if value != ""}

    @classmethod
    def of_process(cls) -> Environment:
        """Read this process's environment."""
        return cls(os.environ)

    def text(self, name: str) -> str | None:
        """Return the value, or None when unset or empty."""
        return self._values.get(name)

    def secret(self, name: str) -> Secret | None:
        """Return the value as a `Secret`, or None when unset or empty."""
        value = self._values.get(name)
        return None if value is None else Secret(value)

    def all(self) -> Mapping[str, str]:
        """Return every variable that is set, for what a child process may inherit."""
        return self._values

    def positive(self, name: str, default: int, most: int = 2**53) -> int:
        """Return a whole number from 1 to `most`, or `default` when unset; else raise ConfigError."""
        value = self._values.get(name)
        if value is None:
            return default
        if value.isascii() and value.isdigit() and len(value) <= 20 and 1 <= int(value) <= most:
            return int(value)
        limit = "a positive integer" if most == 2**53 else f"an integer from 1 to {most}"
        raise ConfigError("", f"{name} must be {limit}")

    def state_folder(self) -> str:
        """Where Airlock keeps this user's state: `$XDG_STATE_HOME/airlock`, else `~/.local/state/airlock`.

        Raises ConfigError when neither names an absolute folder.
        """
        base = self._values.get("XDG_STATE_HOME")
        if base is None or not os.path.isabs(base):
            home = self._values.get("HOME")
            if home is None or not os.path.isabs(home):
                raise ConfigError("", "XDG_STATE_HOME or HOME must name an absolute folder")
            base = f"{home}/.local/state"
        return f"{base}/airlock"


def secret_bytes(secret: Secret) -> bytes:
    """The bytes of a secret from the environment; bytes that were not text stay the bytes they were."""
    return os.fsencode(secret.reveal())
