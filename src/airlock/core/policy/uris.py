"""URIs in one canonical form, so that a policy and a server never read one text as two places.

Knows the syntax of RFC 3986 and where its readers differ; does not know policies or patterns.
"""

from __future__ import annotations

import re

__all__ = ["MAX_CHARS", "asked", "canonical"]

MAX_CHARS = 8192
"""LIMIT: a longer URI has no canonical form."""

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)
# INVARIANT: what matches is its own canonical form: nothing encoded, no dot segment, upper case only in the path.
_USUAL = re.compile(r"[a-z][a-z0-9+.-]*://[a-z0-9._:-]*(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_TRIPLET = re.compile(r"%([0-9A-Fa-f]{2})")
_BYTE = re.compile(rb"%([0-9A-Fa-f]{2})")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BARRED = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_DOTS = frozenset({".", ".."})
_ENCODINGS = 3  # how often a path may be percent-encoded over itself before nobody looks any deeper


def canonical(uri: str) -> str | None:
    """Return `uri` in canonical form, None when it has none.

    Scheme and host in lower case, unreserved characters decoded, the other triplets in upper case, dot segments
    removed (encoded ones too); empty segments stay. None: no scheme, blanks around it, control characters or
    backslashes, a stray `%`, an authority with something encoded in it, or a path that is another one to a reader
    who decodes more than this does.
    """
    if len(uri) > MAX_CHARS or uri != uri.strip():
        return None
    # SECURITY: some readers take a backslash for a slash, or stop at a NUL.
    if _BARRED.search(uri) is not None or _STRAY.search(uri) is not None:
        return None
    parts = _URI.fullmatch(uri)
    if parts is None:
        return None
    scheme, authority, path, query, fragment = parts.groups()
    path = _without_dots(_plain(path))
    if _hides_another(path) or (authority is None and path.startswith("//")):
        return None
    text: str = scheme.lower() + ":"
    if authority is not None:
        authority = _plain(authority)
        # SECURITY: `%23` or `%2F` in it ends the host for a reader that decodes first, `%40` begins another one.
        if "%" in authority:
            return None
        user, at, host = authority.rpartition("@")
        text += "//" + user + at + host.lower()
    return text + path + _plain(query or "") + _plain(fragment or "")


def asked(uri: str) -> str | None:
    """Return the canonical form of a URI that a client asks for; None also when it is not spelled that way.

    The server gets the client's own text. Only scheme and host may differ from the canonical form, in letter
    case, and the query and fragment in how they are encoded.
    """
    if len(uri) <= MAX_CHARS and _USUAL.fullmatch(uri) is not None:
        return uri
    text = canonical(uri)
    if text is None:
        return None
    own, other = _URI.fullmatch(uri), _URI.fullmatch(text)
    assert own is not None
    assert other is not None
    # SECURITY: what was matched is the canonical path; a server that resolves the other spelling differently
    # would answer with something nobody allowed.
    same = own[3] == other[3] and (own[2] or "").lower() == (other[2] or "").lower()
    return text if same else None


def _plain(text: str) -> str:
    """Decode the triplets of unreserved characters, and write the others in upper case."""
    return _TRIPLET.sub(_decoded, text) if "%" in text else text


def _decoded(triplet: re.Match[str]) -> str:
    sign = chr(int(triplet[1], 16))
    return sign if sign in _UNRESERVED else triplet[0].upper()


def _without_dots(path: str) -> str:
    """RFC 3986, 5.2.4, by segments."""
    if "." not in path:
        return path
    kept: list[str] = []
    floor = 1 if path.startswith("/") else 0
    segments = path.split("/")
    for segment in segments:
        if segment not in _DOTS:
            kept.append(segment)
        elif segment == ".." and len(kept) > floor:
            kept.pop()
    if segments[-1] in _DOTS:
        kept.append("")
    return "/".join(kept)


def _hides_another(path: str) -> bool:
    """Tell whether a reader who decodes `path` once more, or again and again, may come to another place.

    SECURITY: `..%2Fsecret` is one segment here and two to a server that decodes before it splits; `%252e` is a dot
    to one that decodes twice, `..;a` a dot segment to one that knows path parameters.
    """
    for _ in range(_ENCODINGS):
        if _BARRED.search(path) is not None or (
            "." in path and any(part.partition(";")[0] in _DOTS for part in path.split("/"))
        ):
            return True
        if "%" not in path:
            return False
        try:
            deeper = _BYTE.sub(lambda octet: bytes((int(octet[1], 16),)), path.encode()).decode()
        except UnicodeDecodeError:
            return True
        if deeper == path:
            return False
        path = deeper
    return True
