"""Numbers that a process counts, and their text form for Prometheus (exposition format 0.0.4).

Knows families, series and /proc; must not know what is counted, or who may see it.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["CONTENT_TYPE", "Counter", "Family", "Histogram", "Sample", "process", "render"]

CONTENT_TYPE: Final = b"text/plain; version=0.0.4; charset=utf-8"

_SEPARATOR: Final = "\x00"
_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

Labels = tuple[tuple[str, str], ...]


class Sample(msgspec.Struct, frozen=True):
    """One series: what its name adds to the family's, its labels, its value."""

    labels: Labels
    value: float
    suffix: str = ""


class Family(msgspec.Struct, frozen=True):
    """A metric with its series. `kind` is `counter`, `gauge` or `histogram`."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]


class Counter:
    """Counts by label values. LIMIT: beyond `most` series, `spill` stands for the values that are new."""

    __slots__ = ("_help", "_labels", "_most", "_name", "_spill", "of")

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], spill: tuple[str | None, ...], most: int
    ):
        self._name, self._help, self._labels = name, text, labels
        self._spill, self._most = spill, most
        self.of: dict[str, int] = {}  # one text for all label values: the quickest key

    def add(self, *values: str) -> None:
        """Count one. A value of `spill` that is None keeps the label as it is when there is no room."""
        key = _SEPARATOR.join(values)
        known = self.of.get(key)
        if known is None:
            key, known = self._new(values)
        self.of[key] = known + 1

    def _new(self, values: tuple[str, ...]) -> tuple[str, int]:
        # A value that holds the separator would be read as two.
        values = tuple(value.replace(_SEPARATOR, "\ufffd") for value in values)
        if len(self.of) >= self._most:
            values = tuple(
                value if spilled is None else spilled
                for value, spilled in zip(values, self._spill, strict=True)
            )
        key = _SEPARATOR.join(values)
        return key, self.of.get(key, 0)

    def series(self) -> Iterable[tuple[tuple[str, ...], int]]:
        """Return label values and count of each series."""
        return [(tuple(key.split(_SEPARATOR)), count) for key, count in self.of.items()]

    def family(self) -> Family:
        """Return what was counted until now."""
        samples = (
            Sample(tuple(zip(self._labels, values, strict=True)), count) for values, count in self.series()
        )
        return Family(self._name, "counter", self._help, tuple(samples))


class Histogram:
    """Durations in seconds by one label, in fixed buckets. The values of the label are few and known."""

    __slots__ = ("_bounds", "_help", "_label", "_name", "_of")

    def __init__(self, name: str, text: str, label: str, bounds: tuple[float, ...]) -> None:
        self._name, self._help, self._label, self._bounds = name, text, label, bounds
        self._of: dict[str, tuple[list[int], list[float]]] = {}

    def observe(self, value: str, seconds: float) -> None:
        """Count one."""
        known = self._of.get(value)
        if known is None:
            known = self._of[value] = ([0] * (len(self._bounds) + 1), [0.0])
        known[0][bisect_left(self._bounds, seconds)] += 1
        known[1][0] += seconds

    def family(self) -> Family:
        """Return what was counted until now."""
        samples: list[Sample] = []
        for value, (counts, total) in self._of.items():
            labels = ((self._label, value),)
            sums = list(accumulate(counts))
            for bound, count in zip((*map(_written, self._bounds), "+Inf"), sums, strict=True):
                samples.append(Sample((*labels, ("le", bound)), count, "_bucket"))
            samples += [Sample(labels, total[0], "_sum"), Sample(labels, sums[-1], "_count")]
        return Family(self._name, "histogram", self._help, tuple(samples))


def render(families: Iterable[Family], common: Mapping[str, str]) -> bytes:
    """Return the text of all families. `common` labels stand on every series."""
    lines: list[str] = []
    first = tuple(common.items())
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for sample in family.samples:
            labels = ",".join(
                f'{name}="{value.translate(_ESCAPES)}"' for name, value in first + sample.labels
            )
            braces = f"{{{labels}}}" if labels else ""
            lines.append(f"{family.name}{sample.suffix}{braces} {_written(sample.value)}")
    return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def process() -> list[Family]:
    """Return what the system says of this process, under the names that Prometheus clients use.

    LIMIT: without /proc, only the processor time.
    """
    found = [_one("process_cpu_seconds_total", "counter", "Processor time in seconds.", time.process_time())]
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        descriptors = len(os.listdir("/proc/self/fd"))
        # The name of the program stands in parentheses and may hold anything; the 22nd field is the 20th after it.
        ticks = int(Path("/proc/self/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
        system = Path("/proc/stat").read_text("ascii").splitlines()
        boot = next(int(line.split()[1]) for line in system if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return found
    memory = pages * os.sysconf("SC_PAGE_SIZE")
    started = boot + ticks / os.sysconf("SC_CLK_TCK")
    return [
        *found,
        _one("process_resident_memory_bytes", "gauge", "Memory held, in bytes.", memory),
        _one("process_open_fds", "gauge", "Open file descriptors.", descriptors),
        _one("process_start_time_seconds", "gauge", "Start of the process, in Unix seconds.", started),
    ]


def _one(name: str, kind: str, text: str, value: float) -> Family:
    return Family(name, kind, text, (Sample((), value),))


def _written(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
