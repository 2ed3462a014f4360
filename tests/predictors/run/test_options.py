"""Options of predictors: names, patterns and types, read without a framework."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlms_predictors
import pytest
from mlms_predictors._run.options import TYPES, options_of, problem_of

KNOWN = {
    "mode": ("fast", "exact"),
    "on": "bool",
    "count": "int",
    "share": "float",
    "config.*": "any",
}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("mode", "fast", ""),
        ("mode", "slow", "mode is 'slow'; write one of fast, exact"),
        ("on", False, ""),
        ("on", "false", "on is 'false'; write true or false"),
        ("on", 0, "on is 0; write true or false"),
        ("count", True, "count is True; write a whole number"),
        ("count", 1.5, "count is 1.5; write a whole number"),
        ("share", 1, ""),
        ("config.session.x", "1", ""),
        ("config", 1, "no option 'config'; this predictor knows mode, on, count, share, config.*"),
    ],
)
def test_an_option_is_checked_by_name_and_type(name: str, value: Any, problem: str) -> None:
    assert problem_of(name, value, KNOWN) == problem


def test_every_predictor_declares_its_options_by_literals() -> None:
    folder = Path(str(mlms_predictors.__file__)).parent
    files = [file for file in folder.glob("*.py") if not file.name.startswith("_")]
    assert len(files) > 10
    for file in files:
        declared = options_of(file)
        assert declared is not None, file
        for kind in declared.values():
            assert isinstance(kind, tuple) or kind in TYPES, (file, kind)


def test_a_file_without_options_or_with_broken_ones_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    for text in ("x = 1", "OPTIONS = {'a': f()}", "OPTIONS = ('a',)", "def"):
        file.write_text(text)
        assert options_of(file) is None
