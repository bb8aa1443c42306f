"""The documents say what is there: pages made from code are current, links and file names lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from airlock.cli.exits import EXITS, SAME
from airlock.core.audit.record import FIELDS, SENTENCES
from airlock.core.policy import load
from airlock.core.policy.model import OutputLimits, Radius
from airlock.core.rules import Rule
from airlock.edge import out
from airlock.gateway import meta
from docs import generate

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
IDS = [page.relative_to(ROOT).as_posix() for page in PAGES]
THREATS = (ROOT / "docs/security/threat-model.md").read_text(encoding="utf-8")


def test_the_pages_made_from_code_are_current(capsys: pytest.CaptureFixture[str]):
    assert generate.main(["--check"]) == 0, capsys.readouterr().out


def test_generating_writes_what_differs_and_checking_only_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert generate.main(["--check"], tmp_path) == 1
    assert list(tmp_path.iterdir()) == []
    assert "docs/reference/rules.md: differs from the code" in capsys.readouterr().out
    assert generate.main([], tmp_path) == 0
    assert generate.main(["--check"], tmp_path) == 0
    assert generate.main(["--wrong"], tmp_path) == 2


def test_every_rule_stands_in_the_table_once():
    page = (ROOT / "docs/reference/rules.md").read_text(encoding="utf-8")
    assert [page.count(f"| `{rule.value}` |") for rule in Rule] == [1] * len(Rule)


def test_every_field_of_an_audit_record_has_a_sentence():
    assert tuple(SENTENCES) == FIELDS


def test_every_meta_key_the_gateway_names_stands_in_the_table():
    named = {
        value
        for value in vars(meta).values()
        if isinstance(value, str) and value.startswith(meta.PREFIX) and value != meta.PREFIX
    }
    assert named == {key for key, _, _ in meta.SET if key.startswith(meta.PREFIX)}


def test_every_command_has_its_flags_and_its_exit_statuses_on_a_page():
    paths = [
        context.command_path
        for name, command in generate.COMMANDS.items()
        for context in generate.leaves(name, command)
    ]
    assert set(paths) - {"airlock"} == {*EXITS, *SAME}
    assert set(SAME.values()) <= set(EXITS)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert set(generate.COMMANDS) == set(scripts)
    assert set(out.SENTENCES) == {out.OK, out.FAILED, out.USAGE}


def test_the_page_of_the_policy_names_every_key_with_its_default():
    page = (ROOT / "docs/reference/policy.md").read_text(encoding="utf-8")
    limits = [("output", load._OUTPUT, OutputLimits()), ("blast_radius", load._RADIUS, Radius())]
    rows = {f"{block}.{key}": getattr(values, key) for block, keys, values in limits for key in keys}
    for key, default in rows.items():
        assert re.search(rf"^\| `{re.escape(key)}` \| [^|]+ \| `{default}` \|", page, re.M), key
    named = {key.partition(".")[0] for key in re.findall(r"^\| `([a-z_.]+)` \|", page, re.M)}
    assert {*load._TOP, *load._RULE} == named
    tool = re.findall(r"^\| `tools\.<name>\.([a-z_]+)` \|", page, re.M)
    assert tool == list(load._TOOL)


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_between_the_documents_lead_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
    targets += re.findall(r'(?:src|href)="([^"#]+)"', page.read_text(encoding="utf-8"))
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_files_named_in_the_documents_exist(page: Path):
    named = re.findall(r"`((?:src|tests|docs|bench|examples)/[\w./-]+)`", page.read_text(encoding="utf-8"))
    made = ("bench/out", "bench/.venv-peer", "examples/audit.jsonl", "examples/spans.jsonl")
    assert [path for path in named if not path.startswith(made) and not (ROOT / path).exists()] == []


def test_every_threat_is_numbered_and_names_code_and_a_test():
    sections = re.split(r"^### ", THREATS, flags=re.MULTILINE)[1:]
    assert [section.split()[0] for section in sections] == [f"G-{n}" for n in range(1, len(sections) + 1)]
    assert [s.splitlines()[0] for s in sections if "`src/" not in s or "`tests/" not in s] == []


def test_every_dependency_has_a_line_in_its_decision_record():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        declared += extra
    for group in project["dependency-groups"].values():
        declared += group
    names = {re.split(r"[\s<>=!~;\[]", item)[0] for item in declared} - {"airlock"}
    record = (ROOT / "docs/adr/0003-dependencies.md").read_text(encoding="utf-8")
    assert {n for n in names if f"| {n} |" not in record} == set()
    listed = set(re.findall(r"^\| ([a-z0-9][a-z0-9.-]*) \|", record, re.MULTILINE)) - {"package"}
    assert listed - names == set(), "the record names a dependency that is not declared"


def policies() -> list[tuple[str, str]]:
    """The policies printed in the documents."""
    found = []
    for page, name in zip(PAGES, IDS, strict=True):
        for n, block in enumerate(
            re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        ):
            if block.startswith("version:"):
                found.append((f"{name}#{n}", block))
    return found


@pytest.mark.parametrize("policy", [text for _, text in policies()], ids=[name for name, _ in policies()])
def test_policies_in_the_documents_lint_clean(policy: str, tmp_path: Path):
    (tmp_path / "policy.yaml").write_text(policy, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "airlock"), "policy", "lint", "policy.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
