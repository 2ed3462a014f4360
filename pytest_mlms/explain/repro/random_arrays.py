"""Random arrays of the distribution of others, which tell none of their values but the extremes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array

_CHUNK = 1 << 20  # numbers that are drawn at a time
_FAR = 4.0
"""Standard deviations from the mean, beyond which an extreme cuts off nothing that counts."""


class _Moments(NamedTuple):
    """The moments and the extremes of some numbers, and the share of zeros among all."""

    mean: float
    deviation: float
    low: float
    high: float
    zeros: float


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is one of real numbers, also one of ml_dtypes, such as bfloat16."""
    return "float" in dtype.name


def like_weights(array: Array, random: np.random.Generator) -> Array:
    """Return random numbers of an array's shape and type.

    They have its mean and standard deviation, lie within its least and its largest number, and as
    large a share of them is 0. Numbers that aren't finite keep their places. An array that is 0 and
    one other number, such as a mask, has no distribution and is returned as it is.
    """
    values = array.astype(np.float64).ravel()
    finite = np.isfinite(values)
    moments = _moments_of(values[finite])
    if moments is None:
        return array
    drawn = np.empty(values.size, array.dtype)
    for begin in range(0, values.size, _CHUNK):
        part = slice(begin, begin + _CHUNK)
        numbers = _draw(moments, values[part].size, random)
        drawn[part] = np.where(finite[part], numbers, values[part]).astype(array.dtype)
    return drawn.reshape(array.shape)


def _moments_of(values: Array) -> _Moments | None:
    """Return the moments of the numbers that aren't 0; None where these are all alike."""
    others = values[values != 0]
    if others.size == 0 or others.min() == others.max():
        return None
    return _Moments(
        mean=float(others.mean()),
        deviation=float(others.std()),
        low=float(others.min()),
        high=float(others.max()),
        zeros=1 - others.size / values.size,
    )


def _draw(moments: _Moments, count: int, random: np.random.Generator) -> Array:
    """Return numbers of these moments, within the extremes, of which some are 0."""
    mean, deviation, low, high, zeros = moments
    if min(mean - low, high - mean) >= _FAR * deviation:
        numbers = random.normal(mean, deviation, count)
    else:
        numbers = low + (high - low) * _draw_beta(moments, count, random)
    numbers = numbers.clip(low, high)
    if zeros:
        numbers[random.random(count) < zeros] = 0
    return numbers


def _draw_beta(moments: _Moments, count: int, random: np.random.Generator) -> Array:
    """Return numbers from 0 to 1 of the beta distribution of these moments.

    There is one for any mean and deviation of numbers in a range. Its parameters follow from the
    method of moments (Johnson, Kotz and Balakrishnan 1995, Continuous Univariate Distributions 2,
    chapter 25).
    """
    width = moments.high - moments.low
    mean = (moments.mean - moments.low) / width
    variance = (moments.deviation / width) ** 2
    both = mean * (1 - mean) / variance - 1
    if not math.isfinite(both) or both * min(mean, 1 - mean) < 1e-3:  # nearly all are extremes
        return (random.random(count) < mean).astype(np.float64)
    return random.beta(mean * both, (1 - mean) * both, count)


def like_histogram(array: Array, random: np.random.Generator) -> Array:
    """Return whole numbers that are drawn from those of an array, as often as they are there."""
    return random.choice(array.ravel(), array.shape)


def like_input(array: Array, random: np.random.Generator) -> Array:
    """Return random values like those of an input, which are no texts.

    Real numbers are drawn as weights are, whole numbers from the range of the others, and truth
    values as often as they are true.
    """
    kind = array.dtype.kind
    if is_float(array.dtype):
        return like_weights(array, random)
    if kind in "iu" and array.size:
        return random.integers(array.min(), array.max(), array.shape, array.dtype, endpoint=True)
    if kind == "b" and array.size:
        truths: Array = random.random(array.shape) < array.mean()
        return truths
    return array
