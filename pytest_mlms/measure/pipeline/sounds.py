"""Files of sound to samples, by libsndfile (WAV, FLAC, OGG, MP3, AIFF), and the steps on sounds.

The steps are length, frames, spectra, mel bands and their cepstrum.
"""

from __future__ import annotations

import functools
import io
import itertools
import math
import struct
from collections.abc import Callable, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError, MlmsError
from pytest_mlms.core.extras import install
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep
from pytest_mlms.manifest.text_steps import (
    ExpandDims,
    FixLength,
    Frame,
    Log,
    Mel,
    Mfcc,
    Mono,
    Spectrogram,
    Transpose,
)
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.provide.artifacts.digest import POINTER_ADVICE, is_pointer

_FORMATS = ("WAV", "WAVEX", "RF64", "FLAC", "OGG", "MP3", "AIFF")
_MOST_SAMPLES = 1 << 28  # of all channels: 4.6 hours of 16 kHz
_PART_SAMPLES = 1 << 24
_MOST_RATIO = 200_000  # whose filter has 4 million taps
_SHOWN_BYTES = 8
_REPLACE = "replace the file, or leave it out"
_UNKNOWN_SIZES = (0, 0xFFFFFFFF)  # of a RIFF file that was written as a stream
_PAGE_HEADER = 27  # bytes of an Ogg page before its table of segments
_END_OF_STREAM = 0x04  # flag of an Ogg page


class Sound(NamedTuple):
    """Samples (N x channels, float32, -1 to 1) and how many there are in a second."""

    samples: Array
    rate: int


def decode_sound(data: bytes) -> Sound:
    """Return the sound in a file; raises ValueError for a damaged one, and one that is cut off."""
    soundfile = _soundfile()
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            if file.format not in _FORMATS:
                known = ", ".join(_FORMATS)
                raise ValueError(f"it is {file.format}, not one of {known}; convert it")
            if file.frames * file.channels > _MOST_SAMPLES:
                found = f"{file.frames:,} samples of {file.channels} channels are too many"
                raise ValueError(f"{found}; cut the file, or leave it out")
            samples = _read(file)
            missing = _missing(file, data, len(samples))
            if missing:
                raise ValueError(f"it is cut off, {missing}; {_REPLACE}")
            if not len(samples):
                raise ValueError(f"it has no samples; {_REPLACE}")
            if not np.isfinite(samples).all():
                raise ValueError(f"it has samples that are NaN or infinite; {_REPLACE}")
            return Sound(samples, int(file.samplerate))
    except soundfile.LibsndfileError as error:
        raise ValueError(_no_sound(data, error)) from error


def _read(file: Any) -> Array:
    """Return the samples, in parts: no memory is taken for more than are there."""
    most = max(1, _PART_SAMPLES // file.channels)
    parts = [file.read(most, dtype="float32", always_2d=True)]
    while len(parts[-1]) == most:
        parts.append(file.read(most, dtype="float32", always_2d=True))
    return np.concatenate(parts) if len(parts) > 1 else np.asarray(parts[0])


def _missing(file: Any, data: bytes, read: int) -> str:
    """Return what a file lacks of what its header says, "" for a whole one.

    libsndfile reads what is there of a WAV or Ogg file that was cut off, without an error.
    """
    if read < file.frames:
        return f"{read:,} of {file.frames:,} samples are there"
    if data[:4] == b"RIFF":
        said = struct.unpack("<I", data[4:8])[0]
        if said not in _UNKNOWN_SIZES and said + 8 > len(data):
            return f"{len(data):,} of {said + 8:,} bytes are there"
    if data[:4] == b"OggS" and not _has_last_page(data):
        return "its last page isn't there"
    return ""


def _has_last_page(data: bytes) -> bool:
    """Return whether an Ogg file ends with a whole page that says so (RFC 3533, section 6)."""
    page = data[data.rfind(b"OggS") :]
    if len(page) < _PAGE_HEADER or not page[5] & _END_OF_STREAM:
        return False
    segments = page[_PAGE_HEADER : _PAGE_HEADER + page[26]]
    return len(page) >= _PAGE_HEADER + page[26] + sum(segments)


def _no_sound(data: bytes, error: Exception) -> str:
    if is_pointer(data):
        return f"it is {POINTER_ADVICE}"
    reason = getattr(error, "error_string", "") or str(error)
    start = data[:_SHOWN_BYTES]
    problem = f"{len(data):,} bytes, beginning {start!r}, can't be read as sound: {reason}"
    return f"{problem.rstrip('.')}; {_REPLACE}"


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: libsndfile itself isn't there
        advice = install("speech")
        raise MlmsError(f"files of sound need soundfile ({error}); {advice}") from None
    return soundfile


def as_mono(sound: Sound, parameters: Mono) -> Sound:
    """Return a sound with one channel: the mean of all, or the one that is named."""
    channels = sound.samples.shape[1]
    if parameters.channel is None:
        return sound._replace(samples=sound.samples.mean(axis=1, keepdims=True))
    if parameters.channel >= channels:
        problem = f"it has {channels} channels, and no number {parameters.channel}"
        raise ValueError(f"{problem}; write 0 to {channels - 1}")
    chosen = sound.samples[:, parameters.channel : parameters.channel + 1]
    return sound._replace(samples=chosen)


def resampled(sound: Sound, rate: int) -> Sound:
    """Return a sound at another rate, by scipy's polyphase filter (a Kaiser window, beta 5)."""
    if sound.rate == rate:
        return sound
    from scipy.signal import resample_poly

    common = gcd(sound.rate, rate)
    up, down = rate // common, sound.rate // common
    if max(up, down) > _MOST_RATIO or sound.samples.size * up // down > _MOST_SAMPLES:
        found = f"{len(sound.samples):,} samples at {sound.rate:,} a second"
        raise ValueError(f"{found} can't be resampled to {rate:,}; convert the file before")
    samples = resample_poly(sound.samples, up, down, axis=0)
    return Sound(samples.astype(np.float32), rate)


def plain_samples(sound: Sound, rate: int) -> Array:
    """Return the samples (N) of a sound; raises ValueError for another rate, and for stereo."""
    if sound.rate != rate:
        found = f"it has {sound.rate:,} samples a second, and the input {rate:,}"
        raise ValueError(f"{found}; add a step 'resample', or correct sample_rate")
    channels = sound.samples.shape[1]
    if channels != 1:
        raise ValueError(f"it has {channels} channels; add a step 'mono' before the others")
    return np.ascontiguousarray(sound.samples[:, 0])


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


ARRAY_STEPS: dict[str, Callable[[Any, Any], Array]] = {
    "fix_length": fix_length,
    "frame": frames,
    "spectrogram": spectrogram,
    "log": logarithm,
    "mfcc": mfcc,
    "transpose": transpose,
    "expand_dims": expand_dims,
}
"""Steps of one element by name, beside ``mel``, which needs the rate."""
