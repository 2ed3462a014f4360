"""The steps that make integers of pictures and of arrays of floats, for quantised models."""

from __future__ import annotations

from typing import Any

import numpy as np
from mlms_predictors import Tensor
from numpy.typing import NDArray

from pytest_mlms.author.draft.data import ArrayData
from pytest_mlms.author.draft.quantisation import Quantisation
from pytest_mlms.core.errors import MlmsError

SHARES = "normalize: {mean: 0, scale: 255}"
IMAGENET = "normalize: {mean: [123.675, 116.28, 103.53], scale: [58.395, 57.12, 57.375]}"
_CENTRED = "normalize: {mean: 127.5, scale: 127.5}"
_LESS_128 = "normalize: {mean: 128, scale: 1}"

_RANGES = (
    ((0.0, 1.0), SHARES),
    ((-1.0, 1.0), _CENTRED),
    ((0.0, 255.0), ""),
    ((-128.0, 127.0), _LESS_128),
)
"""Usual ranges of pixels, and the step that makes them of 0 to 255; bytes are linear in all."""
_RANGE_ERROR = 0.02  # of a range, at either end
_IMAGENET_ENDS = ((-3.0, -1.5), (1.5, 3.5))
_MOST_BEYOND = 0.01  # the share of values that may be beyond what integers stand for

Step = tuple[str, str]
"""A step, and a comment."""


def steps_of_range(
    tensor: Tensor, quantisation: Quantisation | None, *, has_colors: bool
) -> tuple[list[Step], str]:
    """Return the steps that make the integers of a model of pixels, and a comment on the input."""
    is_signed = tensor.dtype == "int8"
    if quantisation is None:
        reason = "a guess: pixels less 128, as the file has no scale for them"
        return ([(_LESS_128, reason)] if is_signed else []), ""
    low, high = quantisation.range(tensor.dtype)
    stands_for = f"{tensor.dtype} stands for {low:.4g} to {high:.4g}"
    step = _usual_step(low, high)
    if step is None and has_colors and _is_imagenet(low, high):
        step = IMAGENET
    elif step is None or not is_signed:
        reason = f"pixels as they are: {stands_for}"
        steps = [(_LESS_128, f"a guess: pixels less 128; {stands_for}")] if is_signed else []
        return steps, "" if is_signed else reason
    written = (f"quantize: {{{quantisation.parameters}, to: {tensor.dtype}}}", "of the file")
    if not step:
        return [written], ""
    return [(step, f"a guess: {stands_for}"), written], ""


def _usual_step(low: float, high: float) -> str | None:
    """Return the step that makes a usual range of pixels, None for another range."""
    for (least, most), step in _RANGES:
        error = _RANGE_ERROR * (most - least)
        if abs(low - least) < error and abs(high - most) < error:
            return step
    return None


def _is_imagenet(low: float, high: float) -> bool:
    """Return whether a range is about that of ImageNet's mean and scale."""
    pairs = zip((low, high), _IMAGENET_ENDS, strict=True)
    return all(least < end < most for end, (least, most) in pairs)


def step_to_integers(tensor: Tensor, data: ArrayData, quantisation: Quantisation | None) -> Step:
    """Return the step that makes a model's integers of an array of another type.

    Raises MlmsError for numbers that no integers stand for, as a cast would cut off fractions.
    """
    dtype, _ = data.arrays[tensor.name]
    values = data.values(tensor.name).ravel()
    ends = quantisation.range(tensor.dtype) if quantisation else (0.0, 0.0)
    if quantisation is not None and _beyond(values, ends) <= _MOST_BEYOND:
        step = f"quantize: {{{quantisation.parameters}, to: {tensor.dtype}}}"
        return step, f"the arrays are {dtype}; scale and zero point of the file"
    of_whole = ", of whole numbers" if dtype.kind == "f" else ""
    if _are_whole(values, tensor.dtype):
        return f"cast: {{to: {tensor.dtype}}}", f"the arrays are {dtype}{of_whole}"
    extremes = f"{values.min():.4g} to {values.max():.4g}"
    found = f"{data.path} has {tensor.name!r} of {dtype} from {extremes}"
    if quantisation is None:
        problem = f"{found}, and the model takes {tensor.dtype}, of unknown scale"
        advice = f"save the array as {tensor.dtype}, as the model takes it"
        raise MlmsError(f"{problem}; {advice}: numpy.round(x / scale + zero_point)")
    low, high = ends
    problem = f"{found}, and {tensor.dtype} of the model stands for {low:.4g} to {high:.4g}"
    raise MlmsError(f"{problem}; give the numbers that the model was trained on, or {tensor.dtype}")


def _beyond(values: NDArray[Any], ends: tuple[float, float]) -> float:
    """Return the share of values that are outside of a range by more than rounding."""
    low, high = ends
    room = (high - low) / 255
    return float(1 - ((values >= low - room) & (values <= high + room)).mean())


def _are_whole(values: NDArray[Any], dtype: str) -> bool:
    """Return whether values are whole numbers that a type of integers holds."""
    if not np.isfinite(values).all():
        return False
    bounds = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    is_within = (values >= bounds[0]) & (values <= bounds[1])
    return bool((is_within & (np.floor(values) == values)).all())
