"""Wire and text against oracles: fast decoder, deep reader, nesting, streams in any chunking, safe texts."""

from __future__ import annotations

import json
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line, safe, well_formed
from airlock.core.wire import jsonrpc, sse, strict
from airlock.core.wire.strict import StrictError, StrictKind
from airlock.gateway import body

TEXTS = st.text(
    st.one_of(st.characters(exclude_categories=()), st.sampled_from('a:"\\[]{},\u202e\ud800')), max_size=12
)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-(10**320), 10**320),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)
ATOMS = st.sampled_from(
    [
        '{"a":1,"a":2}',
        "NaN",
        "1e400",
        "-Infinity",
        "9" * 400,
        "0.1e-400",
        "-0",
        "01",
        '"\\ud800"',
        '"\\uDC00:"',
        "[",
        "}",
    ]
)
STATED = st.lists(
    st.one_of(
        VALUES.map(json.dumps), ATOMS, st.tuples(TEXTS, TEXTS).map(lambda p: f"{{{json.dumps(p[0])} :1}}")
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """A JSON text, often with equal keys and odd numbers in it, sometimes damaged."""
    parts = draw(STATED)
    if draw(st.booleans()):
        keys = draw(
            st.lists(
                st.sampled_from(["a", "b", "\\u0061", "a:", ""]), min_size=len(parts), max_size=len(parts)
            )
        )
        text = "{" + ", ".join(f'"{key}": {part}' for key, part in zip(keys, parts, strict=True)) + "}"
    else:
        text = "[" + ",".join(parts) + "]" if len(parts) > 1 else parts[0]
    data = bytearray(
        text.encode()
        if draw(st.booleans())
        else text.encode().decode("unicode_escape").encode("utf-8", "surrogatepass")
    )
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 3]))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(
            st.one_of(
                st.binary(max_size=2),
                st.sampled_from([b'"', b"\\", b":", b",", b"\xef\xbb\xbf", b" ", b"\\u", b"1" * 310]),
            )
        )
    return bytes(data)


def outcome(read: Callable[[bytes], object], data: bytes) -> str:
    """The value with its types, or the kind of the refusal. The representation of a float is exact."""
    try:
        return repr(read(data))
    except StrictError as refused:
        return refused.kind


@settings(max_examples=200, deadline=None)
@given(hostile())
def test_a_request_is_what_the_strict_parser_says_it_is(data):
    expected = outcome(strict.parse, data)
    assert outcome(lambda text: body.decode_request(text)[0], data) == expected
    assert outcome(lambda text: body.decode_answer(text, exact=True), data) == expected
    assert outcome(body.decode_answer, data) == outcome(lambda text: strict.parse(text, unique=False), data)


@settings(max_examples=100, deadline=None)
@given(hostile())
def test_the_deep_reader_is_the_parser_by_other_means(data):
    def deep(text: bytes) -> object:
        try:
            return strict._parse_deep(text.decode(), strict._unique_decoder)
        except json.JSONDecodeError:
            raise StrictError(StrictKind.SYNTAX) from None

    expected = outcome(strict.parse, data)
    if expected != StrictKind.ENCODING:
        assert outcome(deep, data) == expected


@settings(max_examples=100, deadline=None)
@given(st.one_of(VALUES.map(lambda value: json.dumps(value).encode()), hostile()))
def test_nesting_is_what_a_walk_over_the_characters_counts(data):
    level = deepest = 0
    inside = escaped = False
    for byte in data:
        if inside:
            if escaped:
                escaped = False
            elif byte == ord("\\"):
                escaped = True
            elif byte == ord('"'):
                inside = False
        elif byte == ord("\\"):
            return  # not JSON from here on: no parser reads further
        elif byte == ord('"'):
            inside = True
        elif byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif byte in b"]}":
            level -= 1
    assert strict.nesting(data) == deepest
    for limit in (0, 1, 2, 5):
        assert strict.deeper_than(data, limit) is (deepest > limit)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_what_is_written_is_read_back_the_same(value):
    small = strip_big(value)
    assert repr(body.decode_request(body.encode(small))[0]) == repr(small)


def strip_big(value: object) -> object:
    """The value without the integers that no double holds: those are no JSON value here."""
    if isinstance(value, dict):
        return {key: strip_big(member) for key, member in value.items()}
    if isinstance(value, list):
        return [strip_big(member) for member in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**1023:
        return 0
    return value


LINES = st.lists(
    st.one_of(
        st.sampled_from([b"", b"", b"data", b"data:", b"data: ", b":c", b"event: x", b"\xef\xbb\xbfdata: m"]),
        st.binary(max_size=6).map(lambda raw: b"data: " + raw),
        st.binary(max_size=8),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(LINES, st.data())
def test_any_chunking_of_a_stream_gives_the_same_events(lines, data):
    ends = data.draw(
        st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=len(lines), max_size=len(lines))
    )
    text = b"".join(line + end for line, end in zip(lines, ends, strict=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    whole, chunked = sse.Events(), sse.Events()
    expected = whole.feed(text) + whole.finish()
    got: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        got += chunked.feed(text[start:end])
    assert got + chunked.finish() == expected


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "id": st.sampled_from([1, 1.0, True, "1", None]),
                "result": st.just({}),
                "error": st.just({}),
                "method": st.just("x"),
                "n": st.integers(0, 9),
            },
        ),
        max_size=6,
    ),
    st.sampled_from([1, 1.0, True, "1", None]),
)
def test_the_reduced_answer_is_the_last_that_answers(messages, request_id):
    answers = [
        message
        for message in messages
        if "id" in message
        and jsonrpc.same_id(message["id"], request_id)
        and "method" not in message
        and len(message.keys() & {"result", "error"}) == 1
    ]
    data = b"".join(b"data: " + json.dumps(message).encode() + b"\n\n" for message in messages)
    assert repr(sse.reduce(data, request_id)) == repr(answers[-1] if answers else None)


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_safe_texts_are_printable_stable_and_encodable(text):
    assert all(c.isprintable() or c in "\n\t\xa0" or c.isspace() or ord(c) > 0x7F for c in safe(text))
    assert safe(safe(text)) == safe(text)
    assert one_line(one_line(text)) == one_line(text)
    assert one_line(safe(text)) == one_line(safe(text)).replace("\n", "").replace("\t", "")
    assert well_formed(well_formed(text)) == well_formed(text)
    for clean in (safe(text), one_line(text), well_formed(text)):
        assert "\x00" not in clean
        clean.encode()


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30), st.integers(0, 30), st.text(max_size=12))
def test_a_cut_text_never_passes_its_limit(text, limit, note):
    short = cut(text, limit, note)
    assert len(short) <= max(limit, 0)
    assert short == text if len(text) <= limit else short.endswith(note[:limit])
