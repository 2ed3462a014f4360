"""Instance segmentation, from outputs and a COCO file to quantities."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.measure.evaluate.average_precision import (
    ObjectMatcher,
    coco_figures,
    joined_matches,
)
from pytest_mlms.measure.evaluate.tasks.instance_segmentation import InstanceSegmentation
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.measure.pipeline.masks import encode_mask, run_lengths_of
from pytest_mlms.measure.pipeline.objects import Detections, LabelledObjects
from tests.support.detections import SIZE, compose_images, figures_of_pycocotools

Array = np.ndarray[Any, Any]

HERE = Place(Path("m.yaml"), 30)
TRIANGLE = [[4, 4, 36, 4, 4, 30]]
INPUT = Input.model_validate(
    {
        "name": "x",
        "type": "image",
        "layout": "NHWC",
        "element_type": "float32",
        "steps": ["decode", {"resize": {"size": [64, 96]}}],
    }
)


def open_masks(folder: Path, segmentation: Any) -> Dataset:
    Image.new("RGB", (48, 32)).save(folder / "a.png")
    annotation = {"image_id": 1, "category_id": 1, "bbox": [4, 4, 32, 26], "area": 416}
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": 32, "width": 48}],
        "annotations": [{**annotation, "segmentation": segmentation}],
        "categories": [{"id": 1, "name": "thing"}],
    }
    (folder / "labels.json").write_text(json.dumps(content))
    return open_dataset(folder, [INPUT], HERE, labels="boxes")


def output(kind: str, *steps: Any) -> Output:
    return Output.model_validate({"name": kind, "type": kind, "steps": list(steps)})


def triangle(height: int, width: int) -> Array:
    """Return the triangle as a mask of the picture's area at this size."""
    y, x = np.mgrid[:height, :width]
    x = (x + 0.5) * 48 / width
    y = (y + 0.5) * 32 / height
    inside = (x > 4) & (y > 4) & ((x - 4) / 32 + (y - 4) / 26 < 1)
    return np.asarray(inside, np.float32)


def evidence_of(dataset: Dataset, masks: Array | None, *steps: Any) -> Evidence:
    outputs = [output("boxes"), output("scores")]
    row = {"boxes": np.array([[[8.0, 8, 72, 60]]]), "scores": np.array([[0.9]])}
    if masks is not None:
        outputs.append(output("masks", *steps))
        row["masks"] = masks
    scorer = InstanceSegmentation().scorer(outputs, dataset)
    scorer.add(row, range(1))
    return scorer.evidence()


def test_masks_are_compared_in_the_pixels_of_the_picture(tmp_path: Path) -> None:
    evidence = evidence_of(open_masks(tmp_path, TRIANGLE), triangle(64, 96)[None, None])
    figures = evidence.figures(np.ones((1, 1)))
    assert {name: float(values[0]) for name, values in figures.items()} == {
        "mask_ap": pytest.approx(1),
        "mask_ap50": 1,
        "mask_ap75": 1,
        "mask_ar100": pytest.approx(1),
    }
    assert evidence.columns()["found"] == [1]


def test_masks_that_differ_are_kept_to_be_looked_at(tmp_path: Path) -> None:
    dataset = open_masks(tmp_path, TRIANGLE)
    masks = evidence_of(dataset, np.ones((1, 1, 64, 96), np.float32)).masks_on(0)
    assert masks is not None
    assert masks.are_instances
    assert (masks.found == 1).all()
    assert masks.label.sum() == pytest.approx(416, rel=0.05)
    assert evidence_of(dataset, np.zeros((1, 1, 64, 96), np.float32)).masks_on(1) is None


def test_masks_may_be_those_of_the_boxes(tmp_path: Path) -> None:
    inner = triangle(128, 192)[16:120, 16:144]
    dataset = open_masks(tmp_path, TRIANGLE)
    right = evidence_of(dataset, inner[None, None], {"masks": {"frame": "box"}})
    assert right.figures(np.ones((1, 1)))["mask_ap75"] == 1
    wrong = evidence_of(dataset, inner[None, None])
    assert wrong.figures(np.ones((1, 1)))["mask_ap75"] == 0


