"""Measures content hygiene on a corpus of ours: misses, false alarms, and what a text of 16 KB costs.

`.venv/bin/python -m bench.hygiene` prints the tables as Markdown. No network, some seconds.
"""

from __future__ import annotations

import timeit
from collections import Counter
from collections.abc import Callable

from airlock.core.redact.results import redact, worth_a_look
from airlock.core.text.hygiene import neutralise
from bench.hygiene.corpus import corpus
from bench.hygiene.sample import Sample

SIZE = 16 * 1024
ROUNDS, CALLS = 7, 40


def cleaned(text: str) -> str:
    """Do to a text what the gateway does."""
    if not worth_a_look(text.encode("utf-8", "surrogatepass")):
        return text
    return neutralise(redact(text).text).text


def wrong(sample: Sample) -> bool:
    """Tell whether something was missed in a sample, or changed in a harmless one."""
    out = cleaned(sample.text)
    if sample.gone:
        return any(part in out for part in sample.gone)
    return out is not sample.text


def tables(samples: list[Sample]) -> str:
    """Return misses by kind, false alarms by sort of text, and the cost, as Markdown."""
    lines: list[str] = []
    for title, what, chosen in (
        ("kind", "missed", [sample for sample in samples if sample.gone]),
        ("harmless text", "changed", [sample for sample in samples if not sample.gone]),
    ):
        number, bad = Counter(one.kind for one in chosen), Counter(one.kind for one in chosen if wrong(one))
        lines += [f"| {title} | samples | {what} |", "| --- | --- | --- |"]
        lines += [f"| {kind} | {count} | {bad[kind]} |" for kind, count in number.items()]
        share = 100 * bad.total() / number.total()
        lines += [f"| all | {number.total()} | {bad.total()} ({share:.2f} %) |", ""]
    lines += ["| text of 16 KB | µs |", "| --- | --- |"]
    lines += [f"| {name} | {_micros(work):.0f} |" for name, work in _costs(samples)]
    return "\n".join(lines)


def _costs(samples: list[Sample]) -> list[tuple[str, Callable[[], object]]]:
    def filled(*kinds: str) -> str:
        texts = [one.text for one in samples if one.kind in kinds]
        return ("\n".join(texts) * (1 + SIZE // sum(map(len, texts))))[:SIZE]

    dirty = filled("tag", "bidi", "zero_width", "github_token", "assignment", "dsn")
    chosen = {
        "clean, ASCII": filled("table", "git log"),
        "clean, Arabic": filled("Arabic"),
        "Persian, with joiners that stay": filled("Persian"),
        "code that speaks of tokens": filled("code", "placeholder"),
        "full of hidden characters and secrets": dirty,
    }
    return [(name, lambda text=text: cleaned(text)) for name, text in chosen.items()]  # type: ignore[misc]


def _micros(work: Callable[[], object]) -> float:
    return min(timeit.repeat(work, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


if __name__ == "__main__":
    print(tables(corpus()))
