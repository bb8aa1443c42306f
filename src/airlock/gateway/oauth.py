"""The gateway as an OAuth 2.0 resource server: its metadata, its challenges, and which scopes a caller must have.

Pure over the environment. Knows documents, header lines and refusals; verifies no token, and sends nothing.
SPEC: mcp.md 16, 25h; RFC 6750 (challenges), RFC 8414 and RFC 9728 (metadata), RFC 8707 (the audience).
"""

from __future__ import annotations

import re
from typing import Final

from airlock.core.errors import ConfigError
from airlock.core.principal import Principal
from airlock.core.rules import Rule
from airlock.edge.frontlimits import Line
from airlock.edge.httpurl import Target, parse_target
from airlock.edge.settings import Environment
from airlock.gateway import body
from airlock.gateway.door import is_loopback
from airlock.gateway.modern.admission import Refusal, unauthenticated

__all__ = ["FORBIDDEN", "ResourceServer", "canonical", "insecure", "resource_server"]

FORBIDDEN: Final = -32012
"""JSON-RPC error code of a caller whose token lacks a scope, beside -32011 of one who is unknown."""

_RESOURCE: Final = "AIRLOCK_RESOURCE_URL"
_SERVERS: Final = "AIRLOCK_AUTHORIZATION_SERVERS"
_SCOPES: Final = "AIRLOCK_SCOPES"
_METADATA: Final = "/.well-known/oauth-protected-resource"
_OLDER: Final = "/.well-known/oauth-authorization-server"
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_MOST: Final = 32
"""LIMIT: of authorization servers and of scopes: clients read them in header lines and try them in turn."""

# A page in a browser may read the metadata, and nothing else that the gateway says.
_ANYONE: Final[Line] = (b"access-control-allow-origin", b"*")
_KEPT: Final[Line] = (b"cache-control", b"public, max-age=300")
_PREFLIGHT: Final[tuple[Line, ...]] = (
    _ANYONE,
    (b"access-control-allow-methods", b"GET, HEAD"),
    (b"access-control-allow-headers", b"mcp-protocol-version"),
    (b"access-control-max-age", b"86400"),
)
_ALLOW: Final[Line] = (b"allow", b"GET, HEAD, OPTIONS")


class ResourceServer:
    """What clients are told about tokens for this gateway. `resource_server` checks what it is made of.

    `url` is the address of the endpoint that clients are given, and the audience of their tokens; `servers` are the
    issuers that give them, `scopes` what every token must hold.
    """

    __slots__ = (
        "_document",
        "_missing",
        "_paths",
        "_pointer",
        "_scope",
        "_server",
        "scopes",
        "servers",
        "url",
    )

    def __init__(self, url: str, servers: tuple[str, ...], scopes: tuple[str, ...] = ()) -> None:
        self.url, self.servers, self.scopes = url, servers, frozenset(scopes)
        origin, path = _split(parse_target(url))
        self._pointer = f'resource_metadata="{origin}{_METADATA}{path}"'
        self._scope = f'scope="{" ".join(scopes)}"' if scopes else ""
        self._missing = f"the token lacks a scope; all of these are needed: {' '.join(scopes)}"
        # SPEC: RFC 9728, 3.1: the path of the resource comes behind the well-known one; clients ask for both.
        self._paths = frozenset({_METADATA, _METADATA + path})
        issuer, below = _split(parse_target(servers[0]))
        self._server = f"{issuer}{_OLDER}{below}".encode("ascii")
        described: dict[str, object] = {
            "resource": url,
            "authorization_servers": list(servers),
            "bearer_methods_supported": ["header"],
            "resource_name": "Airlock",
        }
        if scopes:
            described["scopes_supported"] = list(scopes)
        self._document = body.encode(described)

    def metadata(self, method: str, path: str) -> tuple[int, bytes, list[Line]] | None:
        """Answer a request for a public document: status, JSON body, header lines; None when `path` names none."""
        if path not in self._paths and path != _OLDER:
            return None
        if method == "OPTIONS":
            return 200, b"", list(_PREFLIGHT)
        if method not in {"GET", "HEAD"}:
            return 405, b"", [_ALLOW]
        if path == _OLDER:
            # SPEC: mcp.md 16: clients of 2025-03-26 look for the authorization server's own document here.
            return 307, b"", [(b"location", self._server), _ANYONE, _KEPT]
        return 200, self._document, [_ANYONE, _KEPT]

    def unknown(self, why: str | None) -> tuple[Refusal, Line]:
        """Refuse a request that names nobody. `why` is what is wrong with its token, None when it has none."""
        refusal = unauthenticated(None, None, None)
        if why is None:
            return refusal, _challenge(self._pointer, self._scope)
        told = Refusal(refusal.status, refusal.code, refusal.rule, f"no principal: {why}")
        said = ('error="invalid_token"', f'error_description="{why}"')
        return told, _challenge(self._pointer, self._scope, *said)

    def lacking(self, principal: Principal) -> tuple[Refusal, Line] | None:
        """Refuse a caller whose token lacks a scope; None when it has them all.

        SECURITY: a caller that another gateway names in a header has no token, so no scope either.
        """
        if self.scopes <= principal.proof.scopes:
            return None
        refusal = Refusal(403, FORBIDDEN, Rule.SCOPE_MISSING, self._missing)
        return refusal, _challenge('error="insufficient_scope"', self._scope, self._pointer)


