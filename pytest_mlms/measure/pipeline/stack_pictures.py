"""The first steps of an input that a stack's own Pillow can do: decode, resize and crop."""

from __future__ import annotations

from typing import Any, NamedTuple

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep
from pytest_mlms.measure.pipeline.geometry import Size, crop_window, resized_size
from pytest_mlms.measure.pipeline.inputs import Element
from pytest_mlms.measure.pipeline.pictures import picture_size


class Decoding(NamedTuple):
    """How to decode a picture: into which mode, turned upright or not, and the steps after it.

    A step is "resize", the width, the height and the method, or "crop" and the left, upper, right
    and lower edge.
    """

    content: bytes
    mode: str
    upright: bool
    steps: list[list[Any]]


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
    return Decoding(element, "L" if decode.color == "L" else "RGB", upright, steps)


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
