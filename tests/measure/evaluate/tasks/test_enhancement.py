"""Tests of image enhancement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_mlms.core.errors import DatasetError, OutputError
from pytest_mlms.measure.evaluate.scoring import UNDEFINED, estimate_evidence, figures_of
from tests.support.scored import evidence_of, resamples

TASK = "image-enhancement"
UNIT = {"image": {"scale": 255}}
LABELS = np.random.default_rng(3).integers(0, 256, size=(2, 12, 16, 3)).astype(np.uint8)


def channels_first(pictures: np.ndarray) -> np.ndarray:
    return np.moveaxis(pictures, -1, 1) / 255


def test_a_picture_without_an_error_has_100_decibels() -> None:
    found = evidence_of(TASK, LABELS, channels_first(LABELS), UNIT)
    assert figures_of(found) == {"psnr": 100, "ssim": 1, "ssim_uniform": 1}
    assert found.losses.tolist() == [0, 0]


def test_pictures_become_whole_numbers_as_their_labels_are() -> None:
    values = channels_first(LABELS) + 0.4 / 255
    assert figures_of(evidence_of(TASK, LABELS, values, UNIT))["psnr"] == 100


def test_an_error_of_one_has_48_decibels() -> None:
    grey = np.full((1, 12, 12, 1), 100, np.uint8)
    found = evidence_of(TASK, grey, channels_first(grey) + 1 / 255, UNIT)
    assert figures_of(found)["psnr"] == pytest.approx(20 * math.log10(255))


def test_pictures_of_one_channel_may_lack_its_axis() -> None:
    grey = np.full((1, 12, 12, 1), 0.25)
    assert figures_of(evidence_of(TASK, grey, np.full((1, 12, 12), 0.25)))["ssim"] == 1


def test_pictures_that_are_smaller_than_the_window_have_no_similarity() -> None:
    small = LABELS[:, :9]
    found = estimate_evidence(evidence_of(TASK, small, channels_first(small), UNIT), seed=0)
    assert found["ssim"].lacking == UNDEFINED
    assert found["ssim_uniform"].value == 1


def test_a_picture_of_another_size_is_an_error() -> None:
    message = r"element 0: the label is \(12, 16, 3\), and output 'y' \(3, 12, 16\); write a step"
    with pytest.raises(DatasetError, match=message):
        evidence_of(TASK, LABELS, channels_first(LABELS))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((2, 3, 12, 16), np.nan), "step 1 of output 'y', image: it has NaN or infinity"),
        (np.zeros((2, 12, 16)), r"image: the output is \(2, 12, 16\); name one of inputs, chan"),
        (np.zeros((2, 2, 12, 16)), "image: mean has 3 values for 2 channels; write one for all"),
    ],
)
def test_values_that_are_no_pictures_are_an_error(values: np.ndarray, message: str) -> None:
    with pytest.raises(OutputError, match=message):
        evidence_of(TASK, LABELS, values, {"image": {"mean": [1, 2, 3]}})


def test_a_label_that_is_not_finite_is_an_error() -> None:
    labels = np.ones((2, 12, 16, 3))
    labels[1, 0, 0, 0] = np.nan
    with pytest.raises(DatasetError, match="element 1: the label has NaN or infinity; correct it"):
        evidence_of(TASK, labels, np.ones((2, 12, 16, 3)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_the_quantities_are_those_of_scikit_image(dtype: type) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    generator = np.random.default_rng(4)
    largest = 255 if dtype is np.uint8 else 1
    smooth = np.linspace(0, 0.8, 31 * 40 * 3).reshape(1, 31, 40, 3) ** [[[[1]]], [[[2]]]]
    labels: Any = (largest * smooth).astype(dtype)
    noisy: Any = (largest * (smooth + 0.1 * generator.random(smooth.shape))).astype(dtype)
    found = evidence_of(TASK, labels, noisy).figures(resamples(2))
    gaussian = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected: dict[str, list[float]] = {"psnr": [], "ssim": [], "ssim_uniform": []}
    for label, picture in zip(labels, noisy, strict=True):
        ratio = metrics.peak_signal_noise_ratio(label, picture, data_range=largest)
        ssim = metrics.structural_similarity
        given = {"data_range": largest, "channel_axis": -1}
        expected["psnr"].append(ratio)
        expected["ssim"].append(ssim(label, picture, **given, **gaussian))
        expected["ssim_uniform"].append(ssim(label, picture, **given))
    for name, values in expected.items():
        assert found[name][0] == pytest.approx(np.mean(values), abs=1e-9), name


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_labels_whose_type_does_not_say_what_white_is_are_an_error(dtype: str) -> None:
    labels = np.zeros((1, 16, 16, 3), dtype)
    message = f"the label is {dtype}, which doesn't say what white is; save it as uint8 or uint16"
    with pytest.raises(DatasetError, match=message):
        evidence_of("image-enhancement", labels, np.zeros((1, 16, 16, 3)))


def test_rounding_takes_many_decibels_of_an_exact_picture_and_none_of_others() -> None:
    exact = evidence_of(TASK, LABELS, channels_first(LABELS), UNIT)
    noisy = evidence_of(TASK, LABELS, channels_first(LABELS[::-1]), UNIT)
    assert exact.rounding["psnr"] > 30
    assert noisy.rounding["psnr"] < 0.001
