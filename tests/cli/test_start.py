"""How a gateway refuses to start: one line, the documented status, nothing listening, nothing made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from airlock.cli.gateway import mcp_airlock, serve_command
from airlock.edge import httpd
from airlock.edge.exporters import otlp
from tests.fakes.processes import clean_env, run

POLICY = "environment: prod\ntools:\n  read: {tiers: {prod: L0}}\n"
UP = "http://127.0.0.1:1/mcp"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


class Done:
    """How a start in this process ended."""

    def __init__(self, returncode: int, stdout: str, stderr: str) -> None:
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


def start(tmp_path: Path, *flags: str, upstream: str = UP, **env: str) -> Done:
    """Run `mcp-airlock` in this process, in `tmp_path`, without letting it listen."""
    whole = clean_env(**{"AIRLOCK_JWT_SECRET": "k" * 32, "XDG_STATE_HOME": str(tmp_path / "state"), **env})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(os, "environ", whole)
        patch.setattr(httpd, "run", lambda *_, **__: pytest.fail("it would have listened"))
        done = CliRunner().invoke(mcp_airlock, ["--upstream", upstream, *flags], prog_name="mcp-airlock")
    return Done(done.exit_code, done.stdout, done.stderr)


def refused(done: Done | subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("mcp-airlock: ")
    for word in words:
        assert word in lines[0]


BAD_ENV = [
    ({"AIRLOCK_MAX_REQUEST_BYTES": "0"}, "AIRLOCK_MAX_REQUEST_BYTES"),
    ({"AIRLOCK_MAX_UPSTREAM_BYTES": "1e3"}, "AIRLOCK_MAX_UPSTREAM_BYTES"),
    ({"AIRLOCK_STORE_POOL_SIZE": "-1"}, "AIRLOCK_STORE_POOL_SIZE"),
    ({"AIRLOCK_STORE_CONNECT_TIMEOUT": "86401"}, "86400"),
    ({"AIRLOCK_APPROVAL_MODE": "maybe"}, "AIRLOCK_APPROVAL_MODE"),
    ({"AIRLOCK_APPROVAL_MODE": "oob"}, "AIRLOCK_APPROVAL_WEBHOOK"),
    ({"AIRLOCK_UPSTREAM_AUTH": "a\nb"}, "AIRLOCK_UPSTREAM_AUTH"),
]


@pytest.mark.parametrize(("env", "word"), BAD_ENV, ids=[word for _, word in BAD_ENV])
def test_a_bad_variable_is_one_line_and_status_1(
    tmp_path: Path, policy: Path, env: dict[str, str], word: str
) -> None:
    refused(start(tmp_path, "--policy", str(policy), **env), 1, word)


@pytest.mark.case("T50", "T65")
@pytest.mark.parametrize(
    ("env", "words"),
    [({"AIRLOCK_JWKS_URL": "ftp://u:hunter2@h/keys", "AIRLOCK_JWT_AUDIENCE": "a"}, ["AIRLOCK_JWKS_URL"]),
     ({"AIRLOCK_AUDIT_DSN": "postgresql://u:hunter2@[h/db"}, ["AIRLOCK_AUDIT_DSN"]),
     ({"AIRLOCK_PINS": "hunter2.json"}, ["hunter2.json", "No such file"]),
     ({"AIRLOCK_OTEL_FILE": "missing/spans.jsonl"}, ["missing/spans.jsonl", "No such file"]),
     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon"}, ["OTEL", "TIMEOUT"]),
     ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://h:4318", "OTEL_EXPORTER_OTLP_COMPRESSION": "br"}, ["OTEL", "COMPRESSION"])],
    ids=["jwks", "audit dsn", "pins", "span file", "timeout", "compression"],
)  # fmt: skip
def test_a_setting_that_cannot_work_stops_the_start_with_one_line_and_nothing_listens(
    tmp_path: Path, policy: Path, env: dict[str, str], words: list[str]
) -> None:
    done = start(tmp_path, "--policy", str(policy), **env)
    refused(done, 1, *words)
    assert "hunter2@" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "env", "word"),
    [
        (["--workers", "2"], {}, "AIRLOCK_STORE_DSN"),
        (["--workers", "2"], {"AIRLOCK_STORE_DSN": "sqlite:///s.db"}, "AIRLOCK_SECRET"),
        (["--workers", "2"], {"AIRLOCK_STORE_DSN": "memory://", "AIRLOCK_SECRET": "s" * 32}, "memory"),
    ],
)
def test_workers_that_would_not_know_of_each_other_are_refused(
    tmp_path: Path, policy: Path, flags: list[str], env: dict[str, str], word: str
) -> None:
    done = start(tmp_path, "--policy", str(policy), *flags, **env)
    assert done.returncode == 1
    assert word in done.stderr.splitlines()[-1]
    assert not (tmp_path / "audit.jsonl").exists()


@pytest.mark.parametrize(
    ("dsn", "word"),
    [("postgresql://u:hunter2@[h/db", "parse"), ("redis://hunter2", "sqlite"), ("sqlite:hunter2", "sqlite:///"),
     ("hunter2", "sqlite")],
)  # fmt: skip
def test_a_store_that_cannot_be_is_one_line_that_quotes_nothing_of_it(
    tmp_path: Path, policy: Path, dsn: str, word: str
) -> None:
    done = start(tmp_path, "--policy", str(policy), AIRLOCK_STORE_DSN=dsn, AIRLOCK_SECRET="s" * 32)
    refused(done, 1, "AIRLOCK_STORE_DSN", word)
    assert "hunter2" not in done.stderr


@pytest.mark.case("T64")
@pytest.mark.parametrize(
    ("text", "words"),
    [("tools: [", ["line 1", "column"]), ("- a\n- b\n", ["mapping"]), ("environment: prod\ntools: {x: {tiers: {prod: L9}}}\n", ["tools.x.tiers.prod", "L9"]),
     ("tools: {x: {tiers: {prod: L0}, extra: 1}}\n", ["environment", "extra"]), ("", ["environment"]),
     ("environment: prod\nenvironment: dev\n", ["environment"])],
)  # fmt: skip
def test_a_bad_policy_is_one_line_with_its_path_and_every_fault(
    tmp_path: Path, policy: Path, text: str, words: list[str]
) -> None:
    policy.write_text(text)
    refused(start(tmp_path, "--policy", str(policy)), 1, str(policy), *words)


@pytest.mark.case("T64")
def test_a_policy_that_is_a_list_is_a_fault_with_an_environment_given_too(
    tmp_path: Path, policy: Path
) -> None:
    policy.write_text("- a\n")
    refused(start(tmp_path, "--policy", str(policy), "--env", "prod"), 1, str(policy), "mapping")


def test_a_missing_policy_has_the_systems_words(tmp_path: Path) -> None:
    refused(start(tmp_path, "--policy", "nowhere.yaml"), 1, "nowhere.yaml", "No such file or directory")


NO_REGEX = [
    r"(?=a)", r"(?!a)", r"(?<=a)", r"(a)\1", r"(?P<n>a)(?P=n)", r"a++", r"(?>a)", r"a\Z", r"\u0041", r"\N{DASH}", r"(?x)a",
    r"(?#c)a", r"(?a)a", r"(?u)a", r"a{1001}", r"(a{100}){11}", "(", "[z-a]",
]  # fmt: skip


@pytest.mark.case("T80")
def test_every_regex_that_re2_does_not_take_stops_the_start_and_lint_alike(
    tmp_path: Path, policy: Path
) -> None:
    rows = [
        f"  t{n}: {{tiers: {{prod: L0}}, where: [{{arg: a, regex: '{regex}'}}]}}"
        for n, regex in enumerate(NO_REGEX)
    ]
    policy.write_text("environment: prod\ntools:\n" + "\n".join(rows) + "\n")
    paths = [f"tools.t{n}.where[0].regex" for n in range(len(NO_REGEX))]
    refused(start(tmp_path, "--policy", str(policy)), 1, *paths)
    lint = run("airlock-policy", "lint", str(policy))
    assert lint.returncode == 1
    assert lint.stdout.startswith("ERROR invalid: ")
    assert len(lint.stdout.splitlines()) == 1
    assert all(path in lint.stdout for path in paths)
    assert lint.stderr == ""


@pytest.mark.case("T75")
@pytest.mark.parametrize(
    ("audit", "words"), [("nowhere/audit.jsonl", "No such file or directory"), (".", "directory")]
)
def test_an_audit_file_that_cannot_be_opened_stops_the_start_with_the_systems_words(
    tmp_path: Path, policy: Path, audit: str, words: str
) -> None:
    refused(start(tmp_path, "--policy", str(policy), "--audit", audit), 1, words)


@pytest.mark.case("T75")
@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write anywhere: run the tests as an ordinary user to see this one"
)
def test_an_audit_folder_that_may_not_be_written_stops_the_start(tmp_path: Path, policy: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    refused(
        start(tmp_path, "--policy", str(policy), "--audit", str(folder / "a.jsonl")), 1, "Permission denied"
    )


@pytest.mark.case("T69")
def test_an_empty_approval_mode_means_unset(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", clean_env(AIRLOCK_JWT_SECRET="k" * 32, AIRLOCK_APPROVAL_MODE=""))
    monkeypatch.setattr(httpd, "run", lambda app, sock, *_, **__: sock.close())
    done = CliRunner().invoke(mcp_airlock, ["--policy", str(policy), "--upstream", UP, "--port", "0"])
    assert done.exit_code == 0, done.stderr


def test_a_taken_port_stops_the_start(tmp_path: Path, policy: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused(start(tmp_path, "--policy", str(policy), "--port", port), 1, port, "in use")


@pytest.mark.parametrize(
    "flags",
    [("--port", "99999"), ("--port", "x"), ("--audit-keep", "0"), ("--audit-max-bytes", "-1"), ("--nope",),
     ("--upstream", "ftp://x/"), ("--upstream", "http://"), ("--upstream", "http://u:p@h/"), ("--front", "old"), ("--workers", "0"),
     ("--upstream", UP, "--upstreams", "x"), ("--upstream", UP, "--", "server"), ("--upstreams", "x", "--", "server")],
)  # fmt: skip
def test_a_bad_flag_is_a_usage_error(tmp_path: Path, policy: Path, flags: tuple[str, ...]) -> None:
    done = start(tmp_path, "--policy", str(policy), *flags)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "audit.jsonl").exists()


WARNINGS = [
    ({"AIRLOCK_JWT_SECRET": ""}, "no identity is configured"),
    ({"AIRLOCK_TRUST_PRINCIPAL_HEADER": "yes"}, "AIRLOCK_TRUST_PRINCIPAL_HEADER"),
    ({"AIRLOCK_JWT_SECRET": "é" * 15}, "shorter than 32 bytes"),
    ({"AIRLOCK_TRUST_PRINCIPAL_HEADER": "1"}, "trusted on the header alone"),
    ({"AIRLOCK_STORE_DSN": "sqlite:///s.db"}, "without AIRLOCK_SECRET"),
    ({"AIRLOCK_SECRET": "s" * 32}, "without AIRLOCK_STORE_DSN"),
    ({"AIRLOCK_JWKS_URL": "https://id.example/keys"}, "without AIRLOCK_JWT_AUDIENCE"),
    ({"AIRLOCK_APPROVAL_WEBHOOK": "https://hooks.example/x"}, "AIRLOCK_PUBLIC_URL"),
    (
        {"AIRLOCK_APPROVAL_WEBHOOK": "hooks.example/x", "AIRLOCK_PUBLIC_URL": "https://g.example"},
        "not an http(s) URL",
    ),
    ({"AIRLOCK_TELEGRAM_CHAT": "-1"}, "AIRLOCK_TELEGRAM_CHAT"),
    (
        {
            "AIRLOCK_APPROVAL_WEBHOOK": "https://api.telegram.org/bot1/sendMessage",
            "AIRLOCK_PUBLIC_URL": "https://g.example",
        },
        "Telegram URL without AIRLOCK_TELEGRAM_CHAT",
    ),
    ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, "OTLP"),
]


@pytest.mark.case("T21", "T22")
@pytest.mark.parametrize(("env", "words"), WARNINGS, ids=[words for _, words in WARNINGS])
def test_strict_makes_each_warning_stop_the_start_with_nothing_created(
    tmp_path: Path, policy: Path, env: dict[str, str], words: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(otlp, "exporter_available", lambda: False)
        done = start(tmp_path, "--policy", str(policy), "--strict", **env)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert lines[0].startswith("mcp-airlock: warning: ")
    assert lines[0].endswith(".")
    assert words in lines[0]
    assert not any(value and value in done.stderr for name, value in env.items() if "SECRET" in name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.yaml"]


def test_the_real_command_refuses_in_one_line_without_a_traceback(tmp_path: Path) -> None:
    refused(
        run("mcp-airlock", "--policy", "nowhere.yaml", "--upstream", UP, cwd=tmp_path, AIRLOCK_JWT_SECRET="k" * 32),
        1, "nowhere.yaml", "No such file or directory",
    )  # fmt: skip
    usage = run("mcp-airlock", "--policy", "p", "--upstream", UP, "--port", "99999", cwd=tmp_path)
    assert usage.returncode == 2
    strict = run("mcp-airlock", "--policy", "p", "--upstream", UP, "--strict", cwd=tmp_path)
    assert strict.returncode == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.case("T22")
def test_a_key_that_outlives_the_process_never_goes_with_a_store_that_does_not(
    tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        os, "environ", clean_env(XDG_STATE_HOME=str(tmp_path / "state"), AIRLOCK_STORE_DSN="memory://")
    )
    monkeypatch.setattr(httpd, "run", lambda app, sock, *_, **__: sock.close())
    done = CliRunner().invoke(serve_command, ["--policy", str(policy), "--upstream", UP, "--port", "0"])
    assert done.exit_code == 0, done.stderr
    assert not (tmp_path / "state/airlock/gateway.key").exists()
    monkeypatch.setenv("AIRLOCK_SECRET_FILE", str(tmp_path / "key"))
    done = CliRunner().invoke(serve_command, ["--policy", str(policy), "--upstream", UP, "--strict"])
    assert done.exit_code == 2
    assert "without AIRLOCK_STORE_DSN" in done.stderr


def test_debug_adds_the_traceback(tmp_path: Path) -> None:
    done = start(tmp_path, "--policy", "nowhere.yaml", AIRLOCK_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "Traceback" not in start(tmp_path, "--policy", "nowhere.yaml", AIRLOCK_DEBUG="true").stderr


def test_a_key_file_that_others_can_read_stops_the_start(tmp_path: Path, policy: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0" * 64)
    key.chmod(0o644)
    refused(
        start(
            tmp_path,
            "--policy",
            str(policy),
            AIRLOCK_SECRET_FILE=str(key),
            AIRLOCK_STORE_DSN="sqlite:///s.db",
        ),
        1,
        "chmod 600",
    )


@pytest.mark.parametrize("name", ["mcp-airlock", "airlock-policy", "airlock-audit", "airlock"])
def test_every_command_has_help(name: str) -> None:
    done = run(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: " + name in done.stdout


@pytest.mark.parametrize(
    ("text", "env", "lines", "status"),
    [(POLICY, (), [], 0), ("environment: prod\ntools: {x: {tiers: {}}}\n", (), ["ERROR no_tiers: ", "WARN env_unused: "], 1),
     ("environment: prod\ntools: {x: {tiers: {prod: L2}}}\n", (), ["WARN no_description: "], 0),
     ("tools: {x: {tiers: {dev: L0}}}\n", ("dev",), [], 0), ("tools: {x: {tiers: {dev: L0}}}\n", (), ["ERROR invalid: "], 1),
     (POLICY, ("dev",), ["WARN env_unused: "], 0)],
)  # fmt: skip
def test_lint_prints_findings_and_nothing_when_clean(
    tmp_path: Path, text: str, env: tuple[str, ...], lines: list[str], status: int
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    done = run("airlock-policy", "lint", str(path), *(f"--env={name}" for name in env))
    assert (done.returncode, done.stderr) == (status, "")
    found = done.stdout.splitlines()
    assert len(found) == len(lines), done.stdout
    for line, head in zip(found, lines, strict=True):
        assert line.startswith(head)
    assert (
        run("airlock", "policy", "lint", "--json", str(path), *(f"--env={n}" for n in env)).returncode
    ) == status
