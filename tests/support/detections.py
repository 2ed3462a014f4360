"""Composed labels and detections, and their figures by pycocotools' own script."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np

from pytest_mlms.measure.pipeline.objects import Detections, LabelledObjects

Array = np.ndarray[Any, Any]

FIGURES = {"AP": 0, "AP50": 1, "AP75": 2, "AR100": 8}
"""Our quantities, and their places in COCOeval.stats."""

SIZE = 200  # pixels


def compose_images(
    count: int, categories: int, seed: int = 0, objects: int = 7
) -> list[tuple[LabelledObjects, Detections]]:
    """Return images whose objects are partly found, with crowds, ties and false alarms.

    An image has at most so many ``objects``, half of that on average, about a detection for each
    and 1.5 false alarms.
    """
    generator = np.random.default_rng(seed)
    images = []
    for number in range(count):
        labels = _compose_objects(generator, number + 1, categories, objects)
        images.append((labels, _compose_detections(generator, labels, categories)))
    return images


def _compose_objects(
    generator: np.random.Generator, image_id: int, categories: int, most: int
) -> LabelledObjects:
    n = int(generator.integers(0, most + 1))
    corners = generator.uniform(0, SIZE * 0.6, (n, 2))
    sides = generator.uniform(5, SIZE * 0.4, (n, 2))
    boxes = np.concatenate([corners, sides], axis=1)
    return LabelledObjects(
        image_id=image_id,
        height=SIZE,
        width=SIZE,
        boxes=boxes,
        categories=generator.integers(0, categories, n),
        areas=sides.prod(axis=1),
        crowds=generator.random(n) < 0.1,
        segmentations=[None] * n,
    )


def _compose_detections(
    generator: np.random.Generator, objects: LabelledObjects, categories: int
) -> Detections:
    boxes = [np.zeros((0, 4))]
    classes = [np.zeros(0, np.int64)]
    for box, category in zip(objects.boxes, objects.categories, strict=True):
        copies = int(generator.integers(0, 3))
        noise = generator.normal(0, 0.08, (copies, 4)) * box[[2, 3, 2, 3]]
        corners = np.concatenate([box[:2], box[:2] + box[2:]])
        boxes.append(corners + noise)
        classes.append(np.full(copies, category))
    alarms = int(generator.integers(0, 4))
    low = generator.uniform(0, SIZE / 2, (alarms, 2))
    boxes.append(np.concatenate([low, low + generator.uniform(5, SIZE / 2, (alarms, 2))], axis=1))
    classes.append(generator.integers(0, categories, alarms))
    all_boxes = np.concatenate(boxes)
    scores = np.round(generator.random(len(all_boxes)), 2)  # rounded: some are equal
    return Detections(all_boxes, scores, np.concatenate(classes))


def coco_json(images: list[tuple[LabelledObjects, Detections]], categories: int) -> dict[str, Any]:
    """Return the labels in the form of COCO's files; the ids of categories are 3 times the index."""
    annotations: list[dict[str, Any]] = []
    records = []
    for objects, _ in images:
        records.append({"id": objects.image_id, "height": SIZE, "width": SIZE})
        for index, box in enumerate(objects.boxes.tolist()):
            annotation = {
                "id": len(annotations) + 1,
                "image_id": objects.image_id,
                "category_id": 3 * int(objects.categories[index]),
                "bbox": box,
                "area": float(objects.areas[index]),
                "iscrowd": int(objects.crowds[index]),
            }
            if objects.segmentations[index] is not None:
                annotation["segmentation"] = objects.segmentations[index]
            annotations.append(annotation)
    named = [{"id": 3 * index, "name": f"c{index}"} for index in range(categories)]
    return {"images": records, "annotations": annotations, "categories": named}


def coco_results(images: list[tuple[LabelledObjects, Detections]]) -> list[dict[str, Any]]:
    """Return the detections in the form of COCO's results."""
    results = []
    for objects, detections in images:
        for index, corners in enumerate(detections.boxes.tolist()):
            left, top, right, bottom = corners
            result = {
                "image_id": objects.image_id,
                "category_id": 3 * int(detections.classes[index]),
                "bbox": [left, top, max(0, right - left), max(0, bottom - top)],
                "score": float(detections.scores[index]),
            }
            if detections.masks is not None:
                result["segmentation"] = detections.masks[index]
                del result["bbox"]
            results.append(result)
    return results


def figures_of_pycocotools(
    images: list[tuple[LabelledObjects, Detections]], categories: int, by: str = "bbox"
) -> dict[str, float]:
    """Return the figures that pycocotools' own script computes."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        labels = COCO()
        labels.dataset = {"info": {}, **coco_json(images, categories)}
        labels.createIndex()
        evaluation = COCOeval(labels, labels.loadRes(coco_results(images)), by)
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return {name: float(evaluation.stats[place]) for name, place in FIGURES.items()}
