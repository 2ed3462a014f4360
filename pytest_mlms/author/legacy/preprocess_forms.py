"""The forms of ``preprocess`` in manifests of MLHarness, and the input steps that they stand for.

Pillow's ``Image.open`` leaves a picture as it is stored, and OpenCV's ``imread`` turns it as its
EXIF orientation says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pytest_mlms.author.legacy.code_forms import Parameter, Step, Values, whole_number

Resizing = Literal["none", "torchvision", "stretch", "area", "linear", "opencv", "opencv_float"]

_LARGEST = 1_000_000  # of a mean or a scale
_LEAST = Decimal("0.000001")  # of a scale
_PERCENT = Decimal("87.5")  # of a side that the crop keeps, in MLPerf's code

_CROP = "2 2 2 2 87.5 100 100"
"""The numbers of MLPerf's two functions that resize and crop."""

_MEAN = "mean+ mean+ mean+"
_STD = "std+ std+ std+"
_END = "2 0 1 size size 3"
_MAYBE_RESIZE = "3 2 3"
_FLOAT_END = "2 0 1 height width 3"


@dataclass(frozen=True)
class PictureForm:
    """Code that reads a picture.

    ``numbers`` are the names of its numbers. Means and standard deviations are in units of
    ``unit`` levels of 0 to 255. ``divisor`` is what code without standard deviations divides by.
    """

    numbers: str
    reader: Literal["pillow", "opencv"]
    layout: Literal["NCHW", "NHWC"]
    resizing: Resizing = "none"
    color: Literal["RGB", "BGR"] = "RGB"
    element_type: Literal["float32", "uint8"] = "float32"
    unit: int = 1
    divisor: str = "1"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class TensorForm:
    """Code that returns tensors which a dataset must bring, with their element types in order."""

    numbers: str
    element_types: tuple[str, ...]
    notes: tuple[str, ...]


def picture_steps(form: PictureForm, values: Values) -> Sequence[Step] | None:
    """Return the steps of an input; None for numbers that no step can have."""
    resizing = _RESIZING[form.resizing](values)
    normalize = _normalize(form, values)
    if resizing is None or normalize is None:
        return None
    decode: dict[str, Parameter] = {}
    if form.color != "RGB":
        decode["color"] = form.color
    if form.reader == "pillow":
        decode["orientation"] = "stored"
    are_floats = form.resizing == "opencv_float" or bool(normalize)
    cut = ({"cast": {"to": "uint8"}},) if are_floats and form.element_type == "uint8" else ()
    return ({"decode": decode}, *resizing, *normalize, *cut)


def _normalize(form: PictureForm, values: Values) -> Sequence[Step] | None:
    unit = Decimal(form.unit)
    means = [value * unit for value in values.get("mean", ())]
    scales = [value * unit for value in values.get("std", ())] or [Decimal(form.divisor)]
    if any(value > _LARGEST for value in (*means, *scales)) or min(scales) < _LEAST:
        return None
    parameters: dict[str, Parameter] = {}
    if means:
        parameters["mean"] = [float(value) for value in means]
    if set(scales) != {Decimal(1)}:
        parameters["scale"] = [float(value) for value in scales]
    return ({"normalize": parameters},) if parameters else ()


def _unchanged(values: Values) -> Sequence[Step] | None:
    return ()


def _torchvision(values: Values) -> Sequence[Step] | None:
    shortest = whole_number(values, "shortest", least=1)
    size = whole_number(values, "size", least=1)
    if shortest is None or size is None or size > shortest:
        return None
    crop: dict[str, Parameter] = {"size": [size, size], "library": "torchvision"}
    return ({"resize": {"shortest": shortest}}, {"crop": crop})


def _stretched(values: Values) -> Sequence[Step] | None:
    height = whole_number(values, "height", least=1)
    width = whole_number(values, "width", least=1)
    if height is None or width is None:
        return None
    return ({"resize": {"size": [height, width]}},)


