"""Shapes of outputs and of labels, which may differ by axes of 1."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_mlms.measure.evaluate.tasks.task import Array
from pytest_mlms.measure.pipeline import opencv_resizing
from pytest_mlms.measure.pipeline.geometry import Size


def in_shape(values: Array, shape: Sequence[int]) -> Array:
    """Return values in a shape that differs by axes of 1 alone, or else as they are."""
    if _long_axes(values.shape) != _long_axes(shape):
        return values
    return values.reshape(shape)


def resized_mask(mask: Array, shape: Sequence[int]) -> Array:
    """Return a mask of two axes, besides axes of 1, in a shape of two, by the nearest pixel.

    Others are returned as they are.
    """
    squeezed = mask.squeeze()
    if squeezed.ndim != 2 or len(shape) != 2:
        return mask
    return opencv_resizing.METHODS["nearest"](squeezed, Size(*shape))


def _long_axes(shape: Sequence[int]) -> list[int]:
    return [length for length in shape if length != 1]
