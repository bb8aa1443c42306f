"""The settings of the documents, one by one: flags, variables, who beats whom, warnings, and what stops a start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from airlock.cli.gateway import mcp_airlock
from airlock.edge import httpd
from airlock.edge.exporters import otlp
from airlock.edge.exporters.otlpsettings import OtlpSettings
from airlock.edge.settings import Environment
from airlock.gateway.variables import VARIABLES
from airlock.gateway.warnings import startup_warnings
from tests.fakes.processes import clean_env

UP = "http://127.0.0.1:1/mcp"
POLICY = "environment: prod\ntools:\n  read: {tiers: {prod: L0, dev: L0, test: L0}}\n"

FLAGS = {
    "--policy": (True, None), "--upstream": (False, None), "--env": (False, None), "--audit": (False, "audit.jsonl"),
    "--audit-max-bytes": (False, 0), "--audit-keep": (False, 5), "--otel-file": (False, None), "--pins": (False, None),
    "--strict": (False, False), "--host": (False, "127.0.0.1"), "--port": (False, 9000),
}  # fmt: skip
"""Flag to whether it is required, and its default."""


def options() -> dict[str, click.Option]:
    return {p.opts[0]: p for p in mcp_airlock.params if isinstance(p, click.Option)}


@pytest.mark.parametrize("flag", FLAGS)
def test_each_flag_is_there_with_its_default(flag: str) -> None:
    required, default = FLAGS[flag]
    option = options()[flag]
    given = option.get_default(click.Context(mcp_airlock))
    assert option.required == required
    assert (given if isinstance(given, (str, int)) else None) == default


def test_flags_of_our_own_are_never_needed_and_all_stand_in_the_help() -> None:
    ours = {name: option for name, option in options().items() if name not in FLAGS}
    assert set(ours) == {"--front", "--upstreams", "--workers", "--version"}
    assert not any(option.required for option in ours.values())
    shown = CliRunner().invoke(mcp_airlock, ["--help"], prog_name="mcp-airlock")
    assert shown.exit_code == 0
    assert shown.output.startswith("Usage: mcp-airlock [OPTIONS] [COMMAND]...\n")
    assert all(f"  {name}" in shown.output for name in [*FLAGS, *ours])


DEFAULTS = {
    "AIRLOCK_ENV": "none", "AIRLOCK_JWT_SECRET": "none", "AIRLOCK_JWKS_URL": "none", "AIRLOCK_JWT_ISSUER": "none",
    "AIRLOCK_JWT_AUDIENCE": "none", "AIRLOCK_GROUPS_CLAIM": "`groups`", "AIRLOCK_TRUST_PRINCIPAL_HEADER": "`0`",
    "AIRLOCK_SECRET": "none", "AIRLOCK_STORE_DSN": "by program", "AIRLOCK_AUDIT_DSN": "none",
    "AIRLOCK_STORE_CONNECT_TIMEOUT": "`10`", "AIRLOCK_STORE_POOL_SIZE": "`4`", "AIRLOCK_APPROVAL_WEBHOOK": "none",
    "AIRLOCK_APPROVAL_MODE": "`inband`", "AIRLOCK_TELEGRAM_CHAT": "none", "AIRLOCK_PUBLIC_URL": "`http://127.0.0.1:9000`",
    "AIRLOCK_PINS": "none", "AIRLOCK_OTEL_FILE": "none", "AIRLOCK_DEBUG": "none", "AIRLOCK_UPSTREAM_AUTH": "none",
    "AIRLOCK_MAX_REQUEST_BYTES": "`1048576`", "AIRLOCK_MAX_UPSTREAM_BYTES": "`8388608`", "PGCONNECT_TIMEOUT": "none",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "none", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "none",
    "OTEL_EXPORTER_OTLP_HEADERS": "none", "OTEL_SERVICE_NAME": "`mcp-airlock`", "OTEL_RESOURCE_ATTRIBUTES": "none",
}  # fmt: skip


def test_each_variable_is_in_the_reference_with_its_default() -> None:
    listed = {name: default for name, default, _ in VARIABLES}
    assert {name: listed.get(name) for name in DEFAULTS} == DEFAULTS
    assert "OTEL_EXPORTER_OTLP_PROTOCOL" not in listed


def test_the_protocol_variable_of_the_exporter_changes_nothing() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318"}
    plain = OtlpSettings.read(Environment(endpoint))
    assert plain is not None
    assert repr(OtlpSettings.read(Environment({**endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}))) == repr(
        plain
    )


class Started:
    """A start that listened: the port is closed at once."""

    def __init__(self, code: int, stderr: str, folder: Path) -> None:
        self.code = code
        self.stderr = stderr
        self.folder = folder
        self.warnings = [
            line.removeprefix("mcp-airlock: warning: ") for line in stderr.splitlines() if "warning: " in line
        ]


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Run `mcp-airlock` in this process up to the moment it serves."""
    (tmp_path / "policy.yaml").write_text(POLICY)

    def served(app: object, sock: object, *_: object, **more: Callable[[], None]) -> None:
        more["on_ready"]()
        sock.close()  # type: ignore[attr-defined]

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(httpd, "run", served)

    def run(*flags: str, upstream: str = UP, **env: str) -> Started:
        monkeypatch.setattr(os, "environ", clean_env(**{"AIRLOCK_JWT_SECRET": "k" * 32, **env}))
        argv = ["--policy", "policy.yaml", "--upstream", upstream, "--port", "0", *flags]
        done = CliRunner().invoke(mcp_airlock, argv, prog_name="mcp-airlock")
        return Started(done.exit_code, done.stderr, tmp_path)

    return run


