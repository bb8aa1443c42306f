"""The file of upstreams: what it says, every fault in it, and no credential in either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airlock.core.errors import ConfigError
from airlock.core.secret import Secret
from airlock.edge.settings import Environment
from airlock.gateway import upstreamsfile
from airlock.gateway.upstreamsfile import (
    Bounds,
    Local,
    Remote,
    UpstreamSpec,
    WantedEra,
    build,
    load,
    spec_of_command,
    spec_of_url,
)

ENV = Environment({"TOKEN": "tok-1", "KEY": "k e y", "BAD": "a\nb", "NUL": "a\x00", "BLANK": "a b"})
URL = "http://127.0.0.1:8000/mcp"


def read(upstream: dict[str, Any], source: str = "/etc/airlock/upstreams.yaml") -> UpstreamSpec:
    return build({"upstreams": {"git": upstream}}, source, ENV)[0]


def faults(document: Any, source: str = "up.yaml") -> list[str]:
    with pytest.raises(ConfigError) as refused:
        build(document, source, ENV)
    assert "tok-1" not in str(refused.value)
    return [f"{fault.path}: {fault.problem}" for fault in refused.value.faults]


def fault(upstream: Any) -> list[str]:
    return faults({"upstreams": {"git": upstream}})


def revealed(pairs: Any) -> dict[str, str]:
    return {name: secret.reveal() for name, secret in dict(pairs).items()}


def test_a_whole_file_is_read_in_its_order(tmp_path: Path):
    (tmp_path / "secret").write_text("from-file\n")
    (tmp_path / "up.yaml").write_text(
        f"""
version: 1
upstreams:
  git:
    command: [mcp-server-git, --repository, /srv/repo]
    env: {{ GIT_CONFIG_GLOBAL: /dev/null, EMPTY: "", TOKEN: {{ from: TOKEN }}, PASS: {{ file: secret }} }}
    cwd: repo
  time:
    stdio: "bin/time-server --zone 'Europe/Zurich'"
    era: legacy
    prefix: ""
  grafana:
    url: {URL}
    bearer: {{ from: TOKEN }}
    header: {{ X-Api-Key: {{ from: KEY }}, X-Other: {{ file: {tmp_path}/secret }} }}
    prefix: graf
    era: auto
    policy: grafana-policy.yaml
    pins: grafana-pins.json
    limits: {{ max_bytes: 8388608, timeout_s: 60, list_timeout_s: 0.5, max_in_flight: 64 }}
  local:
    url: unix:/run/x.sock:/mcp
    era: modern
