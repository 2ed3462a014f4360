"""Waveforms of the sounds of a dataset."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from pytest_mlms.manifest.schema import Input
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.show.report.waveforms import waveform_of

AUDIO = {"name": "x", "type": "audio", "element_type": "float32", "sample_rate": 8000}
TENSOR = {"name": "x", "type": "tensor", "element_type": "float32", "shape": ["batch", 4]}


def dataset_of(element: Any, spec: dict[str, Any]) -> Dataset:
    inputs = [Input.model_validate(spec)]
    return cast(Dataset, SimpleNamespace(inputs=inputs, elements={"x": [element]}))


def test_a_sound_is_the_ends_of_its_columns() -> None:
    samples = np.concatenate([np.zeros(4000), np.full(4000, 0.5), np.full(4000, -0.25)])
    found = waveform_of(dataset_of(samples.astype(np.float32), AUDIO), 0)
    assert found is not None
    assert found.seconds == 1.5
    assert len(found.lows) == len(found.highs) == 120
    assert (found.highs[0], found.highs[60], found.lows[-1]) == (0, 0.5, -0.25)


def test_what_is_no_sound_has_none() -> None:
    assert waveform_of(dataset_of(np.zeros(4, np.float32), TENSOR), 0) is None
    assert waveform_of(dataset_of(b"RIFF no sound", AUDIO), 0) is None
    assert waveform_of(dataset_of(np.zeros(0, np.float32), AUDIO), 0) is None


def test_samples_that_are_no_numbers_or_too_loud_are_bounded() -> None:
    samples = np.array([np.nan, np.inf, -3.0], np.float32)
    found = waveform_of(dataset_of(samples, AUDIO), 0)
    assert found is not None
    assert (found.lows, found.highs) == ((0, 1, -1), (0, 1, -1))
