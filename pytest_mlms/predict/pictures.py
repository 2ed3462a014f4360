"""Pictures and sounds of an input and its answers, encoded anew.

So nothing of a stranger's file is in them but its pixels or samples.
"""

from __future__ import annotations

import io
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.measure.pipeline.shown import COLOURS, image_of, picture_of
from pytest_mlms.measure.pipeline.sounds import read_sounds
from pytest_mlms.predict.answers import Answer, DetectedObject

Array = NDArray[Any]

MOST_OBJECTS = 30
"""Objects that are drawn, the surest first."""

_SIDE = 512  # pixels of the longer side
_SECONDS = 30  # of a sound
_FIRST = 6  # values of an array
_WHITE = 1.5  # the greatest value of a picture whose white is 1, and not 255


def shown_of(
    dataset: Dataset, outputs: Sequence[Output], answers: Mapping[str, Answer]
) -> dict[str, Array]:
    """Return what shows a dataset's only element and its answers, by these names.

    ``input.png`` and ``input.wav`` are the bytes of a file, ``input.size`` height and width of the
    picture upright, in whose pixels boxes are. ``OUTPUT.png`` is a picture of type image, or the
    pixels of objects or classes in COLOURS, by their numbers from 1, on a transparent ground. A
    mask has ``OUTPUT.classes``, too: the number of each class and its share, the largest first.
    ``OUTPUT.first`` are the first values of an array that has no picture.
    """
    shown: dict[str, Array] = {}
    picture = picture_of(dataset, 0)
    if picture is not None:
        shown["input.size"] = np.array([picture.height, picture.width])
        picture.thumbnail((_SIDE, _SIDE))
        shown["input.png"] = _png(picture.convert("RGB"))
    sound = _sound(dataset)
    if sound is not None:
        shown["input.wav"] = sound
    for output in outputs:
        answer = answers.get(output.name)
        if isinstance(answer, tuple):
            objects = [one for one in answer[:MOST_OBJECTS] if isinstance(one, DetectedObject)]
            masks = [one.mask for one in objects if one.mask is not None]
            if masks:
                shown[f"{output.name}.png"] = _coloured(_numbered(masks), picture)
        elif isinstance(answer, np.ndarray):
            shown.update(_of_array(answer, output, picture))
    return shown


def _of_array(answer: Array, output: Output, picture: Image.Image | None) -> dict[str, Array]:
    name = output.name
    if output.type == "mask" and answer.ndim == 2 and answer.dtype.kind in "biu":
        numbers, counts = np.unique(answer, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        shares = np.column_stack([numbers, counts / answer.size])[order]
        return {f"{name}.png": _coloured(answer, picture), f"{name}.classes": shares}
    if output.type in ("image", "mask"):
        drawn = _drawn(answer)
        if drawn is not None:
            drawn.thumbnail((_SIDE, _SIDE))
            return {f"{name}.png": _png(drawn)}
    return {f"{name}.first": answer.reshape(-1)[:_FIRST]}


def _drawn(values: Array) -> Image.Image | None:
    """Return an image of H x W x C, whose white is 1 or 255; None for what can't be shown."""
    if values.ndim == 2:
        values = values[..., np.newaxis]
    if values.ndim != 3 or not values.size or values.dtype.kind not in "biuf":
        return None
    if values.dtype.kind in "iu":
        return image_of(values)
    finite = np.nan_to_num(values.astype(np.float64))
    scale = 255 if finite.max() <= _WHITE else 1
    pixels = (finite * scale).round().clip(0, 255).astype(np.uint8)
    if pixels.shape[2] not in (1, 3):
        return None
    return Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)


def _coloured(numbers: Array, picture: Image.Image | None) -> Array:
    """Return a map of numbers (H x W) in the size of a picture, as PNG; 0 is transparent."""
    drawn = Image.fromarray(numbers.astype(np.int32))
    if picture is None:
        drawn.thumbnail((_SIDE, _SIDE), Image.Resampling.NEAREST)
    else:
        drawn = drawn.resize(picture.size, Image.Resampling.NEAREST)
    small = np.asarray(drawn)
    pixels = np.zeros((*small.shape, 4), np.uint8)
    pixels[..., :3] = np.array(COLOURS)[(small - 1) % len(COLOURS)]
    pixels[..., 3] = np.where(small > 0, 255, 0)
    return _png(Image.fromarray(pixels))


def _numbered(masks: Sequence[Array]) -> Array:
    """Return the number of the surest object at each pixel (H x W), from 1; 0 without one."""
    numbers = np.zeros(masks[0].shape, np.int32)
    for number in range(len(masks), 0, -1):
        numbers[masks[number - 1]] = number
    return numbers


def _png(picture: Image.Image) -> Array:
    file = io.BytesIO()
    picture.save(file, "png")
    return np.frombuffer(file.getvalue(), np.uint8)


def _sound(dataset: Dataset) -> Array | None:
    """Return the beginning of a sound as the model hears it; None without one that can be read."""
    spec = next((spec for spec in dataset.inputs if spec.type == "audio"), None)
    if spec is None:
        return None
    try:
        (samples,) = read_sounds([dataset.elements[spec.name][0]], spec)
    except MlmsError:
        return None
    rate = spec.sample_rate or 1
    loud = np.clip(np.nan_to_num(samples[: _SECONDS * rate]), -1, 1)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes((loud * 32767).astype("<i2").tobytes())
    return np.frombuffer(file.getvalue(), np.uint8)
