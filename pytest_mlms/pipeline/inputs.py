"""The input steps, in the order written: on one image at a time until all have the same shape, then
on the batch.

Images are H x W x C, batches N x H x W x C, until a layout step or the end. Resizing is Pillow's,
whose filters widen when they shrink (they anti-alias); OpenCV's and TensorFlow's of the same name
do not.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from pytest_mlms.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import (
    Cast,
    ColorOrder,
    Crop,
    Decode,
    InputStep,
    Normalize,
    Resize,
    SetLayout,
)
from pytest_mlms.pipeline import observers as watch

__all__ = ["Element", "preprocess"]

Array = NDArray[Any]
Element = bytes | Array
"""What a dataset holds: an encoded image, or an array."""


def preprocess(elements: Sequence[Element], spec: Input) -> Array:
    """Return a batch of ``spec``'s layout and element type.

    Raises DatasetError where a step can't be done.
    """
    batch: _Batch = [
        np.asarray(element) if not isinstance(element, bytes) else element for element in elements
    ]
    if spec.type == "image" and not (spec.steps and spec.steps[0].name == "decode"):
        batch = [_as_image(element) for element in batch]
    form = _Form("NHWC", "RGB")
    for number, step in enumerate(spec.steps, start=1):
        try:
            with watch.step(step.name):
                batch = _STEPS[step.name](batch, step.parameters, form)
        except (ValueError, TypeError, OSError) as error:  # OSError: Pillow's for a truncated file
            raise DatasetError(
                f"step {number} of input {spec.name!r}, {step.name}: {error}"
            ) from error
        form = form.after(step)
    stacked = _stack(batch, spec)
    if spec.type == "image":
        stacked = _set_layout(stacked, SetLayout(to=spec.layout or "NHWC"), form)
    return np.ascontiguousarray(stacked, dtype=spec.element_type)


_Batch = Any  # a list of bytes or arrays, or one array


class _Form(NamedTuple):
    """How the axes and the colours lie, as the steps so far have left them."""

    layout: str
    colors: str

    def after(self, step: InputStep) -> _Form:
        if step.name == "layout":
            return self._replace(layout=step.parameters.to)
        if step.name == "decode":
            return self._replace(colors=step.parameters.color)
        return self._replace(colors=step.parameters.to) if step.name == "color_order" else self


def _each(change: Callable[[Any], Array], batch: _Batch) -> _Batch:
    """Change the images one by one; they are one array from then on if they have one shape."""
    changed = [change(image) for image in batch]
    return np.stack(changed) if len({image.shape for image in changed}) == 1 else changed


def _decode(batch: _Batch, parameters: Decode, form: _Form) -> _Batch:
    mode = "L" if parameters.color == "L" else "RGB"

    def change(element: Any) -> Array:
        image = _open(element)
        array = _as_image(np.asarray(image if image.mode == mode else image.convert(mode)))
        return array[..., ::-1] if parameters.color == "BGR" else array

    return _each(change, batch)


def _open(element: Any) -> Image.Image:
    if isinstance(element, bytes):
        try:
            return Image.open(io.BytesIO(element))
        except UnidentifiedImageError:
            raise ValueError(
                f"{len(element)} bytes, beginning {element[:8]!r}, are not an image"
            ) from None
    if element.dtype != np.uint8:
        raise ValueError(
            f"an image to decode has elements of uint8, not {element.dtype}; leave the step out"
        )
    image = _as_image(element)
    return Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)


def _resize(batch: _Batch, parameters: Resize, form: _Form) -> _Batch:
    height, width = parameters.size
    method = Image.Resampling[parameters.method.upper()]

    def change(image: Array) -> Array:
        size = (height, width)
        if parameters.keep_aspect_ratio:
            factor = max(height / image.shape[0], width / image.shape[1])
            size = (
                max(height, round(image.shape[0] * factor)),
                max(width, round(image.shape[1] * factor)),
            )
        return image if image.shape[:2] == size else _resize_one(image, size, method)

    return _each(change, batch)


def _resize_one(image: Array, size: tuple[int, int], method: Image.Resampling) -> Array:
    target = (size[1], size[0])  # Pillow counts width first
    if image.dtype == np.uint8 and image.shape[2] in (1, 3):
        return _as_image(np.asarray(_open(image).resize(target, method)))
    planes = [
        Image.fromarray(np.ascontiguousarray(plane, dtype=np.float32))
        for plane in np.moveaxis(image, 2, 0)
    ]
    return np.stack([np.asarray(plane.resize(target, method)) for plane in planes], axis=2)


def _crop(batch: _Batch, parameters: Crop, form: _Form) -> _Batch:
    height, width = parameters.size

    def change(image: Array) -> Array:
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        if top < 0 or left < 0:
            raise ValueError(
                f"can't cut {height} x {width} out of {image.shape[0]} x {image.shape[1]}; resize first"
            )
        return image[top : top + height, left : left + width]

    return _each(change, batch)


def _color_order(batch: _Batch, parameters: ColorOrder, form: _Form) -> _Batch:
    return batch if parameters.to == form.colors else _each(lambda image: image[..., ::-1], batch)


def _set_layout(batch: _Batch, parameters: SetLayout, form: _Form) -> _Batch:
    if parameters.to == form.layout:
        return batch
    source, target = (3, 1) if parameters.to == "NCHW" else (1, 3)
    if isinstance(batch, list):
        return [np.moveaxis(image, source - 1, target - 1) for image in batch]
    return np.moveaxis(batch, source, target)


def _normalize(batch: _Batch, parameters: Normalize, form: _Form) -> _Batch:
    mean, scale = (
        np.asarray(values, dtype=np.float32) for values in (parameters.mean, parameters.scale)
    )
    if form.layout == "NCHW":
        mean, scale = (values[:, None, None] for values in (mean, scale))
    if isinstance(batch, list):
        return _each(lambda element: (element.astype(np.float32) - mean) / scale, batch)
    return (batch.astype(np.float32) - mean) / scale


def _cast(batch: _Batch, parameters: Cast, form: _Form) -> _Batch:
    return (
        batch.astype(parameters.to)
        if not isinstance(batch, list)
        else [x.astype(parameters.to) for x in batch]
    )


def _as_image(element: Any) -> Array:
    """Return an array as H x W x C; raises DatasetError for what is none."""
    if isinstance(element, bytes):
        raise DatasetError("the dataset has encoded images; begin the input's steps with 'decode'")
    array = np.asarray(element)
    array = array[:, :, None] if array.ndim == 2 else array
    if array.ndim != 3:
        raise DatasetError(
            f"an image is height x width, or height x width x channels; the dataset has {array.shape}"
        )
    return array


def _stack(batch: _Batch, spec: Input) -> Array:
    if not isinstance(batch, list):
        return np.asarray(batch)
    shapes = sorted({image.shape for image in batch})
    if len(shapes) > 1:
        raise DatasetError(
            f"input {spec.name!r} comes out in several shapes, {shapes[:3]}; add a resize or crop step"
        )
    return np.stack(batch)


_STEPS: dict[str, Callable[[_Batch, Any, _Form], _Batch]] = {
    "decode": _decode,
    "resize": _resize,
    "crop": _crop,
    "color_order": _color_order,
    "layout": _set_layout,
    "normalize": _normalize,
    "cast": _cast,
}
