"""The models of the zoo, as far as that needs no network: bash ci/zoo runs them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from manifests.zoo.doctor import MISTAKES, break_manifest
from pytest_mlms.manifest.load import load
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.measure.agent.registry import find_predictors
from pytest_mlms.provide.artifacts.fetch import check_local
from tests.support.project import ROOT

ZOO = ROOT / "manifests"
MANIFESTS = sorted(ZOO.glob("*/*.yaml"))


@pytest.mark.parametrize("path", MANIFESTS, ids=[path.stem for path in MANIFESTS])
def test_a_manifest_of_the_zoo_is_right_and_ships_no_model(path: Path) -> None:
    loaded = load(path, find_predictors([ZOO / "zoo" / "predictors"]))
    assert list(check_local(loaded)) == []
    assert loaded.manifest.license
    if path.parent.name == "digits":  # small, and of our own
        return
    for model in loaded.manifest.models:
        assert all(is_remote(file.source) for file in loaded.model_files(model).values())


def test_the_table_of_the_zoo_has_each_manifest_once() -> None:
    table = (ZOO / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", table, re.MULTILINE)
    assert listed == [str(path.relative_to(ZOO)) for path in MANIFESTS]


def test_the_demo_needs_no_network() -> None:
    for path in (ZOO / "digits").glob("*.yaml"):
        assert "pypi:" not in path.read_text(encoding="utf-8")


def test_the_models_that_are_broken_for_the_doctor_are_as_it_expects(tmp_path: Path) -> None:
    for number, mistake in enumerate(MISTAKES):
        folder = tmp_path / str(number)
        folder.mkdir()
        broken = break_manifest(mistake, folder)
        assert load(broken).manifest.inputs != load(ZOO / mistake.manifest).manifest.inputs