"""
    )
    git, time, grafana, local = load(str(tmp_path / "up.yaml"), ENV)
    assert isinstance(git.at, Local)
    assert (git.name, git.prefix, git.era, git.limits) == ("git", "git", WantedEra.AUTO, Bounds())
    assert (git.at.argv, git.at.cwd) == (
        ("mcp-server-git", "--repository", "/srv/repo"),
        str(tmp_path / "repo"),
    )
    assert revealed(git.at.env) == {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "EMPTY": "",
        "TOKEN": "tok-1",
        "PASS": "from-file",
    }
    assert isinstance(time.at, Local)
    assert (time.prefix, time.era) == ("", WantedEra.LEGACY)
    assert time.at.argv == (str(tmp_path / "bin/time-server"), "--zone", "Europe/Zurich")
    assert isinstance(grafana.at, Remote)
    assert isinstance(grafana.at.authorization, Secret)
    assert grafana.at.authorization.reveal() == "Bearer tok-1"
    assert revealed(grafana.at.headers) == {"X-Api-Key": "k e y", "X-Other": "from-file"}
    assert (grafana.prefix, grafana.policy, grafana.pins) == (
        "graf",
        str(tmp_path / "grafana-policy.yaml"),
        str(tmp_path / "grafana-pins.json"),
    )
    assert grafana.limits == Bounds(8388608, 60, 0.5, 64)
    assert local.at == Remote("unix:/run/x.sock:/mcp")
    shown = repr((git, time, grafana, local))
    assert not any(hidden in shown for hidden in ("tok-1", "from-file", "k e y", "--repository"))


def test_one_upstream_given_otherwise_has_no_name_and_no_prefix():
    token = Secret("Basic eA==")
    limits = Bounds(max_bytes=5)
    assert spec_of_url(URL) == UpstreamSpec(name="", prefix="", at=Remote(URL))
    assert spec_of_url(URL, token, limits) == UpstreamSpec(
        name="", prefix="", at=Remote(URL, token), limits=limits
    )
    assert spec_of_command(["a", "b"], limits) == UpstreamSpec(
        name="", prefix="", at=Local(("a", "b")), limits=limits
    )
    assert spec_of_command(["a"]).limits == Bounds()


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert read({"url": URL, "policy": "p.yaml"}, "sub/up.yaml").policy == str(tmp_path / "sub/p.yaml")
    assert read({"url": URL, "policy": "/p.yaml"}, "sub/up.yaml").policy == "/p.yaml"
    at = read({"command": ["./serve"]}, "up.yaml").at
    assert isinstance(at, Local)
    assert at.argv == (f"{tmp_path}/./serve",)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ([], [": must be a mapping", "upstreams: must name 1 to 64 upstreams"]),
        ({}, ["upstreams: must name 1 to 64 upstreams"]),
        ({"upstreams": []}, ["upstreams: must be a mapping", "upstreams: must name 1 to 64 upstreams"]),
        ({"upstreams": {f"u{n}": {"url": URL} for n in range(65)}}, ["upstreams: must name 1 to 64 upstreams"]),
        ({"upstreams": {"a": {"url": URL}}, "version": 2}, ["version: must be 1"]),
        ({"upstreams": {"a": {"url": URL}}, "version": True}, ["version: must be 1"]),
        ({"upstreams": {"a": {"url": URL}}, "more": 1}, ["more: unknown key"]),
        ({"upstreams": {"a": 3}}, ["upstreams.a: must be a mapping",
                                   "upstreams.a: must have exactly one of command, stdio, url, has none"]),
        ({"upstreams": {"a": {"url": URL}, "b": {"url": URL, "prefix": "a"}}},
         ['upstreams.b.prefix: the prefix "a", as a has']),
        ({"upstreams": {n: {"url": URL, "prefix": ""} for n in "ab"}}, ["upstreams.b.prefix: no prefix, as a has"]),
    ],
)  # fmt: skip
def test_faults_of_the_whole(document: Any, expected: list[str]):
    assert faults(document) == expected


@pytest.mark.parametrize("name", ["", "Git", "1a", "a_b", "a" * 32, "a\n", "ü", "-a"])
def test_a_name_and_a_prefix_have_one_form(name: str):
    form = "is a small letter, then at most 30 small letters, digits and hyphens"
    (told,) = faults({"upstreams": {name: {"url": URL, "prefix": "ok"}}})
    assert told.endswith(f": the name {form}")
    if name:
        assert fault({"url": URL, "prefix": name}) == [f'upstreams.git.prefix: {form}, or is ""']


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        ({}, ": must have exactly one of command, stdio, url, has none"),
        ({"url": URL, "stdio": "a"}, ": must have exactly one of command, stdio, url, has stdio and url"),
        ({"url": URL, "more": 1}, ".more: unknown key"),
        ({"url": URL, "env": {}}, ".env: belongs to a command"),
        ({"url": URL, "cwd": "/"}, ".cwd: belongs to a command"),
        ({"stdio": "a", "bearer": {"from": "TOKEN"}}, ".bearer: belongs to a url"),
        ({"stdio": "a", "header": {}}, ".header: belongs to a url"),
        ({"url": 3}, ".url: must be text"),
        ({"url": ""}, ".url: must not be empty"),
        ({"url": "http://u:p@h/"}, ".url: an upstream address holds no user name or password"),
        ({"url": URL, "prefix": 3}, ".prefix: must be text"),
        ({"url": URL, "era": "old"}, ".era: must be one of auto, modern, legacy"),
        ({"url": URL, "era": []}, ".era: must be one of auto, modern, legacy"),
        ({"url": URL, "policy": ""}, ".policy: must not be empty"),
        ({"url": URL, "pins": None}, ".pins: must be text"),
        ({"url": URL, "limits": 3}, ".limits: must be a mapping"),
        ({"command": "a b"}, ".command: must be a list of words, the program first"),
        ({"command": []}, ".command: must be a list of words, the program first"),
        ({"command": ["a", 3]}, ".command[1]: must be text"),
        ({"command": [""]}, ".command[0]: must not be empty"),
        ({"command": ["a", "b\x00"]}, ".command: holds a NUL"),
        ({"stdio": ""}, ".stdio: must not be empty"),
        ({"stdio": "'a"}, ".stdio: cannot be split into words: no closing quotation"),
        ({"stdio": "  "}, ".stdio: must be a list of words, the program first"),
        ({"stdio": "a", "env": []}, ".env: must be a mapping"),
        ({"stdio": "a", "env": {"A=B": "c"}}, ".env.A=B: is no name of a variable"),
        ({"stdio": "a", "env": {"A": 3}}, ".env.A: must be text"),
        ({"stdio": "a", "env": {"A": {"from": "NUL"}}}, ".env.A: holds a NUL"),
        ({"url": URL, "bearer": "tok-1"}, ".bearer: must not stand here"),
        ({"url": URL, "bearer": {}}, ".bearer: must have exactly one of from, file"),
        ({"url": URL, "bearer": {"from": "TOKEN", "file": "x"}}, ".bearer: must have exactly one of from, file"),
        ({"url": URL, "bearer": {"from": "UNSET"}}, ".bearer.from: the variable UNSET is not set"),
        ({"url": URL, "bearer": {"from": ""}}, ".bearer.from: must not be empty"),
        ({"url": URL, "bearer": {"from": "BLANK"}}, ".bearer: a token is printable ASCII without blanks"),
        ({"url": URL, "bearer": {"file": ""}}, ".bearer.file: must not be empty"),
        ({"url": URL, "header": []}, ".header: must be a mapping"),
        ({"url": URL, "header": {"X-A": "tok-1"}}, ".header.X-A: must not stand here"),
        ({"url": URL, "header": {"X A": {"from": "KEY"}}}, ".header.X A: a header name is an RFC 9110 token"),
        ({"url": URL, "header": {"X-A": {"from": "BAD"}}}, ".header.X-A: a header value holds no control characters"),
    ],
)  # fmt: skip
def test_faults_of_one_upstream(upstream: dict[str, Any], expected: str):
    assert fault(upstream) == [f"upstreams.git{expected}"]


@pytest.mark.parametrize(
    "name",
    ["Host", "content-length", "Transfer-Encoding", "Connection", "TE", "Upgrade", "Keep-Alive", "Trailer",
     "Proxy-Connection", "Expect", "Mcp-Method", "MCP-Protocol-Version", "mcp-name", "Mcp-Param-X", "Mcp-Session-Id",
     "Accept", "Accept-Encoding", "Content-Type", "Content-Encoding", "Traceparent", "Last-Event-ID",
     "Proxy-Authorization"],
)  # fmt: skip
def test_a_header_that_is_not_the_operators_is_refused(name: str):
    assert len(fault({"url": URL, "header": {name: {"from": "KEY"}}})) == 1


def test_authorization_comes_from_one_place():
    at = read({"url": URL, "header": {"Authorization": {"from": "KEY"}}}).at
    assert isinstance(at, Remote)
    assert at.authorization is not None
    assert (at.authorization.reveal(), at.headers) == ("k e y", ())
    both = {"url": URL, "bearer": {"from": "TOKEN"}, "header": {"authorization": {"from": "KEY"}}}
    assert fault(both) == ["upstreams.git.header.authorization: is given twice"]
    twice = {"url": URL, "header": {"X-A": {"from": "KEY"}, "x-a": {"from": "KEY"}}}
    assert fault(twice) == ["upstreams.git.header.x-a: is given twice"]


@pytest.mark.parametrize(
    ("limit", "word"),
    [
        ({"max_bytes": 1023}, "max_bytes: must be a whole number from 1024 to 1073741824"),
        ({"max_bytes": 4096.0}, "max_bytes: must be a whole number from 1024 to 1073741824"),
        ({"max_in_flight": 0}, "max_in_flight: must be a whole number from 1 to 10000"),
        ({"max_in_flight": True}, "max_in_flight: must be a whole number from 1 to 10000"),
        ({"timeout_s": 0}, "timeout_s: must be a number from 0.1 to 3600"),
        ({"timeout_s": float("inf")}, "timeout_s: must be a number from 0.1 to 3600"),
        ({"timeout_s": float("nan")}, "timeout_s: must be a number from 0.1 to 3600"),
        ({"list_timeout_s": "5"}, "list_timeout_s: must be a number from 0.1 to 60"),
        ({"more": 5}, "more: unknown key"),
    ],
)
def test_limits_have_bounds(limit: dict[str, Any], word: str):
    assert fault({"url": URL, "limits": limit}) == [f"upstreams.git.limits.{word}"]


def test_a_credential_file_is_read_within_bounds(tmp_path: Path):
    place = tmp_path / "secret"

    def token() -> str:
        at = read({"url": URL, "bearer": {"file": str(place)}}).at
        assert isinstance(at, Remote)
        assert at.authorization is not None
        return at.authorization.reveal()

    def told() -> str:
        (one,) = fault({"url": URL, "bearer": {"file": str(place)}})
        assert one.startswith("upstreams.git.bearer.file: ")
        return one.rpartition(": ")[2]

    assert told() == "No such file or directory"
    for text, whole in ((b"abc", "abc"), (b"abc\n", "abc"), (b"abc\r\n", "abc"), (b"x" * 65536, "x" * 65536)):
        place.write_bytes(text)
        assert token() == f"Bearer {whole}"
    for data, problem in (
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"\xff", "is no UTF-8 text"),
        (b"x" * 65537, "longer than 65536 bytes"),
    ):
        place.write_bytes(data)
        assert told() == problem
    place.write_bytes(b"abc\n\n")
    assert fault({"url": URL, "bearer": {"file": str(place)}}) == [
        "upstreams.git.bearer: a token is printable ASCII without blanks"
    ]


def test_every_fault_is_told_at_once():
    assert len(fault({"url": "x", "bearer": "y", "era": "z", "cwd": "/", "limits": {"a": 1}})) == 5


def test_faults_cannot_write_the_terminal():
    with pytest.raises(ConfigError) as refused:
        build({"upstreams": {"a\x1b[2J": {"url": URL, "\x1b[2J": 1}}}, "up.yaml", ENV)
    assert "\x1b" not in str(refused.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path):
    with pytest.raises(ConfigError) as refused:
        load(str(tmp_path / "none.yaml"), ENV)
    assert str(refused.value) == f"{tmp_path}/none.yaml: No such file or directory"


def test_the_keys_are_those_of_the_page():
    page = (Path(__file__).resolve().parents[3] / "docs/reference/upstreams.md").read_text(encoding="utf-8")
    for key in upstreamsfile.KEYS:
        assert f"| `{key}` |" in page, key
    for name, (kind, least, most) in upstreamsfile.LIMITS.items():
        bounds = f"{'whole number' if kind is int else 'number'} from {least:g} to {most:.0f}"
        assert f"| `limits.{name}` | {bounds} | `{getattr(Bounds(), name):.0f}` |" in page, name
