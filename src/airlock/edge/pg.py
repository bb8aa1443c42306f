"""What every use of Postgres shares: the optional driver, the DSN with its bounds, and what may be said about it.

Knows libpq's settings and words; does not know tables, pools or who connects.

SPEC: gateway.md 12.5 (error text), 13.3 (the bound W, the defaults, `service=`).
"""

from __future__ import annotations

import importlib
import ipaddress
import logging
import re
import traceback
from functools import lru_cache
from types import ModuleType
from typing import Final
from urllib.parse import quote

import msgspec

from airlock.core.errors import ConfigError
from airlock.core.text.safe import one_line
from airlock.edge.settings import Environment

__all__ = ["DDL_LOCK", "Dsn", "driver", "let_go", "set_timeouts"]

DDL_LOCK: Final = 0x41524C4B
"""Advisory lock held by whoever makes tables, store and audit sink alike, so that replicas take turns."""

_CONNECT_TIMEOUT: Final = "AIRLOCK_STORE_CONNECT_TIMEOUT"
_LEAST_WAIT_S: Final = 2.0
_MOST_MS: Final = 2**31 - 1
_KEEPALIVES: Final = {
    "keepalives": "1",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
_TCP_USER_TIMEOUT_FROM: Final = 120000

# Settings whose values are words of libpq, not of the operator. The value of any other keyword is blanked.
_WORDS: Final = frozenset(
    {
        "channel_binding", "client_encoding", "gssdelegation", "gssencmode", "gsslib", "load_balance_hosts",
        "port", "replication", "require_auth", "ssl_max_protocol_version", "ssl_min_protocol_version",
        "sslcertmode", "sslcompression", "sslmode", "sslnegotiation", "sslsni", "target_session_attrs",
    }
)  # fmt: skip
_PASSWORDS: Final = frozenset({"password", "sslpassword", "scram_client_key", "scram_server_key"})
_LISTS: Final = frozenset({"host", "hostaddr"})
_NAME_BYTES: Final = 63
_BLANK: Final = '"..."'
_QUOTED: Final = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
_ADDRESS: Final = re.compile(
    r"(?P<quote>['\"]?)(?<![\w.:])(?P<address>[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*[0-9A-Fa-f:](?:%\w+)?)(?![\w])(?P=quote)"
)


def driver() -> ModuleType:
    """Import psycopg; raise ConfigError with what to install when it is not there.

    Its loggers, and those of anything below it, are silenced: they print hosts and users on lines of their own.
    """
    try:
        module = importlib.import_module("psycopg")
    except ImportError:
        # psycopg also raises it, with many words, when it finds no libpq.
        hint = "pip install 'airlock[postgres]'"
        raise ConfigError("", f"a Postgres DSN needs the postgres extra: {hint}") from None
    # SECURITY: a record that reaches no handler of ours is printed by Python itself, with the DSN's host in it.
    loud = logging.getLogger("psycopg")
    loud.propagate = False
    if not loud.handlers:
        loud.addHandler(logging.NullHandler())
    return module


def set_timeouts(seconds: float) -> str:
    """Return the statement that bounds each statement, and each wait for a lock, on its connection.

    LIMIT: these are settings of the server's session. A PgBouncer in transaction mode hands them on to whoever
    gets that session next, which is why the store wants a role of its own there (gateway.md 13.3).
    """
    ms = max(1, min(_MOST_MS, round(seconds * 1000)))
    return f"SELECT set_config('statement_timeout', '{ms}', false), set_config('lock_timeout', '{ms}', false)"


def let_go(error: BaseException) -> None:
    """Close what a failed attempt to connect left open: half a connection, held by the frames of its exception.

    The driver's exceptions and frames hold each other, so that without this the server keeps a backend for it
    until some day the garbage is collected.
    """
    left, seen = [error], {id(error)}
    while left:
        one = left.pop()
        traceback.clear_frames(one.__traceback__)
        for other in (one.__context__, one.__cause__):
            if other is not None and id(other) not in seen:
                seen.add(id(other))
                left.append(other)


class Dsn(msgspec.Struct, frozen=True):
    """Where a database is and how long to wait for it.

    `conninfo` goes to psycopg as it is. `wait_s` is W of gateway.md 13.3, in seconds. `secrets` are the values
    that no message may hold. `service` says that libpq takes (some of) the values from a service file, `hosts`
    how many are tried, each for W.
    """

    conninfo: str
    wait_s: float
    secrets: tuple[str, ...]
    service: bool = False
    hosts: int = 1

    def __repr__(self) -> str:
        return "Dsn(***)"

    @classmethod
    def parse(cls, text: str, variable: str, env: Environment) -> Dsn:
        """Read the DSN that `variable` (a variable or a flag) holds, and add the defaults it does not set.

        Raises ConfigError naming `variable` and quoting nothing of the DSN.
        """
        psycopg = driver()
        try:
            given = {name: str(value) for name, value in psycopg.conninfo.conninfo_to_dict(text).items()}
        except (psycopg.Error, ValueError):
            # SECURITY: libpq quotes what it could not read, which may be the password.
            raise ConfigError(variable, "does not parse as a Postgres DSN") from None
        service = bool(given.get("service"))
        wait_s = max(_LEAST_WAIT_S, float(_connect_timeout(given, variable, env)))
        whole = text
        if not service:
            defaults = _defaults(wait_s, env, psycopg.pq.version())
            added = {name: value for name, value in defaults.items() if name not in given}
            whole = psycopg.conninfo.make_conninfo(text, **added)
        hosts = max(given.get(name, "").count(",") + 1 for name in _LISTS)
        return cls(whole, wait_s, _secrets(given, text, whole), service, hosts)

    def blank(self, text: str) -> str:
        """Return `text` on one line with `"..."` for every value of the DSN and every network address.

        libpq's own words, numbers, ports and settings stay. With a service file, whose values are not known
        here, everything in quotes goes.
        """
        if self.service:
            text = _QUOTED.sub(_BLANK, text)
        text = _pattern(self.secrets).sub(_BLANK, text) if self.secrets else text
        return one_line(" ".join(_ADDRESS.sub(_hidden, text).split()))


def _connect_timeout(given: dict[str, str], variable: str, env: Environment) -> int:
    """The connect timeout in force, in seconds, as libpq reads it."""
    own = given.get("connect_timeout")
    if own:
        return _whole(own, variable, "has a connect_timeout that is not a whole number")
    default = env.positive(_CONNECT_TIMEOUT, 10, 86400)
    libpq = env.text("PGCONNECT_TIMEOUT")
    return default if libpq is None else _whole(libpq, "PGCONNECT_TIMEOUT", "must be a whole number")


def _whole(text: str, source: str, problem: str) -> int:
    if re.fullmatch(r"\s*[+-]?[0-9]{1,10}\s*", text, re.ASCII) is None or abs(int(text)) > _MOST_MS:
        raise ConfigError(source, problem)
    return int(text)


def _defaults(wait_s: float, env: Environment, libpq: int) -> dict[str, str]:
    """What a DSN gets unless it says otherwise. SPEC: gateway.md 13.3."""
    settings = dict(_KEEPALIVES)
    if env.text("PGCONNECT_TIMEOUT") is None:
        settings["connect_timeout"] = str(int(wait_s))
    if libpq >= _TCP_USER_TIMEOUT_FROM:
        settings["tcp_user_timeout"] = str(min(_MOST_MS, int(wait_s * 1000)))
    return settings


def _secrets(given: dict[str, str], *texts: str) -> tuple[str, ...]:
    """The values to blank, in every spelling libpq, the server or Python may give them, longest first."""
    values: set[str] = set()
    for name, value in given.items():
        if name in _WORDS or (name not in _PASSWORDS and value.isdigit()):
            continue
        values.add(value)
        if name in _LISTS:
            values.update(part.strip() for part in value.split(","))
    spelled = set(texts)
    for value in values - {""}:
        cut = value.encode("utf-8", "surrogatepass")[:_NAME_BYTES].decode("utf-8", "ignore")
        for form in (value, cut):
            spelled.update(
                {
                    form,
                    " ".join(form.split()),
                    form.replace('"', '""'),
                    form.replace("'", "''"),
                    re.sub(r"([\\'])", r"\\\1", form),
                    re.sub(r"([\\\"])", r"\\\1", form),
                    repr(form)[1:-1],
                    ascii(form)[1:-1],
                    quote(form, safe="", errors="replace"),
                    quote(form, errors="replace"),
                }
            )
    return tuple(sorted(spelled - {""}, key=lambda value: (-len(value), value)))


@lru_cache(maxsize=8)
def _pattern(secrets: tuple[str, ...]) -> re.Pattern[str]:
    """One pattern for all values, each with the quotes around it and the socket's file name behind it.

    A value is found as a whole word only, so that a user `d` does not eat the letters of "refused", nor one
    named `airlock` the beginning of a table's name.
    """
    words = "|".join(map(_word, secrets))
    one = rf"(?:{words})(?:/\.s\.PGSQL\.[0-9]+)?"
    return re.compile(rf"\"{one}\"|'{one}'|{one}")


def _word(value: str) -> str:
    before = r"(?<!\w)" if re.match(r"\w", value) else ""
    after = r"(?!\w)" if re.search(r"\w\Z", value) else ""
    return f"{before}{re.escape(value)}{after}"


def _hidden(match: re.Match[str]) -> str:
    """Blank what is an address; times and version numbers look alike and stay."""
    address = match["address"]
    for found in (address, address.removesuffix(":")):
        try:
            ipaddress.ip_address(found.partition("%")[0])
        except ValueError:
            continue
        return _BLANK + address[len(found) :]
    return match[0]
