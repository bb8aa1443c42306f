from __future__ import annotations

import gc
import importlib
import subprocess
import sys
import weakref

import pytest

from airlock.core.errors import ConfigError
from airlock.edge import pg
from airlock.edge.settings import Environment

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres: uv sync --all-extras")

VARIABLE = "AIRLOCK_STORE_DSN"


def parse(text: str, **env: str) -> pg.Dsn:
    return pg.Dsn.parse(text, VARIABLE, Environment(env))


def settings(dsn: pg.Dsn) -> dict[str, object]:
    found: dict[str, object] = psycopg.conninfo.conninfo_to_dict(dsn.conninfo)
    return found


# --- the driver


def test_a_missing_driver_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"pip install 'airlock\[postgres\]'") as caught:
        parse("postgresql://alice:hunter2@h/d")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("configured", ["", "logging.basicConfig(); "])
def test_the_drivers_loggers_are_silent(configured: str):
    code = (
        f"import logging; from airlock.edge import pg; {configured}pg.driver(); pg.driver()\n"
        "for name in ('psycopg', 'psycopg.pool'): logging.getLogger(name).error('could not reach db.internal')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_module_alone_does_not_load_the_driver():
    code = "import sys, airlock.edge.pg, airlock.edge.pgpool, airlock.edge.stores.postgres; print('psycopg' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )


def test_what_a_failed_attempt_held_is_let_go_without_the_garbage_collector():
    class Half:
        pass

    halves: list[weakref.ref[Half]] = []

    def attempt() -> None:
        half = Half()
        halves.append(weakref.ref(half))
        try:
            raise OSError("first")
        except OSError as first:
            error = RuntimeError("second")  # the frame holds the exception that holds the frame
            raise error from first

    gc.disable()
    try:
        try:
            attempt()
        except RuntimeError as error:
            assert halves[0]() is not None
            pg.let_go(error)
        assert halves[0]() is None
    finally:
        gc.enable()


# --- the bound and the defaults


@pytest.mark.parametrize(
    ("text", "env", "wait_s"),
    [
        ("postgresql://h/d", {}, 10.0),
        ("postgresql://h/d", {"AIRLOCK_STORE_CONNECT_TIMEOUT": "7"}, 7.0),
        ("postgresql://h/d", {"AIRLOCK_STORE_CONNECT_TIMEOUT": "1"}, 2.0),
        ("postgresql://h/d", {"AIRLOCK_STORE_CONNECT_TIMEOUT": "7", "PGCONNECT_TIMEOUT": "5"}, 5.0),
        ("postgresql://h/d?connect_timeout=3", {"PGCONNECT_TIMEOUT": "5"}, 3.0),
        ("postgresql://h/d?connect_timeout=0", {}, 2.0),
        ("host=h dbname=d connect_timeout=' 4 '", {}, 4.0),
    ],
)
def test_the_wait_is_the_connect_timeout_in_force_and_at_least_two_seconds(
    text: str, env: dict[str, str], wait_s: float
):
    assert parse(text, **env).wait_s == wait_s


def test_defaults_are_added_where_the_dsn_sets_nothing():
    found = settings(parse("postgresql://alice@h/d", AIRLOCK_STORE_CONNECT_TIMEOUT="1"))
    assert found == {
        "host": "h", "user": "alice", "dbname": "d", "connect_timeout": "2", "tcp_user_timeout": "2000",
        "keepalives": "1", "keepalives_idle": "10", "keepalives_interval": "5", "keepalives_count": "3",
    }  # fmt: skip


def test_what_the_dsn_sets_itself_stays():
    found = settings(
        parse("postgresql://h/d?connect_timeout=4&keepalives=0&tcp_user_timeout=99&keepalives_idle=8")
    )
    assert (found["connect_timeout"], found["keepalives"], found["keepalives_idle"]) == ("4", "0", "8")
    assert found["tcp_user_timeout"] == "99"


def test_no_connect_timeout_is_added_beside_libpqs_own_variable():
    found = settings(parse("postgresql://h/d", PGCONNECT_TIMEOUT="5"))
    assert "connect_timeout" not in found
    assert found["tcp_user_timeout"] == "5000"


def test_a_wait_of_years_is_clamped_for_the_kernel():
    assert settings(parse("postgresql://h/d?connect_timeout=2000000000"))["tcp_user_timeout"] == "2147483647"


def test_an_old_library_gets_no_setting_it_would_refuse(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.import_module("psycopg.pq"), "version", lambda: 110022)
    assert "tcp_user_timeout" not in settings(parse("postgresql://h/d"))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [("", 1), ("postgresql://h/d", 1), ("postgresql://a,b:5433,c/d", 3), ("hostaddr=::1,::2", 2)],
)
def test_the_hosts_of_a_dsn_are_counted(text: str, hosts: int):
    assert parse(text).hosts == hosts


