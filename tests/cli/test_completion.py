"""Completion as a shell asks for it: words, flags and files of each command, by both kinds of names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.fakes.processes import clean_env, command


def completed(tmp_path: Path, program: str, words: str, place: int) -> list[str]:
    name = f"_{program.upper().replace('-', '_')}_COMPLETE"
    env = clean_env(**{name: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)})
    done = subprocess.run(
        [*command(program)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("program", "words", "place", "offered"),
    [
        ("airlock", "airlock ", 1, {"plain,audit", "plain,gateway", "plain,policy"}),
        ("airlock", "airlock policy ", 2, {"plain,lint", "plain,diff", "plain,pin"}),
        ("airlock", "airlock audit query --phase ", 4, {"plain,intent", "plain,outcome"}),
        ("airlock-audit", "airlock-audit ver", 1, {"plain,verify"}),
        ("mcp-airlock", "mcp-airlock --work", 1, {"plain,--workers"}),
        ("mcp-airlock", "mcp-airlock --policy po", 2, {"file,po"}),
        ("airlock-policy", "airlock-policy lint po", 2, {"file,po"}),
    ],
)
def test_a_shell_gets_what_can_come_next(
    tmp_path: Path, program: str, words: str, place: int, offered: set[str]
) -> None:
    assert offered <= set(completed(tmp_path, program, words, place))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(tmp_path: Path, shell: str) -> None:
    env = clean_env(_AIRLOCK_COMPLETE=f"{shell}_source")
    done = subprocess.run(command("airlock"), env=env, capture_output=True, text=True, timeout=60, check=True)
    assert "_AIRLOCK_COMPLETE" in done.stdout
