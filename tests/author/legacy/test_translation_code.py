"""Translation of dialect B with code that agents run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.author.legacy.records import Refused
from pytest_mlms.author.legacy.translated import Translation
from pytest_mlms.author.legacy.translation import translate
from pytest_mlms.manifest import yaml12
from tests.support.legacy_manifests import read_text, with_python

OWN = "def preprocess(ctx, data):\n    return 1\n"
OWN_POST = "def postprocess(ctx, data):\n    return 1\n"


def translated(folder: Path, *code: str) -> Translation:
    return translate(read_text(folder, with_python(*code)), allow_code=True)


def test_known_code_is_not_run(tmp_path: Path) -> None:
    found = translated(tmp_path, "torchvision", "softmax")
    assert found.code == ()
    assert found == translate(read_text(tmp_path, with_python("torchvision", "softmax")))


def test_unknown_code_makes_tensors_of_files(tmp_path: Path) -> None:
    found = translated(tmp_path, OWN, "softmax")
    assert found.code == ("preprocess",)
    native = yaml12.parse(found.text).value
    (spec,) = native["inputs"]
    assert spec == {
        "name": "input",
        "position": 0,
        "type": "tensor",
        "element_type": "float32",
    }
    assert _step_names(native) == ["softmax", "top_k"]
    assert any("agents run" in note.text for note in found.notes)


def test_unknown_code_scores_a_classification(tmp_path: Path) -> None:
    found = translated(tmp_path, "torchvision", OWN_POST)
    assert found.code == ("postprocess",)
    assert found.has_accuracy
    native = yaml12.parse(found.text).value
    assert native["task"] == "image-classification"
    assert _step_names(native) == ["top_k"]


def test_other_tasks_with_unknown_code_are_only_timed(tmp_path: Path) -> None:
    for code in (("torchvision", OWN_POST, "boundingboxes"), (OWN, "objects")):
        found = translated(tmp_path, *code)
        assert not found.has_accuracy
        assert any("only speed is measured" in note.text for note in found.notes)


def test_missing_code_is_refused(tmp_path: Path) -> None:
    text = with_python(OWN, "softmax").partition("postprocess:")[0]
    with pytest.raises(Refused, match="postprocess is missing"):
        translate(read_text(tmp_path, text), allow_code=True)


def test_unknown_code_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="unknown form.*--mlms-allow-code"):
        translate(read_text(tmp_path, with_python(OWN, "softmax")))


def _step_names(native: Any) -> list[str]:
    """Return the names of the steps of the first output."""
    steps = native["outputs"][0]["steps"]
    return [step if isinstance(step, str) else next(iter(step)) for step in steps]
