"""Detections in the forms that models give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline.boxes import BoxReader
from pytest_mlms.measure.pipeline.objects import Detections

Array = np.ndarray[Any, Any]

SIZE = (100, 200)  # height, width
CORNERS = [[20.0, 10.0, 60.0, 50.0], [100.0, 20.0, 180.0, 90.0]]


def output(kind: str, *steps: Any) -> Output:
    return Output.model_validate({"name": kind, "type": kind, "steps": list(steps)})


def read(outputs: list[Output], number: int = 0, **row: Any) -> Detections:
    arrays = {name: np.asarray(values) for name, values in row.items()}
    return BoxReader(outputs).read(arrays, SIZE, number)


SEPARATE = [output("scores"), output("classes")]

FORMS = {
    "xyxy": ([20, 10, 60, 50], [100, 20, 180, 90]),
    "yxyx": ([10, 20, 50, 60], [20, 100, 90, 180]),
    "xywh": ([20, 10, 40, 40], [100, 20, 80, 70]),
    "cxcywh": ([40, 30, 40, 40], [140, 55, 80, 70]),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("units", ["pixels", "relative"])
def test_boxes_have_several_forms_and_units(form: str, units: str) -> None:
    boxes = np.array(FORMS[form], np.float32)
    if units == "relative":
        boxes /= np.array([100, 200, 100, 200] if form == "yxyx" else [200, 100, 200, 100])
    step = {"boxes": {"format": form, "units": units}}
    found = read([output("boxes", step), *SEPARATE], boxes=boxes, scores=[0.9, 0.8], classes=[2, 5])
    assert found.boxes == pytest.approx(np.array(CORNERS), abs=1e-4)
    assert found.scores.tolist() == [0.9, 0.8]
    assert found.classes.tolist() == [2, 5]


def test_boxes_are_corners_in_pixels_without_a_step() -> None:
    found = read([output("boxes"), output("scores")], boxes=CORNERS, scores=[[0.5], [0.25]])
    assert found.boxes.tolist() == CORNERS
    assert found.classes.tolist() == [0, 0]


def test_quantised_boxes_and_scores_are_dequantized_first() -> None:
    of_boxes = {"dequantize": {"scale": 2.0, "zero_point": 5}}
    of_scores = {"dequantize": {"scale": 1 / 256, "zero_point": -128}}
    outputs = [output("boxes", of_boxes, {"boxes": {}}), output("scores", of_scores)]
    boxes = (np.array(CORNERS) / 2 + 5).astype(np.int8)
    found = read(outputs, boxes=boxes, scores=np.array([[64], [0]], np.int8))
    assert found.boxes.tolist() == CORNERS
    assert found.scores.tolist() == [0.75, 0.5]


def test_axes_of_one_are_left_out() -> None:
    outputs = [output("boxes"), *SEPARATE]
    found = read(outputs, boxes=[CORNERS], scores=[[0.5, 0.25]], classes=[[1.0, 2.0]])
    assert found.classes.tolist() == [1, 2]


def test_a_count_says_how_many_boxes_are_meant() -> None:
    outputs = [output("boxes"), *SEPARATE, output("count")]
    found = read(outputs, boxes=CORNERS, scores=[0.5, 0.25], classes=[1, 2], count=[1.0])
    assert found.boxes.tolist() == CORNERS[:1]


def test_a_box_with_scores_of_classes_is_a_detection_for_each() -> None:
    scores = [[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]]
    found = read([output("boxes"), output("scores")], boxes=CORNERS, scores=scores)
    assert found.classes.tolist() == [0, 1, 2, 0, 1, 2]
    assert found.boxes.tolist() == [CORNERS[0]] * 3 + [CORNERS[1]] * 3
    best = read([output("boxes"), output("scores", "best_class")], boxes=CORNERS, scores=scores)
    assert best.classes.tolist() == [1, 0]
    assert best.scores.tolist() == [0.7, 0.6]


def test_the_background_may_be_left_out_of_the_scores() -> None:
    scores = output("scores", "softmax", "drop_background", "best_class")
    found = read([output("boxes"), scores], boxes=CORNERS, scores=np.log([[8, 1, 1], [2, 3, 5]]))
    assert found.scores == pytest.approx([0.1, 0.5])
    assert found.classes.tolist() == [0, 1]


def test_logits_may_be_clipped_before_they_are_scores() -> None:
    scores = output("scores", {"sigmoid": {"clip": 2}})
    found = read([output("boxes"), scores], boxes=CORNERS, scores=[[9.0], [-1.0]])
    assert found.scores == pytest.approx([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(1))])


SSD = {"columns": {"names": ["image", "class", "score", "x1", "y1", "x2", "y2"]}}


def test_rows_of_an_ssd_are_read_by_their_columns() -> None:
    rows = [[0, 7, 0.5, 0.1, 0.1, 0.3, 0.5], [1, 2, 0.9, 0, 0, 1, 1], [-1, 0, 0, 0, 0, 0, 0]]
    step = {"columns": {**SSD["columns"], "units": "relative"}}
    found = read([output("boxes", step)], boxes=[rows])
    assert found.boxes == pytest.approx(np.array(CORNERS[:1]))
    assert (found.classes.tolist(), found.scores.tolist()) == ([7], [0.5])
    second = read([output("boxes", step)], 1, boxes=[rows])
    assert second.classes.tolist() == [2]


def test_rows_may_have_centres_or_sizes() -> None:
    rows = [[0.5, 40, 30, 40, 40]]
    centre = {"columns": {"names": ["score", "cx", "cy", "width", "height"]}}
    assert read([output("boxes", centre)], boxes=rows).boxes.tolist() == CORNERS[:1]
    corner = {"columns": {"names": ["skip", "x1", "y1", "width", "height"]}}
    found = read([output("boxes", corner), output("scores")], boxes=rows, scores=[0.3])
    assert found.boxes.tolist() == [[40, 30, 80, 70]]


YOLO_BOXES = np.array(FORMS["cxcywh"], np.float32)
CLASS_SCORES = np.array([[0.1, 0.8], [0.6, 0.3]], np.float32)


def test_a_head_of_yolo_v8_has_a_column_a_box() -> None:
    values = np.concatenate([YOLO_BOXES, CLASS_SCORES], axis=1).T
    found = read([output("boxes", "yolo")], boxes=values)
    assert found.boxes.tolist() == CORNERS
    assert found.classes.tolist() == [1, 0]
    everything = read([output("boxes", {"yolo": {"classes": "all"}})], boxes=values)
    assert everything.scores == pytest.approx([0.1, 0.8, 0.6, 0.3])


def test_a_head_of_yolo_v5_multiplies_with_the_score_of_the_object() -> None:
    values = np.concatenate([YOLO_BOXES, [[0.5], [0.1]], CLASS_SCORES], axis=1)
    found = read([output("boxes", {"yolo": {"head": "v5"}})], boxes=values)
    assert found.scores == pytest.approx([0.4, 0.06])
    assert found.boxes == pytest.approx(np.array(CORNERS), abs=1e-5)


LAYERS = [{"grid": [1, 2], "sizes": [[0.5, 1], [0.25, 0.5]]}, {"grid": [1, 1], "sizes": [[1, 1]]}]


def test_boxes_may_be_relative_to_anchors() -> None:
    raw = np.zeros((5, 4))
    raw[4] = [1, -2, np.log(0.5), np.log(2)]
    step = {"anchors": {"layers": LAYERS}}
    found = read([output("boxes", step), output("scores")], boxes=raw, scores=np.ones(5))
    assert found.boxes[:4].tolist() == [
        [0, 0, 100, 100],
        [25, 25, 75, 75],
        [100, 0, 200, 100],
        [125, 25, 175, 75],
    ]
    assert found.boxes[4] == pytest.approx([250, -250, 350, -50])


def test_the_offsets_of_anchors_may_be_linear_scaled_and_of_another_order() -> None:
    layers = [{"grid": [1, 1], "sizes": [[1, 1]]}]
    step = {"anchors": {"layers": layers, "scale": 100, "size": "linear", "order": "yxhw"}}
    raw = [[-20, -30, 40, 20, 7, 7]]
    found = read([output("boxes", step), output("scores")], boxes=raw, scores=[1.0])
    assert found.boxes == pytest.approx(np.array([[20.0, 10, 60, 50]]))


def test_poor_detections_are_left_out_and_of_those_that_overlap_the_best_is_kept() -> None:
    boxes = [*CORNERS, [21, 11, 61, 51], [0, 0, 5, 5]]
    steps = [{"min_score": {"score": 0.2}}, {"nms": {"iou": 0.5}}]
    outputs = [output("boxes", *steps), *SEPARATE]
    row: dict[str, Any] = {"boxes": boxes, "scores": [0.5, 0.7, 0.6, 0.1]}
    assert read(outputs, **row, classes=[1, 1, 1, 1]).scores.tolist() == [0.7, 0.6]
    assert read(outputs, **row, classes=[1, 1, 2, 1]).scores.tolist() == [0.7, 0.6, 0.5]
    agnostic = output("boxes", {"nms": {"iou": 0.5, "class_aware": False, "most": 2}})
    assert read([agnostic, *SEPARATE], **row, classes=[1, 1, 2, 1]).classes.tolist() == [1, 2]


def test_masks_stay_with_their_boxes() -> None:
    masks = np.arange(2)[:, None, None] * np.ones((1, 3, 4))
    outputs = [output("boxes", {"nms": {}}), output("scores"), output("masks")]
    found = read(outputs, boxes=CORNERS, scores=[0.5, 0.7], masks=masks)
    assert found.masks is not None
    assert [mask.mean() for mask in found.masks] == [1, 0]


NO_SCORES = r"its boxes have no scores; name an output of type scores"


@pytest.mark.parametrize(
    ("outputs", "row", "message"),
    [
        ([output("boxes")], {"boxes": CORNERS}, NO_SCORES),
        (
            [output("boxes"), output("scores")],
            {"boxes": [[1, 2, 3]], "scores": [1]},
            "of 4 numbers",
        ),
        ([output("boxes", SSD)], {"boxes": [[1, 2, 3]]}, "expected rows of the 7 columns"),
        ([output("boxes", "yolo")], {"boxes": np.ones((4, 9))}, "more than 4 numbers a box"),
        ([output("boxes", "yolo")], {"boxes": np.ones((3, 9))}, "more than 4 numbers a box"),
        (
            [output("boxes"), *SEPARATE],
            {"boxes": CORNERS, "scores": [1, 1], "classes": [1]},
            "there are 1 classes for 2 boxes",
        ),
        ([output("boxes"), output("scores")], {"boxes": CORNERS, "scores": [1, 1, 1]}, "'boxes'"),
        (
            [output("boxes"), output("scores")],
            {"boxes": [[1, 2, np.nan, 4]], "scores": [1]},
            "1 of 1 boxes or scores are NaN or infinite",
        ),
        (
            [output("boxes", {"anchors": {"layers": LAYERS}}), output("scores")],
            {"boxes": CORNERS, "scores": [1, 1]},
            "have 5 anchors, and the output 2 boxes",
        ),
        (
            [output("boxes"), output("scores", {"drop_background": {"index": 3}})],
            {"boxes": CORNERS, "scores": np.ones((2, 2))},
            "the scores have 2 classes, and the background is number 3",
        ),
        ([output("boxes", SSD)], {"boxes": [[0, 7, np.nan, 1, 1, 3, 5]]}, "1 of 1 boxes or scores"),
        ([output("boxes", "yolo")], {"boxes": np.ones(9)}, "expected a table of boxes; name an"),
        (
            [output("boxes"), *SEPARATE, output("count")],
            {"boxes": CORNERS, "scores": [1, 1], "classes": [1, 1], "count": [np.inf]},
            r"the output of type count has \[inf\], not a number of boxes",
        ),
    ],
)
def test_outputs_that_do_not_fit_are_errors(
    outputs: list[Output], row: dict[str, Any], message: str
) -> None:
    with pytest.raises(OutputError, match=message):
        read(outputs, **row)
