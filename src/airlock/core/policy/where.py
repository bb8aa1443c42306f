"""Argument rules: which values of a tool's arguments a policy lets through, and what pattern may be in one.

Knows scalars, kinds and RE2; does not know tiers, principals or where arguments come from.

SPEC: gateway.md 5.4, the whole table. Whatever the table does not name fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import msgspec

from airlock.core.policy.model import Equals, FullMatch, Matcher, OneOf, Scalar, ToolPolicy
from airlock.core.text.cut import cut

__all__ = ["MAX_REGEX_CHARS", "MAX_REPEAT", "Unfit", "compile_regex", "violation"]

MAX_REGEX_CHARS = 4096
"""Longest string, in characters, that a `regex` is tried on."""

MAX_REPEAT = 1000
"""Largest counted repeat in a `regex`."""

_NULL = "null"
_JSON_OPENERS = ("[", "{")

# What RE2 reads without a complaint and otherwise than it looks, after all that such a thing cannot be inside of.
_MISREAD = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\[xpP]\{[^}]*\}|(?P<reference>\\[1-7][0-7](?![0-7]))|\\."
    r"|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\{(?P<low>[0-9]+)(?:,(?P<high>[0-9]*))?\}",
    re.DOTALL,
)
_PROBLEM_CHARS = 120

_HINTS = (
    ("operator: (?=", "RE2 has no look-around"),
    ("operator: (?!", "RE2 has no look-around"),
    ("operator: (?<", "RE2 has no look-around"),
    ("operator: (?>", "RE2 has no atomic groups"),
    ("operator: (?P", "RE2 has no backreferences; a named group is (?P<name>...)"),
    ("operator: (?#", "RE2 has no comments"),
    ("operator: (?", "RE2 knows the flags i, m, s and U only"),
    (r"sequence: \Z", r"RE2 writes \z"),
    (r"sequence: \u", r"RE2 writes \x{41}"),
    (r"sequence: \U", r"RE2 writes \x{41}"),
    (r"sequence: \N", r"RE2 writes \x{41}"),
    ("repetition size", f"a counted repeat is at most {MAX_REPEAT}, and nested ones multiply"),
    ("bad repetition operator", "RE2 has neither possessive nor doubled repeats"),
    ("pattern too large", "make its counts smaller"),
    *((rf"sequence: \{digit}", "RE2 has no backreferences") for digit in "123456789gk"),
)


class Unfit(msgspec.Struct, frozen=True):
    """Why a pattern may not be in a policy, and what to do about it."""

    problem: str
    hint: str = ""


def compile_regex(pattern: str) -> FullMatch | Unfit:
    """Compile `pattern` with RE2 for full matches on UTF-8, or say why it may not be used.

    SPEC: gateway.md 5.4. Needs google-re2, the extra `regex`: Python's own `re` backtracks. Imported here, so
    that only a policy with a regex pays for it.
    """
    try:
        import re2
    except ImportError:
        return Unfit("a regex needs google-re2", "install the extra: airlock[regex]")
    options = re2.Options()
    options.log_errors = False  # RE2 would write lines of its own to stderr
    options.never_capture = True
    try:
        compiled = re2.compile(pattern, options)
    except UnicodeEncodeError:
        return Unfit("not a pattern: it holds a lone surrogate")
    except re2.error as error:
        problem = error.args[0].decode("utf-8", "replace")
        hint = next((advice for sign, advice in _HINTS if sign in problem), "")
        return Unfit(f"not a pattern RE2 reads: {cut(problem, _PROBLEM_CHARS, '...')}", hint)
    return _misread(pattern) or FullMatch(pattern, compiled)


def _misread(pattern: str) -> Unfit | None:
    r"""Find what RE2 takes for plain text where a reader sees a count or a backreference; `a{,3}` is documented."""
    for found in _MISREAD.finditer(pattern):
        if found["reference"]:
            return Unfit(
                f"{found['reference']} is a character in octal to RE2, which has no backreferences",
                r"to mean the character, write \x{..}",
            )
        for count in (found["low"], found["high"]):
            if not count:
                continue
            if count[0] == "0" and count != "0":
                return Unfit("counted repeat with a leading zero", "RE2 takes it for plain text")
            if len(count) > len(str(MAX_REPEAT)) or int(count) > MAX_REPEAT:
                return Unfit(f"counted repeat over {MAX_REPEAT}")
    return None


def violation(tool: ToolPolicy, arguments: Mapping[str, object], environment: str) -> str | None:
    """Return the reason of the first rule of `tool` that `arguments` break in `environment`, or None.

    The reason names the argument and the kind of matcher, never the value.
    """
    for rule in tool.where:
        if rule.env is not None and environment not in rule.env:
            continue
        if rule.arg not in arguments:
            if rule.optional:
                continue
            return f"argument {rule.arg!r} missing, wanted by {rule.matcher.kind}"
        problem = _judge(rule.matcher, arguments[rule.arg])
        if problem is not None:
            return f"argument {rule.arg!r} {problem} {rule.matcher.kind}"
    return None


_REFUSED = "not allowed by"
_TOO_LONG = f"longer than {MAX_REGEX_CHARS} characters, too long for"


def _judge(matcher: Matcher, value: object) -> str | None:
    if isinstance(value, list):
        for element in value:
            problem = _judge_scalar(matcher, element)
            if problem is not None:
                return problem
        return None
    # SECURITY: the upstream may decode a string before it validates it, and then sees something else.
    if isinstance(value, str) and _decodes_to_structure(value):
        return _REFUSED
    return _judge_scalar(matcher, value)


def _judge_scalar(matcher: Matcher, value: object) -> str | None:
    if isinstance(matcher, FullMatch):
        return _judge_text(matcher, value) if isinstance(value, str) else _REFUSED
    if isinstance(matcher, Equals):
        passes = _same(matcher.value, value)
    elif value is None:
        passes = False  # null passes only `equals: null`, even where null is listed
    elif isinstance(matcher, OneOf):
        passes = any(_same(listed, value) for listed in matcher.values)
    else:
        # SECURITY: `not_in: [0]` must not let "0" or false through, which an upstream may read as 0.
        kind = _kind(value)
        known = kind is not None and any(_kind(listed) is kind for listed in matcher.values)
        passes = known and not any(_same(listed, value) for listed in matcher.values)
    return None if passes else _REFUSED


def _judge_text(matcher: FullMatch, value: str) -> str | None:
    # SECURITY: linear is not cheap, `(.*a){1000}` costs about 30 us a character; the loop must not freeze.
    # LIMIT: the bound is for one string; a list is as dear as the sum of its elements.
    if len(value) > MAX_REGEX_CHARS:
        return _TOO_LONG
    try:
        text = value.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return _REFUSED
    return None if matcher.compiled.fullmatch(text) is not None else _REFUSED


def _decodes_to_structure(value: str) -> bool:
    """Tell whether `value` is JSON for null, a list or an object, or may be where other limits hold."""
    text = value.strip()
    if text == _NULL:
        return True
    if not text.startswith(_JSON_OPENERS):
        return False
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    except (ValueError, RecursionError):  # too many digits, too deep: only for us, perhaps
        return True
    return True


def _kind(value: object) -> type | None:
    """Return what stands for the kind of a scalar: bool, float for every number, str; None for the rest."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, (int, float)):
        return float
    return str if isinstance(value, str) else None


def _same(listed: Scalar, value: object) -> bool:
    """Compare scalars without mixing kinds: true is not 1, 3 is 3.0."""
    return _kind(listed) is _kind(value) and listed == value
