"""Startup warnings: settings that work but leave a hole. In a fixed order, one sentence each.

Pure over the environment; never shows a value. SPEC: gateway.md 15.3 (W1-W10).
"""

from __future__ import annotations

from airlock.edge.settings import Environment, secret_bytes
from airlock.gateway.approvalsettings import approval_warnings
from airlock.gateway.tracing import export_impossible

__all__ = ["startup_warnings"]

MIN_SECRET_BYTES = 32


def startup_warnings(env: Environment, *, durable: bool, local: bool = False) -> list[str]:
    """Return the warnings for these settings. `durable`: state and key are kept by default.

    `local`: so is a key for tokens of this machine's own user, when no other identity is set.
    """
    return [
        *_identity_warnings(env, local=local),
        *_key_warnings(env, durable=durable),
        *approval_warnings(env),
        *(
            ["an OTLP endpoint is set, but the extra otlp is not installed: no spans are exported"]
            if export_impossible(env)
            else []
        ),
    ]


def _identity_warnings(env: Environment, *, local: bool) -> list[str]:
    """W1 to W5."""
    found: list[str] = []
    jwt, jwks = env.secret("AIRLOCK_JWT_SECRET"), env.text("AIRLOCK_JWKS_URL")
    trust = env.text("AIRLOCK_TRUST_PRINCIPAL_HEADER")
    tokens = jwt is not None or jwks is not None
    if not tokens and trust != "1" and not local:
        found.append(
            "no identity is configured, so every call gets 401: set AIRLOCK_JWT_SECRET or AIRLOCK_JWKS_URL"
        )
    if trust not in {None, "0", "1"}:
        found.append("AIRLOCK_TRUST_PRINCIPAL_HEADER is neither 0 nor 1 and counts as 0")
    audience = env.text("AIRLOCK_JWT_AUDIENCE") or env.text("AIRLOCK_RESOURCE_URL")
    if jwks is not None and audience is None:
        found.append(
            "AIRLOCK_JWKS_URL without AIRLOCK_JWT_AUDIENCE: a token the provider made for another service is taken"
        )
    if jwt is not None and len(secret_bytes(jwt)) < MIN_SECRET_BYTES:
        found.append(f"AIRLOCK_JWT_SECRET is shorter than {MIN_SECRET_BYTES} bytes and could be guessed")
    if tokens and trust == "1":
        found.append(
            "AIRLOCK_TRUST_PRINCIPAL_HEADER=1 together with JWT settings: "
            "a request without Authorization is trusted on the header alone"
        )
    return found


def _key_warnings(env: Environment, *, durable: bool) -> list[str]:
    """W6 and W7."""
    store = env.text("AIRLOCK_STORE_DSN")
    shared = store is not None and not store.startswith("memory:")
    keyed = env.text("AIRLOCK_SECRET") is not None or env.text("AIRLOCK_SECRET_FILE") is not None
    if shared and not keyed and not durable:
        return ["AIRLOCK_STORE_DSN without AIRLOCK_SECRET: every process signs with a key of its own"]
    if keyed and not shared and not (durable and store is None):
        return [
            "AIRLOCK_SECRET without AIRLOCK_STORE_DSN: used confirmations are remembered only in this process, "
            "so a confirmed call can run again on another replica or after a restart"
        ]
    return []
