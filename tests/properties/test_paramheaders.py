"""Every text survives the way into a header and back, and no header value can be more than one line."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.edge.httpurl import header_line
from airlock.gateway.modern.headers import decode_name
from airlock.gateway.modern.paramheaders import Mirror, encode_value, mirrors, with_params

TOKENS = st.text("!#$%&'*+.^_`|~-0123456789abcXYZ", min_size=1, max_size=12)
TEXTS = st.one_of(st.text(), st.text("=?base64 AZ\t\r\n"), st.builds("=?base64?{}?=".format, st.text("aA=?")))


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_what_is_written_is_read_back(text: str):
    value = encode_value(text)
    assert value is not None
    assert decode_name(value) == text
    assert re.fullmatch(rb"[\x20-\x7e]*", value)
    assert value.strip(b" ") == value


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.tuples(TOKENS, TEXTS), max_size=6))
def test_arguments_come_out_of_their_headers(wanted: dict[str, tuple[str, str]]):
    schema = {
        "properties": {name: {"type": "string", "x-mcp-header": token} for name, (token, _) in wanted.items()}
    }
    found = mirrors(schema)
    unique = len({token.lower() for token, _ in wanted.values()}) == len(wanted)
    assert (found is not None) == unique
    if found is None:
        return
    assert set(found) == {Mirror(token, (name,)) for name, (token, _) in wanted.items()}
    block = with_params(b"", found, {name: text for name, (_, text) in wanted.items()})
    lines = [line.split(b": ", 1) for line in block.split(b"\r\n") if line]
    for name, value in lines:
        header_line(name, value)
    assert {name.decode(): decode_name(value) for name, value in lines} == {
        f"Mcp-Param-{token}": text for token, text in wanted.values()
    }
