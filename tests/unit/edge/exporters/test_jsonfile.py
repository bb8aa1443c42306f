"""The span file: its lines, and what happens when it cannot be written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from airlock.core.errors import ConfigError
from airlock.core.rules import Rule
from airlock.edge.exporters import jsonfile
from airlock.edge.spans import ExportError, Span

RESOURCE = (("service.name", "mcp-airlock"),)
SPAN = Span(
    "execute_tool drop",
    "ab" * 16,
    "cd" * 8,
    "ef" * 8,
    1_790_000_000_123_456_789,
    1_790_000_000_200_000_000,
    (("rpc.method", "tools/call"), ("airlock.rule_id", Rule.L0_READ), ("airlock.suspicious", 2)),
)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_has_the_shape_of_the_specification(tmp_path: Path):
    path = tmp_path / "spans.jsonl"
    file = jsonfile.open(str(path), RESOURCE)
    file.export([SPAN], 1.0)
    file.close()
    file.close()
    assert path.read_bytes().endswith(b"}\n")
    assert lines(path) == [
        {
            "name": "execute_tool drop",
            "context": {"trace_id": "0x" + "ab" * 16, "span_id": "0x" + "cd" * 8, "trace_state": "[]"},
            "kind": "SpanKind.SERVER",
            "parent_id": "0x" + "ef" * 8,
            "start_time": "2026-09-21T14:13:20.123456Z",
            "end_time": "2026-09-21T14:13:20.200000Z",
            "status": {"status_code": "UNSET"},
            "attributes": {
                "rpc.method": "tools/call",
                "airlock.rule_id": "tier.L0.read",
                "airlock.suspicious": 2,
            },
            "events": [],
            "links": [],
            "resource": {"attributes": {"service.name": "mcp-airlock"}, "schema_url": ""},
        }
    ]


def test_a_root_span_has_no_parent_and_an_error_has_a_description(tmp_path: Path):
    path = tmp_path / "spans.jsonl"
    file = jsonfile.open(str(path), RESOURCE)
    file.export([Span("tools/list", "ab" * 16, "cd" * 8, None, 0, 0, (), Rule.INTERNAL_ERROR)], 1.0)
    file.close()
    (line,) = lines(path)
    assert line["parent_id"] is None
    assert line["status"] == {"status_code": "ERROR", "description": "internal.error"}


def test_the_file_is_appended_to_and_only_its_owner_reads_it(tmp_path: Path):
    path = tmp_path / "spans.jsonl"
    for _ in range(2):
        file = jsonfile.open(str(path), RESOURCE)
        file.export([SPAN, SPAN], 1.0)
        file.close()
    assert len(lines(path)) == 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_with_line_breaks_stays_on_one_line(tmp_path: Path):
    path = tmp_path / "spans.jsonl"
    file = jsonfile.open(str(path), RESOURCE)
    file.export([Span("a\nb\r\u2028c", "ab" * 16, "cd" * 8, None, 0, 0, ())], 1.0)
    file.close()
    assert path.read_bytes().count(b"\n") == 1


def test_a_file_that_cannot_be_opened_is_told_in_the_words_of_the_system(tmp_path: Path):
    with pytest.raises(ConfigError) as found:
        jsonfile.open(str(tmp_path / "none" / "spans.jsonl"), RESOURCE)
    assert str(found.value) == f"{tmp_path}/none/spans.jsonl: No such file or directory"
    with pytest.raises(ConfigError, match="Is a directory"):
        jsonfile.open(str(tmp_path), RESOURCE)


def test_a_pipe_that_nobody_reads_does_not_hold_up_the_start(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="No such device or address"):
        jsonfile.open(str(tmp_path / "pipe"), RESOURCE)


def test_a_full_disk_is_told_in_the_words_of_the_system():
    file = jsonfile.open("/dev/full", RESOURCE)
    with pytest.raises(ExportError, match="No space left on device"):
        file.export([SPAN], 1.0)
    file.close()


def test_a_line_that_was_cut_short_does_not_spoil_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "spans.jsonl"
    file = jsonfile.open(str(path), RESOURCE)
    write, calls = os.write, 0

    def short(fd: int, data: bytes) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        return write(fd, data[:40])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", short)
        with pytest.raises(ExportError):
            file.export([SPAN], 1.0)
    file.export([SPAN], 1.0)
    file.close()
    torn, whole = path.read_bytes().splitlines()
    assert len(torn) == 40
    assert json.loads(whole)["name"] == "execute_tool drop"
