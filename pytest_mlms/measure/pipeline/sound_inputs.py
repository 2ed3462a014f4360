"""Sounds of a dataset as samples, and the steps that work on them and on arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep
from pytest_mlms.measure.pipeline import observers, spectra
from pytest_mlms.measure.pipeline.sounds import (
    Sound,
    as_mono,
    decode_sound,
    plain_samples,
    resampled,
)

Array = NDArray[Any]

_INT16_SCALE = np.float32(1 / 32768)


def is_first_of_sound(step: InputStep) -> bool:
    """Return whether a step works on whole sounds, which ``read_sounds`` does."""
    return step.name in ("mono", "resample")


def read_sounds(elements: Sequence[Any], spec: Input) -> list[Array]:
    """Return the samples (N, float32) of each element: a file, or samples at the input's rate.

    Raises DatasetError.
    """
    found = []
    for element in elements:
        try:
            found.append(_samples(element, spec))
        except ValueError as error:
            raise DatasetError(f"input {spec.name!r}: {error}") from error
    return found


def _samples(element: Any, spec: Input) -> Array:
    rate = spec.sample_rate
    assert rate is not None, "the schema asks for the rate of audio"
    if isinstance(element, bytes):
        with observers.step("decode"):
            sound = decode_sound(element)
    else:
        sound = _sound_of(np.asarray(element), rate)
    for step in itertools.takewhile(is_first_of_sound, spec.steps):
        with observers.step(step.name):
            if step.name == "mono":
                sound = as_mono(sound, step.parameters)
            else:
                sound = resampled(sound, rate)
    return plain_samples(sound, rate)


def _sound_of(samples: Array, rate: int) -> Sound:
    """Return an array of samples, samples x channels, or 1 x samples as sound.

    int16 is scaled to 1.
    """
    if samples.dtype == np.int16:
        samples = samples * _INT16_SCALE
    if samples.dtype.kind != "f" or samples.ndim not in (1, 2):
        found = f"an element is {samples.dtype} {samples.shape}"
        raise ValueError(f"{found}; expected samples, or samples x channels, as float or int16")
    if samples.ndim == 2 and len(samples) == 1:
        samples = samples[0]
    sound = samples.reshape(len(samples), -1)
    if sound.shape[1] > max(1, len(sound)):
        found = "an element of {} x {} has fewer samples than channels".format(*sound.shape)
        raise ValueError(f"{found}; write samples x channels, not channels x samples")
    return Sound(sound.astype(np.float32), rate)


ARRAY_STEPS: dict[str, Callable[[Any, Any], Array]] = {
    "fix_length": spectra.fix_length,
    "frame": spectra.frames,
    "spectrogram": spectra.spectrogram,
    "log": spectra.logarithm,
    "mfcc": spectra.mfcc,
    "transpose": spectra.transpose,
    "expand_dims": spectra.expand_dims,
}
"""Steps of one element by name, beside ``mel``, which needs the rate."""
