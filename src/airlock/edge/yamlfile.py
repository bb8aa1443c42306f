"""From the bytes of a YAML file to plain values, or every fault in them with its line.

Knows YAML and files; does not know what any key means (`core.policy.load` does).

SPEC: gateway.md 5.1. One reading of every text: YAML 1.2 without what could mean something else. A bare word
that YAML 1.1 reads otherwise is refused, so that a file written for the original cannot change its meaning in
silence. `y` and `n` are text, since the parsers of both kinds read them so. Anchors, aliases, merge keys and
tags are refused: whoever reviews the file must see what it says where it says it.

Importing ruamel.yaml costs about ten bare starts of the interpreter: import this module on use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scanner import Scanner, ScannerError

from airlock.core.errors import ConfigError, Fault
from airlock.core.text.cut import cut
from airlock.core.text.safe import one_line

__all__ = ["MAX_BYTES", "MAX_DEPTH", "load", "load_file", "load_with_lines", "read"]

MAX_BYTES = 1 << 20
"""Longest file that is read."""

MAX_DEPTH = 64
"""Deepest nesting of mappings and lists that is read; the top is level 1."""

_SHOWN_CHARS = 40
_PROBLEM_CHARS = 200
_MORE = "..."
_QUOTE_IT = "quote it"
_DIRECTIVE = "a % directive is not read"
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

Path = tuple[str | int, ...]

_WORDS: dict[str, object] = {"": None, "~": None}
_WORDS |= dict.fromkeys(("null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

# Numbers that YAML 1.1 and 1.2 read alike.
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)

_SWITCHES = frozenset({"on", "off", "yes", "no"})

# What else is a number or a date to one of the two.
_EITHER = re.compile(
    r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9].*)?"
)


def load_file(path: str) -> object:
    """Read and parse the file at `path`. Raises ConfigError, in the system's words when it cannot be read."""
    return load(path, read(path))


