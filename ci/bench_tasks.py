"""The quantities of tasks: how long they take, beside the libraries that define them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
from bench_pictures import measure_pictures
from bench_row import ROOT, Row

IMAGES = 1000
CATEGORIES = 80
OBJECTS = 17  # of an image at most, which makes about 10 detections
SAMPLES = 1000
BOOTSTRAP_SECONDS = 5
TIME_RATIO = 1.0


def measure_tasks() -> Iterator[Row]:
    """Measure average precision against pycocotools' own script, its bootstrap, and pictures."""
    yield from measure_pictures()
    yield from _measure_average_precision()


def _measure_average_precision() -> Iterator[Row]:
    from pytest_mlms.evaluate.average_precision import coco_figures
    from pytest_mlms.evaluate.object_matching import ObjectMatcher, joined_matches

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
