"""Tests of models with random weights of the same distributions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, parser

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.repro import random_weights
from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.explain.repro.privacy import graphs_of
from pytest_mlms.explain.repro.random_weights import (
    NOTE,
    is_float,
    like_histogram,
    like_input,
    like_weights,
    randomised,
)
from tests.support.varied_models import SECRET, bundle_of, varied_model

MANY = 20_000
SOURCES = {
    "normal": lambda random: random.normal(0.3, 2, MANY),
    "uniform": lambda random: random.uniform(-1, 5, MANY),
    "lognormal": lambda random: random.lognormal(0, 1, MANY),
    "two heaps": lambda random: np.where(random.random(MANY) < 0.3, -1.0, 1.0),
    "outlier": lambda random: np.append(random.normal(0, 1, MANY), 1000.0),
    "variances": lambda random: random.gamma(2, 0.1, MANY) + 1e-5,
}


@settings(max_examples=60, deadline=None)
@given(
    source=st.sampled_from(sorted(SOURCES)),
    kind=st.sampled_from([np.float32, np.float64, np.float16, ml_dtypes.bfloat16]),
    zeros=st.sampled_from([0.0, 0.1, 0.9]),
    seed=st.integers(0, 1000),
)
def test_weights_keep_moments_extremes_and_zeros(
    source: str, kind: Any, zeros: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    values = SOURCES[source](random)
    values[random.random(values.size) < zeros] = 0
    array = values.astype(kind)
    drawn = like_weights(array, np.random.default_rng(seed + 1))
    assert (drawn.shape, drawn.dtype) == (array.shape, array.dtype)
    old = array.astype(np.float64)
    new = drawn.astype(np.float64)
    assert old.min() <= new.min()
    assert new.max() <= old.max()
    spread = old.std()
    assert abs(new.mean() - old.mean()) < 0.05 * spread + 0.01 * abs(old.mean())
    # An outlier alone makes its deviation, so it is the one that may be far off.
    assert spread * (0.5 if source in ("outlier", "lognormal") else 0.9) < new.std()
    assert new.std() < 1.2 * spread
    assert abs((new == 0).mean() - (old == 0).mean()) < 0.02


@pytest.mark.parametrize(
    "values", [[], [3.0], [2.0, 2.0, 2.0], [0.0, 0.0], [0.0, -1e4, 0.0], [0.0, -np.inf, 0.0]]
)
def test_what_has_no_distribution_stays(values: list[float]) -> None:
    array = np.array(values, np.float32)
    drawn = like_weights(array, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn, array)


def test_numbers_that_are_not_finite_keep_their_places() -> None:
    array = np.array([1.0, np.nan, -np.inf, 2.0, 3.0], np.float32)
    drawn = like_weights(array, np.random.default_rng(1))
    assert np.isnan(drawn[1])
    assert drawn[2] == -np.inf
    assert np.isfinite(drawn[[0, 3, 4]]).all()
    assert not np.isin(drawn[[0, 3, 4]], [1.0, 2.0, 3.0]).any()


def test_large_arrays_are_drawn_in_parts_alike() -> None:
    array = np.random.default_rng(1).normal(1, 2, (3, 1 << 20)).astype(np.float32)
    drawn = like_weights(array, np.random.default_rng(2))
    assert drawn.shape == array.shape
    for part in drawn:
        assert part.mean() == pytest.approx(1, abs=0.02)


@given(st.lists(st.integers(-128, 127), min_size=2, max_size=50))
def test_a_histogram_has_no_number_that_was_not_there(values: list[int]) -> None:
    array = np.array(values, np.int8)
    drawn = like_histogram(array, np.random.default_rng(3))
    assert drawn.dtype == np.int8
    assert set(drawn.tolist()) <= set(values)


def test_a_histogram_keeps_its_shares() -> None:
    array = np.repeat(np.array([0, 1, 5], np.uint8), [100, 1000, 9000])
    drawn = like_histogram(array, np.random.default_rng(3))
    shares = [(drawn == number).mean() for number in (0, 1, 5)]
    assert shares == pytest.approx([100 / 10100, 1000 / 10100, 9000 / 10100], abs=0.02)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.int8])
def test_whole_numbers_of_an_input_are_drawn_from_its_range(kind: Any) -> None:
    array = np.array([[3, 7], [5, 3]], kind)
    draws = [like_input(array, np.random.default_rng(seed)) for seed in range(200)]
    assert {draw.dtype for draw in draws} == {np.dtype(kind)}
    assert set(np.array(draws).ravel().tolist()) == {3, 4, 5, 6, 7}


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 0), np.float32),
        np.zeros((0,), np.int64),
        np.zeros(0, bool),
        np.ones((2, 2), np.int64),
        np.array(2.5, np.float32),
    ],
)
def test_inputs_of_one_value_or_none_stay(array: NDArray[Any]) -> None:
    drawn = like_input(array, np.random.default_rng(1))
    assert drawn.dtype == array.dtype
    np.testing.assert_array_equal(drawn, array)


def test_truth_values_are_as_often_true() -> None:
    array = np.arange(10_000) % 10 == 0
    drawn = like_input(array, np.random.default_rng(1))
    assert drawn.dtype == bool
    assert drawn.mean() == pytest.approx(0.1, abs=0.02)


def test_real_numbers_are_told_by_their_types() -> None:
    assert is_float(np.dtype(ml_dtypes.float8_e4m3fn))
    assert not is_float(np.dtype(ml_dtypes.int4))
    assert not is_float(np.dtype(np.int32))


KEPT = ("quantized_scale", "quantized_zero", "sizes", "shape", "order")
DRAWN = ("kernel", "scale", "shift", "mean", "variance", "quantized", "half")
REUSED = [HealthCheck.function_scoped_fixture]  # each example writes its own files there

Array = NDArray[Any]


def save(model: onnx.ModelProto, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "own.onnx"
    onnx.save(model, str(path))
    return path


def weights_of(model: onnx.ModelProto) -> dict[str, Array]:
    """Return the weights by name, those of constants, too."""
    found = {}
    for graph in graphs_of(model.graph):
        for tensor in graph.initializer:
            found[tensor.name.removeprefix(f"{SECRET}.")] = numpy_helper.to_array(tensor)
        for node in graph.node:
            for attribute in node.attribute:
                if node.op_type == "Constant" and attribute.HasField("t"):
                    name = f"{graph.name}/{node.output[0].removeprefix(f'{SECRET}.')}"
                    found[name] = numpy_helper.to_array(attribute.t)
    return found


def run(bundle: Bundle) -> list[Array]:
    """Check a bundle's model, run it on the bundle's inputs, and return its outputs."""
    path = str(bundle.files["graph"])
    onnx.checker.check_model(path, full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    outputs: list[Array] = session.run(None, dict(bundle.inputs))
    return outputs


@settings(max_examples=15, deadline=None, suppress_health_check=REUSED)
@given(seed=st.integers(0, 10_000), keep_names=st.booleans())
def test_the_model_stays_valid_and_keeps_all_but_its_weights(
    tmp_path: Path, seed: int, keep_names: bool
) -> None:
    model = varied_model(seed)
    bundle = bundle_of(save(model, tmp_path))
    made = randomised(bundle, tmp_path / "random", seed, keep_names)
    (old,) = run(bundle)
    (new,) = run(made)
    assert new.shape == old.shape
    assert new.dtype == old.dtype
    assert np.isfinite(new).all()
    assert not np.array_equal(new, old)
    drawn = onnx.load(str(made.files["graph"]))
    kinds = [node.op_type for graph in graphs_of(model.graph) for node in graph.node]
    assert [node.op_type for graph in graphs_of(drawn.graph) for node in graph.node] == kinds


@settings(max_examples=15, deadline=None, suppress_health_check=REUSED)
@given(seed=st.integers(0, 10_000))
def test_weights_are_others_within_the_same_bounds_and_the_rest_is_kept(
    tmp_path: Path, seed: int
) -> None:
    path = save(varied_model(seed), tmp_path)
    made = randomised(bundle_of(path), tmp_path / "random", seed, keep_names=True)
    old = weights_of(varied_model(seed))
    new = weights_of(onnx.load(str(made.files["graph"])))
    for name in KEPT:
        np.testing.assert_array_equal(new[name], old[name])
    for name in (*DRAWN, f"{SECRET}/bias"):
        assert (new[name].shape, new[name].dtype) == (old[name].shape, old[name].dtype)
        assert new[name].min() >= old[name].min()
        assert new[name].max() <= old[name].max()
        assert not np.array_equal(new[name], old[name])
    assert (new["variance"] > 0).all()
    zeros = (new["kernel"] == 0).mean()
    assert zeros == pytest.approx((old["kernel"] == 0).mean(), abs=0.2)
    assert new["kernel"].std() == pytest.approx(old["kernel"].std(), rel=0.35)


def test_nothing_of_ones_own_is_left_but_the_structure(tmp_path: Path) -> None:
    bundle = bundle_of(save(varied_model(), tmp_path))
    output = onnx.load(str(bundle.files["graph"])).graph.output[0].name
    expected = bundle.expected._replace(rules={output: {"unlike": -1}})
    made = randomised(replace(bundle, expected=expected), tmp_path / "random")
    path = made.files["graph"]
    (named,) = made.expected.rules
    assert named == onnx.load(str(path)).graph.output[0].name != output
    assert SECRET.encode() not in path.read_bytes()
    model = onnx.load(str(path))
    assert [value.name for value in model.graph.input] == list(made.inputs)
    assert made.notes == (NOTE,)
    (drawn,) = made.inputs.values()
    (own,) = bundle.inputs.values()
    assert drawn.mean() == pytest.approx(own.mean(), abs=0.5)
    assert drawn.std() == pytest.approx(own.std(), rel=0.2)


def test_names_may_be_kept_without_descriptions(tmp_path: Path) -> None:
    bundle = bundle_of(save(varied_model(), tmp_path))
    made = randomised(bundle, tmp_path / "random", keep_names=True)
    model = onnx.load(str(made.files["graph"]))
    assert list(made.inputs) == list(bundle.inputs)
    assert model.graph.node[0].name == f"{SECRET}.node of convolved"
    assert not model.graph.doc_string
    assert not model.graph.node[0].doc_string
    assert not model.graph.input[0].doc_string
    assert not model.metadata_props
    assert not model.producer_name


def test_a_seed_gives_one_model_and_another_seed_another_one(tmp_path: Path) -> None:
    bundle = bundle_of(save(varied_model(), tmp_path))
    made = [randomised(bundle, tmp_path / str(n), seed) for n, seed in enumerate((1, 1, 2))]
    texts = [each.files["graph"].read_bytes() for each in made]
    assert texts[0] == texts[1]
    assert texts[0] != texts[2]
    for name, array in made[0].inputs.items():
        np.testing.assert_array_equal(array, made[1].inputs[name])


def test_weights_in_other_files_are_replaced_and_may_stay_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "own.onnx"
    onnx.save(
        varied_model(), str(path), save_as_external_data=True, location="own.bin", size_threshold=0
    )
    bundle = bundle_of(path)
    bundle = replace(bundle, files={"graph": path, "weights": tmp_path / "own.bin"})
    small = randomised(bundle, tmp_path / "small")
    assert list(small.files) == ["graph"]
    assert [each.name for each in (tmp_path / "small").iterdir()] == ["model.onnx"]
    monkeypatch.setattr(random_weights, "_LARGE", 10)
    large = randomised(bundle, tmp_path / "large")
    assert (tmp_path / "large" / "model.data").is_file()
    for one, other in zip(run(small), run(large), strict=True):
        np.testing.assert_array_equal(one, other)


def test_functions_of_a_model_become_nodes(tmp_path: Path) -> None:
    text = f"""
        <ir_version: 8, opset_import: ["" : 17, "{SECRET}" : 1]>
        agraph (float[N, 4] x) => (float[N, 4] y)
        <float[4] w = {{1, 2, 3, 4}}> {{ y = {SECRET}.secretly(x, w) }}
        <domain: "{SECRET}", opset_import: ["" : 17]>
        secretly (a, b) => (c) {{ d = Mul(a, b)
          c = Relu(d) }}
    """
    inputs = {"x": np.ones((2, 4), np.float32)}
    bundle = bundle_of(save(parser.parse_model(text), tmp_path), inputs)
    made = randomised(bundle, tmp_path / "random")
    run(made)
    model = onnx.load(str(made.files["graph"]))
    assert [node.op_type for node in model.graph.node] == ["Mul", "Relu"]
    assert b"secretly" not in made.files["graph"].read_bytes()


def test_sparse_weights_keep_their_places(tmp_path: Path) -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 5.0])
    places = helper.make_tensor("w_places", TensorProto.INT64, [3], [0, 3, 7])
    sparse = helper.make_sparse_tensor(values, places, [2, 4])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], sparse_initializer=[sparse])
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    bundle = bundle_of(save(model, tmp_path), {"x": np.ones((1, 2), np.float32)})
    made = onnx.load(str(randomised(bundle, tmp_path / "random").files["graph"]))
    (drawn,) = made.graph.sparse_initializer
    np.testing.assert_array_equal(numpy_helper.to_array(drawn.indices), [0, 3, 7])
    numbers = numpy_helper.to_array(drawn.values)
    assert not np.isin(numbers, [2.0]).any()
    assert 1 <= numbers.min() <= numbers.max() <= 5


def test_classic_models_keep_their_trees_and_not_their_texts(tmp_path: Path) -> None:
    node = helper.make_node(
        "TreeEnsembleClassifier",
        ["x"],
        ["label", "scores"],
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.5, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        class_treeids=[0, 0],
        class_nodeids=[1, 2],
        class_ids=[0, 1],
        class_weights=[0.25, 0.75],
        classlabels_strings=[SECRET, "well"],
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 1])
    label = helper.make_tensor_value_info("label", TensorProto.STRING, [None])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [None, 2])
    graph = helper.make_graph([node], "g", [x], [label, scores])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    bundle = bundle_of(save(model, tmp_path), {"x": np.array([[0.1], [0.9]], np.float32)})
    made = randomised(bundle, tmp_path / "random")
    labels, _ = run(made)
    assert set(labels) <= {"text 0", "text 1"}
    assert SECRET.encode() not in made.files["graph"].read_bytes()


@pytest.mark.parametrize("kind", [object, str])
def test_equal_texts_stay_equal_in_the_model_and_its_inputs(tmp_path: Path, kind: type) -> None:
    node = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        keys_strings=[SECRET, "well"],
        values_int64s=[7, 8],
        default_int64=-1,
    )
    x = helper.make_tensor_value_info("x", TensorProto.STRING, [None])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [None])
    graph = helper.make_graph([node], "g", [x], [y])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    texts: Any = np.array(["well", "unknown", SECRET, "well"], kind)
    made = randomised(bundle_of(save(model, tmp_path), {"x": texts}), tmp_path / "random")
    (found,) = run(made)
    assert found.tolist() == [8, -1, 7, 8]
    assert SECRET not in str(made.inputs)
    (array,) = made.inputs.values()
    assert array.dtype.kind == texts.dtype.kind


def test_outputs_of_other_weights_are_no_reference(tmp_path: Path) -> None:
    bundle = bundle_of(save(varied_model(), tmp_path))
    bundle = replace(bundle, old=None, reference={"y": np.ones(3)})
    with pytest.raises(MlmsError, match="leave out --without-model"):
        randomised(bundle, tmp_path / "random")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("model.pt", b"x", "--without-model takes an ONNX model"),
        ("model.onnx", b"not a model", "can't be read as an ONNX model"),
        ("model.onnx", b"", "is no ONNX model, or one without nodes"),
    ],
)
def test_what_is_no_onnx_model_is_refused(
    tmp_path: Path, name: str, content: bytes, problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    bundle = bundle_of(path)
    if name == "model.pt":
        bundle = replace(bundle, predictor=bundle.predictor.with_name("pytorch.py"))
    with pytest.raises(MlmsError, match=problem):
        randomised(bundle, tmp_path / "random")
    assert not (tmp_path / "random").exists()
