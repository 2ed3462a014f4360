"""TensorFlow Lite beside the contract: kernels, inner outputs, sizes of a batch, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from frameworks import IMAGES, Framework, python_of, reference

from conftest import DIGITS
from pytest_mlms.agent import Refused

GRAPH = DIGITS / "digits_cnn.tflite"


@pytest.fixture(scope="module")
def tflite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = Framework(python_of("tflite", "ai_edge_litert"), "tflite", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


@pytest.mark.parametrize("xnnpack", [True, False])
def test_the_signature_names_it_and_both_kinds_of_kernels_agree(tflite: Framework, xnnpack: bool) -> None:
    facts = tflite.load(GRAPH, xnnpack=xnnpack, signature="serving_default")
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert facts["outputs"] == [["logits", "float32", [None, 10]]]
    tflite.check()


def test_inner_outputs_end_with_the_logits(tflite: Framework) -> None:
    tflite.load(GRAPH)
    inner = tflite.inner()
    assert any("conv2d_0" in name for name in inner)
    np.testing.assert_allclose(list(inner.values())[-1], reference(), rtol=1e-4, atol=1e-5)


def test_batches_of_two_sizes_may_take_turns(tflite: Framework) -> None:
    tflite.load(GRAPH)
    fields = {"scenario": "single_stream", "batches": 2, "stop": {"seconds": 0, "least": 5, "longest": 600}}
    arrays = tflite.agent.request("run", fields, [("image", IMAGES), ("image", IMAGES[:1])]).arrays
    assert len(arrays["start"]) == 5
    np.testing.assert_allclose(arrays["logits"], reference(), rtol=1e-4, atol=1e-5)


def test_it_says_that_it_can_not_show_layers(tflite: Framework) -> None:
    tflite.load(GRAPH)
    with pytest.raises(Refused, match=r"tflite\.py has no 'layers'"):
        tflite.layers()


def test_what_it_can_not_do_is_refused(tflite: Framework, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no option 'gpu'; this predictor knows xnnpack"):
        tflite.load(GRAPH, gpu=True)
    with pytest.raises(Refused, match="no signature 'train'; the file has serving_default"):
        tflite.load(GRAPH, signature="train")
    with pytest.raises(Refused, match="runs on the cpu"):
        tflite.load(GRAPH, device="cuda:0")
    with pytest.raises(Refused, match="not a valid Flatbuffer"):
        tflite.load(DIGITS / "digits_cnn.onnx")
    half = tmp_path / "half.tflite"
    half.write_bytes(GRAPH.read_bytes()[:50000])
    with pytest.raises(Refused):
        tflite.load(half)
