"""Drafts of quantised models: scale and zero point of the file, and the steps that need them."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from pytest_mlms.author.draft.data import recognise_data
from pytest_mlms.author.draft.drafting import draft_manifest
from pytest_mlms.author.draft.inputs import guess_inputs
from pytest_mlms.author.draft.onnx_hints import OnnxHints
from pytest_mlms.author.draft.parts import Draft
from pytest_mlms.author.draft.quantisation import Quantisation, quantisation_of
from pytest_mlms.core.errors import MlmsError
from pytest_mlms.manifest import load
from pytest_mlms.measure.pipeline import preprocess
from pytest_mlms.provide.stacks.schema import load_stacks
from tests.author.draft.test_drafting import request
from tests.support.frameworks import stack_launch
from tests.support.project import ROOT

INT8 = Path(__file__).parents[2] / "support" / "quantised.tflite"
"""Digits of 8 x 8 pixels, one dense layer of 10 classes with softmax, in int8 by TensorFlow 2.21."""

SHARES = 1 / 255
SOFTMAX = Quantisation(1 / 256, -128)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "twins").mkdir()
    return tmp_path


def test_scale_and_zero_point_of_tflite_are_those_of_the_interpreter() -> None:
    # get_input_details and get_output_details of ai-edge-litert 2.3
    found = quantisation_of(INT8, [Tensor("x", "int8", ())], [Tensor("y", "int8", ())])
    assert found == {"x": (pytest.approx(SHARES), -128), "y": SOFTMAX}
    assert quantisation_of(INT8, [Tensor("x", "float32", ())], [Tensor("y", "float32", ())]) == {}
    assert quantisation_of(INT8, [], [Tensor("y", "int8", ())]) == {"y": SOFTMAX}
    shutil.copy(INT8, "MODEL.TFLITE")
    assert quantisation_of(Path("MODEL.TFLITE"), [], [Tensor("y", "int8", ())]) == {"y": SOFTMAX}


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_damaged_tflite_tells_nothing_or_a_scale(seed: int, changes: int) -> None:
    drawn = random.Random(seed)
    data = bytearray(INT8.read_bytes())
    for _ in range(changes):
        data[drawn.randrange(len(data))] = drawn.randrange(256)
    path = Path("damaged.tflite")
    path.write_bytes(bytes(data[: drawn.randrange(len(data))] if seed % 2 else data))
    found = quantisation_of(path, [Tensor("x", "int8", ())], [Tensor("y", "int8", ())])
    assert all(one.scale > 0 for one in found.values())


def save_model(
    kind: Any, scale: float, zero: int, *sizes: int, passing: str = "", columns: int = 2
) -> None:
    """Write model.onnx: bytes x to classes by their mean, as bytes of softmax."""
    weights = [
        numpy_helper.from_array(np.array(scale, np.float32), "scale"),
        numpy_helper.from_array(np.array(zero, kind), "zero"),
        numpy_helper.from_array(np.array(1 / 256, np.float32), "share"),
        numpy_helper.from_array(np.array(np.iinfo(kind).min, kind), "least"),
        numpy_helper.from_array(np.linspace([4], [-4], columns, axis=1, dtype=np.float32), "w"),
        numpy_helper.from_array(np.linspace(-2, 2, columns, dtype=np.float32), "b"),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["x2" if passing else "x", "scale", "zero"], ["real"]),
        helper.make_node("Flatten", ["real"], ["flat"]),
        helper.make_node("ReduceMean", ["flat"], ["mean"], axes=[1], keepdims=1),
        helper.make_node("Gemm", ["mean", "w", "b"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["shares"]),
        helper.make_node("QuantizeLinear", ["shares", "share", "least"], ["prob"]),
    ]
    if passing:
        nodes.insert(0, helper.make_node(passing, ["x"], ["x2"]))
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    x = helper.make_tensor_value_info("x", element, ["N", *sizes])
    y = helper.make_tensor_value_info("prob", element, ["N", columns])
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), "model.onnx")


def drafted(data: str | None = "data.npz") -> Draft:
    """Return the draft for the model and the data, which is read as a manifest."""
    given = recognise_data(Path(data)) if data else None
    draft = draft_manifest(replace(request("model.onnx", said=[]), data=given, replaces=True))
    Path("m.yaml").write_text(draft.text())
    load(Path("m.yaml"))
    return draft


@pytest.mark.parametrize("passing", ["", "Transpose", "Identity"])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_scale_and_zero_point_of_onnx_are_those_beside_inputs_and_outputs(
    kind: Any, passing: str
) -> None:
    save_model(kind, 0.25, 7, 4, passing=passing)
    name = np.dtype(kind).name
    found = quantisation_of(Path("model.onnx"), [Tensor("x", name, ())], [Tensor("prob", name, ())])
    assert found == {"x": (0.25, 7), "prob": (1 / 256, np.iinfo(kind).min)}
    assert all(one.are_shares(name) == (key == "prob") for key, one in found.items())


def test_the_scale_of_qlinear_operators_is_that_of_their_input_and_output() -> None:
    names = ["s1", "z1", "w", "s2", "z2", "s3", "z3"]
    kinds = [np.float32, np.uint8, np.uint8, np.float32, np.uint8, np.float32, np.uint8]
    values = [0.5, 3, 1, 0.1, 0, 0.75, 9]
    weights = [
        numpy_helper.from_array(np.full((2, 2) if name == "w" else (), value, kind), name)
        for name, kind, value in zip(names, kinds, values, strict=True)
    ]
    node = helper.make_node("QLinearMatMul", ["x", *names], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.UINT8, ["N", 2]) for name in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph), "model.onnx")
    found = quantisation_of(
        Path("model.onnx"), [Tensor("x", "uint8", ())], [Tensor("y", "uint8", ())]
    )
    assert found == {"x": (0.5, 3), "y": (0.75, 9)}


def save_rows(values: Any, **others: Any) -> None:
    """Write data.npz with rows of x whose label is whether their mean is low."""
    label = (np.asarray(values, np.float64).reshape(len(values), -1).mean(axis=1) < 0.5).astype(int)
    np.savez("data.npz", x=values, label=label, **others)


@pytest.mark.parametrize(("kind", "zero"), [(np.uint8, 0), (np.int8, -128)])
def test_floats_are_quantised_as_the_model_takes_them(kind: Any, zero: int) -> None:
    save_model(kind, SHARES, zero, 6)
    values = np.random.default_rng(0).uniform(0, 1, (9, 6)).astype(np.float32)
    save_rows(values)
    draft = drafted()
    (part,) = draft.inputs
    batch = preprocess(list(values), part.spec())
    assert batch.dtype == kind
    expected = np.rint(values.astype(np.float64) * 255) + zero
    assert np.abs(batch - expected).max() <= 1
    assert len(np.unique(batch)) > 30
    (output,) = draft.outputs
    least = np.iinfo(kind).min
    step = f"dequantize: {{scale: 0.00390625, zero_point: {least}}}"
    assert (output.type, output.steps) == ("classification", [step, "top_k: {k: 2}"])


@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_whole_numbers_within_what_the_integers_stand_for_are_quantised(kind: Any) -> None:
    save_model(np.uint8, SHARES, 0, 6)
    values = np.eye(9, 6).astype(kind)
    save_rows(values)
    (part,) = drafted().inputs
    assert set(preprocess(list(values), part.spec()).ravel().tolist()) == {0, 255}


def test_floats_that_are_the_integers_already_are_cast() -> None:
    save_model(np.uint8, SHARES, 0, 6)
    save_rows(np.arange(54, dtype=np.float32).reshape(9, 6))
    (part,) = drafted().inputs
    assert part.steps[0][0] == "cast: {to: uint8}"


@pytest.mark.parametrize("low", [-3.5, 40.5])
def test_floats_beyond_what_integers_stand_for_are_refused(low: float) -> None:
    save_model(np.uint8, SHARES, 0, 6)
    save_rows(np.linspace(low, low + 9, 54, dtype=np.float32).reshape(9, 6))
    with pytest.raises(MlmsError, match="uint8 of the model stands for 0 to 1; give the numbers"):
        drafted()


@pytest.mark.parametrize("kind", ["uint8", "int8", "int64", "bool"])
def test_floats_with_fractions_are_refused_where_the_scale_is_unknown(kind: str) -> None:
    save_rows(np.linspace(0, 1, 54, dtype=np.float32).reshape(9, 6))
    data = recognise_data(Path("data.npz"))
    tensor = Tensor("x", kind, (None, 6))
    with pytest.raises(MlmsError, match=f"float32 from 0 to 1, and the model takes {kind}, of unk"):
        guess_inputs([tensor], data, OnnxHints())
    save_rows(np.eye(9, 6, dtype=np.float32))
    (part,) = guess_inputs([tensor], recognise_data(Path("data.npz")), OnnxHints())
    assert part.steps[0][0] == f"cast: {{to: {kind}}}"


def picture(name: str, kind: str, shape: Any, quantisation: Any = None) -> Any:
    """Return the drafted input of a model of this name and type, without data."""
    hints = OnnxHints(quantised={name: quantisation} if quantisation else {})
    (part,) = guess_inputs([Tensor(name, kind, shape)], None, hints)
    part.spec()
    return part


GREY = np.arange(256, dtype=np.uint8).reshape(16, 16, 1)


@pytest.mark.parametrize(
    ("kind", "scale", "zero"),
    [
        ("int8", 1 / 255, -128),
        ("int8", 2 / 255, 0),
        ("int8", 2 / 255, -1),
        ("int8", 1.0, -128),
        ("int8", 1.0, 0),
        ("int8", None, 0),
        ("int8", 0.05, 3),
        ("uint8", 1 / 255, 0),
        ("uint8", 1 / 128, 128),
        ("uint8", None, 0),
    ],
)
def test_pixels_are_put_on_the_whole_range_of_a_models_bytes(
    kind: str, scale: float | None, zero: int
) -> None:
    given = Quantisation(scale, zero) if scale else None
    part = picture("x", kind, (None, 16, 16, 1), given)
    assert (part.type, part.element_type, part.layout) == ("image", kind, "NHWC")
    batch = preprocess([GREY], part.spec())
    expected = GREY[np.newaxis].astype(int) - (128 if kind == "int8" else 0)
    assert batch.dtype == np.dtype(kind)
    assert np.abs(batch.astype(int) - expected).max() <= 1
    assert len(np.unique(batch)) > 250


def test_pixels_of_imagenets_range_are_normalized_and_quantised() -> None:
    given = Quantisation(0.0186, -14)  # -2.12 to 2.62
    part = picture("x", "int8", (1, 224, 224, 3), given)
    names = [step.partition(":")[0] for step, _ in part.steps]
    assert names == ["decode", "resize", "normalize", "quantize"]
    assert "123.675" in part.steps[2][0]


@pytest.mark.parametrize("shape", [(1, 49, 10, 1), (1, 1960), (1, 490)])
def test_mfcc_of_int8_are_no_pictures(shape: Any) -> None:
    part = picture("input_1", "int8", shape, Quantisation(0.58, 83))
    assert (part.type, part.range) == ("tensor", [-128, 127])
    rows = np.zeros((3, *shape[1:]), np.int8)
    np.savez("d.npz", input_1=rows, label=np.arange(3))
    tensor = Tensor("input_1", "int8", shape)
    (part,) = guess_inputs([tensor], recognise_data(Path("d.npz")), OnnxHints())
    assert (part.type, part.steps) == ("tensor", [])
    rows = np.linspace(-110, 20, rows.size, dtype=np.float32).reshape(rows.shape)
    np.savez("d.npz", input_1=rows, label=np.arange(3))
    hints = OnnxHints(quantised={"input_1": Quantisation(0.58, 83)})
    (part,) = guess_inputs([tensor], recognise_data(Path("d.npz")), hints)
    assert part.steps[0][0] == "quantize: {scale: 0.58, zero_point: 83, to: int8}"


def test_shares_of_bytes_are_classes_without_labels_too() -> None:
    save_model(np.uint8, SHARES, 0, 6, columns=4)
    (part,) = drafted(None).outputs
    assert part.type == "classification"
    assert part.comment.endswith("probabilities")


def test_the_drafted_steps_are_of_the_files_scale_in_a_folder_of_pictures(folder: Path) -> None:
    save_model(np.int8, SHARES, -128, 8, 8, 1)
    save_pictures(folder / "pictures")
    draft = drafted("pictures")
    assert draft.task == "image-classification"
    assert draft.inputs[0].steps[-1][0].startswith("quantize: {scale: 0.0039")
    assert draft.outputs[0].type == "classification"


def save_pictures(folder: Path, classes: int = 2) -> None:
    """Write three pictures of each class into a folder of its own."""
    for number in range(classes):
        (folder / f"{number}").mkdir(parents=True)
        for index in range(3):
            grey = Image.new("L", (8, 8), 20 * number + index)
            grey.save(folder / f"{number}" / f"{index}.png")


def test_a_folder_of_pictures_fits_a_tflite_of_int8(folder: Path) -> None:
    stack_launch("tflite")
    shutil.copy(INT8, folder / "model.tflite")
    save_pictures(folder / "pictures", classes=10)
    asked = request("model.tflite", said=[])
    stack = load_stacks(ROOT / "manifests" / "stacks.yaml")["tflite"]
    data = recognise_data(folder / "pictures")
    draft = draft_manifest(replace(asked, stacks={"tflite": stack}, data=data))
    (part,) = draft.inputs
    assert (part.type, part.element_type) == ("image", "int8")
    steps = [step.partition(":")[0] for step, _ in part.steps]
    assert steps == ["decode", "resize", "normalize", "quantize"]
    (output,) = draft.outputs
    assert output.type == "classification"
    assert output.steps[0] == "dequantize: {scale: 0.00390625, zero_point: -128}"


@pytest.mark.parametrize(
    ("kind", "scale", "zero", "step"),
    [
        (np.float32, 0, 0, "normalize: {mean: 0, scale: 16}"),
        (np.int8, 1 / 255, -128, "normalize: {mean: 0, scale: 16}"),
        (np.int8, 2 / 255, 0, "normalize: {mean: 8, scale: 8}"),
        (np.int8, 16 / 255, -128, "normalize: {mean: 0, scale: 1}"),
    ],
)
def test_dark_pixels_are_scaled_by_the_largest_of_the_data(
    kind: Any, scale: float, zero: int, step: str
) -> None:
    pixels = (np.arange(3 * 64, dtype=np.uint8) % 17).reshape(3, 8, 8)
    np.savez("d.npz", x=pixels, label=np.arange(3))
    hints = OnnxHints(quantised={"x": Quantisation(scale, zero)} if scale else {})
    tensor = Tensor("x", np.dtype(kind).name, (None, 8, 8, 1))
    (part,) = guess_inputs([tensor], recognise_data(Path("d.npz")), hints)
    assert part.steps[2][0] == step
    batch = preprocess(list(pixels), part.spec()).astype(float)
    expected = pixels[..., np.newaxis] / 16 if not scale else pixels[..., np.newaxis] * 15.94 - 128
    assert np.abs(batch - expected).max() <= (1e-6 if not scale else 1)
