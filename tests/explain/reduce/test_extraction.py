"""Tests of models of some nodes of a drawn network, run by onnx's own evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from pytest_mlms.explain.reduce.extraction import CantExtract, extract, network_with_outputs
from pytest_mlms.explain.reduce.network import Network, read_network
from tests.support.drawn_networks import drawn_models, run_all, save_model


@st.composite
def cases(draw: st.DrawFn) -> tuple[onnx.ModelProto, frozenset[int]]:
    model = draw(drawn_models())
    count = sum(node.op_type != "Constant" for node in model.graph.node)
    numbers = draw(st.frozensets(st.integers(0, count - 1), min_size=1))
    return model, numbers


@given(cases())
@settings(max_examples=60, deadline=None)
def test_any_nodes_are_a_model_that_computes_what_the_network_does(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[onnx.ModelProto, frozenset[int]],
) -> None:
    model, numbers = case
    network = read_network(save_model(model, tmp_path_factory.mktemp("drawn")))
    values = run_all(model)
    small = extract(network, numbers, values)
    onnx.checker.check_model(small.model, full_check=True)
    names = [output.name for output in small.model.graph.output]
    found = ReferenceEvaluator(small.model).run(names, dict(small.inputs))
    for name, array in zip(names, found, strict=True):
        np.testing.assert_array_equal(array, values[name], err_msg=name)


@given(cases())
@settings(max_examples=40, deadline=None)
def test_the_outputs_are_exactly_what_is_read_outside_or_nowhere(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[onnx.ModelProto, frozenset[int]],
) -> None:
    model, numbers = case
    network = read_network(save_model(model, tmp_path_factory.mktemp("drawn")))
    small = extract(network, numbers, run_all(model))
    outputs = {output.name for output in small.model.graph.output}
    inside = {name for number in numbers for name in network.nodes[number].reads}
    outside = set(network.outputs)
    for number in set(network.all) - numbers:
        outside.update(network.nodes[number].reads)
    written = {name for number in numbers for name in network.nodes[number].writes}
    assert outputs == {name for name in written if name in outside or name not in inside}


@given(drawn_models())
@settings(max_examples=30, deadline=None)
def test_a_network_with_more_outputs_computes_the_same(
    tmp_path_factory: pytest.TempPathFactory, model: onnx.ModelProto
) -> None:
    network = read_network(save_model(model, tmp_path_factory.mktemp("drawn")))
    values = run_all(model)
    exposed = network_with_outputs(network, network.writers)
    onnx.checker.check_model(exposed)
    names = list(network.writers)
    inputs = {name: values[name] for name in network.inputs}
    for name, array in zip(names, ReferenceEvaluator(exposed).run(names, inputs), strict=True):
        np.testing.assert_array_equal(array, values[name], err_msg=name)


def two_layers() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("SequenceConstruct", ["a", "x"], ["list"], name="pack"),
        helper.make_node("ConcatFromSequence", ["list"], ["y"], axis=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 4])
    graph = helper.make_graph(nodes, "graph", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def test_a_model_cannot_begin_with_a_sequence(tmp_path: Path) -> None:
    network = read_network(save_model(two_layers(), tmp_path))
    with pytest.raises(CantExtract, match="'list' is no array"):
        extract(network, [2], {})


def test_free_axes_stay_free_where_the_values_go_with_them(tmp_path: Path) -> None:
    network = read_network(save_model(two_layers(), tmp_path))
    values = {"x": np.zeros((3, 4), np.float32), "a": np.zeros((3, 4), np.float32)}
    (first,) = extract(network, [0], values).model.graph.input
    axes = first.type.tensor_type.shape.dim
    assert (axes[0].dim_param, axes[1].dim_value) == ("N", 4)
    other = {"x": np.zeros((3, 5), np.float32)}
    (second,) = extract(network, [0], other).model.graph.input
    assert [axis.dim_value for axis in second.type.tensor_type.shape.dim] == [3, 5]


def weighted(folder: Path) -> Network:
    weight = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    nodes = [
        helper.make_node("Identity", ["w"], ["same"]),
        helper.make_node("Add", ["x", "same"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])
    graph = helper.make_graph(nodes, "graph", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = folder / "model.onnx"
    external_data_helper.convert_model_to_external_data(model, location="w.bin", size_threshold=0)
    onnx.save(model, path)
    assert (folder / "w.bin").stat().st_size >= 16
    return read_network(path)


def test_weights_of_another_file_come_into_the_model(tmp_path: Path) -> None:
    small = extract(weighted(tmp_path), [0], {})
    (weight,) = small.model.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(weight), np.arange(4))


def test_what_follows_from_weights_alone_becomes_a_weight(tmp_path: Path) -> None:
    values = {"x": np.ones((2, 4), np.float32), "same": np.arange(4, dtype=np.float32)}
    small = extract(weighted(tmp_path), [1], values)
    assert list(small.inputs) == ["x"]
    assert [weight.name for weight in small.model.graph.initializer] == ["same"]
