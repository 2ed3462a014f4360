"""Detection of objects by boxes, and by masks."""

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
from pytest_mlms.measure.evaluate.tasks.object_detection import (
    DetectionEvidence,
    InstanceSegmentation,
    ObjectDetection,
)
from pytest_mlms.measure.evaluate.tasks.task import Evidence
from pytest_mlms.measure.pipeline.dataset import Dataset, open_dataset
from pytest_mlms.measure.pipeline.objects import (
    Detections,
    LabelledObjects,
    encode_mask,
    run_lengths_of,
)
from tests.support.detections import SIZE, compose_images, figures_of_pycocotools

Array = np.ndarray[Any, Any]

HERE = Place(Path("m.yaml"), 30)
SIZES = {1: (40, 60), 2: (60, 40), 3: (50, 50)}  # id of a picture -> width, height
BOXES = [
    (1, 3, [5.0, 5, 30, 20]),
    (1, 8, [40.0, 20, 10, 15]),
    (2, 8, [10.0, 10, 20, 30]),
]
CATEGORIES = {3: "cat", 8: "dog", 9: "owl"}
"""Pictures, ids of categories, and boxes; the third picture has none."""


def write_dataset(folder: Path, **changes: Any) -> Path:
    for image_id, (width, height) in SIZES.items():
        Image.new("RGB", (height, width)).save(folder / f"{image_id}.png")
    content = {
        "images": [
            {"id": n, "file_name": f"{n}.png", "height": size[0], "width": size[1]}
            for n, size in SIZES.items()
        ],
        "annotations": [
            {"image_id": image, "category_id": category, "bbox": box}
            for image, category, box in BOXES
        ],
        "categories": [{"id": n, "name": name} for n, name in CATEGORIES.items()],
        **changes,
    }
    (folder / "labels.json").write_text(json.dumps(content))
    return folder


def image_input(*steps: Any) -> Input:
    fields = {"name": "x", "type": "image", "layout": "NHWC", "element_type": "float32"}
    return Input.model_validate({**fields, "steps": ["decode", *steps]})


RESIZED = image_input({"resize": {"size": [20, 80]}})


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return open_dataset(write_dataset(tmp_path), [RESIZED], HERE, labels="boxes")


def output(kind: str, *steps: Any) -> Output:
    return Output.model_validate({"name": kind, "type": kind, "steps": list(steps)})


ROWS = {"columns": {"names": ["x1", "y1", "x2", "y2", "score", "class"]}}


def right_rows(height: int = 20, width: int = 80) -> Array:
    """Return what a perfect model of three classes says, in pixels of an input of that size."""
    rows = np.zeros((3, 4, 6))
    rows[..., 4] = -1
    order = list(CATEGORIES)
    for index, (image, category, box) in enumerate(BOXES):
        left, top, box_width, box_height = box
        by_y, by_x = height / SIZES[image][0], width / SIZES[image][1]
        corners = [left * by_x, top * by_y, (left + box_width) * by_x, (top + box_height) * by_y]
        rows[image - 1, index] = [*corners, 0.9 - index / 10, order.index(category)]
    return rows


def evidence_of(dataset: Dataset, rows: Array, *steps: Any) -> DetectionEvidence:
    outputs = [output("boxes", ROWS, *steps)]
    scorer = ObjectDetection().scorer(outputs, dataset)
    for first in range(0, len(rows), 2):
        inputs = range(first, min(first + 2, len(rows)))
        scorer.add({"boxes": rows[first : first + 2]}, inputs)
    evidence = scorer.evidence()
    assert isinstance(evidence, DetectionEvidence)
    return evidence


def figures_of(evidence: DetectionEvidence) -> dict[str, float]:
    found = evidence.figures(np.ones((1, len(evidence))))
    return {name: float(values[0]) for name, values in found.items()}


PERFECT = {"ap": 1.0, "ap50": 1.0, "ap75": 1.0, "ar100": 1.0}


def test_boxes_are_compared_in_the_pixels_of_the_picture(dataset: Dataset) -> None:
    evidence = evidence_of(dataset, right_rows())
    assert len(evidence) == 3
    assert figures_of(evidence) == pytest.approx(PERFECT)
    assert evidence.losses.tolist() == [0, 0, 0]
    assert evidence.boxes[0] == pytest.approx([5, 5, 30, 20], abs=1e-4)


def test_the_wrong_units_find_nothing(dataset: Dataset) -> None:
    rows = right_rows()
    rows[..., :4] /= 80
    assert figures_of(evidence_of(dataset, rows))["ap"] == 0


def test_predictions_are_counted_at_the_best_score(dataset: Dataset) -> None:
    rows = right_rows()
    rows[0, 1, 5] = 0  # the dog is taken for a cat
    rows[2, 3] = [1, 1, 9, 9, 0.05, 2]  # an owl that isn't there, with a low score
    evidence = evidence_of(dataset, rows)
    columns = evidence.columns()
    assert columns["objects"] == [2, 1, 0]
    assert columns["found"] == [1, 1, 0]
    assert columns["missed"] == [1, 0, 0]
    assert columns["wrong"] == [1, 0, 0]
    assert columns["detections"][0] == "cat 0.900 [5 5 30 20]; cat 0.800 [40 20 10 15]"
    assert columns["detections"][2] == ""
    assert evidence.losses == pytest.approx([0.5, 0, 0])