@pytest.mark.parametrize(
    ("flags", "env", "name"),
    [((), {}, "prod"), ((), {"AIRLOCK_ENV": "dev"}, "dev"), (("--env", "test"), {"AIRLOCK_ENV": "dev"}, "test"),
     (("--env", "test"), {}, "test"), ((), {"AIRLOCK_ENV": ""}, "prod")],
)  # fmt: skip
def test_the_flag_beats_the_variable_and_the_variable_beats_the_policy(
    start: Start, flags: tuple[str, ...], env: dict[str, str], name: str
) -> None:
    done = start(*flags, **env)
    assert done.code == 0, done.stderr
    assert f"(environment {name}, 1 tools)" in done.stderr


def test_a_plain_start_needs_no_variable_warns_of_nobody_and_keeps_its_log_here(start: Start) -> None:
    done = start(AIRLOCK_JWT_SECRET="")
    assert done.code == 0
    assert len(done.warnings) == 1
    assert "401" in done.warnings[0]
    assert (done.folder / "audit.jsonl").exists()
    assert sorted(path.name for path in done.folder.iterdir()) == ["audit.jsonl", "policy.yaml"]


def test_warnings_are_one_line_each_in_a_fixed_order_and_stop_nothing(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "exporter_available", lambda: False)
    env = {
        "AIRLOCK_JWT_SECRET": "sh0rt-one", "AIRLOCK_JWKS_URL": "https://id.example/keys", "AIRLOCK_TRUST_PRINCIPAL_HEADER": "1",
        "AIRLOCK_SECRET": "signing-" + "s" * 32, "AIRLOCK_APPROVAL_WEBHOOK": "https://api.telegram.org/bot1:aa/sendMessage",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4318",
    }  # fmt: skip
    done = start(**env)
    assert done.code == 0, done.stderr
    named = [
        "AIRLOCK_JWT_AUDIENCE",
        "32 bytes",
        "header alone",
        "AIRLOCK_STORE_DSN",
        "AIRLOCK_PUBLIC_URL",
        "AIRLOCK_TELEGRAM_CHAT",
        "otlp",
    ]
    assert len(done.warnings) == len(named), done.stderr
    for warning, word in zip(done.warnings, named, strict=True):
        assert word in warning
        assert warning.endswith(".")
    assert not any(value in done.stderr for value in env.values() if value != "1")


def warned(**env: str) -> list[str]:
    return startup_warnings(Environment(env), durable=False)


GOOD = {"AIRLOCK_JWT_SECRET": "k" * 32}


