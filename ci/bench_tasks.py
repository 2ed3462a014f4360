"""The quantities of tasks: how long they take, beside the libraries that define them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
from bench_both_sides import measure_both_sides
from bench_pictures import measure_pictures
from bench_row import ROOT, Row

IMAGES = 1000
CATEGORIES = 80
OBJECTS = 17  # of an image at most, which makes about 10 detections
SAMPLES = 1000
BOOTSTRAP_SECONDS = 5
TIME_RATIO = 1.0
FIXED_SECONDS = 0.050


def measure_tasks() -> Iterator[Row]:
    """Measure average precision against pycocotools' own script, its bootstrap, pictures, items."""
    yield from measure_pictures()
    yield from measure_both_sides()
    yield from _measure_average_precision()
    yield from _measure_fixed_cost()


def _measure_average_precision() -> Iterator[Row]:
    from pytest_mlms.measure.evaluate.average_precision import (
        ObjectMatcher,
        coco_figures,
        joined_matches,
    )

    sys.path.insert(0, str(ROOT))  # for tests
    from tests.support.detections import compose_images, figures_of_pycocotools

    images = compose_images(IMAGES, CATEGORIES, objects=OBJECTS)
    start = time.process_time()
    expected = figures_of_pycocotools(images, CATEGORIES)
    theirs = time.process_time() - start
    start = time.process_time()
    matcher = ObjectMatcher("bbox")
    matches = joined_matches([matcher.match(objects, found) for objects, found in images])
    found = coco_figures(matches, np.ones((1, IMAGES)))
    ours = time.process_time() - start
    difference = max(abs(found[name][0] - value) for name, value in expected.items())
    yield Row("AP of 1,000 images: difference from pycocotools / 1e-9", difference * 1e9, 1)
    yield Row("AP of 1,000 images: CPU time / pycocotools' script", ours / theirs, TIME_RATIO)
    generator = np.random.default_rng(0)
    counts = generator.multinomial(IMAGES, np.full(IMAGES, 1 / IMAGES), size=SAMPLES)
    start = time.process_time()
    coco_figures(matches, counts.astype(float))
    seconds = time.process_time() - start
    yield Row(
        "AP of 1,000 images: 1,000 samples for the interval, CPU s", seconds, BOOTSTRAP_SECONDS
    )


def _measure_fixed_cost() -> Iterator[Row]:
    """Measure what a task adds to an item of a few inputs, beside the model."""
    from pytest_mlms.measure.evaluate.scoring import estimate_evidence

    sys.path.insert(0, str(ROOT))  # for tests
    from tests.support.scored import evidence_of

    generator = np.random.default_rng(0)
    classes = generator.integers(10, size=100)
    pixels = generator.integers(10, size=(100, 16, 16))
    tried = {
        "image-classification": (classes, generator.normal(size=(100, 10))),
        "regression": (generator.normal(size=100), generator.normal(size=(100, 1))),
        "semantic-segmentation": (pixels, pixels),
    }
    for task, (labels, values) in tried.items():
        times = []
        for _ in range(3):
            start = time.process_time()
            evidence = evidence_of(task, labels, values, batch=32)
            estimate_evidence(evidence, seed=0)
            evidence.columns()
            times.append(time.process_time() - start)
        yield Row(f"{task} of 100 inputs: scores and intervals, CPU s", min(times), FIXED_SECONDS)
