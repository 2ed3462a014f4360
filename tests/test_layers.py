"""Who may import whom, and what is not imported until it is used."""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.support.project import ROOT

SIDE = ROOT / "pytest_mlms"

# What is further down may not import what is further up; modules of one line may import each other.
LAYERS = [
    ["plugin", "__main__"],
    ["items", "cli", "hookspecs", "report.reporter", "report.outcome"],
    ["distribute", "upgrade.cross_host"],
    ["resources"],
    ["report"],
    ["upgrade", "host", "session", "config", "recorder", "item_result", "trace", "structure", "evaluate", "agent"],
    ["cases"],
    ["pipeline"],
    ["artifacts"],
    ["stacks"],
    ["manifest"],
    ["records", "statistics", "units", "files", "serialization"],
    ["errors"],
]


def layer_of(module: str) -> int:
    """Return the number of the layer that has the module, or else its package."""
    name = module
    while name:
        for number, names in enumerate(LAYERS):
            if name in names:
                return number
        name = name.rpartition(".")[0]
    raise AssertionError(f"{module} has no place in LAYERS; find one")


def imports_of(path: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pytest_mlms"):
            module = (node.module or "").removeprefix("pytest_mlms").lstrip(".")
            found |= (
                {module}
                if module
                else {alias.name for alias in node.names if (SIDE / f"{alias.name}.py").exists()}
            )
    return found


def test_imports_go_down_only() -> None:
    for path in sorted(SIDE.rglob("*.py")):
        module = ".".join(path.relative_to(SIDE).with_suffix("").parts).removesuffix(".__init__")
        if module == "__init__":
            continue
        for imported in imports_of(path.read_text()):
            assert layer_of(imported) >= layer_of(module), f"{module} imports {imported}"


def test_nothing_imports_the_plugin() -> None:
    for path in sorted(SIDE.rglob("*.py")):
        assert "plugin" not in imports_of(path.read_text()), path


def test_the_plugin_imports_nothing_heavy_until_it_is_used() -> None:
    code = "import sys, pytest; before = set(sys.modules); import pytest_mlms.plugin; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "numpy",
        "scipy",
        "pydantic",
        "yaml",
        "PIL",
        "pooch",
        "requests",
        "psutil",
        "filelock",
        "archspec",
        "packaging",
    }
    assert not heavy & {name.partition(".")[0] for name in done.stdout.split()}
