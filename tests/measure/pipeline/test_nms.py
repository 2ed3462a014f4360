"""Non-maximum suppression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.pipeline.objects import suppressed

Array = np.ndarray[Any, Any]


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
