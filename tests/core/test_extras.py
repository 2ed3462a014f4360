"""Advice on imports of extras that are not installed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from pytest_mlms.core.extras import EXTRAS, install, missing_extra
from tests.support.project import ROOT, sources

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
        assert missing_extra(error) == "this needs sqlalchemy: pip install 'sqlalchemy>=2.0.30'"


EXTRAS_MODULE = import_module("pytest_mlms.core.extras")
BARE_NAME = re.compile(
    r"(?<![\w./])pytest[-_]mlms\[|pip install [^`\n]*(?<![\w./])pytest[-_]mlms(?![\w./-])"
)
"""Our name where pip takes it from an index: there it may be a stranger's package."""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    install.cache_clear()
    yield
    install.cache_clear()


def test_only_the_packages_that_lack_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = {"sqlalchemy": "2.1", "fastapi": "0.1", "jinja2": "3.2", "h11": "0.16"}

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(EXTRAS_MODULE, "version", version)
    line = "pip install 'fastapi>=0.133' 'starlette>=1.3.1' 'uvicorn>=0.30'"
    assert install("portal") == line
    assert install("postgresql", "more") == "pip install 'psycopg[binary]>=3.3.5' more"


def test_a_tree_that_was_never_installed_names_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(EXTRAS_MODULE, "requires", requires)
    assert install("report") == "pip install 'PATH_OF_THE_CLONE[report]'"


@pytest.mark.parametrize("text", ["pip install 'pytest-mlms[gpu]'", "pip install -U pytest-mlms"])
def test_our_bare_name_is_recognised(text: str) -> None:
    assert BARE_NAME.search(text)


def test_no_page_and_no_message_has_pip_look_for_our_name_on_an_index() -> None:
    paths = sources("ci", "docs", "manifests", "predictors", "pytest_mlms")
    paths += [*ROOT.glob("*.md")]
    texts = [path for path in paths if path.suffix in {".html", ".md", ".py", ".sh", ".yaml"}]
    assert len(texts) > 400
    found = [str(path) for path in texts if BARE_NAME.search(path.read_text())]
    assert not found


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
