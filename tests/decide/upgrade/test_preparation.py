"""Packages that prepare inputs, which no agent uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Stack
from pytest_mlms.decide.upgrade.preparation import told_changes
from pytest_mlms.provide.cases import Case
from pytest_mlms.provide.stacks.exact_packages import Difference
from tests.support.upgrade_case import case_of

PILLOW = Difference("pillow", "8.4.0", "12.0.0")
NUMPY = Difference("numpy", "2.4.6", "2.2.6")


@pytest.fixture
def predictor(tmp_path: Path) -> Path:
    path = tmp_path / "plain.py"
    path.write_text("import numpy\n")
    return path


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """An upgrade between stacks that ask for two releases of Pillow."""
    made = case_of(tmp_path)
    old = Stack("old", "plain", requirements=("plain", "Pillow==8.4.0"))
    new = replace(old, name="new", requirements=("plain", "pillow==12.0.0"))
    return replace(made, stack=new, against=old)


def test_stacks_that_differ_only_in_pillow_are_refused(case: Case, predictor: Path) -> None:
    message = "new and old differ only in what no agent uses: pillow 8.4.0 → 12.0.0; .*'preprocess: stack' under"
    with pytest.raises(MlmsError, match=message):
        told_changes(case, predictor, [PILLOW])


def test_what_no_stack_can_do_is_compared_by_two_runs(case: Case, predictor: Path) -> None:
    stacks = [
        replace(each, requirements=("librosa",)) for each in (case.stack, case.baseline.stack)
    ]
    sounds = replace(case, stack=stacks[0], against=stacks[1])
    with pytest.raises(MlmsError, match=r"librosa==0.10 installed beside it"):
        told_changes(sounds, predictor, [Difference("librosa", "0.10", "0.11")])


def test_stacks_that_decode_pictures_themselves_are_compared(case: Case, predictor: Path) -> None:
    manifest = case.loaded.manifest
    by_stack = manifest.evaluate.model_copy(update={"preprocess": "stack"})
    loaded = replace(case.loaded, manifest=manifest.model_copy(update={"evaluate": by_stack}))
    told = told_changes(replace(case, loaded=loaded), predictor, [PILLOW])
    assert told == ["pillow 8.4.0 → 12.0.0"]


def test_a_package_that_prepares_inputs_is_told_beside_others(case: Case, predictor: Path) -> None:
    numpy, pillow = told_changes(case, predictor, [NUMPY, PILLOW])
    assert numpy == "numpy 2.4.6 → 2.2.6"
    assert pillow.startswith("pillow 8.4.0 → 12.0.0 (not compared: ")


def test_what_a_predictor_imports_is_compared(case: Case, predictor: Path) -> None:
    predictor.write_text("from PIL import Image\n")
    assert told_changes(case, predictor, [PILLOW]) == ["pillow 8.4.0 → 12.0.0"]


def test_what_no_stack_asks_for_is_told_as_it_is(case: Case, predictor: Path) -> None:
    bare = replace(case.stack, requirements=("plain",))
    moved = replace(case, stack=bare, against=replace(bare, name="old"))
    assert told_changes(moved, predictor, [PILLOW]) == ["pillow 8.4.0 → 12.0.0"]