def test_boxes_end_at_the_picture(dataset: Dataset) -> None:
    rows = right_rows()
    rows[0, 0, :4] = [-100, -100, 500, 500]
    assert evidence_of(dataset, rows).boxes[0].tolist() == [0, 0, 60, 40]


@pytest.mark.parametrize(
    ("step", "classes"),
    [
        ({"names": [None, "owl", "cat", "dog"]}, [2, 3, 3]),
        ({"ids": [8, None, 3]}, [2, 0, 0]),
        ({"ids": "same"}, [3, 8, 8]),
        ({"labels": "names.txt"}, [1, 2, 2]),
    ],
)
def test_classes_may_be_in_another_order(
    dataset: Dataset, tmp_path: Path, step: Any, classes: list[int]
) -> None:
    if "labels" in step:
        path = tmp_path / step["labels"]
        path.write_text("person\ncat\ndog\n")
        step = {"labels": str(path)}
    rows = right_rows()
    rows[[0, 0, 1], [0, 1, 2], 5] = classes
    rows[2, 3] = [1, 1, 9, 9, 0.95, {"names": 0, "ids": 1, "labels": 0}[next(iter(step))]]
    found = evidence_of(dataset, rows, {"classes": step})
    assert figures_of(found) == pytest.approx(PERFECT)


def test_a_class_without_a_category_is_an_error(dataset: Dataset) -> None:
    rows = right_rows()
    rows[1, 2, 5] = 3
    message = r"labels.json: images\[1\] \(id 2\): 2.png: a detection has the class 3, and the last one is 2"
    with pytest.raises(OutputError, match=message):
        evidence_of(dataset, rows)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"names": ["cat", "dgo"]}, "has labelled objects of 1 categories, dog, that are no class"),
        ({"ids": [3, 8, 10]}, "has no category with the id 10, which the step 'classes' names"),
    ],
)
def test_categories_that_the_classes_lack_are_an_error(
    dataset: Dataset, step: Any, message: str
) -> None:
    with pytest.raises(DatasetError, match=message):
        evidence_of(dataset, right_rows(), {"classes": step})


def test_a_picture_of_another_size_than_labelled_is_an_error(dataset: Dataset) -> None:
    folder = Path(dataset.name.split(": ")[1])
    Image.new("RGB", (30, 20)).save(folder / "2.png")
    with pytest.raises(DatasetError, match=r"2.png: it is 30 x 20, and labelled as 40 x 60; label"):
        evidence_of(dataset, right_rows())


def test_a_picture_that_exif_turns_tells_what_to_write(dataset: Dataset) -> None:
    folder = Path(dataset.name.split(": ")[1])
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 60)).save(folder / "2.png", exif=exif)
    with pytest.raises(DatasetError, match="if its EXIF orientation turns it, write 'decode: {"):
        evidence_of(dataset, right_rows())


def test_a_dataset_without_boxes_is_an_error() -> None:
    classes = Dataset("m.yaml:30: d.npz", (RESIZED,), {"x": [b""]}, np.zeros(1, int))
    with pytest.raises(DatasetError, match="d.npz has no boxes; name a COCO file"):
        ObjectDetection().scorer([output("boxes", ROWS)], classes)


def test_figures_of_samples_are_between_0_and_1(dataset: Dataset) -> None:
    evidence = evidence_of(dataset, right_rows())
    counts = np.array([[3.0, 0, 0], [0, 1, 2], [0, 0, 3]])
    assert evidence.figures(counts)["ap"] == pytest.approx([1, 1, float("nan")], nan_ok=True)


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


def triangle(height: int, width: int) -> Array:
    """Return the triangle as a mask of the picture's area at this size."""
    y, x = np.mgrid[:height, :width]
    x = (x + 0.5) * 48 / width
    y = (y + 0.5) * 32 / height
    inside = (x > 4) & (y > 4) & ((x - 4) / 32 + (y - 4) / 26 < 1)
    return np.asarray(inside, np.float32)


def evidence_of_masks(dataset: Dataset, masks: Array | None, *steps: Any) -> Evidence:
    outputs = [output("boxes"), output("scores")]
    row = {"boxes": np.array([[[8.0, 8, 72, 60]]]), "scores": np.array([[0.9]])}
    if masks is not None:
        outputs.append(output("masks", *steps))
        row["masks"] = masks
    scorer = InstanceSegmentation().scorer(outputs, dataset)
    scorer.add(row, range(1))
    return scorer.evidence()


def test_masks_are_compared_in_the_pixels_of_the_picture(tmp_path: Path) -> None:
    evidence = evidence_of_masks(open_masks(tmp_path, TRIANGLE), triangle(64, 96)[None, None])
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
    masks = evidence_of_masks(dataset, np.ones((1, 1, 64, 96), np.float32)).masks_on(0)
    assert masks is not None
    assert masks.are_instances
    assert (masks.found == 1).all()
    assert masks.label.sum() == pytest.approx(416, rel=0.05)
    assert evidence_of_masks(dataset, np.zeros((1, 1, 64, 96), np.float32)).masks_on(1) is None


def test_masks_may_be_those_of_the_boxes(tmp_path: Path) -> None:
    inner = triangle(128, 192)[16:120, 16:144]
    dataset = open_masks(tmp_path, TRIANGLE)
    right = evidence_of_masks(dataset, inner[None, None], {"masks": {"frame": "box"}})
    assert right.figures(np.ones((1, 1)))["mask_ap75"] == 1
    wrong = evidence_of_masks(dataset, inner[None, None])
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
        evidence_of_masks(open_masks(tmp_path, TRIANGLE), None)
