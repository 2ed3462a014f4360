"""A real detector on pictures with faces at known places, with right and with wrong steps.

The model is NudeNet's 320n, a YOLOv8n. Its licence is the AGPL: it is downloaded, not shipped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_mlms.core.errors import ArtifactError
from pytest_mlms.core.records import Artifact, Limit, Place, Verdict
from pytest_mlms.decide.upgrade.paired_evidence import compare_evidence
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.limits import decide
from pytest_mlms.measure.evaluate.scoring import estimate_evidence
from pytest_mlms.measure.evaluate.tasks.object_detection import ObjectDetection
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.pipeline.dataset import open_dataset
from pytest_mlms.provide.artifacts.fetch import fetch
from tests.support.composed_faces import compose_faces

pytestmark = pytest.mark.slow

HERE = Place(Path("m.yaml"), 1)
PICTURES = 24
LEAST_AP = 0.53
MODEL = "pypi:nudenet==3.4.2#nudenet/320n.onnx"
SHA256 = "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f"
CLASSES = {"classes": {"names": [None, "face", *[None] * 16]}}
LETTERBOX = [
    {"resize": {"size": [320, 320], "fit": "contain", "library": "opencv"}},
    {"pad": {"size": [320, 320], "align": "top_left"}},
]
STRETCHED = [{"resize": {"size": [320, 320], "library": "opencv"}}]
CROPPED = [
    {"resize": {"size": [320, 320], "fit": "cover", "library": "opencv"}},
    {"crop": {"size": [320, 320]}},
]


class Steps(NamedTuple):
    """Steps of the input and the output; the defaults are the right ones."""

    resize: list[Any] = LETTERBOX
    scale: float = 255
    yolo: Any = {}  # noqa: RUF012 - nothing changes it
    iou: float = 0.45


WRONG = {
    "no letterbox": Steps(resize=STRETCHED),
    "the centre alone": Steps(resize=CROPPED),
    "pixels of 0 to 255": Steps(scale=1),
    "relative boxes": Steps(yolo={"units": "relative"}),
    "no suppression": Steps(iou=1),
}

Detect = Callable[[str], Evidence]
"""From the name of wrong steps, or of any others, to the evidence with them."""


@pytest.fixture(scope="module")
def detect(tmp_path_factory: pytest.TempPathFactory) -> Detect:
    """The detector and its pictures."""
    pytest.importorskip("skimage")
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("detector")
    try:
        model = fetch(Artifact(MODEL, SHA256, HERE), folder / "cache")
    except ArtifactError as error:
        pytest.skip(str(error))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options)
    faces = folder / "faces"
    compose_faces(faces, PICTURES)

    def evidence_of(steps: Steps) -> Evidence:
        spec = input_of(steps)
        dataset = open_dataset(faces, [spec], HERE, labels="boxes")
        scorer = ObjectDetection().scorer([output_of(steps)], dataset)
        for index in range(len(dataset)):
            (rows,) = session.run(None, dataset.batch([index]))
            scorer.add({"output0": rows}, range(index, index + 1))
        return scorer.evidence()

    return cache(lambda name: evidence_of(WRONG.get(name, Steps())))


def input_of(steps: Steps) -> Input:
    fields = {"name": "images", "type": "image", "layout": "NCHW", "element_type": "float32"}
    normalize = {"normalize": {"scale": steps.scale}}
    return Input.model_validate({**fields, "steps": ["decode", *steps.resize, normalize]})


def output_of(steps: Steps) -> Output:
    found = [{"yolo": steps.yolo}, {"min_score": {"score": 0.05}}, {"nms": {"iou": steps.iou}}]
    return Output.model_validate({"name": "output0", "type": "boxes", "steps": [*found, CLASSES]})


def verdict_of(evidence: Evidence) -> Verdict:
    return decide(Limit("ap", LEAST_AP, HERE), estimate_evidence(evidence, seed=0)["ap"])


def test_the_right_steps_are_within_the_limit(detect: Detect) -> None:
    assert verdict_of(detect("right")) is Verdict.PASSED
    assert estimate_evidence(detect("right"), seed=0)["ap50"].value > 0.95


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_breaks_the_limit(detect: Detect, name: str) -> None:
    assert verdict_of(detect(name)) is Verdict.FAILED


def test_an_upgrade_that_changes_predictions_is_regressed(detect: Detect) -> None:
    compared = compare_evidence(detect("right"), detect("no letterbox"), {}, seed=0)
    verdicts = {comparison.quantity: comparison.verdict for comparison in compared}
    assert verdicts["ap"] is Verdict.REGRESSED
    assert verdicts["ap50"] is not Verdict.REGRESSED
    same = compare_evidence(detect("right"), detect("right"), {"ap": 0.15}, seed=0)
    assert {comparison.quantity: comparison.verdict for comparison in same}["ap"] is Verdict.PASSED
