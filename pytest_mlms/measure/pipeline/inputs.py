"""The input steps, in the order of the manifest: a dataset's elements to a model's input.

Images are H x W x C, batches N x H x W x C, until a layout step or the end. Images are changed one
by one until all have the same shape, and as one array from then on. States are inputs that are
outputs of the call before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import BATCH, Input
from pytest_mlms.manifest.steps import (
    QUANTISED,
    Cast,
    ColorOrder,
    InputStep,
    Normalize,
    Quantize,
    SetLayout,
    check_channels,
)
from pytest_mlms.manifest.text_steps import Mel, Tokenize
from pytest_mlms.measure.pipeline import observers
from pytest_mlms.measure.pipeline.geometry import Size, crop_window, resized_size
from pytest_mlms.measure.pipeline.pictures import (
    IMAGE_STEPS,
    as_arrays,
    as_image,
    picture_size,
    reversed_channels,
)
from pytest_mlms.measure.pipeline.sounds import (
    ARRAY_STEPS,
    is_first_of_sound,
    mel_spectrogram,
    read_sounds,
)
from pytest_mlms.measure.pipeline.step_files import check_ids, tokenize

SEQUENCE = "sequence"
"""The column of a dataset that says to which sequence an element belongs."""


def start_state(spec: Input, size: int) -> NDArray[Any]:
    """Return a state at the beginning, for a batch of ``size``."""
    shape = [size if axis == BATCH else axis for axis in spec.shape or ()]
    return np.full(shape, spec.start or 0, spec.element_type)


Element = bytes | str | tuple[str, str] | Array
"""An element of a dataset: the content of a file, a text, a pair of them, or an array."""

Batch = Any
"""A list of elements, or one array with the batch as its first axis."""

_STEP_ERRORS = (ValueError, TypeError, OSError, ArithmeticError, MemoryError)
_SHOWN_SHAPES = 3


class _Form(NamedTuple):
    """The order of axes and colours that the steps so far have led to.

    ``rate`` is the rate of sound, ``tokens`` the range of the ids of tokens where it is known, and
    ``target`` the order of axes of an image in the end.
    """

    layout: str
    colors: str
    rate: int
    tokens: tuple[float, float] | None
    target: str

    def after(self, step: InputStep) -> _Form:
        if step.name == "layout":
            return self._replace(layout=step.parameters.to)
        if step.name == "decode":
            return self._replace(colors=step.parameters.color)
        if step.name == "color_order":
            return self._replace(colors=step.parameters.to)
        return self


def preprocess(elements: Sequence[Element], spec: Input) -> Array:
    """Return a batch in the layout and element type of an input.

    Raises DatasetError where a step can't be done.
    """
    batch: Batch = _opened(elements, spec)
    form = _Form("NHWC", "RGB", spec.sample_rate or 0, spec.range, spec.layout or "")
    for number, step in enumerate(spec.steps, start=1):
        if is_first_of_sound(step):
            continue
        try:
            with observers.step(step.name):
                batch = _apply(step, batch, form)
        except _STEP_ERRORS as error:
            place = f"step {number} of input {spec.name!r}, {step.name}"
            raise DatasetError(f"{place}: {error}") from error
        form = form.after(step)
    stacked = _stacked(_arrays_of(batch), spec)
    if spec.type == "image":
        layout = SetLayout(to=spec.layout or "NHWC")
        stacked = _set_layout(stacked, layout, form)
    try:
        placed = _with_batch_axis(stacked, spec)
    except ValueError as error:
        found = f"input {spec.name!r} has elements of {stacked.shape[1:]}"
        raise DatasetError(f"{found}, which don't fit its shape; correct it ({error})") from error
    return as_input(placed, spec)


def as_input(values: Array, spec: Input) -> Array:
    """Return values in an input's element type; raises DatasetError where it doesn't hold them.

    Fractions are cut by a step alone: pixels or samples of 0 to 1 would all become 0.
    """
    kind = spec.element_type
    if kind == "string":
        return _as_texts(values, spec)
    try:
        cast = _cast_checked(values, kind)
    except ValueError as error:
        raise DatasetError(f"input {spec.name!r}: {error}; correct its steps or its type") from None
    if values.dtype.kind == "f" and cast.dtype.kind in "iu" and (cast != values).any():
        extremes = f"{values.min():.10g} to {values.max():.10g}"
        problem = f"input {spec.name!r}: values from {extremes} have fractions, and {kind} has none"
        advice = f"'cast: {{to: {kind}}}' to cut them off"
        if kind in QUANTISED:
            advice = f"'quantize: {{scale: …, zero_point: …, to: {kind}}}', or with {advice}"
        advice = f"end its steps with {advice}"
        raise DatasetError(f"{problem}; {advice}")
    return np.asarray(cast, order="C")


def _as_texts(values: Array, spec: Input) -> Array:
    """Return texts; raises DatasetError for other values, and for what a model would cut off.

    ONNX Runtime takes a text up to its first NUL, and only texts in the machine's own byte order.
    """
    if values.dtype.kind != "U":
        problem = f"input {spec.name!r} takes texts, and has {values.dtype}"
        raise DatasetError(f"{problem}; save them as texts: numpy.asarray(…).astype(str)")
    if any("\0" in text for text in values.reshape(-1).tolist()):
        problem = f"input {spec.name!r} has a text with a NUL, behind which nothing is read"
        raise DatasetError(f"{problem}; leave it out, or take the NUL out of it")
    return values.astype(values.dtype.newbyteorder("="), order="C", copy=False)


def _cast_checked(values: Array, element_type: str) -> Array:
    """Return values in another type; raises ValueError for one that is outside of its range."""
    with np.errstate(all="ignore"):
        cast = values.astype(element_type, copy=False)
    if not cast.size or values.dtype.kind not in "iuf" or np.can_cast(values.dtype, cast.dtype):
        return cast
    if cast.dtype.kind == "f":
        is_lost = (np.isinf(cast) & np.isfinite(values)).any()
    else:
        is_lost = cast.dtype.kind != "b" and not _are_within(values, np.iinfo(cast.dtype))
    if is_lost:
        extremes = f"{values.min():.10g} to {values.max():.10g}"
        raise ValueError(f"values from {extremes} don't fit into {element_type}")
    return cast


def _are_within(values: Array, kind: np.iinfo[Any]) -> bool:
    """Return whether values, without their fractions, are in the range of a type."""
    extremes = (values.min().item(), values.max().item())
    return all(math.isfinite(one) and kind.min <= math.trunc(one) <= kind.max for one in extremes)


def _opened(elements: Sequence[Element], spec: Input) -> Batch:
    """Return what the steps of an input begin with."""
    if spec.type == "audio":
        return read_sounds(elements, spec)
    is_encoded = bool(spec.steps) and spec.steps[0].name == "decode"
    if spec.type == "image" and not is_encoded:
        return [as_image(element) for element in elements]
    return list(elements)


def _with_batch_axis(stacked: Array, spec: Input) -> Array:
    """Return a batch with its axis where the input has it; without one all elements are the same.

    A row of single numbers is one, too.
    """
    axis = spec.batch_axis
    if axis == 0:
        return stacked
    if axis is not None:
        return np.moveaxis(stacked, 0, axis)
    if (stacked != stacked[:1]).any():
        problem = f"input {spec.name!r} has a shape without 'batch', and its elements differ"
        raise DatasetError(f"{problem}; use batch_sizes of 1, or make them the same")
    first = np.asarray(stacked[0])
    return first if spec.named_axes else first.reshape(spec.shape)


def _apply(step: InputStep, batch: Batch, form: _Form) -> Batch:
    if step.name in _BATCH_STEPS:
        change_batch = _BATCH_STEPS[step.name]
        return change_batch(_arrays_of(batch), step.parameters, form)
    change_image = _ELEMENT_STEPS[step.name]
    images = []
    for image in batch:
        images.append(change_image(image, step.parameters))
    return _joined(images)


def _arrays_of(batch: Batch) -> Batch:
    """Return a batch without images of Pillow's, as one array where all have one shape."""
    if not isinstance(batch, list) or not any(isinstance(each, Image.Image) for each in batch):
        return batch
    return _joined(as_arrays(batch))


