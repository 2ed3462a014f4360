"""The input steps, in the order of the manifest: a dataset's elements to a model's input.

Images are H x W x C, batches N x H x W x C, until a layout step or the end. Images are changed one
by one until all have the same shape, and as one array from then on. Resizing is Pillow's, whose
filters widen when they shrink an image (they anti-alias); OpenCV's and TensorFlow's filters of the
same names do not. An encoded image is turned upright by its EXIF orientation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest.audio_steps import Mel
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import (
    MOST_PIXELS,
    Cast,
    ColorOrder,
    Crop,
    Decode,
    InputStep,
    Normalize,
    Resize,
    SetLayout,
    check_channels,
)
from pytest_mlms.manifest.text_steps import Tokenize
from pytest_mlms.pipeline import observers
from pytest_mlms.pipeline.pictures import decode_picture
from pytest_mlms.pipeline.sound_inputs import ARRAY_STEPS, is_first_of_sound, read_sounds
from pytest_mlms.pipeline.spectra import mel_spectrogram
from pytest_mlms.pipeline.text_inputs import check_ids, tokenize

__all__ = ["Element", "preprocess"]

Array = NDArray[Any]
Element = bytes | str | tuple[str, str] | Array
"""An element of a dataset: the content of a file, a text, a pair of them, or an array."""

Batch = Any
"""A list of elements, or one array with the batch as its first axis."""

_STEP_ERRORS = (ValueError, TypeError, OSError, ArithmeticError, MemoryError)
_SHOWN_SHAPES = 3


class _Form(NamedTuple):
    """The order of axes and colours that the steps so far have led to.

    ``rate`` is that of sound, ``tokens`` the range of the ids of tokens where it is known.
    """

    layout: str
    colors: str
    rate: int
    tokens: tuple[float, float] | None

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
    form = _Form("NHWC", "RGB", spec.sample_rate or 0, spec.range)
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
    stacked = _stacked(batch, spec)
    if spec.type == "image":
        layout = SetLayout(to=spec.layout or "NHWC")
        stacked = _set_layout(stacked, layout, form)
    try:
        placed = _with_batch_axis(stacked, spec)
    except ValueError as error:
        found = f"input {spec.name!r} has elements of {stacked.shape[1:]}"
        raise DatasetError(f"{found}, which don't fit its shape; correct it ({error})") from error
    return np.asarray(placed, dtype=spec.element_type, order="C")


def _opened(elements: Sequence[Element], spec: Input) -> Batch:
    """Return what the steps of an input begin with."""
    if spec.type == "audio":
        return read_sounds(elements, spec)
    if spec.type == "image" and not _begins_with_decode(spec):
        return [_as_image(element) for element in elements]
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
    return np.asarray(stacked[0]).reshape(spec.shape)


def _apply(step: InputStep, batch: Batch, form: _Form) -> Batch:
    if step.name in _BATCH_STEPS:
        change_batch = _BATCH_STEPS[step.name]
        return change_batch(batch, step.parameters, form)
    change_image = _IMAGE_STEPS[step.name]
    images = []
    for image in batch:
        images.append(change_image(image, step.parameters))
    return _joined(images)


def _begins_with_decode(spec: Input) -> bool:
    names = [step.name for step in spec.steps]
    return names[:1] == ["decode"]


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


def _joined(images: list[Array]) -> Batch:
    """Return the images as one array if they have one shape, else as a list."""
    shapes = {image.shape for image in images}
    if len(shapes) == 1:
        return np.stack(images)
    return images


def _as_image(element: Any) -> Array:
    """Return an array as H x W x C; raises DatasetError for anything else."""
    if isinstance(element, bytes):
        raise DatasetError("the dataset has encoded images; begin the input's steps with 'decode'")
    array = np.asarray(element)
    if array.ndim == 2:
        array = array[:, :, np.newaxis]
    if array.ndim != 3:
        expected = "an image is height x width, or height x width x channels"
        raise DatasetError(f"{expected}; the dataset has {array.shape}")
    return array


def _decode(element: Any, parameters: Decode) -> Array:
    if isinstance(element, bytes):
        image = decode_picture(element, parameters.orientation == "exif")
    else:
        image = _open(element)
    mode = "L" if parameters.color == "L" else "RGB"
    if image.mode != mode:
        image = image.convert(mode)
    array = _as_image(np.asarray(image))
    if parameters.color == "BGR":
        return _reversed_channels(array)
    return array


def _open(element: Array) -> Image.Image:
    """Return an array as an image of Pillow."""
    array = np.asarray(element)
    if array.dtype != np.uint8:
        problem = f"an image to decode has elements of uint8, not {array.dtype}"
        raise ValueError(f"{problem}; leave the step out")
    pixels = _as_image(array)
    if pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(pixels)


def _resize(image: Array, parameters: Resize) -> Array:
    height, width = parameters.size
    if parameters.keep_aspect_ratio:
        height, width = _covering(image, height, width)
    if image.shape[:2] == (height, width):
        return image
    method = Image.Resampling[parameters.method.upper()]
    size = (width, height)  # Pillow's order
    if image.dtype == np.uint8 and image.shape[2] in (1, 3):
        resized = _open(image).resize(size, method)
        return _as_image(np.asarray(resized))
    channels = []
    for channel in np.moveaxis(image, 2, 0):
        pixels = np.ascontiguousarray(channel, dtype=np.float32)
        resized = Image.fromarray(pixels).resize(size, method)
        channels.append(np.asarray(resized))
    return np.stack(channels, axis=2)


def _covering(image: Array, height: int, width: int) -> tuple[int, int]:
    """Return the smallest size of the image's aspect ratio that covers height x width."""
    image_height, image_width, _ = image.shape
    factor = max(height / image_height, width / image_width)
    scaled_height = round(image_height * factor)
    scaled_width = round(image_width * factor)
    if scaled_height * scaled_width > MOST_PIXELS:
        found = f"{image_height} x {image_width} becomes {scaled_height} x {scaled_width}"
        raise ValueError(f"{found}, which is too large; set keep_aspect_ratio: false")
    return max(height, scaled_height), max(width, scaled_width)


