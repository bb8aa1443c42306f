"""Content blocks and resources of the conformance server.

It knows what they hold, small and made here; it must not know which tool or prompt shows them.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from typing import Any, Final

__all__ = ["IMAGE", "RESOURCES", "SOUND", "TEMPLATES", "completions", "embedded", "read", "text"]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def _png() -> str:
    """One red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(b"\x00\xff\x00\x00")
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def _wav() -> str:
    """Eight samples of silence."""
    layout = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    data = b"data" + struct.pack("<I", 8) + b"\x80" * 8
    return base64.b64encode(
        b"RIFF" + struct.pack("<I", 4 + len(layout) + len(data)) + b"WAVE" + layout + data
    ).decode()


IMAGE: Final = {"type": "image", "data": _png(), "mimeType": "image/png"}
SOUND: Final = {"type": "audio", "data": _wav(), "mimeType": "audio/wav"}


def embedded(uri: str, mime: str, words: str) -> dict[str, Any]:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime, "text": words}}


def completions(name: str, value: str) -> list[str]:
    """The values that may complete one argument."""
    return [word for word in ("paris", "park", "party", "rome") if word.startswith(value)]


# Resources.

RESOURCES: Final[dict[str, dict[str, Any]]] = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": _png()},
    "test://watched-resource": {"mimeType": "text/plain", "text": "This resource may be watched."},
    "test://example-resource": {"mimeType": "text/plain", "text": "This resource may be embedded."},
}
TEMPLATES: Final = {"test://template/{id}/data": "application/json"}
_TEMPLATE: Final = re.compile(r"test://template/([^/]+)/data")


def read(uri: str) -> dict[str, Any] | None:
    """The contents of a resource, or None when there is none of that name."""
    if uri in RESOURCES:
        return {"uri": uri, **RESOURCES[uri]}
    found = _TEMPLATE.fullmatch(uri)
    if found is None:
        return None
    data = {"id": found[1], "templateTest": True, "data": f"Data for ID: {found[1]}"}
    return {"uri": uri, "mimeType": "application/json", "text": json.dumps(data, separators=(",", ":"))}
