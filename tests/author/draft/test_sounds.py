"""Folders of sounds, a folder for each class."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import soundfile
from mlms_predictors import Tensor
from onnx import TensorProto, helper, numpy_helper

from pytest_mlms.author.draft.data import SoundData, recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.inputs import guess_inputs
from pytest_mlms.author.draft.onnx_hints import OnnxHints
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.records import Place
from pytest_mlms.manifest import yaml12
from pytest_mlms.manifest.schema import Manifest
from pytest_mlms.measure.pipeline import open_dataset
from tests.author.draft.test_drafting import request

ANY = None
RATE = 8000


@pytest.fixture(autouse=True)
def sounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of loud and quiet sounds, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    for name, loudness in (("loud", 0.9), ("quiet", 0.1)):
        (tmp_path / "sounds" / name).mkdir(parents=True)
        for number, suffix in enumerate(("wav", "flac", "WAV")):
            samples = loudness * np.ones((500 + 100 * number, 1 + number % 2))
            soundfile.write(
                f"sounds/{name}/{number}.{suffix}", samples, RATE, format=suffix.upper()
            )
    Path("sounds/readme.txt").touch()
    return tmp_path / "sounds"


def part(shape: tuple[int | None, ...], dtype: str = "float32", count: int = 1) -> Any:
    tensors = [Tensor(name, dtype, shape) for name in "xyz"[:count]]
    return guess_inputs(tensors, recognise_data(Path("sounds")), OnnxHints())[0]


def test_a_folder_of_sounds_has_classes_and_tells_what_is_none() -> None:
    data = recognise_data(Path("sounds"))
    assert isinstance(data, SoundData)
    assert data.class_names == ["loud", "quiet"]
    assert data.files[:3] == ["loud/0.wav", "loud/1.flac", "loud/2.WAV"]
    assert data.others == ["readme.txt"]
    assert isinstance(data.sample(2), SoundData)


@pytest.mark.parametrize(
    ("shape", "steps", "written"),
    [
        ((ANY, 16000), ["fix_length: {size: 16000}"], None),
        ((ANY, ANY), ["fix_length: {size: 700}"], ["batch", 700]),
        ((1, 1, 16000), ["fix_length: {size: 16000}", "expand_dims: {axis: 0}"], None),
        ((ANY, 1, ANY), ["fix_length: {size: 700}", "expand_dims: {axis: 0}"], ["batch", 1, 700]),
        ((ANY, 8000, 1), ["fix_length: {size: 8000}", "expand_dims: {axis: 1}"], None),
    ],
)
def test_samples_get_the_length_and_the_axes_of_the_model(
    shape: tuple[int | None, ...], steps: list[str], written: Any
) -> None:
    found = part(shape)
    assert (found.type, found.sample_rate, found.shape) == ("audio", RATE, written)
    assert [step for step, _ in found.steps] == ["mono", "resample", *steps]
    spec = found.spec()
    assert spec.sample_rate == RATE
    yaml12.parse("\n".join(found.lines()))


@pytest.mark.parametrize("shape", [(ANY, 1, 40, 98), (ANY, 98, 40), (ANY, 40), (ANY, 2, 16000)])
def test_features_of_sounds_are_refused_with_what_to_write(shape: Any) -> None:
    with pytest.raises(MlmsError, match="takes no row of their samples: 'x' is .*; write its man"):
        part(shape)


def test_what_is_no_sound_is_refused_by_its_name() -> None:
    Path("sounds/loud/0.wav").write_bytes(b"RIFF")
    with pytest.raises(
        MlmsError, match=r"sounds/loud/0.wav can't be read as sound: .*; replace it"
    ):
        part((ANY, 16000))
    with pytest.raises(MlmsError, match="it has 2 inputs"):
        part((ANY, 16000), count=2)


def save_model() -> None:
    """Write a model whose classes are loud and quiet, by the mean of 500 samples."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2], keepdims=0),
        helper.make_node("MatMul", ["mean", "weight"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["prob"]),
    ]
    weights = [
        numpy_helper.from_array(np.array([[9, -9]], np.float32), "weight"),
        numpy_helper.from_array(np.array([-4.5, 4.5], np.float32), "bias"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 1, 500])
    y = helper.make_tensor_value_info("prob", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")


def test_a_model_of_samples_and_a_folder_of_sounds_become_a_dataset() -> None:
    save_model()
    said: list[str] = []
    data = recognise_data(Path("sounds"))
    draft = draft_manifest(replace(request("model.onnx", said=said), data=data))
    assert draft.task == "audio-classification"
    assert any("6 of 6" not in line and "6 sounds of 2 classes, packed" in line for line in said)
    assert any("left out 1 files that are no sounds: readme.txt" in line for line in said)
    manifest = Manifest.model_validate(yaml12.parse(draft.text()).value)
    with zipfile.ZipFile("m-data.zip") as archive:
        archive.extractall("unpacked")
    dataset = open_dataset(Path("unpacked"), manifest.inputs, Place(Path("m.yaml"), 1))
    assert dataset.labels is not None
    assert list(dataset.labels) == [0, 0, 0, 1, 1, 1]
    batch = dataset.batch(range(6))["x"]
    assert batch.shape == (6, 1, 500)
    assert batch[:, 0, 0] == pytest.approx([0.9] * 3 + [0.1] * 3, abs=1e-3)