def _by_opencv(values: Values) -> Sequence[Step] | None:
    steps = _stretched(values)
    if steps is None:
        return None
    return tuple({"resize": {**step["resize"], "library": "opencv"}} for step in steps)


def _by_opencv_as_floats(values: Values) -> Sequence[Step] | None:
    steps = _by_opencv(values)
    return None if steps is None else ({"cast": {"to": "float32"}}, *steps)


def _mlperf(values: Values, method: str) -> Sequence[Step] | None:
    size = whole_number(values, "size", least=1)
    if size is None:
        return None
    shortest = int(100 * size / _PERCENT)
    resize: dict[str, Parameter] = {"shortest": shortest, "library": "opencv", "method": method}
    return ({"resize": resize}, {"crop": {"size": [size, size]}})


def _by_area(values: Values) -> Sequence[Step] | None:
    return _mlperf(values, "area")


def _linearly(values: Values) -> Sequence[Step] | None:
    return _mlperf(values, "bilinear")


_RESIZING: Mapping[Resizing, Callable[[Values], Sequence[Step] | None]] = {
    "none": _unchanged,
    "torchvision": _torchvision,
    "stretch": _stretched,
    "area": _by_area,
    "linear": _linearly,
    "opencv": _by_opencv,
    "opencv_float": _by_opencv_as_floats,
}

_TRUNCATED = "the code resizes floats and cuts off their fractions"
_TWICE = "the code exchanges blue and red twice, so the model gets BGR, as it does here"
_REMEMBERED = "the code remembers the picture's size for postprocess"

