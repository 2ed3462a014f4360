"""Variants of a manifest's pre-processing, each of which differs in one usual mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep, Resize
from pytest_mlms.manifest.types import Layout

__all__ = ["Change", "Variant", "pairs_of", "single_changes", "step_lines", "step_text", "varied"]

_RATIO = 0.875
"""The share of the shortest side that remains of a picture of 256 after a crop to 224."""

SCALES: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]] | None] = {
    "0..255": None,
    "0..1": ((0.0,), (255.0,)),
    "-1..1": ((127.5,), (127.5,)),
    "ImageNet's mean and scale": ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375)),
    "Caffe's means": ((123.68, 116.779, 103.939), (1.0,)),
}
"""Usual ranges of pixels: mean and scale, by channel in the order RGB; None for none."""

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


@dataclass(frozen=True)
class Change:
    """One change of an input, or of the labels.

    ``axis`` is what it changes; two changes of one axis exclude each other. ``name`` says what is
    done. ``apply`` returns the steps of an image input, changed, and ``layout`` the layout.
    ``offset`` is added to the labels.
    """

    axis: str
    name: str
    apply: Callable[[Sequence[InputStep]], list[InputStep]]
    layout: Layout | None = None
    offset: int = 0


@dataclass(frozen=True)
class Variant:
    """A manifest's inputs after some changes."""

    changes: tuple[Change, ...]
    inputs: tuple[Input, ...]

    @property
    def name(self) -> str:
        """What was changed."""
        return ", ".join(change.name for change in self.changes) or "as written"

    @property
    def offset(self) -> int:
        """What is added to labels."""
        return sum(change.offset for change in self.changes)


def _unchanged(steps: Sequence[InputStep]) -> list[InputStep]:
    return list(steps)


def _step(name: str, parameters: Any) -> InputStep:
    return InputStep.model_validate({name: parameters})


def single_changes(inputs: Sequence[Input], has_classes: bool) -> list[Change]:
    """Return the changes that make sense for a manifest's image input, and for its labels."""
    changes: list[Change] = []
    image = _image(inputs)
    if image is not None:
        for find in (_colors, _scales, _layouts, _filters, _crops, _orientations):
            changes += find(image)
    if has_classes:
        for offset, text in ((-1, "labels less 1"), (1, "labels plus 1")):
            changes.append(Change("label", text, _unchanged, offset=offset))
    return changes


def _image(inputs: Sequence[Input]) -> Input | None:
    """Return the only image input, None where there is none or another one."""
    images = [spec for spec in inputs if spec.type == "image"]
    return images[0] if len(images) == 1 else None


def varied(inputs: Sequence[Input], changes: Sequence[Change]) -> Variant:
    """Return the inputs with these changes."""
    made = []
    for spec in inputs:
        made.append(_changed(spec, changes) if spec.type == "image" else spec)
    return Variant(tuple(changes), tuple(made))


def _changed(spec: Input, changes: Sequence[Change]) -> Input:
    steps = list(spec.steps)
    layout = spec.layout
    for change in changes:
        steps = change.apply(steps)
        layout = change.layout or layout
    return spec.model_copy(update={"steps": steps, "layout": layout})


def pairs_of(changes: Sequence[Change], best: Sequence[Change]) -> Iterator[tuple[Change, Change]]:
    """Yield pairs worth trying: a colour order with a range, and each of ``best`` with others."""
    seen = set()
    for one in changes:
        for other in changes:
            is_pixel_pair = (one.axis, other.axis) == ("color", "scale")
            is_of_best = one in best and one.axis != other.axis
            key = frozenset((one.name, other.name))
            if (is_pixel_pair or is_of_best) and key not in seen:
                seen.add(key)
                yield one, other


def _parameters(spec: Input, name: str) -> Any:
    for step in spec.steps:
        if step.name == name:
            return step.parameters
    return None


def _replaced(
    steps: Sequence[InputStep], name: str, parameters: Mapping[str, Any]
) -> list[InputStep]:
    """Return steps of which one has other parameters."""
    made = []
    for step in steps:
        if step.name != name:
            made.append(step)
            continue
        values = {**_written(step.parameters), **parameters}
        known = {key: value for key, value in values.items() if value is not None}
        made.append(_step(name, known))
    return made


def _written(parameters: Any) -> dict[str, Any]:
    """Return the parameters that are written, with lists for tuples."""
    found = {}
    for name in parameters.model_fields_set:
        value = getattr(parameters, name)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def _colors(spec: Input) -> Iterator[Change]:
    decode = _parameters(spec, "decode")
    if decode is None or decode.color == "L" or _parameters(spec, "color_order"):
        return
    other = "BGR" if decode.color == "RGB" else "RGB"

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        return _replaced(steps, "decode", {"color": other})

    yield Change("color", other, apply)


def _scales(spec: Input) -> Iterator[Change]:
    written = _parameters(spec, "normalize")
    decode = _parameters(spec, "decode")
    if not spec.element_type.startswith("float") or _count(spec, "normalize") > 1:
        return
    color = decode.color if decode else "RGB"
    for name, scale in SCALES.items():
        if color == "L" and scale is not None and len(scale[0]) > 1:
            continue
        if not _is_written(written, scale, color):
            yield Change("scale", name, _scaling(scale))


def _count(spec: Input, name: str) -> int:
    return [step.name for step in spec.steps].count(name)


def _is_written(written: Any, scale: Any, color: str) -> bool:
    """Return whether a manifest normalizes its pixels like this."""
    if written is None or scale is None:
        is_nothing = written is None or (set(written.mean), set(written.scale)) == ({0}, {1})
        return scale is None and is_nothing
    expected = _in_order(scale, color)
    return (tuple(written.mean), tuple(written.scale)) == expected


