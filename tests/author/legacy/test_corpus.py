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

from pytest_mlms.author.legacy.importing import Imported, find_originals, import_original
from pytest_mlms.author.loading import load_manifest
from pytest_mlms.cli.main import main
from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest import load
from pytest_mlms.measure.agent.registry import find_predictors

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
    "image classification": {
        "TensorFlow": 151,
        "MXNet": 182,
        "PyTorch": 90,
        "Caffe": 31,
        "Caffe2": 39,
        "CNTK": 34,
        "TensorRT": 29,
        "ONNX Runtime": 52,
    },
    "object detection": {
        "TensorFlow": 40,
        "MXNet": 20,
        "PyTorch": 4,
        "Caffe": 3,
        "ONNX Runtime": 7,
    },
    "semantic segmentation": {
        "TensorFlow": 12,
        "PyTorch": 4,
        "Caffe": 2,
        "TensorRT": 2,
        "ONNX Runtime": 2,
    },
    "instance segmentation": {"TensorFlow": 12, "ONNX Runtime": 1},
    "image enhancement": {"TensorFlow": 2, "PyTorch": 2, "Caffe2": 1, "ONNX Runtime": 1},
    "question answering": {"PyTorch": 2, "ONNX Runtime": 1},
    "other": {"TensorFlow": 2, "ONNX Runtime": 1},
}
"""Modality -> the number of the 729, by framework."""


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
    found = Counter((one.modality, one.framework) for one in originals.values())
    expected: dict[tuple[str, str], int] = {}
    for modality, frameworks in COUNTS.items():
        expected |= {(modality, name): count for name, count in frameworks.items()}
    assert found == expected


def test_no_other_manifest_is_refused_but_unclear_ones(imported: dict[str, Imported]) -> None:
    kinds = refused(imported, revised=False)
    assert {path for path, kind in kinds.items() if kind != "no model file"} == UNCLEAR
    assert len(refused(imported, revised=True)) == 4


@pytest.mark.filterwarnings("ignore:no datasets.yaml")
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


def test_an_original_loads_as_it_is_if_it_can_be_imported(imported: dict[str, Imported]) -> None:
    frameworks = find_predictors()
    for name, outcome in imported.items():
        path = Path(CORPUS, name)
        if outcome.kind:
            with pytest.raises(ManifestError) as refused:
                load_manifest(path, frameworks)
            assert str(refused.value) == outcome.problem
            continue
        loaded = load_manifest(path, frameworks)
        assert loaded.origin is not None
        last = path.read_bytes().count(b"\n") + 1
        for remark in (*loaded.origin.decisions, *loaded.origin.warnings):
            line = int(remark.place.rpartition(":")[2])
            assert 1 <= line <= last


def test_all_code_of_the_corpus_is_known(imported: dict[str, Imported]) -> None:
    for name, outcome in imported.items():
        if not outcome.kind:
            loaded = load_manifest(Path(CORPUS, name), allow_code=True)
            assert loaded.origin is not None
            assert loaded.origin.code == ()


def test_the_corpus_is_collected_as_it_is(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess(
        "--collect-only",
        "-q",
        f"--mlms-manifests={CORPUS}",
        "--continue-on-collection-errors",
    )
    result.stdout.fnmatch_lines(["*no limit judges what is measured of 1,007 original manifests*"])
    result.stdout.re_match_lines([r"1007 tests collected, 15 errors .*"])
