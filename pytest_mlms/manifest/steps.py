"""Steps that a manifest may list, and their parameters; pytest_mlms.measure.pipeline runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field, model_validator

from pytest_mlms.manifest import output_steps, text_steps
from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.manifest.types import (
    Closed,
    ElementType,
    Layout,
    OneKey,
    PerChannel,
    Positive,
    Sha256,
    Short,
    Source,
    as_tuple,
)

MOST_PIXELS = 178_956_970
"""The most pixels of a picture that is read or made: Pillow's bound, half a GiB in RGB."""

ARRAY_STEPS = frozenset(
    {"normalize", "cast", "quantize", "fix_length", "log", "transpose", "expand_dims"}
)
"""Input steps that work on arrays of any meaning."""

SOUND_STEPS = frozenset({"mono", "resample", "frame", "spectrogram", "mel", "mfcc"})
"""Input steps that work on sound."""

_LEAST_SCALE = 1e-30
_LARGEST = 1e30  # of mean and scale, which are float32


def _drawable(size: tuple[int, int]) -> tuple[int, int]:
    height, width = size
    if height * width > MOST_PIXELS:
        problem = f"{height} x {width} has more than {MOST_PIXELS:,} pixels"
        raise ValueError(f"{problem}; write [height, width] of a picture")
    return size


Size = Annotated[tuple[Positive, Positive], AfterValidator(_drawable), Short(as_tuple)]


class Decode(Closed):
    """Turn an encoded image or an array into this colour mode, as uint8.

    Arrays are of grey, RGB or RGBA values. An encoded image is turned as its EXIF orientation says,
    or left as it is stored.
    """

    color: Literal["L", "RGB", "BGR"] = "RGB"
    orientation: Literal["exif", "stored"] = "exif"


_METHODS = {
    "pillow": ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"),
    "opencv": ("nearest", "bilinear", "area"),
    "tensorflow": ("nearest", "bilinear", "area"),
    "tensorflow1": ("nearest", "bilinear", "area"),
}
"""The methods of resizing of each library."""

Method = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos", "area"]
Library = Literal["pillow", "opencv", "tensorflow", "tensorflow1"]


class Resize(Closed):
    """Resize as a method of a library does.

    ``size`` is [height, width], which the image is stretched to, covers, or fits into: ``fit``.
    ``shortest`` and ``longest`` are a side's size; the other side keeps the aspect ratio. Both
    together are the shortest side's size unless the longest becomes more. ``keep_aspect_ratio:
    true`` is ``fit: cover``.
    """

    size: Size | None = None
    shortest: Positive | None = None
    longest: Positive | None = None
    method: Method = "bilinear"
    library: Library = "pillow"
    fit: Literal["stretch", "cover", "contain"] | None = None
    keep_aspect_ratio: bool = False

    @property
    def fitting(self) -> str:
        """How the image gets the size: stretch, cover or contain."""
        if self.fit is None:
            return "cover" if self.keep_aspect_ratio else "stretch"
        return self.fit

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """The size that every image gets; None where that depends on the image."""
        return self.size if self.fitting == "stretch" else None

    @model_validator(mode="after")
    def _check_size(self) -> Resize:
        by_side = self.shortest is not None or self.longest is not None
        if by_side == (self.size is not None):
            raise ValueError("resize takes a size, or a side: write 'size: …' or 'shortest: …'")
        if by_side and (self.fit or self.keep_aspect_ratio):
            raise ValueError("a side keeps the aspect ratio; leave out fit and keep_aspect_ratio")
        if self.fit and self.keep_aspect_ratio:
            raise ValueError("keep_aspect_ratio is 'fit: cover'; keep one of them")
        return self

    @model_validator(mode="after")
    def _check_method(self) -> Resize:
        known = _METHODS[self.library]
        if self.method not in known:
            problem = f"{self.library} has no method {self.method!r} here"
            raise ValueError(f"{problem}; write one of {', '.join(known)}")
        return self


class Crop(Closed):
    """Cut [height, width] out of the centre, or the part of both sides that ``ratio`` says.

    Where the rest is odd, the upper left corner is rounded as the library does.
    """

    size: Size | None = None
    ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    library: Literal["tensorflow", "torchvision"] = "tensorflow"

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """The size that every image gets; None where that depends on the image."""
        return self.size

    @model_validator(mode="after")
    def _check_size(self) -> Crop:
        if (self.size is None) == (self.ratio is None):
            raise ValueError("crop takes a size or a ratio; write one of them")
        if self.ratio is not None and self.library != "tensorflow":
            raise ValueError("a ratio is that of tf.image.central_crop; leave out the library")
        return self


class Pad(Closed):
    """Add pixels around the image: up to [height, width], to a multiple of N, or N on each side.

    They have a ``value``, one for all channels or one for each, or those at the image's edge.
    """

    size: Size | None = None
    multiple: Positive | None = None
    border: Positive | None = None
    align: Literal["center", "top_left"] = "center"
    value: PerChannel = (0.0,)
    mode: Literal["constant", "edge", "reflect"] = "constant"

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """The size that every image gets; None where that depends on the image."""
        return self.size

    @model_validator(mode="after")
    def _check_size(self) -> Pad:
        if [self.size, self.multiple, self.border].count(None) != 2:
            raise ValueError("pad takes one of size, multiple and border; write one of them")
        return self


class ColorOrder(Closed):
    """Put the channels into this order."""

    to: Literal["RGB", "BGR"]


