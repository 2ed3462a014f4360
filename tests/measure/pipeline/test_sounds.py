"""Sounds of files, and the steps on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from pytest_mlms.core.errors import DatasetError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.text_steps import FixLength, Frame, Log, Mel, Mfcc, Spectrogram
from pytest_mlms.measure.pipeline.dataset import open_dataset
from pytest_mlms.measure.pipeline.inputs import preprocess
from pytest_mlms.measure.pipeline.sounds import (
    Sound,
    fix_length,
    frames,
    logarithm,
    mel_spectrogram,
    mfcc,
    resampled,
    spectrogram,
)
from tests.support.language import encoded, tone

HERE = Place(Path("m.yaml"), 30)


def audio(*steps: Any, **fields: Any) -> Input:
    given = {"name": "x", "type": "audio", "element_type": "float32", "sample_rate": 16000}
    return Input.model_validate({**given, "steps": list(steps), **fields})


@pytest.mark.parametrize(("form", "error"), [("WAV", 4e-5), ("FLAC", 4e-5), ("OGG", 0.05)])
def test_a_file_is_read_as_samples(form: str, error: float) -> None:
    batch = preprocess([encoded(tone(), form=form)], audio())
    assert batch.dtype == np.float32
    assert batch.shape == (1, 8000)
    assert np.abs(batch[0] - tone()).max() < error


def test_a_file_of_another_rate_asks_for_resample() -> None:
    data = encoded(tone(rate=22050), rate=22050)
    expected = "it has 22,050 samples a second, and the input 16,000; add a step 'resample'"
    with pytest.raises(DatasetError, match=expected):
        preprocess([data], audio())
    batch = preprocess([data], audio("resample"))
    for rate, samples in ((767_999, 100), (1, 1 << 15)):
        strange = encoded(np.zeros(samples), rate)
        with pytest.raises(DatasetError, match="can't be resampled to 16,000; convert the file"):
            preprocess([strange], audio("resample"))
    middle = slice(500, 7500)  # the filter has seen both sides
    assert np.abs(batch[0] - tone())[middle].max() < 1e-3


def test_a_stereo_file_asks_for_mono() -> None:
    stereo = np.stack([tone(), np.zeros(8000)], axis=1)
    data = encoded(stereo)
    with pytest.raises(DatasetError, match="it has 2 channels; add a step 'mono'"):
        preprocess([data], audio())
    assert preprocess([data], audio("mono"))[0] == pytest.approx(tone() / 2, abs=2e-5)
    assert not preprocess([data], audio({"mono": {"channel": 1}})).any()
    with pytest.raises(DatasetError, match="2 channels, and no number 2; write 0 to 1"):
        preprocess([data], audio({"mono": {"channel": 2}}))


@pytest.mark.parametrize("form", ["WAV", "FLAC", "OGG"])
def test_a_file_that_is_cut_off_is_an_error(form: str) -> None:
    data = encoded(tone(2.0), form=form)
    with pytest.raises(DatasetError, match="cut off|can't be read as sound"):
        preprocess([data[: len(data) * 2 // 3]], audio())


def test_what_is_no_sound_is_an_error() -> None:
    with pytest.raises(DatasetError, match="15 bytes, beginning b'<!DOCTYP', can't be read"):
        preprocess([b"<!DOCTYPE html>"], audio())
    nothing = encoded(np.zeros(0))
    with pytest.raises(DatasetError, match="it has no samples; replace the file"):
        preprocess([nothing], audio())
    nan = np.full(8, np.nan, np.float32)
    wav = encoded(nan, form="WAVEX")  # 16 bits have no NaN
    assert preprocess([wav], audio()).shape == (1, 8)
    with pytest.raises(DatasetError, match="expected samples"):
        preprocess([np.zeros((2, 2, 2), np.float32)], audio())


def test_arrays_are_samples_at_the_rate_of_the_input() -> None:
    assert preprocess([tone()], audio())[0] == pytest.approx(tone())
    whole = np.array([-32768, 16384], np.int16)
    assert preprocess([whole], audio())[0].tolist() == [-1, 0.5]


@pytest.mark.parametrize("steps", [[], ["mono"]])
def test_an_array_with_an_axis_for_its_only_channel_is_that_sound(steps: list[str]) -> None:
    for sound in (tone()[np.newaxis], tone()[:, np.newaxis]):
        assert preprocess([sound], audio(*steps))[0] == pytest.approx(tone())


def test_an_array_with_the_channels_first_is_an_error() -> None:
    message = r"element of 2 x 8000 has fewer samples than channels; write samples x channels"
    with pytest.raises(DatasetError, match=message):
        preprocess([np.stack([tone(), tone()])], audio("mono"))


def test_sounds_of_several_lengths_are_made_one_length() -> None:
    sounds = [tone(0.1), tone(0.3)]
    with pytest.raises(DatasetError, match="several shapes"):
        preprocess(sounds, audio())
    batch = preprocess(sounds, audio({"fix_length": {"size": 3200}}))
    assert batch.shape == (2, 3200)
    assert not batch[0, 1600:].any()
    both = preprocess(sounds, audio({"fix_length": {"size": 3200, "side": "both"}}))
    assert not both[0, :800].any()
    assert both[1] == pytest.approx(tone(0.3)[800:4000])


def test_features_are_steps() -> None:
    steps = [
        {"mel": {"fft": 400, "hop": 160, "bands": 80}},
        {"log": {"base": "10"}},
        "transpose",
        {"expand_dims": {"axis": 0}},
        {"normalize": {"mean": -4, "scale": 4}},
    ]
    assert preprocess([tone(1.0)], audio(*steps)).shape == (1, 1, 101, 80)
    with pytest.raises(DatasetError, match="200 samples are fewer than a frame of 400"):
        preprocess([tone()[:200]], audio({"frame": {"length": 400, "hop": 160}}))
    with pytest.raises(DatasetError, match="mel bands from 0 to 9000 Hz don't fit"):
        preprocess([tone()], audio({"mel": {"fft": 400, "hop": 160, "bands": 8, "to": 9000.0}}))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sample_rate": None}, "audio needs the rate that the model takes"),
        ({"type": "tensor"}, "sample_rate belongs to audio"),
        ({"steps": ["decode"]}, "an audio has no step 'decode'; write 'type: image'"),
        ({"steps": [{"fix_length": {"size": 9}}, "mono"]}, "'mono' works on whole sounds"),
        ({"column": ["a", "b"]}, "two columns are a pair of texts"),
    ],
)
def test_an_input_of_sound_is_checked(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        audio(**{"steps": [], **fields})


def test_a_folder_of_sounds_is_a_dataset_and_names_the_wrong_file(tmp_path: Path) -> None:
    (tmp_path / "a.flac").write_bytes(encoded(tone(), form="FLAC"))
    (tmp_path / "b.wav").write_bytes(encoded(tone(rate=8000), 8000))
    (tmp_path / "labels.csv").write_text("file,label\na.flac,so it says\nb.wav,\n")
    data = open_dataset(tmp_path, [audio()], HERE, "sounds.zip", "text")
    assert data.labels is not None
    assert list(data.labels) == ["so it says", ""]
    assert data.batch([0])["x"].shape == (1, 8000)
    expected = r"^m.yaml:30: sounds.zip: labels.csv:3: b.wav: input 'x': it has 8,000 samples"
    with pytest.raises(DatasetError, match=expected):
        data.batch([0, 1])


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
