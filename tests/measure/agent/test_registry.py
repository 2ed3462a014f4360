"""Tests of the registry of predictors."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from pytest_mlms.core.errors import Unavailable
from pytest_mlms.measure.agent import registry
from pytest_mlms.measure.agent.registry import find_predictors
from tests.support.project import ROOT


def announce(monkeypatch: pytest.MonkeyPatch, name: str, module: str) -> None:
    point = EntryPoint(name, module, "mlms_predictors")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])


def test_each_file_of_ours_is_a_predictor_unless_it_is_private() -> None:
    predictors = find_predictors()
    assert predictors["onnxruntime"] == ROOT / "predictors" / "onnxruntime.py"
    assert not [name for name in predictors if name.startswith("_")]


def test_no_framework_is_imported() -> None:
    before = set(sys.modules)
    find_predictors()
    assert not {"torch", "tensorflow", "mxnet"} & (set(sys.modules) - before)


def test_a_folder_replaces_a_predictor_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text("")
    (tmp_path / "_helper.py").write_text("")
    predictors = find_predictors([tmp_path])
    assert predictors["onnxruntime"] == tmp_path / "onnxruntime.py"
    assert "_helper" not in predictors


def test_an_installed_package_announces_a_predictor(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, "theirs", "json.decoder")
    assert find_predictors()["theirs"].name == "decoder.py"


def test_a_module_that_is_announced_but_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, "theirs", "a_module_that_nobody_has")
    with pytest.raises(Unavailable, match="'theirs' should be in module a_module_that_nobody_has"):
        find_predictors()
