"""Inputs of a native manifest from those of a legacy one, as its agents prepared them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_mlms.author.legacy.records import (
    LegacyInput,
    LegacyManifest,
    Note,
    Pixels,
    UnclearManifest,
    pixels_of,
)
from pytest_mlms.author.legacy.translated import Key, Step, TensorName, TranslatedInput

_ELEMENT_TYPES = {
    "float16": "float16",
    "float32": "float32",
    "float32s": "float32",
    "float64": "float64",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
}
_LAYOUTS = {"CHW": "NCHW", "HWC": "NHWC"}
_COLORS = ("RGB", "BGR")
_TENSORS = ("raw", "general")
_CHANNELS = 3
_COCO = 480, 640  # height and width
_UNCLEAR = "unclear input"

_BY_POSITION = "found by its position in the model"
_STORED = "the agents decoded pictures as they are stored, without their EXIF orientation"
_VALUES = (
    "are not taken; for a dataset write each line of it, with blanks for commas, into a column of "
    "a labels.csv (docs/datasets.md)"
)
_FREE = (
    "for random pictures, which have the size of most of COCO's; those of a dataset keep their own"
)
_LINEAR = "the agents stretched to this size by Go's linear filter, which is Pillow's bilinear"
_REVERSED = "reversed: the original has them for R, G, B, whatever the order of the channels"


def translate_input(manifest: LegacyManifest, number: int, predictor: str) -> TranslatedInput:
    """Return an input. Raises UnclearManifest where it can't be told what it is."""
    spec = manifest.inputs[number]
    if spec.type == "image":
        return _image(manifest, spec, number, predictor)
    if spec.type in _TENSORS:
        return _tensor(spec, number, predictor)
    text = f"an input of the type {spec.type!r} is unknown; write image, raw or general"
    raise UnclearManifest(spec.line["type"], text, _UNCLEAR)


def input_name(spec: LegacyInput, number: int, predictor: str) -> TensorName:
    """Return the name of an input, or its position."""
    if isinstance(spec.layer, str):
        return TensorName(spec.layer)
    own = "input" if number == 0 else f"input{number}"
    if predictor == "pytorch":
        return TensorName(own, why="a name of our own: a TorchScript's inputs go by their order")
    if spec.layer is not None:
        return TensorName(own, spec.layer, _BY_POSITION)
    if predictor in ("mxnet", "caffe", "tensorrt"):
        return TensorName("data", why="the agent's default")
    return TensorName(own, number, f"{_BY_POSITION}, as the original has no name")


def _line_of_name(spec: LegacyInput) -> int:
    key = "input_layer" if "input_layer" in spec.line.lines else "layer_name"
    return spec.line[key]


def element_type_of(spec: LegacyInput) -> tuple[str, str]:
    """Return the element type of an input, and why it is that if nothing says so."""
    if not spec.element_type:
        return "float32", "the agents' default"
    if spec.element_type not in _ELEMENT_TYPES:
        known = ", ".join(sorted(set(_ELEMENT_TYPES.values())))
        text = f"an input of the elements {spec.element_type!r} is unknown; write one of {known}"
        raise UnclearManifest(spec.line["element_type"], text, _UNCLEAR)
    return _ELEMENT_TYPES[spec.element_type], ""


def _tensor(spec: LegacyInput, number: int, predictor: str) -> TranslatedInput:
    name = input_name(spec, number, predictor)
    element_type, why_type = element_type_of(spec)
    part = (
        *name.keys(_line_of_name(spec)),
        Key("type", "tensor"),
        Key("element_type", element_type, why_type, spec.line["element_type"]),
    )
    notes = []
    if spec.url:
        notes.append(Note(spec.line["url"], f"the values in {spec.url} {_VALUES}"))
    return TranslatedInput(name, element_type, None, part, notes)


def _image(
    manifest: LegacyManifest, spec: LegacyInput, number: int, predictor: str
) -> TranslatedInput:
    framework = manifest.framework.name.lower()
    pixels = pixels_of(manifest.dialect, framework)
    color, why_color = _chosen(spec, "color_mode", spec.color_mode, pixels.color, pixels)
    layout, why_layout = _chosen(spec, "layout", spec.layout, pixels.layout, pixels)
    name = input_name(spec, number, predictor)
    element_type, why_type = element_type_of(spec)
    size = _size(spec)
    height, width = size or (None, None)
    axes = [_CHANNELS, height, width] if layout == "CHW" else [height, width, _CHANNELS]
    part = (
        *name.keys(_line_of_name(spec)),
        Key("type", "image"),
        Key("element_type", element_type, why_type, spec.line["element_type"]),
        Key("layout", _LAYOUTS[layout], why_layout, spec.line["layout"]),
        *random_shape(axes, spec.max_dimension),
        Key("steps", tuple(_steps(spec, size, color, why_color))),
    )
    notes = [*_number_notes(spec), *_ignored_notes(spec, pixels)]
    return TranslatedInput(name, element_type, axes, part, notes)