@pytest.mark.parametrize(
    ("env", "word"),
    [({}, "no identity"), ({"AIRLOCK_JWKS_URL": "https://i.example/"}, "AUDIENCE"), ({"AIRLOCK_JWT_SECRET": "k" * 31}, "32"),
     ({**GOOD, "AIRLOCK_TRUST_PRINCIPAL_HEADER": "1"}, "header alone"),
     ({**GOOD, "AIRLOCK_STORE_DSN": "postgresql://h/d"}, "a key of its own"),
     ({**GOOD, "AIRLOCK_SECRET": "s"}, "run again"), ({**GOOD, "AIRLOCK_APPROVAL_WEBHOOK": "https://h.example/"}, "approve link"),
     ({**GOOD, "AIRLOCK_APPROVAL_WEBHOOK": "h.example", "AIRLOCK_PUBLIC_URL": "https://g.example"}, "no message can be delivered"),
     ({**GOOD, "AIRLOCK_APPROVAL_WEBHOOK": "https://api.telegram.org/bot1:a/sendMessage", "AIRLOCK_PUBLIC_URL": "https://g.example"},
      "AIRLOCK_TELEGRAM_CHAT"),
     ({**GOOD, "AIRLOCK_TELEGRAM_CHAT": "1"}, "ignored")],
)  # fmt: skip
def test_each_hole_has_its_own_warning_and_nothing_else_is_said(env: dict[str, str], word: str) -> None:
    found = warned(**env)
    assert len(found) == 1, found
    assert word in found[0]


@pytest.mark.parametrize(
    "env",
    [GOOD, {"AIRLOCK_TRUST_PRINCIPAL_HEADER": "1"}, {"AIRLOCK_JWKS_URL": "https://i.example/", "AIRLOCK_JWT_AUDIENCE": "a"},
     {**GOOD, "AIRLOCK_STORE_DSN": "postgresql://h/d", "AIRLOCK_SECRET": "s"},
     {"AIRLOCK_JWT_SECRET": "é" * 16},  # 32 bytes, 16 characters
     {**GOOD, "AIRLOCK_APPROVAL_WEBHOOK": "https://h.example/", "AIRLOCK_PUBLIC_URL": "https://g.example"}],
)  # fmt: skip
def test_settings_without_a_hole_are_not_warned_about(env: dict[str, str]) -> None:
    assert warned(**env) == []


def test_an_endpoint_without_the_extra_is_an_error_only_under_strict(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "exporter_available", lambda: False)
    env = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}
    assert (start(**env).code, start("--strict", **env).code) == (0, 2)


def test_pins_may_be_named_by_flag_or_variable_and_a_bad_file_stops_the_start(start: Start) -> None:
    Path("good.json").write_text("{}\n")
    Path("old.json").write_text('{"read": "sha256:%s"}\n' % ("0" * 64))
    assert start("--pins", "good.json").code == start(AIRLOCK_PINS="good.json").code == 0
    assert start("--pins", "good.json", AIRLOCK_PINS="old.json").code == 0
    for done in (start("--pins", "old.json"), start(AIRLOCK_PINS="old.json")):
        assert done.code == 1
        assert len(done.stderr.splitlines()) == 1
        assert "old.json" in done.stderr


def test_a_bad_pins_file_is_told_before_any_warning(start: Start) -> None:
    done = start("--pins", "nowhere.json", "--strict", AIRLOCK_JWT_SECRET="")
    assert done.code == 1
    assert done.warnings == []


def test_a_span_file_may_be_named_by_flag_or_variable(start: Start) -> None:
    assert start("--otel-file", "a.jsonl").code == start(AIRLOCK_OTEL_FILE="b.jsonl").code == 0
    assert Path("a.jsonl").exists()
    assert Path("b.jsonl").exists()


@pytest.mark.parametrize("name", ["AIRLOCK_STORE_DSN", "AIRLOCK_AUDIT_DSN"])
def test_a_database_without_the_extra_stops_the_start_with_what_to_install(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    done = start(**{name: "postgresql://u:hunter2@h/d", "AIRLOCK_SECRET": "s" * 32})
    assert done.code == 1
    assert "[postgres]" in done.stderr.splitlines()[-1]
    assert "hunter2" not in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_BSP_MAX_QUEUE_SIZE", "-1"), ("OTEL_BSP_SCHEDULE_DELAY", "soon"), ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1s"),
     ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "zstd"), ("OTEL_EXPORTER_OTLP_CERTIFICATE", "nowhere.pem")],
)  # fmt: skip
def test_a_setting_that_the_exporter_cannot_take_stops_the_start(start: Start, name: str, value: str) -> None:
    done = start(**{"OTEL_EXPORTER_OTLP_ENDPOINT": "https://127.0.0.1:4318", name: value})
    assert done.code == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("mcp-airlock: OTEL")


def test_the_module_runs_like_the_command() -> None:
    argv = [sys.executable, "-m", "airlock", "gateway", "serve", "--help"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=clean_env())
    assert (done.returncode, done.stderr) == (0, "")
    assert "--policy" in done.stdout
