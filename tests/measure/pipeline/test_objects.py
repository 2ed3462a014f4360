"""Masks of objects, and non-maximum suppression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.pipeline.geometry import Geometry
from pytest_mlms.measure.pipeline.objects import (
    check_segmentation,
    encode_mask,
    mask_in_picture,
    run_lengths_of,
    suppressed,
)

Array = np.ndarray[Any, Any]


def decoded(run_lengths: Any) -> Array:
    from pycocotools import mask

    return np.asarray(mask.decode(run_lengths))


def box_mask(height: int, width: int, rows: slice, columns: slice) -> Array:
    mask = np.zeros((height, width), bool)
    mask[rows, columns] = True
    return mask


def test_polygons_and_run_lengths_are_masks_of_the_picture() -> None:
    square = [[2, 1, 8, 1, 8, 5, 2, 5]]
    expected = box_mask(10, 12, slice(1, 5), slice(2, 8))
    check_segmentation(square, 10, 12)
    assert (decoded(run_lengths_of(square, 10, 12)) == expected).all()
    flat = expected.T.reshape(-1)
    changes = np.flatnonzero(np.diff(flat.astype(int))) + 1
    counts = np.diff([0, *changes, 120]).tolist()
    plain = {"size": [10, 12], "counts": counts}
    check_segmentation(plain, 10, 12)
    assert (decoded(run_lengths_of(plain, 10, 12)) == expected).all()


def test_compressed_run_lengths_of_pycocotools_are_accepted() -> None:
    generator = np.random.default_rng(0)
    for share in (0.0, 0.02, 0.5, 1.0):
        mask = generator.random((37, 120)) < share
        encoded = encode_mask(mask)
        segmentation = {"size": [37, 120], "counts": encoded["counts"].decode()}
        check_segmentation(segmentation, 37, 120)
        assert (decoded(run_lengths_of(segmentation, 37, 120)) == mask).all()


BROKEN = {
    "none": (None, "has no segmentation"),
    "empty": ([], r"segmentation is \[\]; write polygons"),
    "text": ("abc", "segmentation is abc; write polygons"),
    "two points": ([[1, 1, 2, 2]], r"polygon 0 has the shape \(4,\); write x, y of 3 points"),
    "odd": ([[1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3, 4]], r"polygon 1 has the shape \(7,\)"),
    "flat": ([1, 1, 2, 2, 3, 3], r"polygon 0 has the shape \(\)"),
    "words": ([["a"] * 6], "polygon 0 is no list of numbers"),
    "outside": ([[1, 1, 2, 2, 99, 3]], r"polygon 0 has the point \[99.0, 3.0\] outside of the 12"),
    "nan": ([[1, 1, 2, 2, float("nan"), 3]], "polygon 0 has the point"),
    "size": ({"size": [12, 10], "counts": [120]}, r"of the size \[12, 10\], and the picture \[10"),
    "no size": ({"counts": [120]}, "of the size None"),
    "no counts": ({"size": [10, 12]}, "no list of whole numbers"),
    "floats": ({"size": [10, 12], "counts": [120.0]}, "no list of whole numbers"),
    "too many": ({"size": [10, 12], "counts": [120, 1]}, "of 121 pixels, and the picture 120"),
    "too few": ({"size": [10, 12], "counts": [1, 2]}, "of 3 pixels, and the picture 120"),
    "negative": ({"size": [10, 12], "counts": [130, -10]}, "encode the mask again"),
    "characters": ({"size": [10, 12], "counts": "h\x01"}, "with the character"),
    "cut": ({"size": [10, 12], "counts": "h"}, "end within a number"),
    "compressed": ({"size": [10, 12], "counts": "44"}, "of 8 pixels, and the picture 120"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_mask_is_an_error(name: str) -> None:
    segmentation, message = BROKEN[name]
    with pytest.raises(ValueError, match=message):
        check_segmentation(segmentation, 10, 12)


def test_a_mask_of_the_input_is_put_back_into_the_picture() -> None:
    """A picture of 20 x 40 became 10 x 20 below 5 rows of padding; the mask has half of that."""
    geometry = Geometry((20, 40)).resized(10, 20).moved(-6, 0, 16, 20)
    values = box_mask(8, 10, slice(4, 8), slice(5, 10)).astype(float)
    found = mask_in_picture(values, 0.5, (20, 40), geometry)
    expected = box_mask(20, 40, slice(4, 20), slice(20, 40))
    expected[4, 20] = False  # interpolation rounds the corner
    assert (found == expected).all()


def test_a_mask_of_a_box_is_put_into_the_box() -> None:
    geometry = Geometry((20, 40)).resized(40, 80)
    box = (20.0, 8.0, 60.0, 24.0)  # of the input: 10, 4, 30, 12 in the picture
    found = mask_in_picture(np.ones((7, 7)), 0.5, (20, 40), geometry, box)
    assert (found == box_mask(20, 40, slice(4, 12), slice(10, 30))).all()


def test_a_threshold_below_zero_adds_nothing_outside() -> None:
    geometry = Geometry((20, 40))
    found = mask_in_picture(np.ones((7, 7)), -1.0, (20, 40), geometry, (10.0, 4.0, 30.0, 12.0))
    assert found.sum() == 8 * 20


def test_a_box_without_an_area_has_no_mask() -> None:
    assert not mask_in_picture(np.ones((7, 7)), 0.5, (9, 9), Geometry((9, 9)), (3, 3, 3, 5)).any()


def random_boxes(seed: int, count: int) -> tuple[Array, Array, Array]:
    generator = np.random.default_rng(seed)
    low = generator.uniform(0, 80, (count, 2))
    corners = np.concatenate([low, low + generator.uniform(5, 40, (count, 2))], axis=1)
    return corners, generator.permutation(count) / count, generator.integers(0, 3, count)


def overlap(a: Array, b: Array) -> float:
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    shared = width * height
    return float(shared / (math.prod(a[2:] - a[:2]) + math.prod(b[2:] - b[:2]) - shared))


def plain_nms(corners: Array, scores: Array, iou: float) -> list[int]:
    """Return what torchvision.ops.nms defines, box by box."""
    kept: list[int] = []
    for index in sorted(range(len(scores)), key=lambda n: -scores[n]):
        if all(overlap(corners[index], corners[other]) <= iou for other in kept):
            kept.append(index)
    return kept


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("iou", [0.0, 0.3, 0.7, 1.0])
def test_boxes_that_overlap_better_ones_are_left_out(seed: int, iou: float) -> None:
    corners, scores, _ = random_boxes(seed, 60)
    assert suppressed(corners, scores, iou, 60).tolist() == plain_nms(corners, scores, iou)


def test_only_boxes_of_one_class_compete_where_classes_are_given() -> None:
    corners, scores, classes = random_boxes(5, 60)
    kept = suppressed(corners, scores, 0.3, 60, classes)
    expected = []
    for number in range(3):
        own = np.flatnonzero(classes == number)
        expected += own[plain_nms(corners[own], scores[own], 0.3)].tolist()
    assert sorted(kept.tolist()) == sorted(expected)
    assert (np.diff(scores[kept]) < 0).all()


def test_the_best_are_kept_where_there_are_too_many() -> None:
    corners, scores, _ = random_boxes(1, 60)
    everything = suppressed(corners, scores, 0.5, 60)
    assert suppressed(corners, scores, 0.5, 7).tolist() == everything[:7].tolist()


def test_of_equal_scores_the_first_is_kept() -> None:
    corners = np.array([[0.0, 0, 10, 10], [0, 0, 10, 10]])
    assert suppressed(corners, np.array([0.5, 0.5]), 0.5, 9).tolist() == [0]


def test_boxes_without_an_area_overlap_nothing() -> None:
    corners = np.array([[5.0, 5, 5, 5], [5, 5, 5, 5], [9, 9, 2, 2]])
    assert len(suppressed(corners, np.array([0.1, 0.2, 0.3]), 0.0, 9)) == 3


def test_no_boxes_are_no_boxes() -> None:
    assert suppressed(np.zeros((0, 4)), np.zeros(0), 0.5, 9).tolist() == []


@pytest.mark.slow
def test_the_boxes_that_are_kept_are_those_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    corners, scores, _ = random_boxes(9, 300)
    scores = scores + 0.1  # OpenCV leaves out scores of 0
    sides = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
    for iou in (0.3, 0.5, 0.7):
        expected = cv2.dnn.NMSBoxes(sides.tolist(), scores.tolist(), 0.0, iou)
        assert suppressed(corners, scores, iou, 300).tolist() == list(expected)
