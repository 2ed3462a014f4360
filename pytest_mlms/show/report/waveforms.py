"""Waveforms of the sounds of a dataset, as few numbers that a picture needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.pipeline.sounds import read_sounds
from pytest_mlms.show.pages.examples import Waveform

if TYPE_CHECKING:
    from pytest_mlms.measure.pipeline import Dataset

_COLUMNS = 120
_LOUDEST = 1.0


def waveform_of(dataset: Dataset, index: int) -> Waveform | None:
    """Return the sound of an input; None for an input without one, and for one that is broken."""
    for spec in dataset.inputs:
        if spec.type == "audio":
            element = dataset.elements[spec.name][index]
            try:
                (samples,) = read_sounds([element], spec)
            except MlmsError:
                return None
            return _waveform(samples, spec.sample_rate or 1)
    return None


def _waveform(samples: NDArray[Any], rate: int) -> Waveform | None:
    """Return the least and the greatest sample of each of the columns; None without samples."""
    if not samples.size:
        return None
    loudness = np.clip(np.nan_to_num(samples), -_LOUDEST, _LOUDEST)
    columns = np.array_split(loudness, min(_COLUMNS, loudness.size))
    lows = tuple(round(float(column.min()), 3) for column in columns)
    highs = tuple(round(float(column.max()), 3) for column in columns)
    return Waveform(samples.size / rate, lows, highs)
