"""Image enhancement, such as super-resolution: pictures against pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.measure.evaluate.closeness import check_finite
from pytest_mlms.measure.evaluate.tasks.labels import (
    finite_label,
    in_shape,
    labels_of,
    number_texts,
)
from pytest_mlms.measure.evaluate.tasks.task import Evidence, Scorer, Task
from pytest_mlms.measure.pipeline.outputs import steps_done

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset

_BEST_RATIO = 100.0
"""Decibels of a picture without an error."""

_MOST_BYTES = 2  # of a pixel's whole number, whose largest one is white

_FLIPPED = 0.01
"""Share of a picture's whole numbers that rounding may turn into the next ones."""

_FLOAT_ERROR = (8 * float(np.finfo(np.float32).eps)) ** 2
"""Mean squared error that rounding explains, where white is 1.0."""

_GAUSSIAN = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
_GAUSSIAN /= _GAUSSIAN.sum()
_UNIFORM = np.full(7, 1 / 7)


class ImageEnhancement(Task):
    """The first image against the label's, of the same size."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer; raises DatasetError for a dataset without labels."""
        return EnhancementScorer(outputs[0], dataset)


class EnhancementScorer(Scorer):
    """Collector of the quantities of each picture."""

    def __init__(self, output: Output, dataset: Dataset) -> None:
        self._output = output
        self._dataset = dataset
        self._labels = labels_of(dataset, "a picture an element")
        self._found: list[tuple[float, float, float]] = []
        self._rounded: list[float] = []
        self._finite: list[bool] = []

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the pictures of a batch.

        Raises DatasetError for labels of another size, and for those with NaN or infinity.
        """
        pictures = steps_done(outputs[self._output.name], self._output)
        for values, index in zip(pictures, inputs, strict=True):
            label = finite_label(self._dataset, index)
            if label.dtype.kind in "iu" and label.dtype.itemsize > _MOST_BYTES:
                found = (
                    f"the picture of the label is {label.dtype}, which doesn't say what white is"
                )
                raise self._dataset.label_error(index, f"{found}; save it as uint8 or uint16")
            picture = in_shape(np.asarray(values, np.float64), label.shape)
            if picture.shape != label.shape:
                found = (
                    f"the label is {label.shape}, and output {self._output.name!r} {picture.shape}"
                )
                advice = "write a step 'image' with the layout, or labels of that size"
                raise self._dataset.label_error(index, f"{found}; {advice}")
            self._finite.append(bool(np.isfinite(picture).all()))
            self._found.append(_compare(label, np.nan_to_num(picture)))
            largest = _largest_of(label)
            self._rounded.append(_FLOAT_ERROR if largest == 1 else _FLIPPED / largest**2)

    def evidence(self) -> EnhancementEvidence:
        """Return the evidence of all inputs; raises OutputError for values that aren't finite."""
        finite = np.array(self._finite)
        check_finite(self._output.name, finite, self._dataset.element_name)
        return EnhancementEvidence(np.array(self._found), np.array(self._rounded))


def _compare(label: Array, picture: Array) -> tuple[float, float, float]:
    """Return the quantities of a picture, which becomes one of whole numbers as its label is."""
    largest = _largest_of(label)
    if largest != 1:
        picture = picture.round().clip(0, largest)
    truth = label.astype(np.float64)
    return (
        peak_ratio(truth, picture, largest),
        similarity(truth, picture, largest, _GAUSSIAN),
        similarity(truth, picture, largest, _UNIFORM, is_sample=True),
    )


def _largest_of(label: Array) -> float:
    """Return the number that is white."""
    return float(np.iinfo(label.dtype).max) if label.dtype.kind in "iu" else 1.0


def peak_ratio(label: Array, picture: Array, largest: float) -> float:
    """Return the peak signal-to-noise ratio in dB, 10 log10(largest² / mean squared error).

    It is 100 dB at most, which a picture without an error has.
    """
    error = float(np.square(label - picture).mean())
    if not error:
        return _BEST_RATIO
    return min(float(10 * np.log10(largest**2 / error)), _BEST_RATIO)


def similarity(
    label: Array, picture: Array, largest: float, window: Array, is_sample: bool = False
) -> float:
    """Return the mean structural similarity of two pictures (height x width x channels).

    It is the mean over channels and over all places of the window within the picture, NaN where it
    doesn't fit. ``window`` has the weights of the window's rows and columns. Variances are those of
    the window, or with ``is_sample`` those of a sample (Wang et al. 2004, IEEE Transactions on
    Image Processing 13:600; the Gaussian window is theirs).
    """
    if min(label.shape[:2]) < len(window):
        return float("nan")
    mean_a = _filtered(label, window)
    mean_b = _filtered(picture, window)
    square_a = mean_a**2
    square_b = mean_b**2
    product = mean_a * mean_b
    scale = _sample_scale(window) if is_sample else 1.0
    variance_a = scale * (_filtered(label * label, window) - square_a)
    variance_b = scale * (_filtered(picture * picture, window) - square_b)
    covariance = scale * (_filtered(label * picture, window) - product)
    c1 = (0.01 * largest) ** 2
    c2 = (0.03 * largest) ** 2
    alike = (2 * product + c1) * (2 * covariance + c2)
    spread = (square_a + square_b + c1) * (variance_a + variance_b + c2)
    return float((alike / spread).mean())


def _sample_scale(window: Array) -> float:
    """Return the factor from the variance of a window to the variance of a sample."""
    count = len(window) ** 2
    return count / (count - 1)


def _filtered(picture: Array, window: Array) -> Array:
    """Return the weighted means of all places of a window within a picture."""
    by_rows = _filtered_rows(picture, window)
    return _filtered_rows(np.swapaxes(by_rows, 0, 1), window)


def _filtered_rows(picture: Array, window: Array) -> Array:
    places = len(picture) - len(window) + 1
    found = np.zeros((places, *picture.shape[1:]))
    for first, weight in enumerate(window):
        found += weight * picture[first : first + places]
    return found


class EnhancementEvidence(Evidence):
    """The quantities of each picture (N x 3): PSNR in dB, SSIM, and SSIM by a uniform window.

    ``rounded`` (N) are the mean squared errors that rounding explains, where white is 1.
    """

    def __init__(self, found: Array, rounded: Array | float = 0.0) -> None:
        self._found = found
        self._rounded = rounded

    def __len__(self) -> int:
        return len(self._found)

    def figures(self, counts: Array) -> dict[str, Array]:
        """Return the means over the pictures."""
        means = counts @ self._found / counts.sum(axis=1, keepdims=True)
        return dict(zip(("psnr", "ssim", "ssim_uniform"), means.T, strict=True))

    @property
    def rounding(self) -> dict[str, float]:
        """The decibels that rounding takes: of nearly exact pictures many, of others none."""
        errors = 10 ** (-self._found[:, 0] / 10)
        return {"psnr": float((10 * np.log10(1 + self._rounded / errors)).mean())}

    @property
    def losses(self) -> Array:
        """The decibels that each picture lacks to one without an error."""
        return np.asarray(_BEST_RATIO - self._found[:, 0])

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the quantities of each picture."""
        columns: dict[str, Sequence[Any]] = {}
        for name, values in zip(ImageEnhancement.quantities, self._found.T, strict=True):
            columns[name] = number_texts(values)
        return columns
