"""Modality of a legacy manifest: the kind of its inputs and outputs, by which tables count."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pytest_mlms.author.legacy.records import LegacyManifest

Modality = Literal[
    "image classification",
    "object detection",
    "semantic segmentation",
    "instance segmentation",
    "image enhancement",
    "question answering",
    "other",
]

_SEGMENTING = re.compile(r"(^|[-_ ])fcn", re.IGNORECASE)
_REGIONS = re.compile(r"(^|[-_ ])sod($|[-_ ])", re.IGNORECASE)
_STYLE = re.compile(r"(^|[-_ ])style($|[-_ ])", re.IGNORECASE)
"""Names of networks whose output of the type feature is no classification."""

_OF_TYPE: Mapping[str, Modality] = {
    "classification": "image classification",
    "feature": "image classification",
    "coordinates": "image classification",
    "label": "image classification",
    "boundingbox": "object detection",
    "boundingboxes": "object detection",
    "semanticsegment": "semantic segmentation",
    "instancesegment": "instance segmentation",
    "masks": "instance segmentation",
    "image": "image enhancement",
    "general": "question answering",
    "text": "question answering",
}


def modality_of(manifest: LegacyManifest) -> Modality:
    """Return the modality by the types of the outputs, and by the name where it is an exception."""
    types = {output.type for output in manifest.outputs}
    if is_segmentation(manifest):
        return "semantic segmentation"
    if "feature" in types and _STYLE.search(manifest.name):
        return "image enhancement"
    for kind in ("masks", *sorted(types)):
        if kind in types and kind in _OF_TYPE:
            return _OF_TYPE[kind]
    return "other"


def is_segmentation(manifest: LegacyManifest) -> bool:
    """Return whether an output of the type feature has a class for each pixel."""
    return _has_feature(manifest) and bool(_SEGMENTING.search(manifest.name))


def is_region_score(manifest: LegacyManifest) -> bool:
    """Return whether an output of the type feature has scores of regions."""
    return _has_feature(manifest) and bool(_REGIONS.search(manifest.name))


def _has_feature(manifest: LegacyManifest) -> bool:
    return any(output.type == "feature" for output in manifest.outputs)
