"""Knows which upstream addresses and header lines may be written into an HTTP/1.1 request, byte for byte.

Must not know sockets, or what is sent to the address.
"""

from __future__ import annotations

import ipaddress
import re

import msgspec

__all__ = ["Target", "checked_path", "header_line", "parse_target", "parse_upstream"]

_URL = re.compile(
    r"(?P<scheme>https?)://"
    r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>[/?].*)?",
    re.IGNORECASE,
)
_UNIX = re.compile(r"unix:(?P<socket>/(?!/).*?)(?::(?P<path>/.*))?", re.IGNORECASE)
_UNIX_PATH = "/mcp"
# What a socket's address holds besides the zero byte at its end.
_UNIX_BYTES = 107
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_UNSAFE = re.compile(r'[^\x21-\x7e]|[\\"<>]')
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_OURS = frozenset(
    (
        b"connection",
        b"content-length",
        b"expect",
        b"host",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_PORTS = {"http": 80, "https": 443}


class Target(msgspec.Struct, frozen=True):
    """One upstream address. `host` is bare (an IPv6 address without brackets), `path` holds the query too.

    With the scheme `unix` the `host` is the path of a socket, and the port is 0.
    """

    scheme: str
    host: str
    port: int
    path: str
    host_header: bytes


def parse_upstream(url: str) -> Target:
    """Read an `http` or `https` address, or `unix:/path/to.sock`, maybe with `:/endpoint` behind (else `/mcp`).

    Raises `ValueError` as `parse_target` does.
    """
    return _unix(_checked(url)) if url[:5].lower() == "unix:" else parse_target(url)


def parse_target(url: str) -> Target:
    """Read an `http` or `https` address.

    Raises `ValueError` in our own words; the words never repeat the address, which may hold a password.
    """
    _checked(url)
    if "@" in re.split(r"[/?]", url.partition("://")[2], maxsplit=1)[0]:
        raise ValueError("an upstream address holds no user name or password")
    match = _URL.fullmatch(url)
    if match is None:
        raise ValueError("an upstream address is http:// or https://, a host, and maybe a port and a path")
    scheme = match["scheme"].lower()
    host = _address(match["v6"]) if match["v6"] else _name(match["name"].lower())
    port = int(match["port"]) if match["port"] else _PORTS[scheme]
    if not 1 <= port <= 65535:
        raise ValueError("the port of an upstream address is between 1 and 65535")
    path = match["path"] or "/"
    shown = f"[{host}]" if match["v6"] else host
    if port != _PORTS[scheme]:
        shown = f"{shown}:{port}"
    return Target(scheme, host, port, path if path[0] == "/" else "/" + path, shown.encode("ascii"))


def checked_path(path: str) -> str:
    """Return `path` when it may stand in a request line: a path and maybe a query; raise `ValueError` when not."""
    # SECURITY: a path can be the upstream's own word; a space or line break in it would start a second request.
    if path[:1] != "/" or "#" in path or _UNSAFE.search(path):
        raise ValueError("a path begins with / and is printable ASCII without spaces, quotes or a fragment")
    return path


def header_line(name: bytes, value: bytes) -> bytes:
    """Make one `name: value` line for `HttpClient.post`.

    Raises `ValueError` on a name that is not a token or belongs to the client (framing, host and hop-by-hop
    headers), and on any control character in the value.
    """
    if not _TOKEN.fullmatch(name):
        raise ValueError("a header name is an RFC 9110 token")
    # SECURITY: a second Content-Length or a Transfer-Encoding lets one request be read as two.
    if name.lower() in _OURS:
        raise ValueError("this header belongs to the client itself")
    # SECURITY: a line break in a value adds headers, or a whole request, of the value's author.
    if _CONTROL.search(value):
        raise ValueError("a header value holds no control characters")
    return b"%b: %b\r\n" % (name, value)


def _checked(url: str) -> str:
    # SECURITY: a space or line break in the address would end the request line and start a second request.
    if _UNSAFE.search(url):
        raise ValueError(
            "an address is printable ASCII without spaces, quotes, backslashes or angle brackets"
        )
    if "#" in url:
        raise ValueError("an upstream address has no fragment")
    return url


def _unix(url: str) -> Target:
    match = _UNIX.fullmatch(url)
    if match is None or "?" in match["socket"]:
        raise ValueError(
            "a Unix socket's address is unix:/absolute/path.sock, and maybe :/endpoint behind it"
        )
    if len(match["socket"]) > _UNIX_BYTES:
        raise ValueError(f"the path of a Unix socket has at most {_UNIX_BYTES} bytes")
    return Target("unix", match["socket"], 0, match["path"] or _UNIX_PATH, b"localhost")


def _address(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        raise ValueError("the host in brackets is not an IPv6 address") from None


def _name(text: str) -> str:
    labels = text.removesuffix(".").split(".")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host of an upstream address is not a host name")
    if labels[-1].isdecimal() or labels[-1].startswith("0x"):
        # Resolvers read `127.1` and `0x7f000001` as addresses too; an operator who means one writes it whole.
        try:
            return str(ipaddress.IPv4Address(text))
        except ValueError:
            raise ValueError("the host of an upstream address is not a whole IPv4 address") from None
    return text