PICTURE_FORMS: Mapping[str, PictureForm] = {
    # Resize, CenterCrop, ToTensor, Normalize: 127
    "f189f2bb4f561f3e501872d815cb2119": PictureForm(
        f"shortest size {_MEAN} {_STD}",
        "pillow",
        "NCHW",
        "torchvision",
        unit=255,
    ),
    # the same with means of 0 to 255, each divided by it: 14
    "772050c723b7e98553b22af4a985d42d": PictureForm(
        "shortest size mean+ 255 mean+ 255 mean+ 255 std+ 255 std+ 255 std+ 255",
        "pillow",
        "NCHW",
        "torchvision",
    ),
    # Resize to height and width, ToTensor, Normalize: 27
    "3a2db9eb04372dc4e78a85b18bd93ad1": PictureForm(
        f"height width {_MEAN} {_STD}",
        "pillow",
        "NCHW",
        "stretch",
        unit=255,
    ),
    # ToTensor, Normalize: 4
    "21a25761e44b5addbbe60c36ae693f71": PictureForm(
        f"{_MEAN} {_STD}",
        "pillow",
        "NCHW",
        unit=255,
    ),
    # ToTensor: 2
    "a8deb1fe6c82330d8d60d913c8a40cf0": PictureForm(
        "",
        "pillow",
        "NCHW",
        divisor="255",
    ),
    # MLPerf's for VGG, with a scale: 42
    "2b665a4c688bb7ebbb0b6f11e5cc7a35": PictureForm(
        f"{_CROP} {_MEAN} std+ {_END}",
        "opencv",
        "NHWC",
        "area",
    ),
    # MLPerf's for VGG: 7
    "cca0bc87562d1f34aa269c7770f12842": PictureForm(
        f"{_CROP} {_MEAN} {_END}",
        "opencv",
        "NHWC",
        "area",
    ),
    # the same under another name: 1
    "10036d6e801416020f4acdb68120d985": PictureForm(
        f"{_CROP} {_MEAN} {_END}",
        "opencv",
        "NHWC",
        "area",
    ),
    # the same, channels first: 2
    "c0f0ce3d70b8482e03971c524fa9c85a": PictureForm(
        f"{_CROP} {_MEAN} {_END}",
        "opencv",
        "NCHW",
        "area",
    ),
    # the same without means, channels first: 3
    "b8fd88458b93a018e06f4ad5072453af": PictureForm(
        f"{_CROP} {_END}",
        "opencv",
        "NCHW",
        "area",
    ),
    # the same without a change of colours: 2
    "38da9d2899dcd09f53cc43617ec88387": PictureForm(
        f"{_CROP} {_MEAN} {_END}",
        "opencv",
        "NHWC",
        "area",
        "BGR",
    ),
    # MLPerf's for MobileNet: (x / 255 - 0.5) * 2: 2
    "7a140662b7692c0f4aa389c29ce741c6": PictureForm(
        f"{_CROP} 255 mean+ 2 {_END}",
        "opencv",
        "NCHW",
        "linear",
        unit=255,
        divisor="127.5",
    ),
    # pictures of CIFAR: 9
    "9dbe0816f6e584f82fec3af41f14b7fe": PictureForm(
        f"width height 255 {_MEAN} {_STD} 2 0 1",
        "opencv",
        "NCHW",
        "opencv",
        unit=255,
    ),
    # the same, and a line that is never reached: 1
    "6bea3ae3ecdedf2f56b570df79c2046c": PictureForm(
        f"width height 255 {_MEAN} {_STD} 2 0 1",
        "opencv",
        "NCHW",
        "opencv",
        unit=255,
        notes=("the code has a second return, which is never reached",),
    ),
    # MLPerf's for SSD MobileNet: 2
    "12b4d0217c7b6b971dae7bedeff52c4f": PictureForm(
        f"{_MAYBE_RESIZE} {_FLOAT_END}",
        "opencv",
        "NHWC",
        "opencv_float",
        element_type="uint8",
        notes=(_TRUNCATED,),
    ),
    # MLPerf's for SSD ResNet34: 2
    "6b77676a3c8bc3ccdd1faa670e41fee7": PictureForm(
        f"{_MAYBE_RESIZE} {_MEAN} {_STD} 255 {_FLOAT_END}",
        "opencv",
        "NCHW",
        "opencv_float",
        unit=255,
    ),
    # the same with means of 0 to 255, channels last: 1
    "ecf4b937726bb9aff128ea36949ef60a": PictureForm(
        f"{_MAYBE_RESIZE} {_MEAN} {_FLOAT_END}",
        "opencv",
        "NHWC",
        "opencv_float",
    ),
    # DeepLab: 6
    "4af456cb9898512fcaf6b5bf69792b82": PictureForm(
        f"{_MAYBE_RESIZE} 1 0 {_FLOAT_END}",
        "opencv",
        "NHWC",
        "opencv_float",
        "BGR",
        "uint8",
        notes=(_TRUNCATED, _REMEMBERED),
        warnings=(_TWICE,),
    ),
    # the picture as it is: 21
    "11609f7dce899db3419c89a5a518becf": PictureForm(
        "2 0 1",
        "opencv",
        "NHWC",
        element_type="uint8",
    ),
    # the same, and its size: 4
    "2d06567188fe8de439d947c01f563c18": PictureForm(
        "1 0 2 0 1",
        "opencv",
        "NHWC",
        element_type="uint8",
        notes=(_REMEMBERED,),
    ),
    # the picture divided by 255: 1
    "570ef85241625447092d884dfefe347d": PictureForm(
        "255 2 0 1",
        "opencv",
        "NHWC",
        divisor="255",
    ),
    # the picture in BGR without its mean: 1
    "86714cbdb0a66dc9b2187cede51ac6cc": PictureForm(
        f"{_MEAN} 2 0 1",
        "opencv",
        "NCHW",
        color="BGR",
    ),
}
"""Digest of code -> the form; the count of the 285 files that have it is beside each."""

TENSOR_FORMS: Mapping[str, TensorForm] = {
    # BERT: 3
    "7c3022b50f5152f9f48671e0004fce1a": TensorForm(
        "",
        ("int64", "int64", "int64"),
        ("the dataset has the tokens' ids, the mask of padding, and the number of the text",),
    ),
    # 3D U-Net: 1
    "88290d7dcf3c83c529f7b907acfb2aa9": TensorForm(
        "0",
        ("float32",),
        ("the dataset has volumes that are prepared already",),
    ),
}
"""Digest of code -> the form of its tensors."""