def _crop(image: Array, parameters: Crop) -> Array:
    height, width = parameters.size
    image_height, image_width, _ = image.shape
    top = (image_height - height) // 2
    left = (image_width - width) // 2
    if top < 0 or left < 0:
        found = f"{image_height} x {image_width}"
        raise ValueError(f"can't cut {height} x {width} out of {found}; resize first")
    bottom = top + height
    right = left + width
    return image[top:bottom, left:right]


def _set_color_order(batch: Batch, parameters: ColorOrder, form: _Form) -> Batch:
    if parameters.to == form.colors:
        return batch
    if isinstance(batch, list):
        return [_reversed_channels(image) for image in batch]
    return _reversed_channels(batch)


def _reversed_channels(images: Array) -> Array:
    return images[..., ::-1]


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
        _check_channels(image, parameters, form)
    mean = _per_channel(parameters.mean, form)
    scale = _per_channel(parameters.scale, form)
    if not isinstance(batch, list):
        return (batch.astype(np.float32) - mean) / scale
    images = []
    for image in batch:
        pixels = np.asarray(image, dtype=np.float32)
        images.append((pixels - mean) / scale)
    return _joined(images)


def _check_channels(image: Any, parameters: Normalize, form: _Form) -> None:
    """Check that there is one value for all channels, or one for each."""
    shape = np.shape(image)
    axis = -3 if form.layout == "NCHW" else -1
    channels = shape[axis] if len(shape) >= -axis else 1
    check_channels(parameters, channels)


def _per_channel(values: Sequence[float], form: _Form) -> Array:
    """Return values, one a channel, in a shape that fits images of the layout."""
    array = np.asarray(values, dtype=np.float32)
    if form.layout == "NCHW":
        return array[:, np.newaxis, np.newaxis]
    return array


def _cast(batch: Batch, parameters: Cast, form: _Form) -> Batch:
    if not isinstance(batch, list):
        return batch.astype(parameters.to)
    return [np.asarray(image).astype(parameters.to) for image in batch]


def _mel(batch: Batch, parameters: Mel, form: _Form) -> Batch:
    return _joined([mel_spectrogram(samples, parameters, form.rate) for samples in batch])


def _tokenize(batch: Batch, parameters: Tokenize, form: _Form) -> Batch:
    tokens = np.stack([tokenize(text, parameters) for text in batch])
    if form.tokens and parameters.give == "ids":
        check_ids(tokens, form.tokens)
    return tokens


_IMAGE_STEPS: dict[str, Callable[[Any, Any], Array]] = {
    "decode": _decode,
    "resize": _resize,
    "crop": _crop,
    **ARRAY_STEPS,
}

_BATCH_STEPS: dict[str, Callable[[Batch, Any, _Form], Batch]] = {
    "color_order": _set_color_order,
    "layout": _set_layout,
    "normalize": _normalize,
    "cast": _cast,
    "mel": _mel,
    "tokenize": _tokenize,
}