def read(path: str) -> bytes:
    """Return the bytes of the file at `path`, at most one more than `MAX_BYTES`. Raises ConfigError."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(path, error.strerror or type(error).__name__) from error


def load(path: str, data: bytes | str) -> object:
    """Parse `data` into dicts with string keys, lists, strings, ints, floats, bools and None.

    Empty data is `{}`. `path` only names the file in the error. Raises ConfigError with every fault and its
    line; a syntax error, too deep nesting or a second document ends the reading.
    LIMIT: a file of 1 MiB may take half a minute of CPU time.
    """
    return load_with_lines(path, data)[0]


def load_with_lines(path: str, data: bytes | str) -> tuple[object, dict[Path, int]]:
    """Parse as `load` does; return beside the value the line (from 1) of every key and list item in it."""
    if len(data) > MAX_BYTES:
        raise ConfigError(path, f"longer than {MAX_BYTES} bytes")
    text = _decoded(path, data) if isinstance(data, bytes) else data
    yaml = YAML(typ="safe", pure=True)
    yaml.Scanner = _Scanner
    reading = _Reading(yaml.parse(text))
    document: object = None
    try:
        document = reading.document()
    except MarkedYAMLError as error:
        reading.faults.append(_syntax_fault(error))
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        reading.faults.append(Fault(f"line {line}", f"character U+{error.character:04X} is not allowed"))
    except (YAMLError, ValueError, OverflowError):
        # ruamel.yaml hands an escape such as "\UFFFFFFFF" to chr() as it is; nothing then tells the place.
        reading.faults.append(Fault(f"line {reading.line}", "not YAML", "an escape here names no character"))
    if reading.faults:
        raise ConfigError(path, reading.faults)
    return document, reading.lines


def _decoded(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(path, [Fault(f"line {line}", "not UTF-8 text")]) from error


def _syntax_fault(error: MarkedYAMLError) -> Fault:
    mark = error.problem_mark or error.context_mark  # every error of the scanner and parser has one of them
    place = f"line {mark.line + 1}, column {mark.column + 1}"
    words = ", ".join(str(part) for part in (error.context, error.problem) if part)
    hint = f"leave it out; where a word could be read otherwise, {_QUOTE_IT}" if words == _DIRECTIVE else ""
    return Fault(place, f"not YAML: {cut(one_line(words), _PROBLEM_CHARS, _MORE)}", hint)


class _Scanner(Scanner):
    """The scanner of ruamel.yaml, stopped early where reading on is dear or would change the rules."""

    def fetch_directive(self) -> None:
        raise ScannerError(None, None, _DIRECTIVE, self.reader.get_mark())

    def fetch_flow_collection_start(self, TokenClass: object, to_push: str) -> None:  # noqa: N803 - its name
        # SECURITY: the scanner runs ahead of the events and takes minutes over 20 000 open brackets.
        if self.flow_level >= MAX_DEPTH:
            raise ScannerError(None, None, _TOO_DEEP, self.reader.get_mark())
        super().fetch_flow_collection_start(TokenClass, to_push)


class _Reading:
    """One walk over the events of a file. Faults are gathered; the walk goes on with a stand-in."""

    def __init__(self, events: Iterator[NodeEvent]) -> None:
        self.faults: list[Fault] = []
        self.lines: dict[Path, int] = {}
        self.line = 1
        self._events = events

    def document(self) -> object:
        document: object = None
        begun = False
        for event in self._events:
            if not isinstance(event, DocumentStartEvent):
                continue
            if begun:
                self._fault(event, "a second document begins, only one is read")
                break
            begun = True
            root = self._next()
            document = self._value(root, (), 1)
            if isinstance(root, ScalarEvent) and not root.value and root.style is None:
                document = {}
        return document if begun else {}

    def _next(self) -> NodeEvent:
        event = next(self._events)
        self.line = event.start_mark.line + 1
        return event

    def _value(self, event: NodeEvent, path: Path, depth: int) -> object:
        if depth > MAX_DEPTH:
            raise ScannerError(None, None, _TOO_DEEP, event.start_mark)
        self.lines.setdefault(path, event.start_mark.line + 1)
        self._undecorated(event)
        if isinstance(event, AliasEvent):
            return None
        if isinstance(event, ScalarEvent):
            return self._scalar(event)
        if isinstance(event, SequenceStartEvent):
            return self._list(path, depth)
        assert isinstance(event, MappingStartEvent)
        return self._dict(path, depth)

    def _list(self, path: Path, depth: int) -> list[object]:
        items: list[object] = []
        while not isinstance(event := self._next(), SequenceEndEvent):
            items.append(self._value(event, (*path, len(items)), depth + 1))
        return items

    def _dict(self, path: Path, depth: int) -> dict[str, object]:
        entries: dict[str, object] = {}
        while not isinstance(event := self._next(), MappingEndEvent):
            key = self._key(event, depth)
            if key is None:
                self._value(self._next(), (), depth + 1)
                continue
            at = (*path, key)
            if key in entries:
                # SECURITY: of two entries one would win in silence, perhaps not the one that was reviewed.
                self._fault(event, f'key "{_shown(key)}" again, first on line {self.lines[at]}')
            self.lines.setdefault(at, event.start_mark.line + 1)
            entries[key] = self._value(self._next(), at, depth + 1)
        return entries

    def _key(self, event: NodeEvent, depth: int) -> str | None:
        if not isinstance(event, ScalarEvent):
            self._value(event, (), depth + 1)
            self._fault(event, "a key must be a string")
            return None
        self._undecorated(event)
        if event.style is None and event.value == "<<":
            self._fault(event, "merge keys are not read")
            return None
        key = self._scalar(event)
        if isinstance(key, str):
            return key
        self._fault(event, f'key "{_shown(event.value)}" is not a string', _QUOTE_IT)
        return None

    def _undecorated(self, event: NodeEvent) -> None:
        # SECURITY: an alias repeats what the reader of the file does not see there, and aliases of aliases
        # explode; a tag changes what a text is.
        if isinstance(event, AliasEvent):
            self._fault(event, f"alias *{_shown(event.anchor)}: aliases are not read")
        elif event.anchor is not None:
            self._fault(event, f"anchor &{_shown(event.anchor)}: anchors are not read")
        tag = getattr(event, "tag", None)
        if tag is not None:
            self._fault(event, f"tag {_shown(tag)}: tags are not read")

    def _scalar(self, event: ScalarEvent) -> object:
        text: str = event.value
        if event.style is None:
            return self._plain(event, text)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self._fault(event, "a lone surrogate is no character")
        return text

    def _plain(self, event: ScalarEvent, text: str) -> object:
        if text in _WORDS:
            return _WORDS[text]
        if text.lower() in _SWITCHES:
            self._fault(event, f'"{_shown(text)}" is a boolean in YAML 1.1 and text in YAML 1.2', _QUOTE_IT)
        elif _INT.fullmatch(text):
            try:
                return int(text, 16) if text.startswith("0x") else int(text)
            except ValueError:  # more digits than this interpreter reads
                self._fault(event, "a number with too many digits", _QUOTE_IT)
        elif _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        elif _EITHER.fullmatch(text):
            self._fault(event, f'"{_shown(text)}" is not the same to YAML 1.1 and YAML 1.2', _QUOTE_IT)
        return text

    def _fault(self, event: NodeEvent | DocumentStartEvent, problem: str, hint: str = "") -> None:
        self.faults.append(Fault(f"line {event.start_mark.line + 1}", problem, hint))


def _shown(text: str) -> str:
    return cut(one_line(text), _SHOWN_CHARS, _MORE)
