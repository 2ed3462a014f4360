"""Caffe2 beside the contract: nets that don't fit together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import LAYERS, Framework, in_its_stack
from tests.support.project import DIGITS

GRAPH, WEIGHTS = DIGITS / "digits_cnn_predict.pb", DIGITS / "digits_cnn_init.pb"
IMAGE = "image float32[?,1,8,8]"


@pytest.fixture(scope="module")
def caffe2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("caffe2", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_the_nets_operators(caffe2: Framework) -> None:
    caffe2.load(GRAPH, WEIGHTS, inputs=IMAGE)
    caffe2.check()
    layers, inner = caffe2.layers(), caffe2.inner()
    assert [layer[0] for layer in layers] == list(inner)
    assert len(layers) == LAYERS
    assert layers[0][1] == "Conv"
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]


def test_without_the_option_shapes_are_unknown(caffe2: Framework) -> None:
    assert caffe2.load(GRAPH, WEIGHTS)["inputs"] == [["image", "float32", []]]


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("picture float32[?,1,8,8]", "the init net makes no image"),
        (f"{IMAGE}; mask float32[?]", "the init net leaves no input mask"),
    ],
)
def test_inputs_that_the_nets_do_not_have_are_refused(
    caffe2: Framework, inputs: str, said: str
) -> None:
    with pytest.raises(Refused, match=said):
        caffe2.load(GRAPH, WEIGHTS, inputs=inputs)


def test_another_nets_weights_are_refused(caffe2: Framework) -> None:
    with pytest.raises(Refused, match="the init net makes no"):
        caffe2.load(GRAPH, GRAPH, inputs=IMAGE)