def test_masks_may_be_sums_of_prototypes_within_the_box(tmp_path: Path) -> None:
    """The triangle is one prototype, beside another that would cover the picture."""
    prototypes = np.stack([triangle(32, 48) * 2 - 1, np.ones((32, 48))])[None]
    box = [40.0, 34, 64, 52, 0.9, 20, 1]  # centre, size, score, coefficients
    outputs = [
        output("boxes", {"yolo": {"coefficients": 2}}),
        output("masks", {"masks": {"frame": "prototypes"}}),
    ]
    scorer = InstanceSegmentation().scorer(outputs, open_masks(tmp_path, TRIANGLE))
    scorer.add({"boxes": np.array([box]).T[None], "masks": prototypes}, range(1))
    figures = scorer.evidence().figures(np.ones((1, 1)))
    assert figures["mask_ap75"] == 1


def test_prototypes_without_as_many_coefficients_are_an_error(tmp_path: Path) -> None:
    outputs = [output("boxes", {"yolo": {"coefficients": 1}}), output("masks")]
    scorer = InstanceSegmentation().scorer(outputs, open_masks(tmp_path, TRIANGLE))
    row = {"boxes": np.ones((1, 7, 3)), "masks": np.ones((1, 2, 4, 4))}
    with pytest.raises(OutputError, match="have 1 coefficients, and there are 2 prototypes"):
        scorer.add(row, range(1))


def test_figures_are_those_of_pycocotools() -> None:
    images = [_with_masks(*image) for image in compose_images(15, 2, seed=3)]
    expected = figures_of_pycocotools(images, 2, "segm")
    matcher = ObjectMatcher("segm")
    matched = []
    for objects, found in images:
        masks = [run_lengths_of(mask, SIZE, SIZE) for mask in objects.segmentations]
        matched.append(matcher.match(objects, found, masks))
    figures = coco_figures(joined_matches(matched), np.ones((1, len(images))))
    assert {name: float(values[0]) for name, values in figures.items()} == pytest.approx(
        expected, abs=1e-9
    )
    assert 0 < expected["AP"] < 1


def _with_masks(objects: LabelledObjects, found: Detections) -> tuple[LabelledObjects, Detections]:
    """Return objects and detections whose masks are the ellipses in their boxes."""
    labels = []
    for left, top, width, height in objects.boxes.tolist():
        labels.append({**_ellipse(left, top, left + width, top + height)})
    masks = [_ellipse(*corners) for corners in found.boxes.tolist()]
    with_masks = LabelledObjects(
        objects.image_id,
        objects.height,
        objects.width,
        objects.boxes,
        objects.categories,
        objects.areas,
        objects.crowds,
        segmentations=labels,
    )
    return with_masks, Detections(found.boxes, found.scores, found.classes, masks)


def _ellipse(left: float, top: float, right: float, bottom: float) -> Any:
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    by_x = (x - (left + right) / 2) / max((right - left) / 2, 1e-6)
    by_y = (y - (top + bottom) / 2) / max((bottom - top) / 2, 1e-6)
    return encode_mask(by_x**2 + by_y**2 <= 1)


def test_a_broken_mask_names_its_record(tmp_path: Path) -> None:
    dataset = open_masks(tmp_path, {"size": [1, 2], "counts": [2]})
    message = r"a.png: annotations\[0\] has run lengths of the size \[1, 2\]"
    with pytest.raises(DatasetError, match=message):
        InstanceSegmentation().scorer([output("boxes"), output("masks")], dataset)


def test_a_model_without_masks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there are no masks; name an output of type masks"):
        evidence_of(open_masks(tmp_path, TRIANGLE), None)
