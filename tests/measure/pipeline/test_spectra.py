"""Spectra of sound, held against librosa."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.manifest.audio_steps import FixLength, Frame, Log, Mel, Mfcc, Spectrogram
from pytest_mlms.measure.pipeline.sounds import Sound, resampled
from pytest_mlms.measure.pipeline.spectra import (
    fix_length,
    frames,
    logarithm,
    mel_spectrogram,
    mfcc,
    spectrogram,
)
from tests.support.language import tone

RATE = 16000


def noise(samples: int = 2 * RATE) -> Any:
    """Return a noise that gets louder, with a tone, float32."""
    drawn = np.random.default_rng(0).standard_normal(samples)
    loudness = np.linspace(1e-3, 0.3, samples)
    return (drawn * loudness + 0.1 * tone(samples / RATE)).astype(np.float32)


def test_a_tone_is_in_its_band() -> None:
    power = spectrogram(tone(1.0, hertz=1000.0), Spectrogram(fft=512, hop=256, center=False))
    assert power.shape == (257, 61)
    assert set(power.argmax(axis=0)) == {32}  # 1,000 Hz of 16,000 in 512


def test_frames_may_be_filled_up() -> None:
    samples = np.arange(10.0)
    assert frames(samples, Frame(length=4, hop=3)).shape == (3, 4)
    filled = frames(np.arange(11.0), Frame(length=4, hop=3, pad="end"))
    assert filled.tolist()[-1] == [9, 10, 0, 0]


def test_a_length_is_fixed_at_either_side() -> None:
    values = np.arange(4)
    assert fix_length(values, FixLength(size=2, side="start")).tolist() == [2, 3]
    assert fix_length(values, FixLength(size=2, side="both")).tolist() == [1, 2]
    assert fix_length(values, FixLength(size=6, side="start", value=-1)).tolist()[:3] == [-1, -1, 0]
    assert fix_length(np.ones((2, 3)), FixLength(size=4)).shape == (4, 3)


def test_a_logarithm_of_nothing_needs_a_floor() -> None:
    with pytest.raises(ValueError, match="write a 'floor'"):
        logarithm(np.zeros(3), Log(floor=None))
    assert logarithm(np.zeros(3), Log(floor=None, offset=1.0)).tolist() == [0, 0, 0]


FEATURES: list[tuple[Mel, dict[str, Any]]] = [
    (Mel(fft=400, hop=160, bands=80), {"n_fft": 400, "hop_length": 160, "n_mels": 80}),
    (
        Mel(fft=512, hop=160, window=400, bands=40, low=20, to=7600, formula="htk", norm="none"),
        {
            "n_fft": 512,
            "hop_length": 160,
            "win_length": 400,
            "n_mels": 40,
            "fmin": 20,
            "fmax": 7600,
            "htk": True,
            "norm": None,
        },
    ),
    (
        Mel(fft=1024, hop=256, bands=64, center=False, power=1),
        {"n_fft": 1024, "hop_length": 256, "n_mels": 64, "center": False, "power": 1.0},
    ),
    (
        Mel(fft=400, hop=100, bands=40, pad="reflect", shape="hamming"),
        {
            "n_fft": 400,
            "hop_length": 100,
            "n_mels": 40,
            "pad_mode": "reflect",
            "window": "hamming",
        },
    ),
]


@pytest.mark.slow
def test_features_are_those_of_librosa() -> None:
    librosa = pytest.importorskip("librosa")
    samples = noise()
    for parameters, arguments in FEATURES:
        expected = librosa.feature.melspectrogram(y=samples, sr=RATE, **arguments)
        found = mel_spectrogram(samples, parameters, RATE)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() <= 1e-6 * expected.max()
    bands = mel_spectrogram(samples, FEATURES[0][0], RATE)
    decibels = logarithm(bands, Log(base="db", range=80))
    expected = librosa.power_to_db(
        librosa.feature.melspectrogram(y=samples, sr=RATE, **FEATURES[0][1])
    )
    assert np.abs(decibels - expected).max() < 1e-4
    coefficients = librosa.feature.mfcc(S=expected, n_mfcc=13)
    assert np.abs(mfcc(decibels, Mfcc(count=13)) - coefficients).max() < 1e-3
    framed = librosa.util.frame(samples, frame_length=400, hop_length=160, axis=0)
    assert np.array_equal(frames(samples, Frame(length=400, hop=160)), framed)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [8000, 22050, 44100, 48000])
def test_resampled_sound_is_near_to_that_of_librosa(rate: int) -> None:
    """docs/datasets.md states the difference."""
    librosa = pytest.importorskip("librosa")
    samples = tone(1.0, rate, 440.0) + tone(1.0, rate, 3000.0)
    found = resampled(Sound(samples[:, None], rate), RATE).samples[:, 0]
    expected = librosa.resample(samples, orig_sr=rate, target_sr=RATE)
    middle = slice(1000, 15000)
    assert np.abs(found - expected)[middle].max() < 2e-3
