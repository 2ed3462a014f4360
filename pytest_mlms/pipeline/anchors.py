"""Boxes that are relative to anchors, as the raw outputs of SSD (https://arxiv.org/abs/1512.02325)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.manifest.box_steps import AnchorLayer, Anchors

__all__ = ["anchor_boxes", "boxes_of_offsets"]

Array = NDArray[Any]


def anchor_boxes(parameters: Anchors) -> Array:
    """Return the centre and the size of all anchors, as shares of the input's (A x 4)."""
    return np.concatenate([_boxes_of_layer(layer) for layer in parameters.layers])


def _boxes_of_layer(layer: AnchorLayer) -> Array:
    rows, columns = layer.grid
    y, x = np.meshgrid(_centres(rows), _centres(columns), indexing="ij")
    centres = np.stack([x.ravel(), y.ravel()], axis=1)
    sizes = np.array(layer.sizes, np.float64)
    each_centre = np.repeat(centres, len(sizes), axis=0)
    each_size = np.tile(sizes, (rows * columns, 1))
    return np.concatenate([each_centre, each_size], axis=1)


def _centres(cells: int) -> Array:
    """Return the centres of the cells of an axis, as shares of its length."""
    return np.asarray((np.arange(cells) + 0.5) / cells)


def boxes_of_offsets(offsets: Array, anchors: Array, parameters: Anchors) -> Array:
    """Return the centre and the size of the boxes that a model places by A anchors (A x 4).

    ``offsets`` (A x 4) are those of the centre and the shares of the size, or their logarithms, in
    the order and the scale of the parameters. All are relative to the anchors' sizes.
    """
    if parameters.order == "yxhw":
        offsets = offsets[:, [1, 0, 3, 2]]
    scaled = offsets / np.array(parameters.scale)
    moves, shares = np.split(scaled, 2, axis=1)
    if parameters.size == "exponential":
        shares = np.exp(shares)
    centres, sizes = np.split(anchors, 2, axis=1)
    return np.concatenate([moves * sizes + centres, shares * sizes], axis=1)
