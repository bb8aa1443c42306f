from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airlock.edge import registry


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "somestores"
    (folder / "nested").mkdir(parents=True)
    for name in ("__init__.py", "redis.py", "s3_v2.py", "_hidden.py", "Upper.py", "nested/__init__.py"):
        (folder / name).write_text("")
    (folder / "broken.py").write_text("import nothing_of_this_name_is_installed\n")
    (folder / "notes.txt").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield "somestores"
    for name in [name for name in sys.modules if name.split(".")[0] == "somestores"]:
        del sys.modules[name]


def test_the_schemes_are_the_files_of_the_folder(package: str):
    assert registry.schemes(package) == ("broken", "redis", "s3_v2")


def test_a_module_is_imported_on_use_and_no_other(package: str):
    registry.schemes(package)
    assert not [name for name in sys.modules if name.startswith("somestores.")]
    assert registry.load(package, "redis").__name__ == "somestores.redis"
    assert [name for name in sys.modules if name.startswith("somestores.")] == ["somestores.redis"]


@pytest.mark.parametrize(
    "scheme",
    [
        "", "nothing", "_hidden", "Upper", "nested", "notes", "../redis", "redis.py", "os", "redis:x",
        "redis\n", "hunter2@h",
    ],
)  # fmt: skip
def test_what_has_no_file_of_its_own_is_refused_with_the_schemes_there_are(package: str, scheme: str):
    with pytest.raises(LookupError) as caught:
        registry.load(package, scheme)
    assert str(caught.value) == "no such scheme; there are: broken, redis, s3_v2"


def test_an_empty_folder_says_that_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "emptystores").mkdir()
    (tmp_path / "emptystores" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(LookupError, match="there are: none"):
        registry.load("emptystores", "redis")
    del sys.modules["emptystores"]


def test_a_module_that_misses_something_says_what(package: str):
    with pytest.raises(ImportError, match="nothing_of_this_name_is_installed"):
        registry.load(package, "broken")