def _stacked(batch: Batch, spec: Input) -> Array:
    """Return the batch as one array; raises DatasetError for images of several shapes."""
    if not isinstance(batch, list):
        return np.asarray(batch)
    arrays = [np.asarray(element) for element in batch]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        shown = shapes[:_SHOWN_SHAPES]
        problem = f"input {spec.name!r} comes out in several shapes, {shown}"
        raise DatasetError(f"{problem}; add a resize or crop step")
    return np.stack(arrays)


def _joined(images: list[Any]) -> Batch:
    """Return the images as one array if they are arrays of one shape, else as a list."""
    if any(isinstance(image, Image.Image) for image in images):
        return images
    shapes = {image.shape for image in images}
    if len(shapes) == 1:
        return np.stack(images)
    return images


def _set_color_order(batch: Batch, parameters: ColorOrder, form: _Form) -> Batch:
    if parameters.to == form.colors:
        return batch
    if isinstance(batch, list):
        return [reversed_channels(image) for image in batch]
    return reversed_channels(batch)


def _set_layout(batch: Batch, parameters: SetLayout, form: _Form) -> Batch:
    if parameters.to == form.layout:
        return batch
    if isinstance(batch, list):
        return [_moved_channels(image, parameters.to) for image in batch]
    return _moved_channels(batch, parameters.to)


def _moved_channels(images: Array, layout: str) -> Array:
    """Return one image or a batch with the channels before or after the height and the width."""
    if layout == "NCHW":
        return np.moveaxis(images, -1, -3)
    return np.moveaxis(images, -3, -1)


