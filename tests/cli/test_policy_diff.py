"""`airlock policy diff` and `lint`, under both names: what they print, and with which status they end."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from airlock.cli.policy import group
from airlock.core.policy.pins import pin_of
from tests.fakes import hostile
from tests.fakes.hostile import Hostile, json_answer
from tests.fakes.processes import clean_env, command, run

UP = "http://127.0.0.1:1/mcp"
POLICY = "environment: prod\ntools:\n  read: {tiers: {prod: L0}}\n"
READ: dict[str, Any] = {"name": "read", "inputSchema": {"type": "object", "properties": {"id": {}}}}
OLD = "sha256:" + "0" * 64


def invoke(*args: object, **env: str) -> Result:
    """Run `airlock-policy` in this process."""
    unset = {"AIRLOCK_ENV": None, "AIRLOCK_UPSTREAM_AUTH": None, "AIRLOCK_PINS": None}
    return CliRunner().invoke(
        group, [str(arg) for arg in args], prog_name="airlock-policy", env={**unset, **env}
    )


async def against(*args: object, tools: list[Any], **env: str) -> tuple[Result, Hostile]:
    """The same in front of a server that lists `tools`."""
    async with Hostile(default=json_answer({"tools": tools})) as server:
        return await asyncio.to_thread(invoke, *args, "--upstream", server.url, **env), server


def heads(done: Result) -> list[str]:
    """Level, code and the first word of each line."""
    return [" ".join(line.split()[:3]) for line in done.stdout.splitlines()]


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return path


async def test_every_finding_has_its_place_and_its_level(tmp_path: Path) -> None:
    path, pins = tmp_path / "policy.yaml", tmp_path / "pins.json"
    path.write_text(
        "environment: prod\ntools:\n"
        "  write: {tiers: {prod: L2}, where: [{arg: nmae, equals: 1}]}\n"
        "  gone: {tiers: {prod: L0}}\n"
        "  read: {tiers: {prod: L0}}\n"
        "  kept: {tiers: {prod: L0}}\n"
    )
    kept = {"name": "kept"}
    pins.write_text(json.dumps({"read": "sha256v2:" + "0" * 64, "kept": pin_of(kept), "old": pin_of({})}))
    tools = [
        kept,
        READ,
        {"name": "write", "inputSchema": {"properties": {"name": {}}}},
        {"name": "b"},
        {"name": "a"},
    ]
    done, _ = await against("diff", path, "--pins", pins, tools=tools)
    assert heads(done) == [
        "WARN no_dry_run: write",
        "WARN where_unknown_arg: write",
        "ERROR missing_upstream: gone",
        "WARN not_allowlisted: a",
        "WARN not_allowlisted: b",
        "WARN no_pin: write",
        "WARN no_pin: gone",
        "ERROR pin_mismatch: read",
        "WARN stale_pin: old",
    ]
    assert done.exit_code == 1


async def test_warnings_alone_do_not_fail(policy: Path) -> None:
    done, _ = await against("diff", policy, tools=[READ, {"name": "new"}])
    assert heads(done) == ["WARN not_allowlisted: new", "INFO ok: 1"]
    assert done.exit_code == 0


async def test_json_is_one_object_for_each_finding(policy: Path) -> None:
    done, _ = await against("diff", policy, "--json", tools=[READ, {"name": "new"}])
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"level": "WARN", "code": "not_allowlisted", "message": "new is on the server and not in the policy"},
        {"level": "INFO", "code": "ok", "message": "1 tool in the policy, 2 on the server"},
    ]


async def test_the_environment_is_the_flags_then_the_variables_then_the_files(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("environment: a\ntools: {t: {tiers: {a: L0, b: L1, c: L0}}}\n")
    tools = [{"name": "t"}]
    gated = ["WARN no_dry_run: t", "INFO ok: 1"]
    assert heads((await against("diff", path, tools=tools))[0]) == gated[1:]
    assert heads((await against("diff", path, tools=tools, AIRLOCK_ENV="b"))[0]) == gated
    assert heads((await against("diff", path, "--env", "b", tools=tools, AIRLOCK_ENV="c"))[0]) == gated
    assert heads((await against("diff", path, "--env", "c", tools=tools, AIRLOCK_ENV="b"))[0]) == gated[1:]


async def test_the_servers_credential_and_a_principal_are_sent(policy: Path) -> None:
    _, server = await against("diff", policy, tools=[READ])
    assert server.requests[0].headers["x-airlock-principal"] == "airlock-policy"
    assert "authorization" not in server.requests[0].headers
    _, server = await against(
        "diff", policy, "--principal", "bob", tools=[READ], AIRLOCK_UPSTREAM_AUTH="Bearer up"
    )
    assert server.requests[0].headers["x-airlock-principal"] == "bob"
    assert server.requests[0].headers["authorization"] == "Bearer up"


def test_a_credential_that_would_split_the_header_is_one_line_that_does_not_show_it(policy: Path) -> None:
    done = invoke("diff", policy, "--upstream", UP, AIRLOCK_UPSTREAM_AUTH="hunter2\nX: y")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("airlock-policy: AIRLOCK_UPSTREAM_AUTH must be")
    assert "hunter2" not in done.stderr


async def test_names_from_a_hostile_server_never_reach_the_terminal_raw(policy: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\rINFO ok: \u202eall good\nINFO ok: nothing to see" + "x" * 9000
    tools = [READ, {"name": evil}, {"name": "\ud800"}]
    for flags in ((), ("--json",)):
        done, _ = await against("diff", policy, *flags, tools=tools)
        lines = done.stdout.splitlines()
        assert len(lines) == 3
        assert all(line.isprintable() and len(line) < 250 for line in lines)
        assert done.exit_code == 0


@pytest.mark.parametrize(
    "answer",
    [hostile.status(404, b"nothing here"), json_answer({"tools": "none"}), json_answer({"tools": [{}]}), hostile.reset,
     hostile.sse(own=False)],
)  # fmt: skip
async def test_a_server_that_does_not_answer_like_an_mcp_server_is_one_error(
    policy: Path, answer: hostile.Answer
) -> None:
    async with Hostile(default=answer) as server:
        done = await asyncio.to_thread(invoke, "diff", policy, "--upstream", server.url)
    assert done.exit_code == 1
    assert done.stdout.startswith("ERROR upstream: ")
    assert done.stdout.count("\n") == 1
    assert str(server.port) not in done.stdout


@pytest.mark.case("T57")
async def test_pins_that_cannot_be_used_are_one_error(policy: Path, tmp_path: Path) -> None:
    pins = tmp_path / "pins.json"
    pins.write_text(json.dumps({"read": pin_of(READ), "a": OLD, "b": OLD}))
    done, _ = await against("diff", policy, "--pins", pins, tools=[READ])
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"ERROR pins_file: {pins}: ")
    assert "pin again" in line
    assert done.exit_code == 1
    done, _ = await against("diff", policy, "--pins", tmp_path / "nowhere.json", tools=[READ])
    assert done.stdout == f"ERROR pins_file: {tmp_path}/nowhere.json: No such file or directory\n"


BAD_POLICIES = {
    "tools: [": "not YAML",
    "- a\n": "must be a mapping",
    "tools: {}\n": "environment: required",
    "environment: p\ntools: {t: {tiers: {p: L9}}}\n": "tools.t.tiers.p",
}


@pytest.mark.case("T74")
@pytest.mark.parametrize("which", ["lint", "diff", "pin"])
def test_a_policy_that_does_not_load_is_the_same_error_in_all_three(
    which: str, policy: Path, tmp_path: Path
) -> None:
    flags = [] if which == "lint" else ["--upstream", UP]
    flags += ["--pins", str(tmp_path / "pins.json")] if which == "pin" else []
    for text, words in BAD_POLICIES.items():
        policy.write_text(text)
        done = invoke(which, policy, *flags)
        (line,) = done.stdout.splitlines()
        assert line.startswith(f"ERROR invalid: {policy}: ")
        assert words in line
        assert done.exit_code == 1
    done = invoke(which, tmp_path / "nowhere.yaml", *flags)
    assert done.stdout == f"ERROR invalid: {tmp_path}/nowhere.yaml: No such file or directory\n"
    assert not (tmp_path / "pins.json").exists()


NOT_RE2 = [
    r"(?=a)", r"(?!a)", r"(?<=a)", r"(?<!a)b", r"(a)\1", r"(?P<n>a)(?P=n)", r"a++", r"a{1,2}+", r"(?>a)", r"a\Z", r"\u0041",
    r"\U00000041", r"\N{DASH}", r"(?x)a", r"(?#c)a", r"(?a)a", r"(?u)a", r"a{1001}", r"(a{100}){11}", r"(a{0100}){11}",
]  # fmt: skip


@pytest.mark.case("T80")
@pytest.mark.parametrize("which", ["lint", "diff", "pin"])
def test_what_re2_does_not_read_is_refused_by_all_three_in_one_line(
    which: str, policy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = [] if which == "lint" else ["--upstream", UP]
    for pattern in NOT_RE2:
        rule = f"[{{arg: a, regex: '{pattern}'}}]"
        policy.write_text(f"environment: p\ntools: {{t: {{tiers: {{p: L0}}, where: {rule}}}}}\n")
        done = invoke(which, policy, *flags)
        assert done.stdout.startswith(f"ERROR invalid: {policy}: tools.t.where[0].regex: "), pattern
        assert (done.stdout.count("\n"), done.stderr, done.exit_code) == (1, "", 1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.case("T80")
def test_a_count_without_a_lower_bound_loads(policy: Path) -> None:
    policy.write_text("environment: p\ntools: {t: {tiers: {p: L0}, where: [{arg: a, regex: 'a{,3}'}]}}\n")
    assert invoke("lint", policy).output == ""


def test_lint_reads_a_policy_without_an_environment_in_the_first_one_named(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("tools: {t: {tiers: {a: L0}, where: [{arg: x, equals: 1, env: [b]}]}}\n")
    assert heads(invoke("lint", path, "--env", "b", "--env", "a")) == ["WARN env_unused: no"]
    assert heads(invoke("lint", path, AIRLOCK_ENV="b")) == ["WARN env_unused: no"]
    unknown = ["WARN where_env_unknown: t"]
    assert heads(invoke("lint", path, "--env", "a", AIRLOCK_ENV="b")) == unknown
    assert heads(invoke("lint", path, "--env", "", "--env", "a")) == unknown
    assert "environment: required" in invoke("lint", path).stdout


def test_lint_reads_a_policy_with_an_environment_in_its_own(policy: Path) -> None:
    assert invoke("lint", policy, AIRLOCK_ENV="other").output == ""
    done = invoke("lint", policy, "--env", "qa", "--env", "prod", "--env", "dev")
    assert [line.split()[-1] for line in done.stdout.splitlines()] == ["qa", "dev"]
    assert done.exit_code == 0


@pytest.mark.case("T64")
def test_a_missing_environment_lists_the_other_faults_too(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("tools: {t: {tiers: {p: L9}, extra: 1}}\n")
    (line,) = invoke("lint", path).stdout.splitlines()
    assert all(word in line for word in ("environment: required", "tools.t.tiers.p", "tools.t.extra"))


@pytest.mark.parametrize(
    "args",
    [
        ("diff", "FILE"),
        ("diff", "FILE", "--upstream", "ftp://x/"),
        ("diff", "FILE", "--upstream", "http:///mcp"),
        ("diff", "FILE", "--upstream", "http://a:b@x/"),
        ("diff", "FILE", "--upstream", UP, "--principal", " bob"),
        ("diff", "FILE", "--upstream", UP, "--principal", ""),
        ("diff", "FILE", "--upstream", UP, "--principal", "a\nb"),
        ("diff", "FILE", "--upstream", UP, "--principal", "\udcff"),
        ("diff", "FILE", "--upstream", UP, "--wrong"),
        ("diff", "--upstream", UP),
        ("pin", "FILE"),
        ("pin", "FILE", "--upstream", "x"),
        ("lint",),
        ("lint", "FILE", "FILE"),
    ],
)
def test_a_wrong_command_line_is_status_2_and_nothing_is_done(args: tuple[str, ...], policy: Path) -> None:
    done = invoke(*(str(policy) if arg == "FILE" else arg for arg in args))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: airlock-policy " in done.stderr


@pytest.mark.parametrize("which", ["lint", "diff", "pin"])
def test_help_names_every_code_that_may_be_printed(which: str) -> None:
    codes = {
        "lint": "invalid no_tiers no_description blast_radius_default where_env_unknown env_unused",
        "diff": "invalid upstream pins_file missing_upstream pin_mismatch no_dry_run where_unknown_arg "
        "not_allowlisted no_pin stale_pin ok",
        "pin": "invalid upstream pins_file missing_upstream ok",
    }
    said = invoke(which, "--help").stdout
    assert [code for code in codes[which].split() if code not in said] == []


def test_a_terminal_of_another_encoding_and_a_full_disk_are_no_traceback(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("environment: p\ntools: {тул: {tiers: {}}}\n", encoding="utf-8")
    done = run("airlock-policy", "lint", str(path), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith(r"ERROR no_tiers: \u0442\u0443\u043b has no tier")
    with open("/dev/full", "w") as full:
        argv = [*command("airlock-policy"), "lint", str(path)]
        ended = subprocess.run(
            argv, stdout=full, stderr=subprocess.PIPE, text=True, env=clean_env(), timeout=60
        )
    assert ended.returncode == 1
    assert ended.stderr == "airlock-policy: standard output: No space left on device\n"
