"""Marks passages that read like an attempt to steer the model. Never blocks, never changes a text.

Knows phrases and the names of the policy's tools; does not know verdicts, and nothing here moves one.
SPEC: gateway.md 9.6. The words below are our own.
LIMIT: it misses look-alike letters, other languages and base64 broken into lines, and now and then flags a
normal sentence. Word edges and letter case are ASCII.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from itertools import islice

from airlock.core.text.safe import well_formed

try:
    import re2
except ImportError:  # the extra `regex` is not installed: same findings, more slowly
    re2 = None  # type: ignore[assignment]

__all__ = ["EXCERPT_CHARS", "MAX_FINDINGS", "Scanner"]

MAX_FINDINGS = 20
EXCERPT_CHARS = 120

# LIMIT: of a phrase that one text repeats more often than this, later excerpts are not listed; its rule is.
_MAX_MATCHES = 32
_MAX_MEMORY = 64 << 20
_CONTEXT = 20
_PIECE, _OVERLAP = 2048, 256

# SECURITY: JSON inside a text writes a line break as a backslash and a letter. It is a blank, and a word may
# begin right behind it; otherwise it would hide the first word of each line.
_ESCAPED = r"\\[nrt]"
_EDGE = rf"(?:\b|{_ESCAPED})"
_BLANKS = "\\t-\\r \u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_GAP = f"(?:[{_BLANKS}]|{_ESCAPED}){{1,4}}"
_APOSTROPHE = "['\u2019]"
# What may stand between a verb and the name of a tool.
_LOOSE = f"(?:[{_BLANKS}:`'\"*\u2018\u2019\u201c\u201d]|{_ESCAPED}){{1,6}}"

# Zero-width characters, joiners, bidirectional marks and overrides, fillers; tags and the later variation
# selectors, which can carry invisible text.
_HIDDEN = (
    "[\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]+"
)

_PEOPLE = ("user", "operator", "human", "person", "admin", "administrator", "approver", "reviewer")
_VERBS = "(?:call|run|execute|invoke|use|trigger)"
_FILLERS = "(?:the|a|an|our|your|this|that|tool|function|command|named|called|following)"
_TELL = "(?:tell|inform|mention|reveal)"

_HIDDEN_RUN = re.compile(_HIDDEN)
_ESCAPE = re.compile(_ESCAPED)
_WORD_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_LEFT, _RIGHT, _NEITHER = "\x01", "\x02", "\x03"

# A run is at least this long and has at least so many different characters.
_BASE64_RUN = b"a" * 80
_VARIED = 16
_BASE64_MAP = bytes(97 if bytes((c,)).isalnum() or c in b"+/-_" else 32 for c in range(256))


class _Words:
    """Gap-free alternatives, each given as the plain letters it begins with and a pattern for the rest."""

    __slots__ = ("_finders", "_here", "pattern")

    def __init__(self, *alternatives: tuple[str, str]) -> None:
        sources = [prefix + rest for prefix, rest in alternatives]
        self.pattern = rf"{_EDGE}(?:{'|'.join(sources)})"
        self._here = re.compile("|".join(sources), re.ASCII)
        # A pattern that begins with letters is searched for at the speed of a plain search; the edge in front
        # of them would undo that, so it is looked back for.
        self._finders = [
            (
                prefix,
                re.compile(
                    rf"{prefix}(?:(?<![a-z0-9_]{prefix})|(?<={_ESCAPED}{prefix}))(?={rest})", re.ASCII
                ),
            )
            for prefix, rest in alternatives
        ]

    def maybe_in(self, low: str) -> bool:
        """Tell cheaply whether a lower-case text may hold one of them; False is certain."""
        return any(prefix in low for prefix, _ in self._finders)

    def marked(self, low: str, marker: str) -> str:
        """Return a lower-case text with the first letter of each occurrence replaced by `marker`."""
        for prefix, finder in self._finders:
            if prefix in low:
                low = finder.sub(marker + prefix[1:], low)
        return low

    def end(self, low: str, start: int) -> int:
        """Return where the occurrence that begins at `start` ends."""
        found = self._here.match(low, start)
        assert found is not None
        return found.end()


class _Phrase:
    """`left` alone, or with `right` beginning at most `gap` characters later, or on either side of it."""

    __slots__ = ("_pair", "left", "right", "rule")

    def __init__(
        self, rule: str, left: _Words, right: _Words | None = None, *, gap: int = 0, either: bool = False
    ) -> None:
        self.rule = rule
        self.left = left
        self.right = right
        # Words of both kinds stand within the gap if and only if two neighbours do, so nothing is read twice.
        between = f"[^{_LEFT}{_RIGHT}]{{0,{gap}}}"
        pair = f"{_LEFT}{between}{_RIGHT}" + (f"|{_RIGHT}{between}{_LEFT}" if either else "")
        self._pair = re.compile(_LEFT if right is None else pair)

    def find(self, low: str) -> Iterator[tuple[int, int]]:
        """Yield the spans in a lower-case text without markers, in order.

        The text is read piece by piece, so that one full of hits is left as soon as the caller has enough.
        """
        right = self.right or self.left
        for offset in range(0, len(low), _PIECE):
            piece = low[offset : offset + _PIECE + _OVERLAP]
            if not (self.left.maybe_in(piece) and right.maybe_in(piece)):
                continue
            marked = self.left.marked(piece, _LEFT)
            if self.right is not None:
                marked = self.right.marked(marked, _RIGHT)
            if offset:
                # INVARIANT: a piece owns the spans that begin after its first two letters (whose left edge it
                # may not see) and up to the first two of the next; those end well before the overlap does.
                marked = "  " + marked[2:]
            for found in self._pair.finditer(marked):
                if found.start() > _PIECE + 1:
                    break
                last = found.end() - 1
                words = self.left if marked[last] == _LEFT else right
                yield offset + found.start(), words.end(low, offset + last)


_PHRASES: tuple[_Phrase, ...] = (
    _Phrase(
        "override_phrase",
        _Words(("ignore", r"\b"), ("disregard", r"\b"), ("forget", r"\b")),
        _Words(
            ("instruction", r"s?\b"),
            ("polic", r"(?:y|ies)\b"),
            ("rule", r"s?\b"),
            ("guideline", r"s?\b"),
            ("directive", r"s?\b"),
        ),
        gap=60,
    ),
    _Phrase(
        "override_phrase",
        _Words(
            ("system", rf"{_GAP}override\b"),
            ("new", rf"{_GAP}instructions?(?:{_GAP})?:"),
            ("you", rf"(?:{_GAP}are|{_APOSTROPHE}re){_GAP}now\b"),
        ),
    ),
    _Phrase(
        "urgent_action",
        _Words(
            ("urgent", r"(?:ly)?\b"),
            ("immediately", r"\b"),
            ("emergency", r"\b"),
            ("asap", r"\b"),
            ("as", rf"{_GAP}soon{_GAP}as{_GAP}possible\b"),
            ("right", rf"{_GAP}(?:now|away)\b"),
            ("without", rf"{_GAP}delay\b"),
        ),
        _Words(("call", r"\b"), ("run", r"\b"), ("execute", r"\b"), ("delete", r"\b")),
        gap=90,
        either=True,
    ),
    _Phrase(
        "secrecy",
        _Words(
            ("do", rf"(?:{_GAP}not|n{_APOSTROPHE}?t){_GAP}{_TELL}\b"),
            ("never", rf"{_GAP}{_TELL}\b"),
        ),
        _Words(
            *((person, r"s?\b") for person in _PEOPLE),
            ("people", r"\b"),
            ("any", r"(?:one|body)\b"),
        ),
        gap=60,
    ),
    _Phrase(
        "secrecy",
        _Words(("hide", r"\b"), ("conceal", r"\b"), ("withhold", r"\b")),
        _Words(("from", rf"{_GAP}(?:(?:the|your|our|any|all){_GAP})?(?:people|(?:{'|'.join(_PEOPLE)})s?)\b")),
        gap=70,
    ),
)


def _set_patterns() -> tuple[list[str], list[tuple[_Phrase, int, int]]]:
    patterns = [_HIDDEN]
    ids: list[tuple[_Phrase, int, int]] = []
    for phrase in _PHRASES:
        left = len(patterns)
        patterns.append(phrase.left.pattern)
        if phrase.right is not None:
            patterns.append(phrase.right.pattern)
        ids.append((phrase, left, len(patterns) - 1))
    return patterns, ids


# The numbers of the Set's members: hidden characters, the sides of each phrase, and last the tool mentions.
_SET_PATTERNS, _PHRASE_IDS = _set_patterns()
_HIDDEN_ID, _MENTION_ID = 0, len(_SET_PATTERNS)
_EVERY_ID = range(_MENTION_ID + 1)


_SEAM = "\n \n"


class Scanner:
    """The patterns of one policy, built once; scanning keeps no state."""

    __slots__ = ("_mention", "_mention_re2", "_names", "_set")

    def __init__(self, tool_names: Iterable[str]) -> None:
        names = {_folded(name) for name in tool_names if name}
        # The longest name first, so that `list-pods` is not reported as `list`.
        self._names = sorted(names, key=lambda name: (-len(name), name))
        mention = _mention_pattern(self._names) if names else ""
        self._mention = re.compile(mention, re.ASCII)
        self._mention_re2: re2._Regexp | None = None
        self._set: re2.Set | None = None
        if re2 is not None:
            self._build(mention)

    def scan_result(
        self, result: Mapping[str, object], structured_text: str | None
    ) -> list[dict[str, object]]:
        """Return the findings `{"rule", "block", "excerpt"}` in a tool result, at most `MAX_FINDINGS`.

        `block` is the index of the text block, -1 for `structured_text`, the serialised structured content.
        A pair of rule and excerpt is listed once, where it is seen first. What is malformed is skipped.
        """
        findings: dict[tuple[str, str], dict[str, object]] = {}
        content = result.get("content")
        if isinstance(content, list):
            for index, block in enumerate(content):
                text = block.get("text") if isinstance(block, dict) else None
                if isinstance(text, str) and self._full(findings, index, text):
                    return list(findings.values())
        if structured_text is not None:
            self._full(findings, -1, structured_text)
        return list(findings.values())

    def scan_texts(self, texts: Iterable[tuple[int, str]]) -> list[dict[str, object]]:
        """Return the same findings in plain texts, each with the number that is its `block`."""
        findings: dict[tuple[str, str], dict[str, object]] = {}
        for block, text in texts:
            if self._full(findings, block, text):
                break
        return list(findings.values())

    def _full(self, findings: dict[tuple[str, str], dict[str, object]], block: int, text: str) -> bool:
        """Add what is found in one text of a result; True when there is no room for more."""
        for rule, excerpt in self._marks(text, mentions=True):
            findings.setdefault((rule, excerpt), {"rule": rule, "block": block, "excerpt": excerpt})
            if len(findings) == MAX_FINDINGS:
                return True
        return False

    def scan_tools(self, tools: Iterable[object]) -> list[dict[str, object]]:
        """Return the findings `{"rule", "tool", "excerpt"}` in listed tools, at most `MAX_FINDINGS` in all.

        Descriptions, titles and annotation titles may name tools; every other rule applies to them.
        """
        return self.scan_named("tool", _tool_texts(tools))

    def scan_named(self, label: str, named: Iterable[tuple[str, str]]) -> list[dict[str, object]]:
        """Return the findings of `scan_tools` in (name, text) pairs, the name under the key `label`."""
        findings: dict[tuple[str, str, str], dict[str, object]] = {}
        texts = list(named)
        # Most listings are clean, and one scan of all their texts in a row shows that at a fraction of the cost.
        # A seam is no part of a word or a base64 run: it can bring pairs together, never keep one apart.
        if not any(True for _ in self._marks(_SEAM.join(text for _, text in texts), mentions=False)):
            return []
        for name, text in texts:
            for rule, excerpt in self._marks(text, mentions=False):
                findings.setdefault((rule, name, excerpt), {"rule": rule, label: name, "excerpt": excerpt})
                if len(findings) == MAX_FINDINGS:
                    return list(findings.values())
        return list(findings.values())

    def _build(self, mention: str) -> None:
        # SECURITY: the Set holds no pattern with a gap (`urgent.{0,80}call`): on hostile text those multiply
        # the automaton's states until one answer costs a second. Distances are measured on texts that hit.
        options = re2.Options()
        options.max_mem = _MAX_MEMORY
        options.log_errors = False
        try:
            exact = re2.compile(mention, options)
            options.case_sensitive = False
            found = re2.Set.SearchSet(options)
            for pattern in _SET_PATTERNS:
                found.Add(pattern)
            if mention:
                found.Add(mention)
            found.Compile()
        except re2.error:
            return
        # SECURITY: a Set short of memory answers "nothing" instead of failing: such a one is not used.
        if found.Match(b"IGNORE") is not None:
            self._set, self._mention_re2 = found, exact

    def _marks(self, text: str, *, mentions: bool) -> Iterable[tuple[str, str]]:
        """Return (rule, excerpt) in the order of the rules, repeated ones too; a clean text costs two passes."""
        try:
            data = text.encode()
        except UnicodeEncodeError:
            # SECURITY: one lone surrogate must not make a text unreadable to the scan.
            text = well_formed(text)
            data = text.encode()
        hits = _EVERY_ID if self._set is None else self._set.Match(data) or ()
        mapped = data.translate(_BASE64_MAP)
        if not hits and _BASE64_RUN not in mapped:
            return ()
        return self._found(text, data, mapped, hits, mentions=mentions)

    def _found(
        self, text: str, data: bytes, mapped: bytes, hits: Container[int], *, mentions: bool
    ) -> Iterator[tuple[str, str]]:
        """Look closer at a text in which members of the Set were seen. Same arguments, same order."""
        low = ""
        for phrase, left, right in _PHRASE_IDS:
            if left in hits and right in hits:
                low = low or data.lower().decode().replace(_LEFT, _NEITHER).replace(_RIGHT, _NEITHER)
                for a, b in islice(phrase.find(low), _MAX_MATCHES):
                    yield phrase.rule, _excerpt(text[a:b])
        if _HIDDEN_ID in hits:
            for found in islice(_HIDDEN_RUN.finditer(text), _MAX_MATCHES):
                start = max(0, found.start() - _CONTEXT)
                yield "hidden_text", _excerpt(text[start : start + EXCERPT_CHARS])
        for run in islice(_base64_runs(data, mapped), _MAX_MATCHES):
            yield "hidden_text", run
        if mentions and self._names and _MENTION_ID in hits:
            for passage in islice(self._mentions(text, data), _MAX_MATCHES):
                yield "tool_mention", _excerpt(passage)

    def _mentions(self, text: str, data: bytes) -> Iterator[str]:
        low = data.lower()
        if self._mention_re2 is not None:
            for hit in self._mention_re2.finditer(low):
                yield data[hit.start() : hit.end()].decode()
            return
        low_text = low.decode()
        if any(name in low_text for name in self._names):
            for found in self._mention.finditer(low_text):
                yield text[found.start() : found.end()]


def _folded(name: str) -> str:
    """Lower case in ASCII only, as texts are folded: it keeps every length."""
    return well_formed(name).encode().lower().decode()


def _mention_pattern(names: list[str]) -> str:
    """A verb and a name behind it, or a name and a parenthesis."""
    called = [re.escape(name) + (r"\b" if name[-1] in _WORD_CHARS else "") for name in names]
    alone = [(_EDGE if name[0] in _WORD_CHARS else "") + re.escape(name) for name in names]
    verb = f"{_EDGE}{_VERBS}(?:{_LOOSE}{_FILLERS}){{0,3}}{_LOOSE}(?:{'|'.join(called)})"
    return rf"{verb}|(?:{'|'.join(alone)})(?:{_GAP})?\("


def _base64_runs(data: bytes, mapped: bytes) -> Iterator[str]:
    """Yield the beginning of each long base64 run, unless a few letters are all it is made of."""
    start = mapped.find(_BASE64_RUN)
    while start >= 0:
        end = mapped.find(b" ", start)
        end = len(mapped) if end < 0 else end
        if len(set(data[start:end])) >= _VARIED:
            yield data[start : min(end, start + EXCERPT_CHARS)].decode()
        start = mapped.find(_BASE64_RUN, end)


def _excerpt(passage: str) -> str:
    return well_formed(" ".join(_ESCAPE.sub(" ", passage).split())[:EXCERPT_CHARS])


def _tool_texts(tools: Iterable[object]) -> Iterator[tuple[str, str]]:
    for tool in tools:
        if not isinstance(tool, dict):
            continue
        name, annotations = tool.get("name"), tool.get("annotations")
        if isinstance(name, str):
            title = annotations.get("title") if isinstance(annotations, dict) else None
            for text in (tool.get("description"), tool.get("title"), title):
                if isinstance(text, str):
                    yield name, text
