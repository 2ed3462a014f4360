"""The import of the original manifests, where they are: ``MLMS_LEGACY_CORPUS`` names the folder.

It has a folder OWNER+REPO for each repository at the commit that docs/legacy.md names. No file of
them is in this project.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from pytest_mlms.agent.registry import find_predictors
from pytest_mlms.cli.main import main
from pytest_mlms.legacy.importing import Imported, find_originals, import_original
from pytest_mlms.manifest import load

CORPUS = os.environ.get("MLMS_LEGACY_CORPUS", "")
REVISIONS = ("c3sr+caffe", "c3sr+mxnet", "c3sr+pytorch", "c3sr+tensorflow")

pytestmark = pytest.mark.skipif(
    not CORPUS, reason="MLMS_LEGACY_CORPUS names no folder with the original manifests"
)

WITHOUT_FILE = {
    "rai-project+mxnet/builtin_models_old/DCN.yml",
    "rai-project+mxnet/builtin_models_old/FCIS.yml",
    "rai-project+mxnet/builtin_models_old/dff.yml",
    "rai-project+mxnet/builtin_models_caffe/DenseNet-1.2.yml",
    "rai-project+mxnet/builtin_models_caffe/MobileNet-v2-1.0.yml",
    "rai-project+mxnet/builtin_models_caffe/ShuffleNet_v1.2_ONNX.yml",
    "rai-project+tensorflow/builtin_models_from_caffe/NIN.yml",
    "rai-project+cntk/builtin_models/Inception-ResNet-v2.yml",
}
"""The manifests of the 729 that name no model."""

UNCLEAR = {
    "c3sr+dlmodel/archive/onnxruntime/OnnxVision_Mask_RCNN_R_50_FPN.yml",
    "rai-project+tensorflow/builtin_models/SSD_VGG16.yml",
    "rai-project+caffe2/builtin_models/Style_Transfer_Caffe2.yml",
}
"""Code that returns nothing, boxes and scores in one output, and a picture of 640 channels."""

COUNTS = {
    "image classification": (608, "TensorFlow 151, MXNet 182, PyTorch 90, Caffe 31, Caffe2 39"),
    "object detection": (74, "TensorFlow 40, MXNet 20, PyTorch 4, Caffe 3"),
    "semantic segmentation": (22, "TensorFlow 12, PyTorch 4, Caffe 2, TensorRT 2"),
    "instance segmentation": (13, "TensorFlow 12, ONNX Runtime 1"),
    "image enhancement": (6, "TensorFlow 2, PyTorch 2, Caffe2 1, ONNX Runtime 1"),
    "question answering": (3, "PyTorch 2, ONNX Runtime 1"),
    "other": (3, "TensorFlow 2, ONNX Runtime 1"),
}
"""Modality -> the number of the 729, and of some frameworks."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Imported]:
    """Import the corpus; return the outcomes by the paths of the originals."""
    out = tmp_path_factory.mktemp("imported")
    frameworks = find_predictors()
    outcomes = {}
    for original in find_originals([Path(CORPUS)], out):
        outcome = import_original(original, (), frameworks)
        if outcome is not None:
            outcomes[str(original.path.relative_to(CORPUS))] = outcome
    return outcomes


def refused(outcomes: dict[str, Imported], revised: bool) -> dict[str, str]:
    """Return the reasons of refusals by path, of the 729 or of the 293 revisions."""
    return {
        path: outcome.kind
        for path, outcome in outcomes.items()
        if outcome.kind and path.startswith(REVISIONS) == revised
    }


def test_all_manifests_are_recognised(imported: dict[str, Imported]) -> None:
    revisions = sum(path.startswith(REVISIONS) for path in imported)
    assert (len(imported) - revisions, revisions) == (729, 293)


def test_manifests_without_a_model_are_refused_by_name(imported: dict[str, Imported]) -> None:
    kinds = refused(imported, revised=False)
    assert {path for path, kind in kinds.items() if kind == "no model file"} == WITHOUT_FILE


def test_modalities_are_counted_as_in_the_study(imported: dict[str, Imported]) -> None:
    originals = {path: one for path, one in imported.items() if not path.startswith(REVISIONS)}
    found = Counter(outcome.modality for outcome in originals.values())
    assert found == {modality: count for modality, (count, _) in COUNTS.items()}
    pairs = Counter((one.framework, one.modality) for one in originals.values())
    for modality, (_, frameworks) in COUNTS.items():
        for counted in frameworks.split(", "):
            framework, _, count = counted.rpartition(" ")
            assert pairs[framework, modality] == int(count), (framework, modality)


def test_no_other_manifest_is_refused_but_unclear_ones(imported: dict[str, Imported]) -> None:
    kinds = refused(imported, revised=False)
    assert {path for path, kind in kinds.items() if kind != "no model file"} == UNCLEAR
    assert len(refused(imported, revised=True)) == 4


def test_all_that_is_written_is_a_native_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    began = time.process_time()
    main(["import", CORPUS, "--out", str(tmp_path)])
    assert time.process_time() - began < 10
    printed = capsys.readouterr()
    written = sorted(tmp_path.rglob("*.yaml"))
    assert f"wrote {len(written)} of 1022 manifests" in printed.err
    for path in written:
        load(path)
