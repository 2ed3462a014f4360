"""Directions of imports between packages, and imports that are deferred until they are used."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

from tests.support.project import DIGITS, ROOT

SIDE = ROOT / "pytest_mlms"

STOREYS = [
    ["plugin", "__main__", "api", "tasks"],
    ["items"],
    ["cli"],
    ["resources"],
    ["distribute"],
    ["show"],
    ["explain"],
    ["evaluation"],
    ["keep"],
    ["decide"],
    ["predict"],
    ["session"],
    ["config"],
    ["project"],
    ["options"],
    ["author"],
    ["measure"],
    ["provide"],
    ["manifest"],
    ["core", "hookspecs", "warning_types"],
]
"""The storeys from the top down: a module imports nothing from a storey above its own."""

FLOORS = [
    ["show.portal"],
    ["show.report"],
    ["show.pages"],
    ["explain.reduce"],
    ["explain.repro"],
    ["explain.bisect"],
    ["keep.lockfile"],
    ["keep.history"],
    ["keep.results"],
    ["decide.advice", "decide.upgrade"],
    ["decide.expected"],
    ["author.loading"],
    ["author.legacy"],
    ["author.draft"],
    ["author.doctor"],
    ["measure.trace"],
    ["measure.structure"],
    ["measure.evaluate"],
    ["measure.load"],
    ["measure.agent"],
    ["measure.pipeline"],
    ["provide.host"],
    ["provide.cases"],
    ["provide.stacks"],
    ["provide.artifacts"],
    ["core.portal_address", "core.memory", "core.child_session"],
    ["core.tasks", "core.recorded"],
    ["core.quantities", "core.statistics"],
    ["core.records", "core.token_times"],
    ["core.extras"],
    ["core.errors", "core.files", "core.serialization", "core.units"],
    ["core.waits", "core.starts", "core.lifeline", "core.settings", "core.arrays"],
    ["core.text"],
]
"""The packages of each storey from the top down, and modules that are beside them."""

HEAVY = {
    "PIL",
    "archspec",
    "fastapi",
    "filelock",
    "jinja2",
    "numpy",
    "packaging",
    "pooch",
    "psutil",
    "pydantic",
    "requests",
    "scipy",
    "sqlalchemy",
    "yaml",
}


IDLE = {
    "pytest_mlms",
    "pytest_mlms.config",
    "pytest_mlms.core",
    "pytest_mlms.core.errors",
    "pytest_mlms.core.settings",
    "pytest_mlms.session",
    "pytest_mlms.hookspecs",
    "pytest_mlms.items",
    "pytest_mlms.items.fixtures",
    "pytest_mlms.options",
    "pytest_mlms.plugin",
    "pytest_mlms.resources",
    "pytest_mlms.show",
    "pytest_mlms.show.report",
    "pytest_mlms.show.report.reporter",
}
"""Modules that every run of pytest imports with the plugin; a module more is time for all."""

COLLECTING = {"packaging", "pydantic", "yaml"}
"""The heavy modules that read manifests."""

RUN_AND_PRINT_IMPORTED = """
import sys, pytest
pytest.main(sys.argv[1:])
print("imported:", *sorted(sys.modules))
"""


def modules() -> Iterator[tuple[str, set[str]]]:
    """Yield the name of each module, and the modules of ours that it imports."""
    for path in sorted(SIDE.rglob("*.py")):
        parts = path.relative_to(SIDE).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if name != "__init__":
            yield name, imports_of(path)


def imports_of(path: Path) -> set[str]:
    return imported_by(ast.parse(path.read_text()))


def imported_by(tree: ast.AST) -> set[str]:
    """Return the modules of ours that statements import, and the names from these."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    ours = "pytest_mlms."
    return {name.removeprefix(ours) for name in found if name.startswith(ours)}


def place_in(floors: list[list[str]], module: str) -> int | None:
    """Return the number of the floor that has the module, or else its package."""
    name = module
    while name:
        for number, names in enumerate(floors):
            if name in names:
                return number
        name = name.rpartition(".")[0]
    return None


def upward(floors: list[list[str]], module: str, imports: set[str]) -> list[str]:
    """Return what a module imports from a floor above its own."""
    own = place_in(floors, module)
    if own is None:
        return []
    places = {imported: place_in(floors, imported) for imported in imports}
    return [name for name, place in places.items() if place is not None and place < own]


def test_every_module_is_in_a_storey() -> None:
    for module, _ in modules():
        assert place_in(STOREYS, module) is not None, f"{module} has no place in STOREYS; find one"


def test_every_package_of_a_storey_has_a_floor() -> None:
    for module, _ in modules():
        if "." in module and module.split(".")[0] in {floor[0].split(".")[0] for floor in FLOORS}:
            assert place_in(FLOORS, module) is not None, f"{module} has no place in FLOORS"


