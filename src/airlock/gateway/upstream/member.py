"""One of several upstreams, and how it is: up or down since when, and how many requests are on their way to it.

Knows the outcome of each request; does not know names, routes or what is asked. SPEC: issue 4, item 4.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from airlock.core.errors import UpstreamError, UpstreamFailure
from airlock.core.ports import Clock
from airlock.gateway.upstream.credentials import NoCredential
from airlock.gateway.upstream.port import Upstream
from airlock.gateway.upstreamsfile import UpstreamSpec

__all__ = ["Health", "Member", "Watched"]

_FIRST_REST_S = 1.0
_LONGEST_REST_S = 30.0


class Member(msgspec.Struct, frozen=True):
    """An upstream as the file describes it, and what speaks to it."""

    spec: UpstreamSpec
    upstream: Upstream


class Health(msgspec.Struct, frozen=True):
    """How one upstream is. `since`: Unix seconds of the last change, or of the start.

    `error` is the kind of the last failure (None: none yet), `verdict` the era that was found, if it is known.
    """

    name: str
    up: bool
    since: float
    error: UpstreamFailure | None
    verdict: str | None
    in_flight: int


class Watched:
    """A member under watch. `with watched:` around a request counts it and takes note of how it ended.

    Entering raises UpstreamError, nothing sent, when `limits.max_in_flight` are under way.
    """

    __slots__ = (
        "_clock", "_error", "_in_flight", "_rest_s", "_rest_until", "_say", "_since", "_up", "closed", "name",
        "spec", "upstream",
    )  # fmt: skip

    def __init__(self, name: str, member: Member, clock: Clock, say: Callable[[str], None]) -> None:
        self.name = name
        self.spec = member.spec
        self.upstream = member.upstream
        self.closed = False
        self._clock = clock
        self._say = say
        self._up = True
        self._since = clock.now()
        self._error: UpstreamFailure | None = None
        self._in_flight = 0
        self._rest_s = _FIRST_REST_S
        self._rest_until = 0.0

    def __enter__(self) -> None:
        if self._in_flight >= self.spec.limits.max_in_flight:
            raise UpstreamError(UpstreamFailure.UNREACHABLE, "too many calls in flight", reached=False)
        self._in_flight += 1

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        self._in_flight -= 1
        if error is None:
            self.answered()
        elif isinstance(error, UpstreamError):
            self.failed(error)

    def answered(self) -> None:
        """It is there."""
        if self._rest_until:
            self._rest_s, self._rest_until = _FIRST_REST_S, 0.0
        if not self._up and not self.closed:
            self._up, self._since = True, self._clock.now()
            self._say(f"upstream {self.name}: up again")

    def failed(self, error: UpstreamError) -> None:
        """A request failed; the upstream is down when it could not be reached."""
        # What one caller cannot be given a credential for says nothing about the server.
        if self.closed or isinstance(error, NoCredential):
            return
        self._error = error.kind
        if error.kind is UpstreamFailure.UNREACHABLE and self._up:
            self._up, self._since = False, self._clock.now()
            self._say(f"upstream {self.name}: down ({error.cause})")

    def too_slow(self, error: UpstreamError) -> None:
        """A list did not come in time: ask for none for a while, so that not every list waits for this one."""
        self.failed(error)
        self._rest_until = self._clock.monotonic() + self._rest_s
        self._rest_s = min(2 * self._rest_s, _LONGEST_REST_S)

    @property
    def resting(self) -> bool:
        """Whether lists should do without it for now."""
        return self._clock.monotonic() < self._rest_until

    def health(self) -> Health:
        """Return how it is now."""
        verdict = getattr(self.upstream, "verdict", None)
        return Health(
            self.name,
            self._up,
            self._since,
            self._error,
            None if verdict is None else str(verdict),
            self._in_flight,
        )
