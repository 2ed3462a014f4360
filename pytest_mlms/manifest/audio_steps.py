"""Parameters of the steps that make a model's input of sound."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from pytest_mlms.manifest.types import Closed, Positive

PositiveNumber = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Frequency = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Mono(Closed):
    """Take the mean of all channels, or one of them by its number from 0."""

    channel: Annotated[int, Field(ge=0)] | None = None


class Resample(Closed):
    """Convert sound of another rate to the input's ``sample_rate``."""


class FixLength(Closed):
    """Cut or fill up the first axis to ``size``, at the end, at the start, or at both.

    ``value`` fills.
    """

    size: Positive
    side: Literal["end", "start", "both"] = "end"
    value: float = 0.0


class Frame(Closed):
    """Cut samples into frames (frames x length), one every ``hop`` samples.

    What doesn't fill a last frame is left out, or with ``pad: end`` filled up with zeros.
    """

    length: Positive
    hop: Positive
    pad: Literal["none", "end"] = "none"


class Spectrogram(Closed):
    """Compute the short-time Fourier transform of samples: frequencies x frames.

    ``fft`` is the length of the transform, ``hop`` the samples between two frames, ``window`` the
    length of the window (that of the transform without it). With ``center`` a frame begins half a
    transform before its samples, and the sound is padded with zeros or reflected. ``power`` is 2
    for the power and 1 for the magnitude.
    """

    fft: Positive
    hop: Positive
    window: Positive | None = None
    shape: Literal["hann", "hamming", "povey", "ones"] = "hann"
    center: bool = True
    pad: Literal["constant", "reflect"] = "constant"
    power: PositiveNumber = 2.0

    @model_validator(mode="after")
    def _check_window(self) -> Spectrogram:
        if self.window is not None and self.window > self.fft:
            raise ValueError(f"the window is longer than fft, {self.fft}; write a longer fft")
        return self


class Mel(Spectrogram):
    """Compute a mel spectrogram of samples: bands x frames.

    Bands are triangles over hertz, from ``low`` to ``to``, half the sample rate without it.
    ``formula`` and ``norm`` are librosa's words; torchaudio's default is htk's formula, no norm.
    """

    bands: Positive
    low: Frequency = 0.0
    to: PositiveNumber | None = None
    formula: Literal["slaney", "htk"] = "slaney"
    norm: Literal["slaney", "none"] = "slaney"


class Log(Closed):
    """Take the logarithm of all values.

    ``base`` is e, 10, or db for ten times that of base 10. Values below ``floor`` are raised to it,
    after ``offset`` was added. With ``range`` results are at least the largest one less that.
    """

    base: Literal["e", "10", "db"] = "e"
    floor: PositiveNumber | None = 1e-10
    offset: Frequency = 0.0
    range: PositiveNumber | None = None


class Mfcc(Closed):
    """Take the first ``count`` of the orthonormal discrete cosine transform over the first axis.

    It is the last of the steps ``mel``, ``log: {base: db, range: 80}`` and ``mfcc``.
    """

    count: Positive


class Transpose(Closed):
    """Exchange the two axes of an element, as from bands x frames to frames x bands."""


class ExpandDims(Closed):
    """Add an axis of 1 at this place of an element, the last without it."""

    axis: int = -1
