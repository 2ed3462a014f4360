"""Caffe2 beside the contract: its operators, and nets that don't fit together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mlms_predictors import Tensor
from mlms_predictors._run.protobuf import encode_field

from pytest_mlms.measure.agent.process import Refused
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


def operator(kind: str, **arguments: bytes) -> bytes:
    """Return an operator of a net, with encoded arguments."""
    encoded = encode_field(4, kind.encode())
    for name, value in arguments.items():
        encoded += encode_field(5, encode_field(1, name.encode()) + value)
    return encode_field(2, encoded)


TEXT_NET = encode_field(4, b'op {type: "Save"}')
INNER_NET = encode_field(8, operator("Load"))


@pytest.mark.parametrize(
    "evil",
    [
        operator("Save"),
        operator("Python"),
        operator("CreateCommonWorld_ENGINE_GLOO"),
        operator("If", then_net=INNER_NET),
        operator("RecurrentNetwork", step_net=TEXT_NET),
    ],
)
def test_operators_with_other_files_or_code_are_refused(
    caffe2: Framework, tmp_path: Path, evil: bytes
) -> None:
    changed = tmp_path / "init.pb"
    changed.write_bytes(WEIGHTS.read_bytes() + evil)
    with pytest.raises(Refused, match="files that no digest covers, or runs code"):
        caffe2.load(GRAPH, changed, inputs=IMAGE)


def test_another_nets_weights_are_refused(caffe2: Framework) -> None:
    with pytest.raises(Refused, match="the init net makes no"):
        caffe2.load(GRAPH, GRAPH, inputs=IMAGE)
