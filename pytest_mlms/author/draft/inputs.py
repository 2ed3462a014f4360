"""Guesses at the inputs of a model from their names, types and shapes, and from the data.

They are pictures, sounds, texts, or arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.axes import (
    OTHER,
    TEXTS,
    InputAxes,
    Said,
    axes_of,
    kind_of,
    option_of,
    pinned,
)
from pytest_mlms.author.draft.data import ArrayData, CocoData, Data, SoundData
from pytest_mlms.author.draft.onnx_hints import OnnxHints
from pytest_mlms.author.draft.parts import InputPart
from pytest_mlms.author.draft.quantisation import (
    IMAGENET,
    LARGEST,
    Quantisation,
    largest_of,
    normalize,
    step_to_integers,
    steps_of_range,
)
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH

_CHANNELS = (1, 3)
_PICTURES = ("image", "img", "pic", "photo", "pixel")
_SOUNDS = ("audio", "fbank", "mel", "mfcc", "sound", "spec", "stft", "wav")
_KEPT = ("cache", "past", "state", "hidden", "feature")
"""Parts of the names of inputs."""
_LEAST_SIDE = 4  # pixels
_SIDE = 224  # pixels, where nothing tells
_LARGE_SIDE = 640
_GREY = 114
_RATE_NAMES = ("sr", "rate", "sample_rate", "sampling_rate")
_RATE = 16000
_LAST_TOKEN = 99
_LEAST_SAMPLES = 400  # in a window of sound; a shorter axis has features
_LOOKED_AT = 100  # files
_DOCS = "docs/datasets.md#sound"


def guess_inputs(
    tensors: Sequence[Tensor],
    data: Data | None,
    hints: OnnxHints,
    axes: Mapping[str, InputAxes] | None = None,
    said: Said = MappingProxyType({}),
) -> list[InputPart]:
    """Return the inputs of a manifest, whose ``axes`` are found out where they aren't given.

    ``said`` are the shapes that the user says. Raises MlmsError where too little is known of one.
    """
    if axes is None:
        axes = axes_of(tensors, hints.axes, said)
    parts = []
    made = data.parts if isinstance(data, ArrayData) else {}
    for tensor in tensors:
        if tensor.name in made:
            parts.append(made[tensor.name])
            continue
        if tensor.dtype == TEXTS:
            parts.append(_texts(tensor, axes[tensor.name], data))
            continue
        if kind_of(tensor.dtype) not in "biuf":
            found = tensor.dtype or "of unknown type"
            problem = f"input {tensor.name!r} is {found}, not an array of numbers"
            raise MlmsError(f"{problem}; export the model so that it takes one")
        known = pinned(tensor, said)
        parts.append(_guess(known, axes[tensor.name], len(tensors), data, hints))
    return parts


def _texts(tensor: Tensor, axes: InputAxes, data: Data | None) -> InputPart:
    """Return an input of texts, which only data has. Raises MlmsError where it has none."""
    name = tensor.name
    given = data.arrays.get(name) if isinstance(data, ArrayData) else None
    if given is None:
        problem = f"input {name!r} takes texts, and there are no random ones"
        array = f"numpy.savez(…, {name}=an array of texts)"
        advice = f"give some: --data TABLE.csv with such a column, or FILE.npz, with {array}"
        raise MlmsError(f"{problem}; {advice}")
    dtype, shape = given
    if dtype.kind != "U":
        problem = f"input {name!r} takes texts, and its array is {dtype}"
        texts = f"numpy.char.decode({name})" if dtype.kind == "S" else f"{name}.astype(str)"
        raise MlmsError(f"{problem}; save it as texts: numpy.savez(…, {name}={texts})")
    return InputPart(name, "tensor", TEXTS, shape=_shape_of_rows(axes, shape), comment=axes.comment)


def _is_picture(tensor: Tensor) -> bool:
    """Return whether an input may be a batch of pictures."""
    return _layout(tensor) is not None


def _layout(tensor: Tensor) -> str | None:
    """Return the layout of a batch of pictures, None for another input."""
    shape = tensor.shape
    if len(shape) != 4 or tensor.dtype not in ("float32", "float16", "float64", "uint8", "int8"):
        return None
    if shape[1] in _CHANNELS and _are_sides(shape[2:]):
        return "NCHW"
    if shape[3] in _CHANNELS and _are_sides(shape[1:3]):
        return "NHWC"
    return None


def _may_be_none(tensor: Tensor) -> bool:
    """Return whether what has the axes of pictures may be a spectrum, MFCC, or what a model keeps.

    Its name says so, or it has one channel whose sides differ, and a name that says nothing.
    """
    name = tensor.name.lower()
    if any(word in name for word in (*_SOUNDS, *_KEPT)):
        return True
    if any(word in name for word in _PICTURES) or tensor.dtype == "uint8":
        return False
    first = 2 if _layout(tensor) == "NCHW" else 1
    height, width = tensor.shape[first : first + 2]
    return _color(tensor) == "L" and height != width


def _are_sides(sizes: Sequence[int | None]) -> bool:
    """Return whether these may be height and width; free ones may."""
    return all(size is None or size >= _LEAST_SIDE for size in sizes)


def _guess(
    tensor: Tensor, axes: InputAxes, count: int, data: Data | None, hints: OnnxHints
) -> InputPart:
    """Return an input, which is one of ``count``."""
    quantisation = hints.quantised.get(tensor.name)
    if isinstance(data, ArrayData) and tensor.name in data.arrays:
        return _of_array(tensor, axes, data, quantisation)
    if isinstance(data, SoundData):
        return _sound(tensor, count, data)
    has_pictures = data is not None and not isinstance(data, ArrayData)
    if _is_picture(tensor) and (has_pictures or not _may_be_none(tensor)):
        if isinstance(data, CocoData):
            return _letterbox(tensor, hints.size, quantisation)
        return _picture(tensor, hints.size, quantisation)
    if data is not None and count == 1 and not isinstance(data, ArrayData):
        signature = signature_text(tensor)
        shape = signature if tensor.shape else f"{signature} of unknown shape"
        problem = f"input {tensor.name!r} is {shape}, which is no batch of pictures"
        raise MlmsError(f"{problem}; give its inputs as an .npz with an array {tensor.name!r}")
    return _drawn(tensor, axes, hints.vocabulary)


def _of_array(
    tensor: Tensor, axes: InputAxes, data: ArrayData, quantisation: Quantisation | None
) -> InputPart:
    """Return an input whose elements are the rows of an array."""
    dtype, shape = data.arrays[tensor.name]
    are_pixels = len(shape) == 3 or (len(shape) == 4 and shape[3] in (1, 3, 4))
    is_picture = _is_picture(tensor) and not (tensor.dtype == "int8" and _may_be_none(tensor))
    if is_picture and dtype == np.uint8 and are_pixels:
        largest = largest_of(data.values(tensor.name))
        return _picture(tensor, tuple(shape[1:3]), quantisation, largest)
    _check_rows(tensor, axes, data)
    steps = []
    wanted = np.dtype(tensor.dtype)
    if dtype != wanted and dtype.kind in "iuf" and wanted.kind in "biu":
        steps.append(step_to_integers(tensor, data, quantisation))
    elif dtype != wanted:
        steps.append((f"cast: {{to: {tensor.dtype}}}", f"the arrays are {dtype}"))
    return InputPart(
        name=tensor.name,
        type="tensor",
        element_type=tensor.dtype,
        shape=_shape_of_rows(axes, shape),
        steps=steps,
        comment=axes.comment,
    )


def _check_rows(tensor: Tensor, axes: InputAxes, data: ArrayData) -> None:
    """Raise MlmsError where the rows of an array have other sizes than the model or the user."""
    rows = data.arrays[tensor.name][1][1:]
    wanted = [size for axis, size in enumerate(tensor.shape) if axis != axes.batch]
    pairs = zip(rows, wanted, strict=False)
    if len(rows) == len(wanted) and any(size not in (row, None) for row, size in pairs):
        found = " x ".join(map(str, rows))
        sizes = " x ".join("any" if size is None else str(size) for size in wanted)
        problem = (
            f"{data.path} has rows of {found} for {tensor.name!r}, and the model takes {sizes}"
        )
        raise MlmsError(f"{problem}, or --shape says so; give rows of that shape")


def _shape_of_rows(axes: InputAxes, shape: Sequence[int]) -> list[int | str] | None:
    """Return the shape to write for the rows of an array, None where the batch is the first axis.

    It is [] for an array of one number for all elements.
    """
    if not shape:
        return []
    if not axes.batch or len(shape) != len(axes.sizes):
        return None
    written: list[int | str] = list(shape[1:])
    written.insert(axes.batch, BATCH)
    return written


def _sides(tensor: Tensor, known: Sequence[int | None] | None) -> list[int | None]:
    """Return height and width by the model, else the known ones; None where nothing tells."""
    first = 2 if _layout(tensor) == "NCHW" else 1
    own = tensor.shape[first : first + 2]
    return [side or other for side, other in zip(own, known or (None, None), strict=True)]


def _picture(
    tensor: Tensor,
    known: Sequence[int | None] | None,
    quantisation: Quantisation | None,
    largest: float = LARGEST,
) -> InputPart:
    """Return a picture that is stretched to the size; its pixels are 0 up to the ``largest``."""
    sides = _sides(tensor, known)
    size = [side or _SIDE for side in sides]
    comment = f"the model takes any size; {_SIDE} is a guess" if None in sides else ""
    resize = f"resize: {{size: {size}, method: bilinear}}"
    is_large = _color(tensor) == "RGB" and min(size) >= _SIDE
    scale = IMAGENET if is_large else normalize(0, 1, largest)
    part = _image(tensor, [(resize, comment)], scale, quantisation, largest)
    return replace(part, guess=_option_of_sides(tensor, size)) if None in sides else part


def _letterbox(
    tensor: Tensor, known: Sequence[int] | None, quantisation: Quantisation | None
) -> InputPart:
    """Return a picture that is fitted into the size, as detectors take it."""
    sides = _sides(tensor, known)
    size = [side or _LARGE_SIDE for side in sides]
    comment = "a guess: fitted into the size, with grey around it, as YOLO takes it"
    contain = f"resize: {{size: {size}, fit: contain}}"
    pad = f"pad: {{size: {size}, value: {_GREY}}}"
    part = _image(tensor, [(contain, comment), (pad, "")], normalize(0, 1), quantisation)
    return replace(part, guess=_option_of_sides(tensor, size)) if None in sides else part


def _option_of_sides(tensor: Tensor, size: Sequence[int]) -> str:
    """Return the option that says the size of pictures."""
    channels = 1 if _color(tensor) == "L" else 3
    nchw = _layout(tensor) == "NCHW"
    return option_of(tensor.name, [BATCH, channels, *size] if nchw else [BATCH, *size, channels])


def _image(
    tensor: Tensor,
    sizing: Sequence[tuple[str, str]],
    scale: str,
    quantisation: Quantisation | None,
    largest: float = LARGEST,
) -> InputPart:
    """Return an image with these steps for its size, and for its range."""
    steps = [(f"decode: {{color: {_color(tensor)}}}", ""), *sizing]
    comment = ""
    if tensor.dtype in ("int8", "uint8"):
        has_colors = _color(tensor) == "RGB"
        of_range, comment = steps_of_range(
            tensor, quantisation, has_colors=has_colors, largest=largest
        )
        steps += of_range
    else:
        reason = "what training did is not in the file"
        if largest < LARGEST:
            reason = f"the pixels of the data are 0 to {largest:g}"
        steps.append((scale, f"a guess: {reason}"))
    layout = _layout(tensor)
    return InputPart(
        tensor.name, "image", tensor.dtype, layout=layout, steps=steps, comment=comment
    )


def _color(tensor: Tensor) -> str:
    channels = tensor.shape[1 if _layout(tensor) == "NCHW" else 3]  # None where they are free
    return "L" if channels == 1 else "RGB"


def _sound(tensor: Tensor, count: int, data: SoundData) -> InputPart:
    """Return an input, which is one of ``count``, for files of sound.

    Raises MlmsError for an input that is no row of samples.
    """
    axis = _axis_of_samples(tensor)
    if count > 1 or axis is None:
        sizes = " x ".join("any" if size is None else str(size) for size in tensor.shape)
        found = f"{tensor.name!r} is {tensor.dtype} {sizes}"
        if count > 1:
            found = f"it has {count} inputs"
        problem = f"{data.path} has sounds, and the model takes no row of their samples: {found}"
        advice = f"write its manifest by hand, with the steps that make it of a sound ({_DOCS})"
        raise MlmsError(f"{problem}; {advice}, or give its inputs as an .npz")
    rate, longest = _rate_and_longest(data)
    size = tensor.shape[axis]
    comment = "" if size else "the model takes any length; that of the longest file is a guess"
    steps = [
        ("mono", ""),
        ("resample", ""),
        (f"fix_length: {{size: {size or longest}}}", comment),
    ]
    shape: list[int | str] = [BATCH, size or longest]
    if len(tensor.shape) == len("NCT"):
        steps.append((f"expand_dims: {{axis: {2 - axis}}}", ""))
        shape.insert(3 - axis, 1)
    return InputPart(
        name=tensor.name,
        type="audio",
        element_type=tensor.dtype,
        shape=None if size else shape,
        sample_rate=rate,
        steps=steps,
    )


def _axis_of_samples(tensor: Tensor) -> int | None:
    """Return the axis of samples: the only long or free one beside the batch, others being 1."""
    sizes = tensor.shape[1:]
    if not tensor.dtype.startswith("float") or len(sizes) not in (1, 2):
        return None
    long = [axis for axis, size in enumerate(sizes, start=1) if size is None or size > 1]
    if len(long) != 1 or (tensor.shape[long[0]] or _LEAST_SAMPLES) < _LEAST_SAMPLES:
        return None
    return long[0]


def _rate_and_longest(data: SoundData) -> tuple[int, int]:
    """Return the most frequent rate of some files, and the most samples of one at that rate.

    Raises MlmsError for a file that can't be read.
    """
    places = np.linspace(0, len(data.files) - 1, min(len(data.files), _LOOKED_AT)).astype(int)
    found = [_rate_and_samples(data, data.files[place]) for place in places]
    rate = Counter(rate for rate, _ in found).most_common(1)[0][0]
    return rate, max(-(-samples * rate // own) for own, samples in found)


def _rate_and_samples(data: SoundData, name: str) -> tuple[int, int]:
    soundfile = _soundfile()
    try:
        info = soundfile.info(str(data.path / name))
    except (soundfile.LibsndfileError, OSError) as error:
        problem = f"{data.path / name} can't be read as sound: {error}"
        raise MlmsError(f"{problem}; replace it, or leave it out") from error
    return int(info.samplerate), max(int(info.frames), 1)


def _soundfile() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError: libsndfile itself isn't there
        advice = "install pytest-mlms with its extra speech"
        raise MlmsError(f"files of sound need soundfile ({error}); {advice}") from None
    return soundfile


def _drawn(tensor: Tensor, axes: InputAxes, vocabulary: Mapping[str, int]) -> InputPart:
    """Return an input of random numbers: its free axes, and the range of its numbers."""
    values, reason_of_range = _range(tensor, vocabulary)
    sound = "a guess: no picture, but a spectrum or the like" if _is_picture(tensor) else ""
    reasons = (sound, axes.comment, _reason_of_sizes(tensor.name, axes), reason_of_range)
    return InputPart(
        name=tensor.name,
        type="tensor",
        element_type=tensor.dtype,
        shape=None if axes.is_told else axes.written,
        range=values,
        comment="; ".join(reason for reason in reasons if reason),
        guess=option_of(tensor.name, axes.written) if axes.guessed else "",
    )


def _reason_of_sizes(name: str, axes: InputAxes) -> str:
    """Return what is guessed of the sizes of an input, with the option that says them."""
    if not axes.sizes:
        return "a single number"
    guesses = dict.fromkeys(f"{axes.sizes[axis]:,}" for axis in axes.guessed)
    if not guesses:
        return ""
    found = "is a guess" if len(guesses) == 1 else "are guesses"
    return f"{', '.join(guesses)} {found} for a free axis: {option_of(name, axes.written)}"


def _range(tensor: Tensor, vocabulary: Mapping[str, int]) -> tuple[list[float] | None, str]:
    """Return the range of random numbers, None for the usual one, and why it is so."""
    name = tensor.name.lower()
    is_number = np.dtype(tensor.dtype).kind in "iu" or not tensor.shape
    if is_number and name.rpartition(".")[2] in _RATE_NAMES:
        return [_RATE, _RATE], "a sampling rate, in Hz"
    if np.dtype(tensor.dtype).kind not in "iu" or tensor.dtype == "uint8":
        return None, ""
    if tensor.name in vocabulary:
        return [0, vocabulary[tensor.name] - 1], "the rows of the model's embedding"
    if "mask" in name:
        return [1, 1], "nothing is masked"
    if "type" in name or "segment" in name:
        return [0, 0], "one segment"
    if "pos" in name:
        return [0, OTHER - 1], ""
    if tensor.dtype == "int8":
        return [-128, 127], "quantised numbers"
    return [0, _LAST_TOKEN], "write the range of your tokens"


def signature_text(tensor: Tensor) -> str:
    """Return the type and the axes of a tensor, as far as they are known."""
    sizes = ["any" if size is None else str(size) for size in tensor.shape]
    return f"{tensor.dtype} {' x '.join(sizes)}".strip()