class SetLayout(Closed):
    """Put the axes into this order."""

    to: Layout


class Normalize(Closed):
    """Compute (x - mean) / scale in float32, with one number for all channels or one for each."""

    mean: PerChannel = (0.0,)
    scale: PerChannel = (1.0,)

    @model_validator(mode="after")
    def _check_scale(self) -> Normalize:
        if 0 in self.scale:
            raise ValueError("scale is 0; write what to divide by, 1 for nothing")
        smallest = min(abs(value) for value in self.scale)
        largest = max(abs(value) for value in (*self.mean, *self.scale))
        if smallest < _LEAST_SCALE or largest > _LARGEST:
            bounds = f"{_LEAST_SCALE:g} to {_LARGEST:g}"
            raise ValueError(f"mean or scale is out of float32's range; write numbers of {bounds}")
        return self


def check_channels(parameters: Normalize | Pad, channels: int) -> None:
    """Raise ValueError unless there is one value for all channels, or one for each."""
    for name in ("mean", "scale", "value"):
        count = len(getattr(parameters, name, ()))
        if count not in (0, 1, channels):
            plural = "" if channels == 1 else "s"
            found = f"{name} has {count} values for {channels} channel{plural}"
            raise ValueError(f"{found}; write one for all, or one for each")


class Cast(Closed):
    """Convert the elements as numpy's astype does: towards zero from float to integer."""

    to: ElementType


QUANTISED: Mapping[str, tuple[int, int]] = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
}
"""Type of quantised numbers -> the least and the largest of them."""


class Quantize(Closed):
    """Compute round(x / scale) + zero_point in float64, within the range of the type ``to``.

    Halves are rounded to even, and values beyond the range to its ends, as QuantizeLinear of ONNX
    does (https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html).
    """

    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    zero_point: int = 0
    to: Literal["int8", "uint8", "int16"]

    @model_validator(mode="after")
    def _check_zero_point(self) -> Quantize:
        least, largest = QUANTISED[self.to]
        if not least <= self.zero_point <= largest:
            problem = f"zero_point {self.zero_point} is no {self.to}"
            raise ValueError(f"{problem}; write one of {least} to {largest}, or another type")
        return self


class Softmax(Closed):
    """Turn logits into probabilities over the last axis."""


class TopK(Closed):
    """Keep the k best classes, with their names from a file that has one a line."""

    FILES: ClassVar[Mapping[str, str]] = {"labels": "sha256"}

    k: Positive = 5
    labels: Source | None = None
    sha256: Sha256 | None = None

    @model_validator(mode="after")
    def _check_digest(self) -> TopK:
        if self.labels and is_remote(self.labels) and not self.sha256:
            raise ValueError("labels that are fetched need a digest; write 'sha256: …' beside them")
        return self


class StepFile(NamedTuple):
    """A file that a step names: the key that does, its address, and its digest if there is one."""

    key: str
    source: str
    sha256: str | None


class Step(OneKey):
    """One key, the step's name, with its parameters; a bare word is a step without parameters."""

    WORD: ClassVar[str] = "step"

    @property
    def files(self) -> Iterator[StepFile]:
        """The files that it names.

        ``FILES`` of a class of parameters has the keys that name files, and those of their digests.
        """
        keys: Mapping[str, str] = getattr(self.parameters, "FILES", {})
        for key, digest in keys.items():
            source = getattr(self.parameters, key)
            if source is not None:
                yield StepFile(key, source, getattr(self.parameters, digest))


class InputStep(Step):
    """A step on the way from the dataset to the model's input."""

    decode: Decode | None = None
    resize: Resize | None = None
    crop: Crop | None = None
    color_order: ColorOrder | None = None
    pad: Pad | None = None
    layout: SetLayout | None = None
    normalize: Normalize | None = None
    cast: Cast | None = None
    quantize: Quantize | None = None
    mono: text_steps.Mono | None = None
    resample: text_steps.Resample | None = None
    fix_length: text_steps.FixLength | None = None
    frame: text_steps.Frame | None = None
    spectrogram: text_steps.Spectrogram | None = None
    mel: text_steps.Mel | None = None
    log: text_steps.Log | None = None
    mfcc: text_steps.Mfcc | None = None
    transpose: text_steps.Transpose | None = None
    expand_dims: text_steps.ExpandDims | None = None
    tokenize: text_steps.Tokenize | None = None


class OutputStep(Step):
    """A step on the way from the model's output to what is judged."""

    softmax: Softmax | None = None
    top_k: TopK | None = None
    boxes: output_steps.Boxes | None = None
    columns: output_steps.Columns | None = None
    yolo: output_steps.Yolo | None = None
    anchors: output_steps.Anchors | None = None
    sigmoid: output_steps.Sigmoid | None = None
    drop_background: output_steps.DropBackground | None = None
    dequantize: output_steps.Dequantize | None = None
    class_numbers: output_steps.ClassNumbers | None = None
    best_class: output_steps.BestClass | None = None
    min_score: output_steps.MinScore | None = None
    nms: output_steps.Nms | None = None
    classes: output_steps.Classes | None = None
    masks: output_steps.Masks | None = None
    threshold: text_steps.Threshold | None = None
    argmax: text_steps.Argmax | None = None
    ctc: text_steps.Ctc | None = None
    detokenize: text_steps.Detokenize | None = None
    normalize_text: text_steps.NormalizeText | None = None
    mask: output_steps.Mask | None = None
    image: output_steps.Image | None = None
