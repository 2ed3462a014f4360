"""MXNet beside the contract.

Its operators, weights that don't fit, threads set where it computes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import LAYERS, Framework, in_its_stack
from tests.support.project import DIGITS

GRAPH, WEIGHTS = DIGITS / "digits_cnn-symbol.json", DIGITS / "digits_cnn-0000.params"


@pytest.fixture(scope="module")
def mxnet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("mxnet", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_the_symbols_operators_unfused(mxnet: Framework) -> None:
    mxnet.load(GRAPH, WEIGHTS)
    mxnet.check()
    nodes = [node for node in json.loads(GRAPH.read_text())["nodes"] if node["op"] != "null"]
    layers = mxnet.layers()
    assert [layer[:2] for layer in layers] == [[node["name"], node["op"]] for node in nodes]
    assert list(mxnet.inner()) == [node["name"] for node in nodes]
    assert len(layers) == LAYERS
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]


@pytest.mark.parametrize(
    ("old", "new", "said"),
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
    mxnet: Framework, tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in GRAPH.read_text()
    (tmp_path / "net-symbol.json").write_text(GRAPH.read_text().replace(old, new))
    with pytest.raises(Refused, match=said):
        mxnet.load(tmp_path / "net-symbol.json", WEIGHTS)


def test_a_symbol_that_says_no_shapes_takes_them_from_the_options(
    mxnet: Framework, tmp_path: Path
) -> None:
    (tmp_path / "net-symbol.json").write_text(GRAPH.read_text().replace("__shape__", "__was__"))
    assert mxnet.load(tmp_path / "net-symbol.json", WEIGHTS)["inputs"] == [["image", "float32", []]]
    facts = mxnet.load(tmp_path / "net-symbol.json", WEIGHTS, inputs="image float32[?,1,8,8]")
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    mxnet.check()


def test_threads_are_set_in_the_engines_own_thread(mxnet: Framework) -> None:
    assert [mxnet.load(GRAPH, WEIGHTS, threads=count)["threads"] for count in (1, 2, 1)] == [
        1,
        2,
        1,
    ]
