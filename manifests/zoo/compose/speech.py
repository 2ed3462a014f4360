"""Frames of speech and of other sounds, for voice activity detection.

The speech is read from a novel, of LibriVox by the tests of PocketSphinx. All other sound is noise
or tones that are synthesised.
"""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from manifests.zoo.compose.packages import folder_of, zip_of

__all__ = ["compose_frames", "compose_sentences"]

_SEED = 16
_RATE = 16000  # samples a second
_HOP = 512  # samples of a frame
_CONTEXT = 64  # samples of the frame before, which the model takes with each
_SENTENCES = ("0870", "0880", "0930")


def compose_frames() -> dict[str, NDArray[np.generic]]:
    """Return input (N x 576, 16 bits), sr, the number of its sequence, and label: 1 for speech.

    A sequence is a sentence with noise or a tone before and after it. Where words are is known by
    the alignment of PocketSphinx.
    """
    rng = np.random.default_rng(_SEED)
    frames = []
    labels = []
    sequences = []
    for number, name in enumerate(_SENTENCES):
        spoken, of_words = _sentence(name)
        before = _other(2 * number, rng)
        after = _other(2 * number + 1, rng)
        samples = np.concatenate([before, spoken, after])
        is_speech = np.concatenate([_nothing(before), of_words, _nothing(after)])
        for start in range(_CONTEXT, len(samples) - _HOP, _HOP):
            end = start + _HOP
            frames.append(samples[start - _CONTEXT : end])
            labels.append([is_speech[start:end].mean() > 0.5])
            sequences.append(number)
    return {
        "input": np.array(frames),
        "sr": np.full(len(frames), _RATE, dtype=np.int64),
        "sequence": np.array(sequences),
        "label": np.array(labels, dtype=np.uint8),
    }


def _nothing(samples: NDArray[np.int16]) -> NDArray[np.bool_]:
    """Return that none of the samples is of words."""
    return np.zeros(len(samples), dtype=bool)


def _recordings() -> Path:
    return folder_of("pocketsphinx==5.1.1", "test/data/librivox")


def _sentence(number: str) -> tuple[NDArray[np.int16], NDArray[np.bool_]]:
    """Return the samples of a sentence, and which of them are of words."""
    path = _recordings() / f"sense_and_sensibility_01_austen_64kb-{number}.wav"
    with wave.open(str(path)) as opened:
        samples = np.frombuffer(opened.readframes(opened.getnframes()), np.int16)
    is_speech = np.zeros(len(samples), dtype=bool)
    alignment = json.loads(path.with_suffix(".json").read_text())
    for word in alignment["w"]:
        if word["t"] != "<sil>":
            start = round(word["b"] * _RATE)
            count = round(word["d"] * _RATE)
            is_speech[start : start + count] = True
    return samples, is_speech


def _other(kind: int, rng: np.random.Generator) -> NDArray[np.int16]:
    """Return a second of white noise, a tone, brown noise, or a buzz."""
    time = np.arange(_RATE) / _RATE
    white = rng.normal(0, 300, _RATE)
    tone = 2000 * np.sin(2 * np.pi * 440 * time)
    brown = np.convolve(white, np.ones(64) / 8, mode="same")
    buzz = 1000 * np.sign(np.sin(2 * np.pi * 100 * time))
    sounds = (white, tone, brown, buzz)
    chosen = sounds[kind % len(sounds)]
    return chosen.round().astype(np.int16)


def compose_sentences() -> bytes:
    """Return an archive of the recordings, with their texts in a labels.csv.

    A slip in one of them, "a more a amiable woman", is corrected.
    """
    folder = _recordings()
    spoken = re.compile(r"<s> (.*) </s> \((.*)\)")
    files = {}
    lines = ["file,label"]
    for text, name in spoken.findall((folder / "transcription").read_text()):
        files[f"{name}.wav"] = (folder / f"{name}.wav").read_bytes()
        lines.append(f"{name}.wav,{text.replace('a amiable', 'amiable')}")
    files["labels.csv"] = "\n".join(lines).encode()
    return zip_of(files)
