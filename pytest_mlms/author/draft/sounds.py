"""The input of a model that takes samples of sound, for a folder of sounds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from mlms_predictors import Tensor

from pytest_mlms.author.draft.data import SoundData
from pytest_mlms.author.draft.parts import InputPart
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest.schema import BATCH

_LEAST_SAMPLES = 400  # in a window of sound; a shorter axis has features
_LOOKED_AT = 100  # files
_DOCS = "docs/datasets.md#sound"


def sound_input(tensor: Tensor, count: int, data: SoundData) -> InputPart:
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
