"""Average precision of detections, for the dataset and for samples of its images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.evaluate.average_precision import (
    IOU_THRESHOLDS,
    Matches,
    ObjectMatcher,
    coco_figures,
    joined_matches,
)
from pytest_mlms.measure.pipeline.objects import Detections, LabelledObjects
from tests.support.detections import compose_images, figures_of_pycocotools

Images = list[tuple[LabelledObjects, Detections]]


def matches_of(images: Images, by: Any = "bbox") -> Matches:
    matcher = ObjectMatcher(by)
    return joined_matches([matcher.match(objects, found) for objects, found in images])


def figures_of(images: Images) -> dict[str, float]:
    figures = coco_figures(matches_of(images), np.ones((1, len(images)), int))
    return {name: float(values[0]) for name, values in figures.items()}


@pytest.mark.parametrize(("count", "categories"), [(1, 1), (40, 3), (12, 40)])
def test_figures_are_those_of_pycocotools(count: int, categories: int) -> None:
    images = compose_images(count, categories, seed=4)
    expected = figures_of_pycocotools(images, categories)
    assert figures_of(images) == pytest.approx(expected, abs=1e-9)
    assert 0 < expected["AP"] < 1


def test_more_than_100_detections_of_an_image_count_as_in_pycocotools() -> None:
    images = compose_images(4, 1, seed=1)
    objects, _ = images[0]
    generator = np.random.default_rng(0)
    left_top = generator.uniform(0, 100, (250, 2))
    corners = np.concatenate([left_top, left_top + 60], axis=1)
    images[0] = (objects, Detections(corners, generator.random(250), np.zeros(250, int)))
    assert figures_of(images) == pytest.approx(figures_of_pycocotools(images, 1), abs=1e-9)


def test_a_sample_is_judged_as_a_dataset_that_has_images_several_times() -> None:
    images = compose_images(12, 3, seed=2)
    images = [(objects, _distinct(found, n)) for n, (objects, found) in enumerate(images)]
    counts = np.random.default_rng(3).multinomial(12, np.ones(12) / 12, size=4)
    figures = coco_figures(matches_of(images), counts)
    for number, sample in enumerate(counts):
        repeated = [image for image, n in zip(images, sample, strict=True) for _ in range(n)]
        expected = figures_of(repeated)
        found = {name: float(values[number]) for name, values in figures.items()}
        assert found == pytest.approx(expected, abs=1e-12)


def _distinct(found: Detections, number: int) -> Detections:
    """Return detections with scores that no other image has."""
    scores = found.scores + 0.01 * np.random.default_rng(number).random(len(found))
    return Detections(found.boxes, scores, found.classes)


def test_a_sample_without_objects_has_no_figures() -> None:
    images = compose_images(8, 2, seed=0)
    matches = matches_of(images)
    empty = [number for number, (objects, _) in enumerate(images) if len(objects) == 0]
    counts = np.zeros((1, 8), int)
    counts[0, empty] = 1
    assert empty
    assert all(np.isnan(values[0]) for values in coco_figures(matches, counts).values())


def test_perfect_detections_have_all_figures_1() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [20, 20, 30, 30]])
    objects = LabelledObjects(
        1, 50, 50, boxes, np.array([0, 1]), np.array([100.0, 900]), np.array([False, False])
    )
    corners = np.array([[0.0, 0, 10, 10], [20, 20, 50, 50]])
    found = Detections(corners, np.array([0.9, 0.8]), np.array([0, 1]))
    assert figures_of([(objects, found)]) == {"AP": 1, "AP50": 1, "AP75": 1, "AR100": 1}


def test_a_model_that_detects_nothing_has_all_figures_0() -> None:
    images = compose_images(5, 2, seed=1)
    nothing = Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int))
    figures = figures_of([(objects, nothing) for objects, _ in images])
    assert figures == {"AP": 0, "AP50": 0, "AP75": 0, "AR100": 0}


def test_the_thresholds_are_those_of_coco() -> None:
    assert IOU_THRESHOLDS.tolist() == pytest.approx([0.5 + 0.05 * n for n in range(10)])


@pytest.mark.slow
def test_figures_are_those_of_faster_coco_eval() -> None:
    faster = pytest.importorskip("faster_coco_eval")
    from tests.support.detections import FIGURES, coco_json, coco_results

    images = compose_images(120, 9, seed=7)
    labels = faster.COCO(coco_json(images, 9))
    evaluation = faster.COCOeval_faster(labels, labels.loadRes(coco_results(images)), "bbox")
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    expected = {name: float(evaluation.stats[place]) for name, place in FIGURES.items()}
    assert figures_of(images) == pytest.approx(expected, abs=1e-9)