def test_imports_go_down_only() -> None:
    for module, imports in modules():
        assert not upward(STOREYS, module, imports), module
        storey = module.split(".")[0]
        beside = {imported for imported in imports if imported.split(".")[0] == storey}
        assert not upward(FLOORS, module, beside), module


def test_each_form_of_an_import_is_seen() -> None:
    forms = ["import pytest_mlms.items.suite", "from pytest_mlms.items import suite"]
    for text in (*forms, "from pytest_mlms import items"):
        assert upward(STOREYS, "core.files", imported_by(ast.parse(text))), text
    beside = imported_by(ast.parse("from pytest_mlms.show import portal"))
    assert upward(FLOORS, "show.pages.item", beside) == ["show.portal"]


def test_nothing_imports_the_plugin() -> None:
    for module, imports in modules():
        assert "plugin" not in {name.split(".")[0] for name in imports}, module


def imported_by_a_run(folder: Path, *arguments: str) -> set[str]:
    """Return the modules that a run of pytest without other plugins has imported at its end."""
    others = [f"-pno:{name}" for name in plugin_names() if name != "mlms"]
    command = [sys.executable, "-c", RUN_AND_PRINT_IMPORTED, *others, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].removeprefix("imported: ").split())


def plugin_names() -> set[str]:
    return {plugin.name for plugin in entry_points(group="pytest11")}


def test_a_run_without_manifests_imports_the_plugin_alone(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own(): pass")
    imported = imported_by_a_run(tmp_path) - imported_by_a_run(tmp_path, "-pno:mlms")
    packages = {name.partition(".")[0] for name in imported}
    assert packages - sys.stdlib_module_names == {"pytest_mlms"}
    assert {name for name in imported if name.startswith("pytest_mlms")} <= IDLE


def test_collection_imports_nothing_heavy_but_what_reads_manifests(tmp_path: Path) -> None:
    options = ("--collect-only", "-q", f"--mlms-manifests={DIGITS}")
    imported = imported_by_a_run(tmp_path, *options)
    heavy = HEAVY & {name.partition(".")[0] for name in imported}
    assert "pytest_mlms.items.suite" in imported
    assert not [name for name in imported if name.startswith("pytest_mlms.author.legacy")]
    assert heavy <= COLLECTING


REWRITTEN = """
import sys
from _pytest.assertion.rewrite import AssertionRewritingHook as Hook

def pytest_sessionfinish(session):
    loaders = {name: module.__spec__.loader for name, module in sys.modules.items()
               if name.startswith(("pytest_mlms.", "mlms_predictors"))}
    print("rewritten:", [name for name in loaders if isinstance(loaders[name], Hook)], len(loaders))
"""


def test_pytest_rewrites_no_asserts_of_ours(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(REWRITTEN)
    command = [sys.executable, "-m", "pytest", "-sq", "--collect-only"]
    command.append(f"--mlms-manifests={DIGITS}")
    env = {**os.environ, "PYTHONPATH": str(SIDE.parent)}  # where pytest finds it as if installed
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    (line,) = [line for line in done.stdout.splitlines() if "rewritten:" in line]
    rewritten, count = line.removeprefix("rewritten: ").rsplit(" ", 1)
    assert rewritten in ("[]", "['pytest_mlms.plugin']")
    assert int(count) > 50


def test_a_later_session_of_a_process_does_not_warn_that_we_are_imported(tmp_path: Path) -> None:
    installed = tmp_path / "whole-1.dist-info"  # a wheel of ours, as pytest sees it
    installed.mkdir()
    (installed / "METADATA").write_text("Name: whole\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[pytest11]\nwhole = json\n")
    (installed / "RECORD").write_text("pytest_mlms/__init__.py,,\nmlms_predictors/__init__.py,,\n")
    (tmp_path / "test_it.py").write_text("def test_it(): pass\n")
    run = "pytest.main(['-qWerror', '-pno:cacheprovider', 'test_it.py'])"
    code = f"import pytest; {run}; import mlms_predictors; print('==', int({run}))"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert "== 0" in done.stdout, done.stdout + done.stderr


WITHOUT_EXTRAS = """
import importlib, pkgutil, sys
import pytest_mlms.cli, pytest_mlms.items
sys.modules |= dict.fromkeys({extras}, None)
for package in (pytest_mlms.cli, pytest_mlms.items):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
"""
EXTRAS = ["onnx", "google.protobuf", "sqlalchemy", "jinja2", "markupsafe", "starlette", "grpc"]


def test_commands_and_items_are_imported_without_any_extra() -> None:
    code = WITHOUT_EXTRAS.format(extras=EXTRAS)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