@pytest.mark.case("T79")
@pytest.mark.parametrize(
    "text", ["service=hunter2", "postgresql:///?service=hunter2", "service=hunter2 user=bob"]
)
def test_a_service_dsn_is_left_alone_and_waits_as_the_environment_says(text: str):
    dsn = parse(text, AIRLOCK_STORE_CONNECT_TIMEOUT="6")
    assert dsn.conninfo == text
    assert dsn.wait_s == 6.0
    assert parse(text, PGCONNECT_TIMEOUT="3").wait_s == 3.0


@pytest.mark.case("T79")
def test_the_wait_never_comes_from_the_service_file(tmp_path, monkeypatch):
    file = tmp_path / "pg_service.conf"
    file.write_text("[hunter2]\nhost=secret-host\npassword=s3cret\nconnect_timeout=99\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    assert parse("service=hunter2").wait_s == 10.0
    assert parse("service=hunter2", AIRLOCK_STORE_CONNECT_TIMEOUT="6").wait_s == 6.0


def test_a_statement_bounds_statements_and_locks():
    assert pg.set_timeouts(1.8).count("'1800'") == 2
    assert pg.set_timeouts(0.0).count("'1'") == 2
    assert pg.set_timeouts(1e12).count("'2147483647'") == 2


# --- what is refused


@pytest.mark.case("T50")
@pytest.mark.parametrize(
    "text",
    [
        "hunter2", "host=h hunter2", "postgresql://u:hunter2@[h/d", "postgresql://h/d?hunter2=1", "host='hunter2",
        "postgresql://u:hunter2%zz@h/d", "postgresql://u:hunter2\ud800@h/d", "postgresql://u:hunter2%ff@h/d",
    ],
)  # fmt: skip
def test_a_dsn_that_does_not_parse_is_named_and_not_quoted(text: str):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert str(caught.value) == "AIRLOCK_STORE_DSN: does not parse as a Postgres DSN"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("value", ["soon", "1.5", "1_0", "\u0663", "9" * 9 + "9", "9" * 30])
def test_a_connect_timeout_that_is_no_number_stops_the_start(value: str):
    with pytest.raises(
        ConfigError, match=r"^AIRLOCK_STORE_DSN: has a connect_timeout that is not a whole number$"
    ):
        parse(f"host=hunter2 connect_timeout={value}")
    with pytest.raises(ConfigError, match=r"^PGCONNECT_TIMEOUT: must be a whole number$"):
        parse("host=hunter2", PGCONNECT_TIMEOUT=value)


def test_a_bad_default_stops_the_start():
    with pytest.raises(ConfigError, match="AIRLOCK_STORE_CONNECT_TIMEOUT"):
        parse("host=hunter2", AIRLOCK_STORE_CONNECT_TIMEOUT="0")


def test_a_dsn_shows_nothing_of_itself():
    dsn = parse("postgresql://alice:hunter2@db.internal/d")
    assert repr(dsn) == str(dsn) == f"{dsn}" == "Dsn(***)"


# --- what may be said


@pytest.mark.case("T50")
@pytest.mark.parametrize(
    ("dsn", "said", "told"),
    [
        (
            "postgresql://alice:hunter2@db.internal/orders",
            'connection to server at "db.internal" (10.1.2.3), port 5432 failed: Connection refused\n'
            "\tIs the server running on that host and accepting TCP/IP connections?",
            'connection to server at "..." ("..."), port 5432 failed: Connection refused '
            "Is the server running on that host and accepting TCP/IP connections?",
        ),
        (
            "postgresql://alice:hunter2@%2Frun%2Fpg/orders",
            'connection to server on socket "/run/pg/.s.PGSQL.5432" failed: No such file or directory',
            'connection to server on socket "..." failed: No such file or directory',
        ),
        (
            "host=a.example,b.example user=alice dbname=orders",
            "host: 'b.example', hostaddr: 'fe80::1%eth0': timeout expired at 12:34:56; host: 'a.example'",
            'host: "...", hostaddr: "...": timeout expired at 12:34:56; host: "..."',
        ),
        (
            "postgresql://u:p@h/d",
            'password authentication failed for user "u"; the hidden word had no u or p to lose',
            'password authentication failed for user "..."; the hidden word had no "..." or "..." to lose',
        ),
        (
            "postgresql://airlock:x@h/airlock",
            'relation "airlock_audit" does not exist in database "airlock"',
            'relation "airlock_audit" does not exist in database "..."',
        ),
        (
            "postgresql://h/d?sslmode=require&port=5433&connect_timeout=3&target_session_attrs=read-write",
            "sslmode require, port 5433, read-write, within 3 s",
            "sslmode require, port 5433, read-write, within 3 s",
        ),
        (
            "",
            "10.0.0.1: no. At ::1, 1.2.3.4. Version 17.10.0 in 1:02:03, [2001:db8::7]:5432 and 10.0.0.256",
            '"...": no. At "...", "...". Version 17.10.0 in 1:02:03, ["..."]:5432 and 10.0.0.256',
        ),
        ("user=alice password=123456", "alice 123456 5432", '"..." "..." 5432'),
        ("user=1234 password=x", "role 1234 failed", "role 1234 failed"),
        ("user=alice", "no\r\nnew\x1b[31m lines\t for alice", 'no new\\u001b[31m lines for "..."'),
        ("", 'database "d" does not exist', 'database "d" does not exist'),
    ],
)
def test_an_error_keeps_its_words_and_loses_the_values(dsn: str, said: str, told: str):
    assert parse(dsn).blank(said) == told


@pytest.mark.case("T50")
@pytest.mark.parametrize(
    "password", ["p@ss:w/rd", 'we"ird', "it's", "back\\slash", "sp ace", "two\nlines", "pässwörd%"]
)
def test_a_password_is_blanked_however_it_is_spelled(password: str):
    import urllib.parse

    dsn = parse(psycopg.conninfo.make_conninfo("user=alice", password=password))
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    for spelling in (
        password, password.replace('"', '""'), password.replace("'", "''"), escaped, repr(password)[1:-1],
        ascii(password)[1:-1], urllib.parse.quote(password), urllib.parse.quote(password, safe=""), " ".join(password.split()),
    ):  # fmt: skip
        assert dsn.blank(f"bad: {spelling} (see above)") == 'bad: "..." (see above)'
    assert dsn.blank(f"bad: {dsn.conninfo}") == 'bad: "..."'


def test_a_name_that_the_server_cut_short_is_blanked():
    name = "ä" * 40
    dsn = parse(psycopg.conninfo.make_conninfo("", dbname=name))
    assert dsn.blank(f'database "{"ä" * 31}" does not exist') == 'database "..." does not exist'


@pytest.mark.case("T79")
def test_with_a_service_file_everything_in_quotes_goes():
    dsn = parse("service=orders")
    said = 'connection to server at "db.internal" (10.1.2.3), port 5432 failed: role "carol" \'x\' of orders'
    assert dsn.blank(said) == (
        'connection to server at "..." ("..."), port 5432 failed: role "..." "..." of "..."'
    )
