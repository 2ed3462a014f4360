"""Tests of inner tensors that agents of onnxruntime give, against onnx's own evaluator."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from onnx import TensorProto, helper

from pytest_mlms.core.records import Launch
from pytest_mlms.explain.reduce import inner
from pytest_mlms.explain.reduce.inner import StoredArrays, compare_inner, record_inner
from pytest_mlms.explain.reduce.network import read_network
from pytest_mlms.explain.reduce.sides import Side, Sides
from pytest_mlms.measure.agent.registry import find_predictors
from tests.support.bundles import OUTPUTS
from tests.support.drawn_networks import drawn_models, run_all, save_model


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("logs")
    launch = Launch((sys.executable, "-s", "-B"), dict(os.environ), (), ())
    predictor = find_predictors()["onnxruntime"]
    old, new = (Side(name, launch, predictor, folder / name, "cpu", 1) for name in ("old", "new"))
    with Sides(old, new).closing() as opened:
        yield opened


@given(model=drawn_models())
@settings(max_examples=25, deadline=None)
def test_inner_tensors_of_any_network_are_those_of_the_evaluator(
    tmp_path_factory: pytest.TempPathFactory, sides: Sides, model: onnx.ModelProto
) -> None:
    folder = tmp_path_factory.mktemp("drawn")
    network = read_network(save_model(model, folder))
    expected = run_all(model)
    found = compare_inner(network, {"x": expected["x"]}, sides, OUTPUTS, folder)
    assert not found.reason
    for name in network.writers:
        np.testing.assert_allclose(found.values[name], expected[name], 1e-3, 1e-5, err_msg=name)
        assert found.deviations[name].difference == 0


def test_tensors_come_a_part_at_a_time(
    tmp_path: Path, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["t0"])]
    nodes += [helper.make_node("Neg", [f"t{n}"], [f"t{n + 1}"]) for n in range(9)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info("t9", TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "graph", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    network = read_network(save_model(model, tmp_path))
    monkeypatch.setattr(inner, "_PART_BYTES", 40)  # of tensors of 16 bytes
    inputs = {"x": np.ones(4, np.float32)}
    found = record_inner(network, inputs, sides.old, tmp_path)
    assert len(found.values) == 11
    exposed = onnx.load(str(tmp_path / "inner.onnx")).graph.output
    assert len(exposed) == 2  # the last part, of which one is the network's own output
    monkeypatch.setattr(inner, "_MOST_BYTES", 100)
    refused = record_inner(network, inputs, sides.old, tmp_path)
    assert "give inputs of a smaller batch" in refused.reason


def test_arrays_of_other_values_hide_stored_ones(tmp_path: Path) -> None:
    stored = StoredArrays(tmp_path)
    stored.add("a", np.zeros(3))
    stored.add("b", np.ones(3))
    other = stored.with_arrays({"a": np.full(2, 7.0)})
    assert set(other) == {"a", "b"}
    assert len(other) == 2
    assert other["a"].tolist() == [7.0, 7.0]
    assert other["b"].tolist() == [1.0, 1.0, 1.0]
    assert stored["a"].tolist() == [0.0, 0.0, 0.0]
