"""Chords of plucked strings, synthesised, with the notes that sound in each frame as labels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["compose"]

_SEED = 16
_RATE = 22050  # samples a second
_SAMPLES = 43844
_FRAMES = 172
_HOP = 256  # samples of a frame
_LOWEST = 21  # MIDI's number of the lowest of 88 notes
_NOTES = 88
_SECONDS = 0.45  # of a note
_PARTIALS = 8
_PITCHES = np.arange(48, 77)  # of which notes are drawn
_PITCH_OF_A = 69  # of 440 Hz
_LOUDNESS = 20000  # the largest sample


def compose() -> dict[str, NDArray[np.generic]]:
    """Return audio (N x 43844 x 1, 16 bits), and as label the notes that sound: N x 172 x 88."""
    rng = np.random.default_rng(_SEED)
    audio = []
    rolls = []
    for _ in range(12):
        samples, roll = _piece(rng)
        audio.append(samples)
        rolls.append(roll)
    return {"audio": np.array(audio)[..., np.newaxis], "label": np.array(rolls)}


def _piece(rng: np.random.Generator) -> tuple[NDArray[np.int16], NDArray[np.uint8]]:
    samples = np.zeros(_SAMPLES)
    roll = np.zeros((_FRAMES, _NOTES), dtype=np.uint8)
    for start in np.arange(0.1, 1.5, 0.5):
        count = int(rng.integers(1, 4))
        for pitch in rng.choice(_PITCHES, size=count, replace=False):
            _add_note(samples, roll, int(pitch), float(start))
    scaled = samples / np.abs(samples).max() * _LOUDNESS
    return scaled.round().astype(np.int16), roll


def _add_note(
    samples: NDArray[np.float64], roll: NDArray[np.uint8], pitch: int, start: float
) -> None:
    """Add a note with partials that fade, and its frames."""
    begin = int(start * _RATE)
    time = np.arange(int(_SECONDS * _RATE)) / _RATE
    end = begin + len(time)
    octaves = (pitch - _PITCH_OF_A) / 12
    frequency = 440 * 2**octaves
    for partial in range(1, _PARTIALS + 1):
        fading = np.exp(-time * 2 * partial**0.5) / partial
        wave = np.sin(2 * np.pi * frequency * partial * time)
        samples[begin:end] += fading * wave
    first = begin // _HOP
    last = end // _HOP
    roll[first : last + 1, pitch - _LOWEST] = 1
