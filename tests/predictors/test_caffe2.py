"""Caffe2 beside the contract: its operators, and nets that don't fit together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from mlms_predictors import Tensor

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    LAYERS,
    Framework,
    in_its_stack,
    signature,
)
from tests.support.project import DIGITS

GRAPH = DIGITS / "digits_cnn_predict.pb"
WEIGHTS = DIGITS / "digits_cnn_init.pb"
IMAGE = "image float32[?,1,8,8]"


@pytest.fixture(scope="module")
def caffe2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("caffe2", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


def test_layers_and_inner_outputs_are_the_nets_operators(caffe2: Framework) -> None:
    caffe2.load(GRAPH, WEIGHTS, inputs=IMAGE)
    caffe2.check()
    layers = caffe2.layers()
    assert [layer.name for layer in layers] == list(caffe2.inner())
    assert len(layers) == LAYERS
    first = layers[0]
    assert first.type == "Conv"
    assert (first.bytes, first.shape) == (FIRST_BYTES, FIRST_SHAPE)


def test_without_the_option_shapes_are_unknown(caffe2: Framework) -> None:
    inputs, _ = signature(caffe2.load(GRAPH, WEIGHTS))
    assert inputs == [Tensor("image", "float32", ())]


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ("picture float32[?,1,8,8]", "the init net makes no image"),
        (f"{IMAGE}; mask float32[?]", "the init net leaves no input mask"),
    ],
)
def test_inputs_that_the_nets_do_not_have_are_refused(
    caffe2: Framework, inputs: str, reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        caffe2.load(GRAPH, WEIGHTS, inputs=inputs)


def test_another_nets_weights_are_refused(caffe2: Framework) -> None:
    with pytest.raises(Refused, match="the init net makes no"):
        caffe2.load(GRAPH, GRAPH, inputs=IMAGE)