def resource_server(env: Environment) -> ResourceServer | None:
    """Read the settings; None when the gateway is no resource server. Raises ConfigError."""
    url = env.text(_RESOURCE)
    if url is None:
        for name in (_SERVERS, _SCOPES):
            if env.text(name) is not None:
                raise ConfigError("", f"{name} needs {_RESOURCE}")
        return None
    problem = _faulty(url)
    if problem:
        raise ConfigError("", f"{_RESOURCE} {problem}")
    if env.text("AIRLOCK_JWKS_URL") is None and env.text("AIRLOCK_JWT_SECRET") is None:
        raise ConfigError(
            "", f"{_RESOURCE} needs AIRLOCK_JWKS_URL (or AIRLOCK_JWT_SECRET) to check tokens with"
        )
    listed = env.text(_SERVERS) or env.text("AIRLOCK_JWT_ISSUER")
    servers = tuple(dict.fromkeys(entry.strip() for entry in (listed or "").split(",") if entry.strip()))
    if not 1 <= len(servers) <= _MOST:
        raise ConfigError("", f"{_RESOURCE} needs {_SERVERS} (or AIRLOCK_JWT_ISSUER), at most {_MOST}")
    for server in servers:
        problem = insecure(server) or ("has a query" if "?" in server else "")
        if problem:
            raise ConfigError("", f"{_SERVERS}: an issuer {problem}")
    return ResourceServer(url, servers, _scopes(env.text(_SCOPES) or ""))


def canonical(url: str) -> str:
    """Return the one way to write a resource's address: small letters, no default port, no slash at the end."""
    return "".join(_split(parse_target(url)))


def insecure(url: str) -> str:
    """Say what keeps a credential from being sent to `url`; empty when it is https, or this machine itself."""
    try:
        target = parse_target(url)
    except ValueError:
        # SECURITY: the address may hold a password, so it is not repeated.
        return "must be an address with a host, without user name, password or fragment"
    if target.scheme == "https" or is_loopback(target.host):
        return ""
    return "must be https, or on loopback"


def _faulty(url: str) -> str:
    problem = insecure(url)
    if problem:
        return problem
    if "?" in url:
        return "must have no query"
    right = canonical(url)
    # SPEC: RFC 8707: clients ask for tokens for the address they were given; the audience is compared as text.
    return "" if url == right else f"must be written as {right}"


def _scopes(text: str) -> tuple[str, ...]:
    scopes = tuple(dict.fromkeys(text.replace(",", " ").split()))
    if len(scopes) > _MOST or not all(_SCOPE.fullmatch(scope) for scope in scopes):
        raise ConfigError("", f"{_SCOPES} must be at most {_MOST} scopes of printable ASCII without quotes")
    if "offline_access" in scopes:
        # SPEC: mcp.md 16: whether a client gets refresh tokens is between it and its authorization server.
        raise ConfigError("", f"{_SCOPES}: offline_access is no scope of a resource")
    return scopes


def _split(target: Target) -> tuple[str, str]:
    """Return origin and path of an address, the path without slashes at its end."""
    return f"{target.scheme}://{target.host_header.decode('ascii')}", target.path.rstrip("/")


def _challenge(*said: str) -> Line:
    return b"www-authenticate", ("Bearer " + ", ".join(part for part in said if part)).encode("ascii")
