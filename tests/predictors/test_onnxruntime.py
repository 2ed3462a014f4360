"""What ONNX Runtime tells of its insides, and its options."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._onnxruntime_graph import with_all_outputs
from mlms_predictors._run.worker import Worker
from onnx.reference import ReferenceEvaluator

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import IMAGES, LAYERS, Framework, python_of, reference
from tests.support.project import DIGITS, ROOT

GRAPH = DIGITS / "digits_cnn.onnx"


@pytest.fixture(scope="module")
def ort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    python = python_of("onnxruntime", "onnxruntime")
    framework = Framework(python, "onnxruntime", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_are_the_nodes_that_are_left_and_lie_in_the_call(ort: Framework) -> None:
    ort.load(GRAPH)
    optimised = ort.layers()
    assert "FusedConv" in {layer[1] for layer in optimised} or "Conv" in {
        layer[1] for layer in optimised
    }
    ort.load(GRAPH, optimization="none")
    layers = ort.layers()
    assert [layer[0] for layer in layers] == [node.name for node in onnx.load(GRAPH).graph.node]
    assert [layer[1] for layer in layers][:2] == ["Conv", "Relu"]
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]
    assert len(layers) == LAYERS


def test_inner_outputs_are_those_of_onnxs_own_evaluator(ort: Framework) -> None:
    ort.load(GRAPH)
    inner = ort.inner()
    model = onnx.load(GRAPH)
    names = [name for node in model.graph.node for name in node.output]
    assert list(inner) == names
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    for name, wanted in zip(
        names, ReferenceEvaluator(model).run(None, {"image": IMAGES}), strict=True
    ):
        np.testing.assert_allclose(inner[name], wanted, rtol=1e-4, atol=1e-5)


def test_every_level_of_optimization_gives_the_same(ort: Framework) -> None:
    for level in ("all", "extended", "basic", "none"):
        ort.load(GRAPH, optimization=level)
        np.testing.assert_allclose(ort.predict(), reference(), rtol=1e-4, atol=1e-5)


def test_threads_are_read_back(ort: Framework) -> None:
    assert ort.load(GRAPH, threads=2)["threads"] == 2
    assert ort.load(GRAPH, threads=None)["threads"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"provider": "cuda"}, "provider is 'cuda' on cpu"),
        ({"provider": "gpu"}, "provider is 'gpu' on cpu"),
        ({"optimization": "more"}, "optimization is 'more'; write one of all"),
        ({"mode": "fast"}, "no option 'mode'; this predictor knows provider"),
    ],
)
def test_options_that_can_not_be_obeyed_are_refused(
    ort: Framework, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Refused, match=said):
        ort.load(GRAPH, **options)


def test_a_provider_that_is_not_in_the_build_is_refused(ort: Framework) -> None:
    if "cuda:0" in ort.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused, match="has no TensorrtExecutionProvider|would use"):
        ort.load(GRAPH, device="cuda:0", provider="tensorrt")


def test_an_operator_that_it_lacks_is_named(ort: Framework, tmp_path: Path) -> None:
    model = onnx.load(GRAPH)
    model.graph.node[1].op_type = "NoSuchOp"
    onnx.save(model, tmp_path / "lacking.onnx")
    with pytest.raises(Refused, match="NoSuchOp"):
        ort.load(tmp_path / "lacking.onnx")


@given(
    st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=20, unique=True),
    st.integers(0, 19),
)
def test_a_graph_gains_outputs_and_keeps_the_rest(names: list[str], kept: int) -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], [name, ""]) for name in names]
    outputs = [
        onnx.helper.make_tensor_value_info(names[kept % len(names)], onnx.TensorProto.FLOAT, [1])
    ]
    weights = [onnx.helper.make_tensor("w", onnx.TensorProto.DOUBLE, [3], [1.0, 2.0, 3.0])]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", [], outputs, weights), ir_version=4
    )
    changed, found = with_all_outputs(model.SerializeToString())
    again = onnx.ModelProto.FromString(changed)
    assert found == names
    assert sorted(value.name for value in again.graph.output) == sorted(names)
    del again.graph.output[1:]
    assert again == model


def test_so_many_profiles_are_of_one_session() -> None:
    worker = Worker(str(ROOT / "predictors" / "onnxruntime.py"))
    worker.hello({}, [])
    worker.load({"files": {"graph": str(GRAPH)}, "device": "cpu", "threads": 1}, [])
    model, opened = worker._loaded.model, []

    def open_(*arguments: Any) -> Any:
        opened.append(model.open(*arguments))
        return opened[-1]

    worker._current = worker._loaded._replace(model=model._replace(open=open_))
    facts, _ = worker.profile({"count": 4}, [("image", IMAGES)])
    assert len(opened) == 1
    assert len(facts["profiles"]) == 4
    ends = 0.0
    for start, end, layers in facts["profiles"]:
        assert ends <= start < end
        assert [layer[0] for layer in layers] == [layer[0] for layer in facts["profiles"][0][2]]
        assert all(start <= layer[2] <= layer[3] <= end for layer in layers)
        ends = end
