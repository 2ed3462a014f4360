"""A case of an upgrade, and the options that it reads."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from pytest_mlms.config import Config
from pytest_mlms.core.records import Stack
from pytest_mlms.manifest import load
from pytest_mlms.provide.cases import Case
from tests.support.project import copy_digits

OLD = Stack("old", "onnxruntime", interpreter="current")
NEW = Stack("new", "onnxruntime", interpreter="current")


def options(**fields: Any) -> Config:
    """Return options of an upgrade."""
    defaults = {
        "root": Path.cwd(),
        "tolerance": None,
        "gate": (),
        "clock": None,
        "outputs": None,
        "rounds": None,
        "full": False,
        "duration": 1.0,
        "budget": 60.0,
        "seed": None,
        "predictors": (),
        "cache": None,
        "allow_code": False,
        "env_passthrough": (),
    }
    return cast(Config, SimpleNamespace(**{**defaults, **fields}))


def case_of(folder: Path, upgrade: str = "{}", old: Stack = OLD, new: Stack = NEW) -> Case:
    """Return an upgrade of the digits; ``upgrade`` are its thresholds."""
    path = copy_digits(folder / "digits")
    kept = path.read_text().partition("thresholds:")[0]
    path.write_text(f"{kept}thresholds:\n  upgrade: {upgrade}\n")
    loaded = load(path)
    model = loaded.manifest.models[0]
    return Case("upgrade", loaded, model, new, "cpu", 8, None, against=old, model_against=model)
