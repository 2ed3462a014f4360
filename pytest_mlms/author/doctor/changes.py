"""Changes of a manifest's pre-processing, each of which undoes a usual mistake.

A function for each axis yields the changes that are not written in the manifest already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pytest_mlms.author.doctor.variants import (
    Change,
    StepsChange,
    make_step,
    parameters_of,
    with_parameters,
    written_parameters,
)
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep, Resize
from pytest_mlms.manifest.types import Layout

Size = tuple[int, int]
"""Height and width."""

_CROP_RATIO = 0.875
"""The share of the shortest side that remains of a picture of 256 after a crop to 224."""


class _Scale(NamedTuple):
    """A range of pixels: a subtrahend and a divisor, by channel or for all."""

    mean: tuple[float, ...]
    divisor: tuple[float, ...]

    def in_order(self, color: str) -> _Scale:
        """Return it for channels in this order, given for RGB."""
        if color == "BGR":
            return _Scale(self.mean[::-1], self.divisor[::-1])
        return self


_SCALES: Mapping[str, _Scale | None] = {
    "0..255": None,
    "0..1": _Scale((0.0,), (255.0,)),
    "-1..1": _Scale((127.5,), (127.5,)),
    "ImageNet's mean and scale": _Scale((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "Caffe's means": _Scale((123.68, 116.779, 103.939), (1.0,)),
}
"""Usual ranges of pixels; None for pixels as they are."""

_UNCHANGED = _Scale((0.0,), (1.0,))
"""The scale for pixels as they are before a quantize, which is refused without any."""

LARGEST_PIXEL = 255.0

_FILTERS = (
    ("bilinear", "pillow"),
    ("bicubic", "pillow"),
    ("lanczos", "pillow"),
    ("nearest", "pillow"),
    ("box", "pillow"),
    ("bilinear", "opencv"),
    ("area", "opencv"),
    ("nearest", "tensorflow"),
)
"""Methods of resizing, and the library whose arithmetic is used."""


def single_changes(
    inputs: Sequence[Input], has_classes: bool, largest: float = LARGEST_PIXEL
) -> list[Change]:
    """Return the changes that make sense for a manifest's image input, and for its labels.

    ``largest`` is the largest value of the pixels before they are normalized.
    """
    changes: list[Change] = []
    image = only_image(inputs)
    if image is not None:
        changes += [*_colors(image), *_scales(image, largest)]
        for find in (_layouts, _filters, _crops, _orientations):
            changes += find(image)
    if has_classes:
        changes.append(Change("label", "labels less 1", offset=-1))
        changes.append(Change("label", "labels plus 1", offset=1))
    return changes


def only_image(inputs: Sequence[Input]) -> Input | None:
    """Return the only image input, None where there is none or another one."""
    images = [spec for spec in inputs if spec.type == "image"]
    return images[0] if len(images) == 1 else None


def _replacing(name: str, **parameters: Any) -> StepsChange:
    """Return a change of the parameters of a step."""

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        return with_parameters(steps, name, parameters)

    return apply


def _colors(spec: Input) -> Iterator[Change]:
    decode = parameters_of(spec.steps, "decode")
    if decode is None or decode.color == "L" or parameters_of(spec.steps, "color_order"):
        return
    other = "BGR" if decode.color == "RGB" else "RGB"
    yield Change("color", other, _replacing("decode", color=other))


def _scales(spec: Input, largest: float) -> Iterator[Change]:
    names = [step.name for step in spec.steps]
    has_range = spec.element_type.startswith("float") or "quantize" in names
    if not has_range or names.count("normalize") > 1:
        return
    written = parameters_of(spec.steps, "normalize")
    color = _color_of(spec.steps)
    scales = dict(_SCALES)
    if 0 < largest < LARGEST_PIXEL:
        scales[f"0..1 of pixels up to {largest:g}"] = _Scale((0.0,), (largest,))
        scales[f"-1..1 of pixels up to {largest:g}"] = _Scale((largest / 2,), (largest / 2,))
    for name, scale in scales.items():
        is_by_channel = scale is not None and len(scale.mean) > 1
        if color == "L" and is_by_channel:
            continue
        if not _is_scale(written, scale, color):
            yield Change("scale", name, _scaling(scale))


def _color_of(steps: Sequence[InputStep]) -> str:
    decode = parameters_of(steps, "decode")
    return str(decode.color) if decode else "RGB"


def _is_scale(written: Any, scale: _Scale | None, color: str) -> bool:
    """Return whether a manifest normalizes its pixels like this."""
    if written is None:
        return scale is None
    found = (tuple(written.mean), tuple(written.scale))
    if scale is None:
        return (set(found[0]), set(found[1])) == ({0}, {1})
    return found == scale.in_order(color)


def _scaling(scale: _Scale | None) -> StepsChange:
    """Return a change of the range of pixels."""

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        kept = [step for step in steps if step.name != "normalize"]
        if scale is None and all(step.name != "quantize" for step in kept):
            return kept
        mean, divisor = (scale or _UNCHANGED).in_order(_color_of(steps))
        step = make_step("normalize", {"mean": list(mean), "scale": list(divisor)})
        place = _place_of_normalize([step.name for step in steps])
        return [*kept[:place], step, *kept[place:]]

    return apply


def _place_of_normalize(names: Sequence[str]) -> int:
    """Return its place, or the one behind the steps that make pictures."""
    if "normalize" in names:
        return names.index("normalize")
    place = 0
    for number, name in enumerate(names):
        if name in ("decode", "resize", "crop", "pad", "color_order"):
            place = number + 1
    return place


def _layouts(spec: Input) -> Iterator[Change]:
    if parameters_of(spec.steps, "layout") is not None:
        return
    other: Layout = "NHWC" if spec.layout == "NCHW" else "NCHW"
    yield Change("layout", other, layout=other)


def _filters(spec: Input) -> Iterator[Change]:
    resize = parameters_of(spec.steps, "resize")
    if resize is None:
        return
    for method, library in _FILTERS:
        if (resize.method, resize.library) == (method, library):
            continue
        own = None if library == "pillow" else library
        name = f"{method} of {own}" if own else method
        yield Change("filter", f"resize: {name}", _replacing("resize", method=method, library=own))


class _Way(NamedTuple):
    """A way to pictures of one size: the size after resizing, and whether a crop follows."""

    resized: Size
    has_crop: bool

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of ``resize``."""
        size = {"size": list(self.resized)}
        return {**size, "fit": "cover"} if self.has_crop else size


