"""The input steps of sound: length, frames, spectra, mel bands and their cepstrum.

Sources of the formulas: Slaney, "Auditory Toolbox" (1998) and Young et al., "The HTK Book", for
the mel scales; librosa 0.11 for the filters and their norm. All is float32, as in librosa.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from pytest_mlms.manifest.audio_steps import (
    ExpandDims,
    FixLength,
    Frame,
    Log,
    Mel,
    Mfcc,
    Spectrogram,
    Transpose,
)

Array = NDArray[Any]

_MOST_VALUES = 1 << 28  # of one element


def fix_length(values: Array, parameters: FixLength) -> Array:
    """Return an array whose first axis is cut or filled up to a size."""
    size = parameters.size
    difference = abs(size - len(values))
    shares = {"end": 0, "start": difference, "both": difference // 2}
    at_start = shares[parameters.side]
    if size <= len(values):
        return values[at_start : at_start + size]
    _check_size(size * values[:1].size)
    width = (at_start, difference - at_start)
    others = [(0, 0)] * (values.ndim - 1)
    return np.pad(values, [width, *others], constant_values=parameters.value)


def frames(samples: Array, parameters: Frame) -> Array:
    """Return frames x length of samples."""
    _check_samples(samples)
    length = parameters.length
    hop = parameters.hop
    if parameters.pad == "end":
        beyond_first = max(0, len(samples) - length)
        hops = math.ceil(beyond_first / hop)
        end = length + hops * hop
        samples = np.pad(samples, (0, end - len(samples)))
    return np.ascontiguousarray(_windows(samples, length, hop))


def _windows(samples: Array, length: int, hop: int) -> Array:
    if len(samples) < length:
        found = f"{len(samples):,} samples are fewer than a frame of {length:,}"
        raise ValueError(f"{found}; add a step 'fix_length' before it")
    _check_size(len(samples) // hop * length)
    windows = sliding_window_view(samples, length)
    return windows[::hop]


def spectrogram(samples: Array, parameters: Spectrogram) -> Array:
    """Return frequencies x frames of samples."""
    _check_samples(samples)
    fft = parameters.fft
    if parameters.center:
        samples = _centred(samples, parameters)
    window = _window(parameters.shape, parameters.window or fft, fft)
    windows = _windows(samples, fft, parameters.hop)
    magnitudes = np.abs(_transform(windows * window))
    return np.asarray(magnitudes.T**parameters.power)


def _centred(samples: Array, parameters: Spectrogram) -> Array:
    """Return samples with half a transform more at each end, so that frames are centred."""
    half = parameters.fft // 2
    if parameters.pad == "reflect" and len(samples) <= half:
        found = f"{len(samples):,} samples can't be reflected for an fft of {parameters.fft:,}"
        raise ValueError(f"{found}; write 'pad: constant'")
    return np.pad(samples, half, mode=parameters.pad)


def _transform(values: Array) -> Array:
    from scipy.fft import rfft

    return np.asarray(rfft(values))


@functools.lru_cache(maxsize=16)
def _window(shape: str, length: int, fft: int) -> Array:
    """Return a periodic window, in the middle of a transform."""
    from scipy.signal import get_window

    if shape == "povey":  # Kaldi's, which is symmetric
        window = get_window("hann", length, fftbins=False) ** 0.85
    else:
        name = "boxcar" if shape == "ones" else shape
        window = get_window(name, length)
    missing = fft - length
    before = missing // 2
    padded = np.pad(window, (before, missing - before))
    return padded.astype(np.float32)


def mel_spectrogram(samples: Array, parameters: Mel, rate: int) -> Array:
    """Return bands x frames of samples, of which there are ``rate`` in a second."""
    power = spectrogram(samples, parameters)
    low = parameters.low
    most = rate / 2
    high = parameters.to or most
    if not low < high <= most:
        found = f"mel bands from {low:g} to {high:g} Hz don't fit {rate:,} samples a second"
        raise ValueError(f"{found}; write 'to' up to {most:g}, above 'low'")
    filters = mel_filters(parameters.model_copy(update={"to": high}), rate)
    return filters @ power


@functools.lru_cache(maxsize=16)
def mel_filters(parameters: Mel, rate: int) -> Array:
    """Return the filters (bands x frequencies), triangles over hertz between points of mel."""
    count = parameters.fft // 2 + 1
    frequencies = np.arange(count) * (rate / parameters.fft)
    points = _band_points(parameters, rate)
    starts = points[:-2, np.newaxis]
    centres = points[1:-1, np.newaxis]
    ends = points[2:, np.newaxis]
    rising = (frequencies - starts) / (centres - starts)
    falling = (ends - frequencies) / (ends - centres)
    filters = np.maximum(0, np.minimum(rising, falling))
    if parameters.norm == "slaney":
        filters *= 2 / (ends - starts)
    return np.asarray(filters, dtype=np.float32)


def _band_points(parameters: Mel, rate: int) -> Array:
    """Return the hertz where bands begin, have their centre and end (bands + 2)."""
    bounds = np.array([parameters.low, parameters.to or rate / 2])
    first, last = _mel_of(bounds, parameters.formula)
    mel = np.linspace(first, last, parameters.bands + 2)
    return _hertz_of(mel, parameters.formula)


_LINEAR_HERTZ = 200 / 3  # of a mel of Slaney's, up to 1 kHz
_LOG_START = 1000.0
_LOG_MEL = _LOG_START / _LINEAR_HERTZ
_LOG_STEP = np.log(6.4) / 27


def _mel_of(hertz: Array, formula: str) -> Array:
    if formula == "htk":
        return np.asarray(2595 * np.log10(1 + hertz / 700))
    above = np.maximum(hertz, _LOG_START)
    logarithmic = _LOG_MEL + np.log(above / _LOG_START) / _LOG_STEP
    return np.where(hertz < _LOG_START, hertz / _LINEAR_HERTZ, logarithmic)


def _hertz_of(mel: Array, formula: str) -> Array:
    if formula == "htk":
        return np.asarray(700 * (10 ** (mel / 2595) - 1))
    logarithmic = _LOG_START * np.exp(_LOG_STEP * (mel - _LOG_MEL))
    return np.where(mel < _LOG_MEL, mel * _LINEAR_HERTZ, logarithmic)


def logarithm(values: Array, parameters: Log) -> Array:
    """Return the logarithm of all values; raises ValueError where it isn't finite."""
    numbers = np.asarray(values, dtype=np.float32)
    numbers = numbers + np.float32(parameters.offset)
    if parameters.floor is not None:
        numbers = np.maximum(numbers, np.float32(parameters.floor))
    if not (numbers > 0).all():
        raise ValueError("a value is 0 or less; write a 'floor' or an 'offset'")
    result = np.log(numbers) if parameters.base == "e" else np.log10(numbers)
    if parameters.base == "db":
        result *= 10
    if parameters.range is not None:
        least = result.max() - np.float32(parameters.range)
        result = np.maximum(result, least)
    return np.asarray(result)


def mfcc(values: Array, parameters: Mfcc) -> Array:
    """Return coefficients x frames of bands x frames."""
    from scipy.fft import dct

    if values.ndim != 2 or parameters.count > len(values):
        found = f"{parameters.count} coefficients of {values.shape}"
        raise ValueError(f"{found} can't be taken; put 'mel' and 'log' before, with as many bands")
    coefficients = dct(values, axis=0, norm="ortho")
    return np.asarray(coefficients[: parameters.count])


def transpose(values: Array, parameters: Transpose) -> Array:
    """Return an element with its two axes exchanged."""
    if values.ndim != 2:
        raise ValueError(f"it is {values.shape}; expected two axes")
    return values.T


def expand_dims(values: Array, parameters: ExpandDims) -> Array:
    """Return an element with an axis of 1 more."""
    return np.expand_dims(values, parameters.axis)


def _check_samples(samples: Array) -> None:
    if samples.ndim != 1:
        raise ValueError(f"it is {samples.shape}; expected samples; put it before other steps")


def _check_size(values: int) -> None:
    if values > _MOST_VALUES:
        raise ValueError(f"it would be {values:,} numbers an element; write a smaller size")
