"""Shapes of outputs and of labels, which may differ by axes of 1."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_mlms.evaluate.tasks.task import Array

__all__ = ["in_shape"]


def in_shape(values: Array, shape: Sequence[int]) -> Array:
    """Return values in a shape that differs by axes of 1 alone, or else as they are."""
    if _long_axes(values.shape) != _long_axes(shape):
        return values
    return values.reshape(shape)


def _long_axes(shape: Sequence[int]) -> list[int]:
    return [length for length in shape if length != 1]