def _chosen(
    spec: LegacyInput, key: str, written: str, default: str, pixels: Pixels
) -> tuple[str, str]:
    """Return the order of colours or axes, and why if it isn't what the file says."""
    if written and not pixels.is_fixed:
        known = _COLORS if key == "color_mode" else tuple(_LAYOUTS)
        if written not in known:
            text = f"{key} {written!r} is unknown; write {' or '.join(known)}"
            raise UnclearManifest(spec.line[key], text, _UNCLEAR)
        return written, ""
    if pixels.is_fixed:
        return default, f"{default}, which the agents of this framework had before 2019"
    return default, f"{default}, the default of its agent"


def random_shape(axes: Sequence[int | None], longest: int | None = None) -> Iterator[Key]:
    """Yield the shape of random pictures, whose sizes behind the batch are free.

    It is that of most of COCO's pictures, with a longest side if there is one.
    """
    if None not in axes:
        return
    height, width = _COCO
    if longest is not None:
        height, width = longest * height // width, longest
    sizes = [height, width]
    shape = ["batch", *(sizes.pop(0) if size is None else size for size in axes)]
    yield Key("shape", shape, _FREE)


def _size(spec: LegacyInput) -> tuple[int, int] | None:
    """Return height and width; None where pictures keep their own."""
    sizes = spec.dimensions
    if not sizes or spec.max_dimension is not None:
        return None
    if len(sizes) == 1:
        return sizes[0], sizes[0]
    if len(sizes) != _CHANNELS or sizes[0] != _CHANNELS:
        found = ", ".join(map(str, sizes))
        text = f"dimensions [{found}] are no picture; write [3, height, width]"
        raise UnclearManifest(spec.line["dimensions"], text, "unclear modality")
    return sizes[1], sizes[2]


def _steps(
    spec: LegacyInput, size: tuple[int, int] | None, color: str, why_color: str
) -> Iterator[Step]:
    """Yield the steps: decode and resize, then normalise."""
    order = f"{why_color}; " if why_color else ""
    why = f"{order}{_STORED}"
    color_line = spec.line["color_mode"]
    yield Step("decode", {"color": color, "orientation": "stored"}, why, color_line)
    if spec.max_dimension is not None:
        yield _resize_to_longest(spec)
    elif size is not None:
        yield Step("resize", {"size": list(size)}, _LINEAR, spec.line["dimensions"])
    yield from _normalize(spec, color)


def _resize_to_longest(spec: LegacyInput) -> Step:
    if not spec.keep_aspect_ratio:
        text = "max_dimension without 'keep_aspect_ratio: true' has no step here; write dimensions"
        raise UnclearManifest(spec.line["max_dimension"], text, _UNCLEAR)
    return Step(
        "resize",
        {"longest": spec.max_dimension},
        "the other side is rounded down, as the agents did until 2020; those of 2021 rounded it",
        spec.line["max_dimension"],
    )


def _normalize(spec: LegacyInput, color: str) -> Iterator[Step]:
    """Yield the step that computes (x - mean) / scale, unless it would change nothing."""
    parameters = {}
    is_reversed = False
    for key, numbers in (("mean", spec.mean), ("scale", spec.scale)):
        if not numbers:
            continue
        values = _per_channel(spec, key, numbers)
        if color == "BGR" and values != values[::-1]:
            values = values[::-1]
            is_reversed = True
        parameters[key] = values[0] if len(set(values)) == 1 else values
    if parameters:
        why = _REVERSED if is_reversed else ""
        yield Step("normalize", parameters, why, spec.line["mean"])


def _per_channel(spec: LegacyInput, key: str, numbers: Sequence[float]) -> list[float]:
    if len(numbers) == 1:
        return list(numbers) * _CHANNELS
    if len(numbers) != _CHANNELS:
        text = (
            f"{key} has {len(numbers)} numbers for 3 channels; write one for all, or one for each"
        )
        raise UnclearManifest(spec.line[key], text, _UNCLEAR)
    return list(numbers)


def _number_notes(spec: LegacyInput) -> Iterator[Note]:
    """Yield warnings about means and scales that look wrong; they are kept, as they were used."""
    mean = spec.mean
    if len(mean) == _CHANNELS and mean[0] < mean[1] < mean[2] and mean[0] > 1:
        yield Note(
            spec.line["mean"],
            "mean looks like B, G, R; it is kept for R, G, B, which is how the agents computed",
        )
    if mean and spec.scale and max(spec.scale) < 1 < max(mean):
        yield Note(
            spec.line["scale"],
            "scale is for pixels of 0 to 1 and mean for 0 to 255; both are kept",
        )
    if spec.element_type == "float32s":
        line = spec.line["element_type"]
        yield Note(line, "unknown elements 'float32s'; did you mean 'float32'? It is read as that")


def _ignored_notes(spec: LegacyInput, pixels: Pixels) -> Iterator[Note]:
    """Yield warnings about keys that the agents never applied."""
    for key in ("crop_method", "crop_ratio", "crop_dimensions", "min_dimension"):
        if key in spec.line.lines:
            yield Note(spec.line[key], f"{key} was never applied, and is left out")
    if not pixels.is_fixed:
        return
    for key, written, default in (
        ("color_mode", spec.color_mode, pixels.color),
        ("layout", spec.layout, pixels.layout),
    ):
        if written and written != default:
            text = f"{key} was ignored before 2019; the agent had {default}, which is taken"
            yield Note(spec.line[key], text)
