"""Parameters of the steps that make inputs of sound and of texts, and texts of outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pytest_mlms.manifest.types import Closed, Positive, Sha256, Source

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


NotNegativeInt = Annotated[int, Field(ge=0)]


class _WithFile(Closed):
    """A file that a step reads, with its digest."""

    FILES: ClassVar[Mapping[str, str]] = {"file": "sha256"}

    file: Source
    sha256: Sha256


class Tokenize(_WithFile):
    """Encode a text, or a pair of texts, by a ``tokenizer.json`` to ``length`` numbers.

    ``give`` chooses the tokens' ids, 1 for each token and 0 for padding, or the number of the text
    of a pair. A longer text is cut, of a pair the second one. ``special`` adds the tokens that the
    file adds at the start and the end. ``pad`` is the id of the padding; without it the file's own,
    or 0.
    """

    length: Positive
    give: Literal["ids", "attention_mask", "type_ids"] = "ids"
    special: bool = True
    pad: NotNegativeInt | None = None


class Argmax(Closed):
    """Take the index of the largest value along an axis, the last one without it."""

    axis: int = -1


class Threshold(Closed):
    """Tell where values are above ``above``: 1 there, 0 elsewhere."""

    above: float = 0.5


class Ctc(Closed):
    """Decode the best path of CTC: the best class of each time, repetitions once, without blanks.

    The values are times x classes, or the best class of each time. ``file`` has one token a line,
    in the order of the classes; a file with a line less than there are classes has none for
    ``blank``. ``append`` has the tokens of the last classes, where the file hasn't. ``delimiter``
    is the token that stands for a blank between words. Without a file the tokens' ids are left, for
    detokenize.
    """

    FILES: ClassVar[Mapping[str, str]] = {"file": "sha256"}

    blank: NotNegativeInt = 0
    file: Source | None = None
    sha256: Sha256 | None = None
    append: list[str] = []
    delimiter: str | None = None

    @model_validator(mode="after")
    def _check_file(self) -> Ctc:
        if (self.file is None) != (self.sha256 is None):
            raise ValueError(
                "a file of tokens needs its digest; write 'file' and 'sha256', or none"
            )
        if self.file is None and (self.append or self.delimiter):
            raise ValueError("append and delimiter belong to a file of tokens; write 'file'")
        return self


class Detokenize(_WithFile):
    """Turn the ids of tokens into a text by a ``tokenizer.json``.

    Special tokens are left out. The text ends before the first ``stop``. Negative ids are padding.
    """

    stop: NotNegativeInt | None = None


class NormalizeText(Closed):
    """Make texts and labels alike before they are compared.

    Blanks become one space. ``case`` is that of all letters. ``punctuation: remove`` takes out all
    of Unicode's punctuation but apostrophes within words. ``form`` is a normal form of Unicode.
    """

    case: Literal["keep", "lower", "upper"] = "keep"
    punctuation: Literal["keep", "remove"] = "keep"
    form: Literal["NFC", "NFKC"] = "NFC"


_STEPS_OF_TYPE = {
    "text": ("softmax", "sigmoid", "argmax", "ctc", "detokenize", "normalize_text"),
    "tokens": ("softmax", "sigmoid", "threshold", "argmax", "ctc"),
}
_ENDS_IN_TEXT = ("detokenize", "normalize_text")


def check_text_steps(kind: str, steps: Mapping[str, Any]) -> None:
    """Raise ValueError unless an output's steps, by name, can make what its type says."""
    for name in steps:
        if name not in _STEPS_OF_TYPE.get(kind, steps):
            advice = "leave it out, or write another type"
            raise ValueError(f"an output of type {kind} has no step {name!r}; {advice}")
        if kind not in _STEPS_OF_TYPE and name in ("ctc", *_ENDS_IN_TEXT):
            raise ValueError(f"an output of type {kind} has no step {name!r}; write 'type: text'")
    makes_text = "detokenize" in steps or ("ctc" in steps and steps["ctc"].file is not None)
    if kind == "text" and not makes_text:
        advice = "end its steps with 'ctc' and a file, or with 'detokenize'"
        raise ValueError(f"nothing makes this output a text; {advice}")
