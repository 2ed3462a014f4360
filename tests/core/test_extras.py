"""Advice on imports of extras that are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_mlms.core.errors import EXTRAS, missing_extra

_IMPORTS = """
import importlib, pkgutil, sys
room, *extras = sys.argv[1:]
for name in extras:
    sys.modules[name] = None
package = importlib.import_module(room)
for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
    importlib.import_module(module.name)
"""


def test_the_extra_of_a_package_and_of_its_modules_is_named() -> None:
    for name in ("sqlalchemy", "sqlalchemy.exc"):
        error = ModuleNotFoundError("No module", name=name)
        assert missing_extra(error) == "this needs sqlalchemy: pip install 'pytest-mlms[history]'"


def test_other_imports_are_of_no_extra() -> None:
    assert missing_extra(ModuleNotFoundError("No module", name="mine")) is None
    assert missing_extra(ImportError("cannot import name")) is None


@pytest.mark.parametrize(
    "room",
    [
        "cli",
        "decide.upgrade",
        "explain.bisect",
        "explain.repro",
        "measure.agent",
        "measure.evaluate",
        "measure.load",
    ],
)
def test_a_room_that_has_no_extra_is_imported_without_any(room: str) -> None:
    command = [sys.executable, "-c", _IMPORTS, f"pytest_mlms.{room}", *EXTRAS]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
