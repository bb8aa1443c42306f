"""Startup warnings: settings that work but leave a hole. In a fixed order, one sentence each.

Pure over the environment; never shows a value. SPEC: gateway.md 15.3 (W1-W10, as far as built).
"""

from __future__ import annotations

from airlock.edge.settings import Environment, secret_bytes

__all__ = ["startup_warnings"]

MIN_SECRET_BYTES = 32


def startup_warnings(env: Environment, *, durable: bool) -> list[str]:
    """Return the warnings for these settings. `durable`: state and key are kept by default."""
    found: list[str] = []
    jwt = env.secret("AIRLOCK_JWT_SECRET")
    trust = env.text("AIRLOCK_TRUST_PRINCIPAL_HEADER")
    store = env.text("AIRLOCK_STORE_DSN")
    shared = store is not None and not store.startswith("memory:")
    keyed = env.text("AIRLOCK_SECRET") is not None or env.text("AIRLOCK_SECRET_FILE") is not None
    if jwt is None and trust != "1":
        found.append("no identity is configured, so every call gets 401: set AIRLOCK_JWT_SECRET")
    if trust not in {None, "0", "1"}:
        found.append("AIRLOCK_TRUST_PRINCIPAL_HEADER is neither 0 nor 1 and counts as 0")
    if jwt is not None and len(secret_bytes(jwt)) < MIN_SECRET_BYTES:
        found.append(f"AIRLOCK_JWT_SECRET is shorter than {MIN_SECRET_BYTES} bytes and could be guessed")
    if jwt is not None and trust == "1":
        found.append(
            "AIRLOCK_TRUST_PRINCIPAL_HEADER=1 together with JWT settings: "
            "a request without Authorization is trusted on the header alone"
        )
    if shared and not keyed and not durable:
        found.append("AIRLOCK_STORE_DSN without AIRLOCK_SECRET: every process signs with a key of its own")
    if keyed and not shared and not (durable and store is None):
        found.append(
            "AIRLOCK_SECRET without AIRLOCK_STORE_DSN: used confirmations are remembered only in this process, "
            "so a confirmed call can run again on another replica or after a restart"
        )
    if env.text("AIRLOCK_TELEGRAM_CHAT") is not None:
        found.append("AIRLOCK_TELEGRAM_CHAT without AIRLOCK_APPROVAL_WEBHOOK is ignored")
    if env.text("OTEL_EXPORTER_OTLP_ENDPOINT") or env.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        found.append("an OTLP endpoint is set, but this version does not export spans")
    return found