def _crops(spec: Input) -> Iterator[Change]:
    """Yield other ways to the same size.

    Pictures are stretched to it, or are the centre of a picture that covers it or a larger one, as
    256 for 224.
    """
    resize = parameters_of(spec.steps, "resize")
    size: Size | None = None  # of the pictures at the end, None where these differ
    for step in spec.steps:
        if step.name in ("resize", "crop", "pad"):
            size = step.parameters.fixed_size
    if resize is None or size is None or parameters_of(spec.steps, "pad"):
        return
    height, width = size
    larger = (round(height / _CROP_RATIO), round(width / _CROP_RATIO))
    ways = {
        "stretch to the size": _Way(size, has_crop=False),
        "cover the size and crop": _Way(size, has_crop=True),
        "cover a larger size and crop": _Way(larger, has_crop=True),
    }
    for name, way in ways.items():
        if not _is_way(spec, resize, way, size):
            yield Change("crop", name, _resizing(way, size))


def _is_way(spec: Input, resize: Resize, way: _Way, size: Size) -> bool:
    """Return whether a manifest's pictures get their size in this way."""
    if resize.size is None or tuple(resize.size) != way.resized:
        return False
    if not way.has_crop:
        return resize.fitting == "stretch"
    crop = parameters_of(spec.steps, "crop")
    is_cropped = crop is not None and crop.size is not None and tuple(crop.size) == size
    return resize.fitting == "cover" and is_cropped


def _resizing(way: _Way, size: Size) -> StepsChange:
    """Return a change of the way in which pictures get their size."""

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        made = []
        for step in steps:
            if step.name == "resize":
                made.append(make_step("resize", {**way.parameters, **_filter_of(step)}))
                if way.has_crop:
                    made.append(make_step("crop", {"size": list(size)}))
            elif step.name != "crop":
                made.append(step)
        return made

    return apply


def _filter_of(step: InputStep) -> dict[str, Any]:
    """Return the parameters of resizing that say how pixels are computed."""
    written = written_parameters(step.parameters)
    return {name: written[name] for name in ("method", "library") if name in written}


def _orientations(spec: Input) -> Iterator[Change]:
    decode = parameters_of(spec.steps, "decode")
    if decode is None:
        return
    other = "stored" if decode.orientation == "exif" else "exif"
    name = "ignore EXIF orientation" if other == "stored" else "turn by EXIF orientation"
    yield Change("orientation", name, _replacing("decode", orientation=other))
