"""MXNet beside the contract: its operators, weights that don't fit, and its threads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlms_predictors import Tensor

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    INPUT,
    LAYERS,
    Framework,
    in_its_stack,
    signature,
)
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn-symbol.json"
WEIGHTS = DIGITS / "digits_cnn-0000.params"


@pytest.fixture(scope="module")
def mxnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("mxnet", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_the_symbols_operators_unfused(mxnet: Framework) -> None:
    mxnet.load(GRAPH, WEIGHTS)
    mxnet.check()
    symbol = json.loads(GRAPH.read_text())
    nodes = [node for node in symbol["nodes"] if node["op"] != "null"]
    layers = mxnet.layers()
    assert len(layers) == LAYERS
    for layer, node in zip(layers, nodes, strict=True):
        assert (layer.name, layer.type) == (node["name"], node["op"])
    assert list(mxnet.inner()) == [node["name"] for node in nodes]
    assert (layers[0].bytes, layers[0].shape) == (FIRST_BYTES, FIRST_SHAPE)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            '"32"',
            '"31"',
            r"weights 'conv2d_2_weight' are \(32, 16, 3, 3\), and the symbol takes \(31, 16, 3, 3\)",
        ),
        ("conv2d_5", "other", "the params have no weights other_bias, other_weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused(
    mxnet: Framework, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    text = GRAPH.read_text()
    assert old in text
    changed = tmp_path / "net-symbol.json"
    changed.write_text(text.replace(old, new))
    with pytest.raises(Refused, match=reason):
        mxnet.load(changed, WEIGHTS)


def test_a_symbol_that_says_no_shapes_takes_them_from_the_options(
    mxnet: Framework, tmp_path: Path
) -> None:
    graph = tmp_path / "net-symbol.json"
    graph.write_text(GRAPH.read_text().replace("__shape__", "__was__"))
    inputs, _ = signature(mxnet.load(graph, WEIGHTS))
    assert inputs == [Tensor("image", "float32", ())]
    inputs, _ = signature(mxnet.load(graph, WEIGHTS, inputs="image float32[?,1,8,8]"))
    assert inputs == [INPUT]
    mxnet.check()


def test_threads_are_set_in_the_engines_own_thread(mxnet: Framework) -> None:
    for threads in (1, 2, 1):
        assert mxnet.load(GRAPH, WEIGHTS, threads=threads)["threads"] == threads
