"""Several servers behind one endpoint: whatever they list, each name outside is of exactly one server and tool."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.gateway.upstream.merge import joined, usable
from airlock.gateway.upstream.routes import Names, Template

PREFIXES = ["git", "g", "git-2", "x"]
own_names = st.one_of(
    st.text(alphabet="git_x-2a", max_size=8),
    st.text(max_size=6),
    st.sampled_from(["git__push", "g__", "__", "_", "x__git__a", "a" * 124, "a" * 128]),
    st.none(),
    st.integers(),
)
lists = st.lists(own_names, max_size=8)


@settings(max_examples=200, deadline=None)
@given(listed=st.dictionaries(st.sampled_from([*PREFIXES, ""]), lists, min_size=1))
def test_every_name_outside_leads_back_to_one_server_and_its_own_name(listed: dict[str, list[Any]]):
    known = frozenset(listed) - {""}
    route = Names({prefix: f"server {prefix}" for prefix in listed})
    parts = {
        prefix: usable("tools/list", [{"name": name, "of": prefix} for name in names], prefix, known)
        for prefix, names in listed.items()
    }
    result, isolated = joined("tools/list", list(parts.values()), 0)
    tools: Any = result["tools"]
    assert len(tools) + isolated == sum(map(len, listed.values()))
    assert len({tool["name"] for tool in tools}) == len(tools)
    for tool in tools:
        found = route.find(tool["name"])
        assert found is not None
        server, own = found
        assert server == f"server {tool['of']}"
        assert listed[tool["of"]].count(own) == 1


@settings(max_examples=200, deadline=None)
@given(
    literals=st.lists(st.text(alphabet="a/-", max_size=3), min_size=2, max_size=4),
    uri=st.text(alphabet="a/-", max_size=12),
)
def test_a_template_matches_what_the_plain_pattern_matches(literals: list[str], uri: str):
    template = Template.parse("{v}".join(literals))
    assert template is not None
    pattern = "[^/]+".join(map(re.escape, literals))
    assert template.matches(uri) is (re.fullmatch(pattern, uri) is not None)