def _in_order(scale: Any, color: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, divisor = scale
    return (mean[::-1], divisor[::-1]) if color == "BGR" else (mean, divisor)


def _scaling(scale: Any) -> Callable[[Sequence[InputStep]], list[InputStep]]:
    """Return a function that makes steps normalize pixels in another way."""

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        names = [step.name for step in steps]
        place = names.index("normalize") if "normalize" in names else _behind_pictures(names)
        kept = [step for step in steps if step.name != "normalize"]
        if scale is None:
            return kept
        decode = next((step.parameters for step in steps if step.name == "decode"), None)
        mean, divisor = _in_order(scale, decode.color if decode else "RGB")
        step = _step("normalize", {"mean": list(mean), "scale": list(divisor)})
        return [*kept[:place], step, *kept[place:]]

    return apply


def _behind_pictures(names: Sequence[str]) -> int:
    """Return the place behind the steps that make pictures."""
    place = 0
    for number, name in enumerate(names):
        if name in ("decode", "resize", "crop", "pad", "color_order"):
            place = number + 1
    return place


def _layouts(spec: Input) -> Iterator[Change]:
    if "layout" in [step.name for step in spec.steps]:
        return
    other: Layout = "NHWC" if spec.layout == "NCHW" else "NCHW"
    yield Change("layout", other, _unchanged, layout=other)


def _filters(spec: Input) -> Iterator[Change]:
    resize = _parameters(spec, "resize")
    if resize is None:
        return
    for method, library in _FILTERS:
        if (resize.method, resize.library) != (method, library):
            own = None if library == "pillow" else library

            def apply(
                steps: Sequence[InputStep], method: str = method, library: str | None = own
            ) -> list[InputStep]:
                return _replaced(steps, "resize", {"method": method, "library": library})

            name = method if own is None else f"{method} of {library}"
            yield Change("filter", f"resize: {name}", apply)


def _crops(spec: Input) -> Iterator[Change]:
    """Yield other ways to the same size: stretched, the centre of a picture that covers it, or the
    centre of a larger one, as in 256 and 224.
    """
    resize = _parameters(spec, "resize")
    size = _final_size(spec)
    if resize is None or size is None or _parameters(spec, "pad"):
        return
    height, width = size
    larger = [round(height / _RATIO), round(width / _RATIO)]
    ways: dict[str, list[dict[str, Any]]] = {
        "stretch to the size": [{"size": [height, width]}],
        "cover the size and crop": [{"size": [height, width], "fit": "cover"}],
        "cover a larger size and crop": [{"size": larger, "fit": "cover"}],
    }
    for name, (parameters,) in ways.items():
        if not _is_way(spec, resize, parameters, [height, width]):
            has_crop = "fit" in parameters
            yield Change("crop", name, _resizing(resize, parameters, size if has_crop else None))


def _is_way(spec: Input, resize: Resize, parameters: Mapping[str, Any], size: Any) -> bool:
    """Return whether a manifest's pictures get their size in this way."""
    fit = parameters.get("fit", "stretch")
    is_same = resize.size is not None and list(resize.size) == parameters["size"]
    return is_same and resize.fitting == fit and (fit == "stretch" or _has_crop(spec, size))


def _has_crop(spec: Input, size: Any) -> bool:
    crop = _parameters(spec, "crop")
    return crop is not None and crop.size is not None and list(crop.size) == size


def _final_size(spec: Input) -> tuple[int, int] | None:
    """Return height and width of the pictures of an input, None where these differ."""
    size = None
    for step in spec.steps:
        if step.name in ("resize", "crop", "pad"):
            size = step.parameters.fixed_size
    return size


def _resizing(
    resize: Resize, parameters: Mapping[str, Any], crop: tuple[int, int] | None
) -> Callable[[Sequence[InputStep]], list[InputStep]]:
    """Return a function that gives pictures their size in another way."""

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        made = []
        for step in steps:
            if step.name == "resize":
                kept = _written(step.parameters)
                same = {key: kept[key] for key in ("method", "library") if key in kept}
                made.append(_step("resize", {**parameters, **same}))
                if crop is not None:
                    made.append(_step("crop", {"size": list(crop)}))
            elif step.name != "crop":
                made.append(step)
        return made

    return apply


def _orientations(spec: Input) -> Iterator[Change]:
    decode = _parameters(spec, "decode")
    if decode is None:
        return
    other = "stored" if decode.orientation == "exif" else "exif"

    def apply(steps: Sequence[InputStep]) -> list[InputStep]:
        return _replaced(steps, "decode", {"orientation": other})

    name = "ignore EXIF orientation" if other == "stored" else "turn by EXIF orientation"
    yield Change("orientation", name, apply)


def step_lines(variant: Variant) -> list[str]:
    """Return the lines of a variant's image input, to be put into the manifest."""
    lines = []
    for spec in variant.inputs:
        if spec.type != "image":
            continue
        if any(change.layout for change in variant.changes):
            lines.append(f"layout: {spec.layout}")
        lines.append("steps:")
        for step in spec.steps:
            lines.append(f"  - {step_text(step)}")
    return lines


def step_text(step: InputStep) -> str:
    """Return a step as a manifest has it."""
    pairs = []
    for name in type(step.parameters).model_fields:
        written = _written(step.parameters)
        if name in written:
            pairs.append(f"{name}: {_value_text(written[name])}")
    return f"{step.name}: {{{', '.join(pairs)}}}" if pairs else step.name


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        if len(value) == 1:
            return _value_text(value[0])
        return f"[{', '.join(map(_value_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
