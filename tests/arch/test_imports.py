"""Who may import what, read from the source: the allow-lists that import-linter cannot express."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
AIRLOCK = SRC / "airlock"
MODULES = sorted(AIRLOCK.rglob("*.py"))

# What a pure module may not know of: files, sockets, clocks, chance, processes, the environment, logs.
IMPURE = frozenset({
    "asyncio", "ctypes", "fcntl", "glob", "http", "importlib", "io", "logging", "mmap", "multiprocessing",
    "os", "pathlib", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3",
    "ssl", "subprocess", "tempfile", "threading", "time", "urllib",
})  # fmt: skip
# What the core may import beyond the standard library, and below which folder; core.wire nothing at all.
CORE_THIRD_PARTY = {"msgspec": "", "re2": "", "cryptography": "core/sign/", "ahocorasick_rs": "core/redact/"}
OPTIONAL = frozenset({"re2", "ahocorasick_rs"})
# Forwarding has a client of its own (docs/adr/0004); these bring redirects and proxy variables with them.
OTHER_CLIENTS = frozenset({"aiohttp", "httpcore", "httpx", "httpx2", "requests", "urllib3"})


def name(path: Path) -> str:
    return path.relative_to(AIRLOCK).as_posix()


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(tree: ast.AST) -> Iterator[tuple[str, ast.stmt]]:
    """Every imported module by its full name, also those inside functions and `if TYPE_CHECKING`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            assert node.module is not None
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node


def guarded(tree: ast.AST) -> set[ast.AST]:
    """Nodes in the body of a `try` that catches ImportError."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Try)
        and any(
            handler.type is not None and "ImportError" in ast.unparse(handler.type)
            for handler in node.handlers
        )
        for statement in node.body
        for inner in ast.walk(statement)
    }


def core_faults(place: str, tree: ast.AST) -> list[str]:
    """What a module of the core imports and may not."""
    faults = []
    safe = guarded(tree)
    for module, node in imports(tree):
        top = module.partition(".")[0]
        if top == "airlock":
            allowed = module.startswith("airlock.core.")
        elif top in sys.stdlib_module_names:
            allowed = top not in IMPURE
        else:
            folder = CORE_THIRD_PARTY.get(top)
            allowed = folder is not None and place.startswith(folder) and not place.startswith("core/wire/")
            allowed = allowed and (top not in OPTIONAL or node in safe)
        if not allowed:
            faults.append(f"{place}:{node.lineno} imports {module}")
    return faults


def test_the_core_imports_nothing_that_touches_the_world():
    core = [path for path in MODULES if name(path).startswith("core/")]
    assert [fault for path in core for fault in core_faults(name(path), parse(path))] == []


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/a.py", "import os"),
        ("core/a.py", "from time import time"),
        ("core/a.py", "def f():\n    import socket"),
        ("core/a.py", "from airlock.edge import clock"),
        ("core/a.py", "import yaml"),
        ("core/a.py", "import re2"),
        ("core/wire/a.py", "import msgspec"),
        ("core/a.py", "import cryptography"),
        ("core/policy/a.py", "try:\n    import ahocorasick_rs\nexcept ImportError: ..."),
        ("core/a.py", "try:\n    import re2\nexcept ValueError: ..."),
    ],
)
def test_the_check_of_the_core_finds(place: str, source: str):
    assert len(core_faults(place, ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("core/a.py", "import json\nimport msgspec\nfrom airlock.core.rules import Rule"),
        ("core/policy/a.py", "try:\n    import re2\nexcept ImportError: ..."),
        ("core/redact/a.py", "try:\n    import ahocorasick_rs\nexcept ImportError: ..."),
        ("core/sign/a.py", "from cryptography.hazmat.primitives import serialization"),
    ],
)
def test_the_check_of_the_core_lets_pass(place: str, source: str):
    assert core_faults(place, ast.parse(source)) == []


def test_the_core_opens_nothing_and_asks_no_clock():
    faults = []
    for path in MODULES:
        if not name(path).startswith("core/"):
            continue
        tree = parse(path)
        own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in {"open", "input", "eval", "exec", "__import__"} - own or called.endswith(
                    ("datetime.now", "datetime.utcnow", "datetime.today", "date.today")
                ):
                    faults.append(f"{name(path)}:{node.lineno} calls {called}")
    assert faults == []


def test_the_edge_knows_no_product():
    faults = [
        f"{name(path)} imports {module}"
        for path in MODULES
        if name(path).startswith("edge/")
        for module, _ in imports(parse(path))
        if module.partition(".")[0] == "airlock" and not module.startswith(("airlock.core.", "airlock.edge."))
    ]
    assert faults == []


def test_nothing_uses_another_http_client():
    faults = [
        f"{name(path)} imports {module}"
        for path in MODULES
        for module, _ in imports(parse(path))
        if module.partition(".")[0] in OTHER_CLIENTS or module.startswith(("http.client", "urllib.request"))
    ]
    assert faults == []


def environment_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Where a module looks at the process environment: (line, the whole expression around it)."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    words = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in words and ast.unparse(node.value) == "os":
            around: ast.AST = node
            while isinstance(parents.get(around), ast.Attribute | ast.Call | ast.Subscript | ast.Compare):
                around = parents[around]
            yield node.lineno, ast.unparse(around)
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            for alias in node.names:
                if alias.name in words:
                    yield node.lineno, ast.unparse(node)


def test_only_the_settings_read_the_environment():
    faults = []
    for path in MODULES:
        if name(path) == "edge/settings.py":
            continue
        for line, text in environment_uses(parse(path)):
            # AIRLOCK_DEBUG is read before any settings exist: it decides how their errors are shown.
            if name(path) == "cli/compat.py" and "'AIRLOCK_DEBUG'" in text and text.count("'AIRLOCK_") == 1:
                continue
            faults.append(f"{name(path)}:{line}: {text}")
    assert faults == []


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['X']",
        "import os\nf(os.getenv('X'))",
        "from os import environ",
        "import os\ndict(os.environ)",
    ],
)
def test_the_check_of_the_environment_finds(source: str):
    assert len(list(environment_uses(ast.parse(source)))) == 1


def test_grants_are_made_in_one_module():
    faults = [
        f"{name(path)}:{node.lineno}"
        for path in MODULES
        if name(path) != "core/grant.py"
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Grant"
    ]
    assert faults == []
