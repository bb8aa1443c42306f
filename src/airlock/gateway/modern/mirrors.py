"""Whether the `Mcp-Param-*` headers of a call say what its arguments say: step 9 of admission.

Pure: knows headers, arguments, and what a tool wants repeated; does not know where that is listed.
SPEC: mcp.md 5 (9), 6.
"""

from __future__ import annotations

import re
from decimal import Decimal

from airlock.core.text.cut import cut
from airlock.edge.headers import Headers
from airlock.gateway.modern.headers import decode_name
from airlock.gateway.modern.paramheaders import Mirror, rendered, value_at

__all__ = ["annotates", "carried", "mismatch"]

_PARAM = "mcp-param-"
_ANY = b"\nmcp-param-"
_KEY = b"x-mcp-header"
_ESCAPED = b"\\u00"
_TOKEN_CHARS = 64
_PRINTABLE = re.compile(rb"[\x20-\x7e]*")
# Bounded, so that what is compared is no work: no number of a body has more digits.
_NUMBER = re.compile(r"-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?")


def carried(headers: Headers) -> bool:
    """Tell whether a request carries any `Mcp-Param-*` header."""
    return _ANY in b"\n".join(headers.first)


def annotates(listing: bytes) -> bool:
    """Tell whether a listing, as it came, may hold the annotation at all: a quick look before a long one."""
    return _KEY in listing or _ESCAPED in listing


def mismatch(headers: Headers, wanted: tuple[Mirror, ...], arguments: dict[str, object]) -> str | None:
    """Return which header does not say what the body says, None when each does. Others are not looked at.

    What no header can say (a list, a number that is not whole) is not asked for, and only a number may be said.
    """
    for mirror in wanted:
        name = (_PARAM + mirror.token.lower()).encode("ascii")
        shown = f"Mcp-Param-{cut(mirror.token, _TOKEN_CHARS, '...')}"
        # SECURITY: who reads the first and who reads the last would see different values.
        if name in headers.doubled:
            return f"the {shown} header appears more than once"
        said, value = headers.first.get(name), value_at(arguments, mirror.path)
        if said is None:
            if rendered(value) is not None:
                return f"the {shown} header is missing, and its argument is not"
        elif value is None:
            return f"the {shown} header has no argument that it could repeat"
        elif not _says(said, value):
            return f"the {shown} header must equal its argument"
    return None


def _says(said: bytes, value: object) -> bool:
    # SPEC: mcp.md 6: whatever is not printable is wrapped; a reader that takes it as it is may take it for another.
    if _PRINTABLE.fullmatch(said.strip(b" \t")) is None:
        return False
    text = decode_name(said)
    if text is None:
        return False
    if isinstance(value, bool):
        return text == ("true" if value else "false")
    if isinstance(value, str):
        return text == value
    if not isinstance(value, int | float) or _NUMBER.fullmatch(text) is None:
        return False
    if isinstance(value, float) and not value.is_integer():
        return float(text) == value
    return Decimal(text) == int(value)
