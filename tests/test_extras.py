"""Advice on imports of extras that are not installed."""

from __future__ import annotations

from pytest_mlms.extras import missing_extra


def test_the_extra_of_a_package_and_of_its_modules_is_named() -> None:
    for name in ("sqlalchemy", "sqlalchemy.exc"):
        error = ModuleNotFoundError("No module", name=name)
        assert missing_extra(error) == "this needs sqlalchemy: pip install 'pytest-mlms[history]'"


def test_other_imports_are_of_no_extra() -> None:
    assert missing_extra(ModuleNotFoundError("No module", name="mine")) is None
    assert missing_extra(ImportError("cannot import name")) is None
