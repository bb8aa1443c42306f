"""Principals out of the headers that a trusted gateway in front of us sets.

Knows the two values; does not know whether they are to be trusted (`edge.identity.resolve` does).
SPEC: gateway.md 4.1, 4.3, 4.4.
"""

from __future__ import annotations

from airlock.core.principal import Principal, Source, groups_from, usable_name

__all__ = ["from_headers"]


def from_headers(principal: bytes | None, groups: bytes | None) -> Principal | None:
    """Return whom the values of `X-Airlock-Principal` and `X-Airlock-Groups` name (None: no such header).

    None when the name is absent or not usable, or when either value is not UTF-8: groups decide tiers, so a
    caller whose groups cannot be read is nobody rather than somebody without groups.
    """
    if principal is None:
        return None
    try:
        name = principal.decode("utf-8")
        listed = groups.decode("utf-8") if groups is not None else ""
    except UnicodeDecodeError:
        return None
    return Principal(name, groups_from(listed), Source.HEADER) if usable_name(name) else None
