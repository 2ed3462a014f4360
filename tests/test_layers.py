"""Directions of imports between packages, and imports that are deferred until they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.project import ROOT

SIDE = ROOT / "pytest_mlms"

# A module may import what is on its own line or further down, and nothing from further up.
LAYERS = [
    ["plugin", "__main__"],
    ["items", "hookspecs"],
    ["cli"],
    ["distribute"],
    ["resources"],
    ["report"],
    ["upgrade"],
    ["host"],
    ["session", "config", "options", "recorder", "item_result", "single_entry_cache"],
    ["own_quantities"],
    ["trace"],
    ["structure"],
    ["evaluate"],
    ["agent"],
    ["cases"],
    ["pipeline"],
    ["artifacts"],
    ["stacks"],
    ["manifest"],
    ["memory"],
    ["records", "statistics", "units", "errors", "files", "arrays", "serialization", "quantities"],
    ["waits"],
    ["redaction", "text", "cgroups"],
]

HEAVY = {
    "PIL",
    "archspec",
    "filelock",
    "numpy",
    "packaging",
    "pooch",
    "psutil",
    "pydantic",
    "requests",
    "scipy",
    "yaml",
}

PRINT_IMPORTED = """
import sys, pytest
before = set(sys.modules)
import pytest_mlms.plugin
print(*sorted(set(sys.modules) - before))
"""


def modules() -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each module, and the modules of ours that it imports."""
    for path in sorted(SIDE.rglob("*.py")):
        parts = path.relative_to(SIDE).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, imports_of(path)


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= imported_by(node)
    return found


def imported_by(statement: ast.ImportFrom) -> set[str]:
    source = statement.module or ""
    if source == "pytest_mlms":
        names = {alias.name for alias in statement.names}
        return {name for name in names if (SIDE / f"{name}.py").exists()}
    if source.startswith("pytest_mlms."):
        return {source.removeprefix("pytest_mlms.")}
    return set()


def layer_of(module: str) -> int:
    """Return the number of the layer that has the module, or else its package."""
    name = module
    while name:
        for number, names in enumerate(LAYERS):
            if name in names:
                return number
        name = name.rpartition(".")[0]
    raise AssertionError(f"{module} has no place in LAYERS; find one")


def test_imports_go_down_only() -> None:
    for module, imports in modules():
        for imported in imports:
            assert layer_of(imported) >= layer_of(module), f"{module} imports {imported}"


def test_nothing_imports_the_plugin() -> None:
    for module, imports in modules():
        assert "plugin" not in imports, module


def test_the_plugin_imports_nothing_heavy_until_it_is_used() -> None:
    command = [sys.executable, "-c", PRINT_IMPORTED]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in done.stdout.split()}
    assert not HEAVY & imported
