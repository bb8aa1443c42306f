"""Where Codex keeps its servers, and how it is told of one."""

from __future__ import annotations

import pytest

from airlock.core.errors import ConfigError
from airlock.edge.settings import Environment
from airlock.gateway.connect.clients import Endpoint, Place, entry_of, reach
from airlock.gateway.connect.codex import CLIENT

URL = "http://h/mcp"


def test_its_file_is_in_the_home_or_where_it_is_told():
    assert CLIENT.file(Place(Environment({"HOME": "/h"}))) == "/h/.codex/config.toml"
    assert CLIENT.file(Place(Environment({"HOME": "/h", "CODEX_HOME": "/c"}))) == "/c/config.toml"


def test_its_entry_and_its_commands():
    assert entry_of(CLIENT, URL, "Bearer t") == {"url": URL, "http_headers": {"Authorization": "Bearer t"}}
    assert CLIENT.commands("a", URL, None) == ("codex mcp add a --url http://h/mcp",)
    assert CLIENT.commands("a", URL, "Bearer t") == (
        "export AIRLOCK_TOKEN=t", "codex mcp add a --url http://h/mcp --bearer-token-env-var AIRLOCK_TOKEN"
    )  # fmt: skip
    assert CLIENT.opening.revision == "2025-06-18"
    assert not CLIENT.opening.discovers


def test_headers_that_it_takes_from_variables_are_read_and_text_is_taken_as_it_is():
    entry = {"url": "http://h/${X}", "bearer_token_env_var": "T", "env_http_headers": {"X-Team": "TEAM"}}
    env = Environment({"T": "tok", "TEAM": "a"})
    assert reach(CLIENT, entry, env) == Endpoint(
        "http://h/${X}", {"X-Team": "a", "Authorization": "Bearer tok"}
    )
    assert reach(CLIENT, entry) == Endpoint(
        "http://h/${X}", {"X-Team": "${TEAM}", "Authorization": "Bearer ${T}"}
    )
    assert reach(CLIENT, {"url": URL, "env_http_headers": {"A": "TEAM"}}, env) == Endpoint(URL, {"A": "a"})
    with pytest.raises(ConfigError, match=r"\$\{T\}"):
        reach(CLIENT, {"url": URL, "bearer_token_env_var": "T"}, Environment({}))
