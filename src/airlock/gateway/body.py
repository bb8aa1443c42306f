"""JSON bodies of the gateway, fast: exactly the acceptance and the values of `core.wire.strict`.

Knows when msgspec's answer can be trusted and asks the strict parser otherwise; not what bodies mean.
"""

from __future__ import annotations

import json
import re
from typing import Final

import msgspec

from airlock.core.wire import jsonrpc, strict
from airlock.core.wire.strict import StrictError, StrictKind

__all__ = ["decode_answer", "decode_request", "encode", "raw_result", "too_deep", "with_result", "written"]

_UNSURE: Final = object()
_decode = msgspec.json.Decoder().decode

_BUT_SIGNS = bytes(byte for byte in range(256) if byte not in b"{[:")
_SHORT = 4096  # up to here counting every bracket is cheaper than looking for the 65th
_LONG_DIGITS = 309
_LONG_NUMBER = b"0" * _LONG_DIGITS
_ZERO_DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
_DIGITS_IN_A_ROW = re.compile(rb"[0-9]{5}")


def decode_request(data: bytes) -> tuple[object, bool]:
    """Return what `strict.parse` returns for `data`, and whether it is nested deeper than 64 levels.

    Raises what `strict.parse` raises.
    """
    # One pass keeps the brackets and colons, strings' own too: few bytes, counted at no cost.
    signs = data.translate(None, _BUT_SIGNS)
    colons = signs.count(b":")
    # INVARIANT: msgspec sees only texts that it can follow without reaching a limit of the interpreter.
    if len(signs) - colons > strict.MAX_DEPTH and too_deep(data):
        return strict.parse(data), True
    value = _quick(data)
    # SECURITY: msgspec keeps the last of equal keys without a word; another reader may keep the first. Every key
    # has a colon, and a key that was lost takes its own and its value's along; only an escaped colon comes back
    # as one that the text did not show.
    if value is _UNSURE or b"\\u003" in data or _encoder.encode(value).count(b":") != colons:
        return strict.parse(data), False
    return value, False


def decode_answer(data: bytes, *, exact: bool = False) -> object:
    """Return the value of an upstream's JSON text, at most 64 levels deep.

    Of equal keys in one object the last wins; with `exact` they are refused like in a request.
    Raises `StrictError`.
    """
    if too_deep(data):
        raise StrictError(StrictKind.DEPTH)
    value = _quick(data)
    return strict.parse(data, unique=exact) if exact or value is _UNSURE else value


_MOST_AROUND = 1024  # bytes of a plain response that are not its result


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    jsonrpc: str
    id: msgspec.Raw
    result: msgspec.Raw


_decode_plain = msgspec.json.Decoder(_Plain).decode


def raw_result(data: bytes, request_id: object) -> bytes | None:
    """Return the bytes of `result` in a plain response to `request_id`; None when it is anything but that.

    Plain is an object of just `jsonrpc`, `id` and `result`. What the bytes hold is not judged: only bytes that
    `decode_answer` took before may be used on the strength of this.
    """
    try:
        plain = _decode_plain(data)
        result = bytes(plain.result)
        around = data.replace(result, b"null", 1)
        # SECURITY: msgspec keeps the last of equal members and skips the others unread: what stands around the
        # result is read as strictly as a request, so that nothing is taken here that a closer look refuses.
        if len(around) > _MOST_AROUND or not isinstance(strict.parse(around), dict):
            return None
        return result if jsonrpc.same_id(_decode(plain.id), request_id) else None
    except (ValueError, RecursionError, StrictError):
        return None


def too_deep(data: bytes, limit: int = strict.MAX_DEPTH) -> bool:
    """Tell whether a JSON text is nested deeper than `limit` containers; the outermost is level 1."""
    if len(data) < _SHORT and data.count(b"{") + data.count(b"[") <= limit:
        return False
    return strict.deeper_than(data, limit)


def encode(value: object) -> bytes:
    """Return a JSON value as compact bytes: UTF-8, or ASCII with escapes when it holds a lone surrogate."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        # SPEC: gateway.md 2.1: a lone surrogate is sent as its escape, never a 500.
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def with_result(request_id: object, result: bytes) -> bytes:
    """Return the response to `request_id` that carries an encoded result."""
    return b'{"jsonrpc":"2.0","id":' + encode(request_id) + b',"result":' + result + b"}"


def written(value: object) -> str:
    """Return a JSON value as compact text, every character raw: for counting and scanning, not for the wire."""
    try:
        return _encoder.encode(value).decode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _plain_text(value: object) -> str:
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_encoder = msgspec.json.Encoder(enc_hook=_plain_text)


def _quick(data: bytes) -> object:
    """Return msgspec's value when it is the strict parser's too (equal keys aside), else `_UNSURE`.

    What msgspec refuses may still be good: it refuses the escapes of lone surrogates, which we keep.
    """
    # Of 309 digits in a row msgspec would keep an integer beyond a double. A row that long covers five neighbours
    # in a sample of every 61st byte, which costs little to look at.
    if (
        len(data) >= _LONG_DIGITS
        and _DIGITS_IN_A_ROW.search(data[::61]) is not None
        and _LONG_NUMBER in data.translate(_ZERO_DIGITS)
    ):
        return _UNSURE
    try:
        return _decode(data)
    except (ValueError, RecursionError):
        return _UNSURE