def _normalize(batch: Batch, parameters: Normalize, form: _Form) -> Batch:
    for image in batch[:1]:
        shape = np.shape(image)
        axis = -3 if form.layout == "NCHW" else -1
        channels = shape[axis] if len(shape) >= -axis else 1
        check_channels(parameters, channels)
    mean = _per_channel(parameters.mean, form)
    scale = _per_channel(parameters.scale, form)
    if isinstance(batch, list):
        return _joined([_normalized(image, mean, scale) for image in batch])
    if form.layout == "NCHW" or form.target != "NCHW":
        return _normalized(batch, mean, scale)
    # Channels that come first in the end are put there while an element is a byte.
    moved = np.ascontiguousarray(_moved_channels(batch, "NCHW"))
    planes = [values[:, np.newaxis, np.newaxis] for values in (mean, scale)]
    return _moved_channels(_normalized(moved, *planes), "NHWC")


def _normalized(images: Array, mean: Array, scale: Array) -> Array:
    """Return (images - mean) / scale in float32."""
    values = np.array(images, np.float32)
    values -= mean
    values /= scale
    return values


def _per_channel(values: Sequence[float], form: _Form) -> Array:
    """Return values, one a channel, in a shape that fits images of the layout."""
    array = np.asarray(values, dtype=np.float32)
    if form.layout == "NCHW":
        return array[:, np.newaxis, np.newaxis]
    return array


def _cast(batch: Batch, parameters: Cast, form: _Form) -> Batch:
    if not isinstance(batch, list):
        return _cast_checked(batch, parameters.to)
    return [_cast_checked(np.asarray(image), parameters.to) for image in batch]


def _quantize(batch: Batch, parameters: Quantize, form: _Form) -> Batch:
    if not isinstance(batch, list):
        return _quantized(batch, parameters)
    return [_quantized(np.asarray(image), parameters) for image in batch]


def _quantized(values: Array, parameters: Quantize) -> Array:
    """Return values in integers; raises ValueError for NaN and infinity."""
    if not np.isfinite(values).all():
        raise ValueError("it has NaN or infinity; correct the dataset, or the steps before")
    bounds = np.iinfo(parameters.to)
    steps = np.rint(values.astype(np.float64) / parameters.scale) + parameters.zero_point
    return steps.clip(bounds.min, bounds.max).astype(parameters.to)


def _mel(batch: Batch, parameters: Mel, form: _Form) -> Batch:
    return _joined([mel_spectrogram(samples, parameters, form.rate) for samples in batch])


def _tokenize(batch: Batch, parameters: Tokenize, form: _Form) -> Batch:
    tokens = np.stack([tokenize(text, parameters) for text in batch])
    if form.tokens and parameters.give == "ids":
        check_ids(tokens, form.tokens)
    return tokens


_ELEMENT_STEPS: dict[str, Callable[[Any, Any], Any]] = {**IMAGE_STEPS, **ARRAY_STEPS}

_BATCH_STEPS: dict[str, Callable[[Batch, Any, _Form], Batch]] = {
    "color_order": _set_color_order,
    "layout": _set_layout,
    "normalize": _normalize,
    "cast": _cast,
    "quantize": _quantize,
    "mel": _mel,
    "tokenize": _tokenize,
}


class Decoding(NamedTuple):
    """How to decode a picture: into which mode, turned upright or not, and the steps after it.

    A step is "resize", the width, the height and the method, or "crop" and the left, upper, right
    and lower edge. ``memory`` is how many bytes the content takes, with the pixels after the steps.
    """

    content: bytes
    mode: str
    upright: bool
    steps: list[list[Any]]
    memory: int


def decoding_of(element: Element, spec: Input) -> Decoding:
    """Return how to decode an element of an input; raises DatasetError for what is no picture."""
    decode = spec.steps[0].decode
    assert decode is not None, "the steps begin with decode"
    if not isinstance(element, bytes):
        raise DatasetError("it is an array, which no stack decodes; leave preprocess out")
    upright = decode.orientation == "exif"
    steps: list[list[Any]] = []
    try:
        size = Size(*picture_size(element, upright))
        for step in _steps_of_stack(spec):
            size, values = _resolved(step, size)
            steps += values
    except ValueError as error:
        raise DatasetError(str(error)) from error
    mode = "L" if decode.color == "L" else "RGB"
    memory = len(element) + size.height * size.width * len(mode)
    return Decoding(element, mode, upright, steps, memory)


def _resolved(step: InputStep, size: Size) -> tuple[Size, list[list[Any]]]:
    """Return the size of a picture after a step, and the step in numbers; none for no change."""
    if step.name == "resize":
        after = resized_size(size, step.parameters)
        method = step.parameters.method
        return after, [] if after == size else [["resize", after.width, after.height, method]]
    window = crop_window(size, step.parameters)
    right = window.left + window.width
    bottom = window.top + window.height
    edges = [window.left, window.top, right, bottom]
    return Size(window.height, window.width), [["crop", *edges]]


def without_decoding(spec: Input) -> Input:
    """Return an input whose elements are what stacks make of pictures: arrays of grey or RGB."""
    done = len(_steps_of_stack(spec))
    return spec.model_copy(update={"steps": [spec.steps[0], *spec.steps[1 + done :]]})


def _steps_of_stack(spec: Input) -> list[InputStep]:
    """Return the steps after ``decode`` that Pillow does."""
    found = []
    for step in spec.steps[1:]:
        if step.crop is None and (step.resize is None or step.resize.library != "pillow"):
            break
        found.append(step)
    return found
