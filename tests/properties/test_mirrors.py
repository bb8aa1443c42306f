"""The headers that we make for arguments are those that we take for them, and no others of the same value pass."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.edge.headers import Headers
from airlock.gateway.modern.mirrors import mismatch
from airlock.gateway.modern.paramheaders import Mirror, with_params

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.floats(allow_nan=False, allow_infinity=False),
    st.lists(st.integers(), max_size=2), st.text("=?base64 aA=\t", max_size=20),
)  # fmt: skip
TEXTS = st.one_of(st.text(max_size=6), st.text("=?base64 aA=\t", max_size=20))
WANTED = tuple(Mirror(f"P{n}", (f"a{n}",)) for n in range(3))


def sent(arguments: dict[str, object]) -> Headers:
    block = with_params(b"", WANTED, arguments)
    pairs = (line.partition(b": ") for line in block.split(b"\r\n") if line)
    return Headers([(name.lower(), value) for name, _, value in pairs])


@settings(max_examples=200, deadline=None)
@given(st.lists(VALUES, min_size=3, max_size=3))
def test_what_is_written_for_a_server_is_what_is_taken_from_a_client(values: list[object]) -> None:
    arguments = {f"a{n}": value for n, value in enumerate(values)}
    assert mismatch(sent(arguments), WANTED, arguments) is None


@settings(max_examples=200, deadline=None)
@given(TEXTS, TEXTS)
def test_the_header_of_another_text_is_not_taken(one: str, other: str) -> None:
    assert (mismatch(sent({"a0": one}), WANTED, {"a0": other}) is None) == (one == other)


@settings(max_examples=100, deadline=None)
@given(st.lists(VALUES, min_size=3, max_size=3), st.binary(max_size=20))
def test_no_header_makes_it_fail(values: list[object], said: bytes) -> None:
    arguments = {f"a{n}": value for n, value in enumerate(values)}
    assert mismatch(Headers([(b"mcp-param-p0", said)]), WANTED, arguments) in (
        None,
        "the Mcp-Param-P0 header has no argument that it could repeat",
        "the Mcp-Param-P0 header must equal its argument",
        "the Mcp-Param-P1 header is missing, and its argument is not",
        "the Mcp-Param-P2 header is missing, and its argument is not",
    )
