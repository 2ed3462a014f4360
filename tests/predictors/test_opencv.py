"""OpenCV beside the contract: Caffe's files, and the signatures of files that it doesn't describe."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from mlms_predictors._opencv_files import caffe_inputs, onnx_signature
from onnx import TensorProto, helper

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import (
    FIRST_BYTES,
    FIRST_SHAPE,
    INPUT,
    LAYERS,
    OUTPUT,
    Framework,
    assert_close,
    in_its_stack,
    reference,
    signature,
)
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS

PROTOTXT = DIGITS / "digits_cnn.prototxt"
CAFFEMODEL = DIGITS / "digits_cnn.caffemodel"
DIGITS_ONNX = DIGITS / "digits_cnn.onnx"
DTYPES = [TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.FLOAT16]

Value = tuple[str, int, list[int | str | None]]
"""The name, the type and the axes of a graph's input or output."""


@pytest.fixture(scope="module")
def opencv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = in_its_stack("opencv", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


@pytest.fixture
def caffe_reader(opencv: Framework) -> Framework:
    """An agent that reads the files of Caffe."""
    if not opencv.hello["versions"]["opencv"].startswith("4."):
        with pytest.raises(Refused, match="reads no files of Caffe; use 4, or an ONNX file"):
            opencv.load(PROTOTXT, CAFFEMODEL)
        pytest.skip("OpenCV 5 reads no files of Caffe")
    return opencv


def test_it_reads_caffes_files_too(caffe_reader: Framework) -> None:
    opencv = caffe_reader
    facts = opencv.load(PROTOTXT, CAFFEMODEL)
    assert signature(facts) == ([INPUT], [OUTPUT])
    opencv.check()
    first = opencv.layers()[0]
    assert (first.name, first.type) == ("conv2d_0", "Convolution")
    assert (first.bytes, first.shape) == (FIRST_BYTES, FIRST_SHAPE)


def test_a_layer_that_it_fuses_has_an_inner_output_and_no_time(opencv: Framework) -> None:
    opencv.load(DIGITS_ONNX)
    inner = opencv.inner()
    assert len(opencv.layers()) < LAYERS <= len(inner)
    assert_close(inner["logits"], reference())


def test_a_prototxt_without_weights_is_refused(caffe_reader: Framework) -> None:
    with pytest.raises(Refused, match=r"weights: MODEL\.caffemodel"):
        caffe_reader.load(PROTOTXT)


@pytest.mark.parametrize("batch", [1, None])
def test_pictures_may_have_any_height_and_width(
    opencv: Framework, tmp_path: Path, batch: int | None
) -> None:
    """OpenCV has no shapes for a picture of one pixel, which is smaller than the kernel."""
    model = ModelBuilder()
    model.add_weight("weight", 1, 1, 8, 8)
    model.add_input("image", batch, 1, "height", "width")
    model.add("MaxPool", "image", "pooled", kernel_shape=[8, 8], strides=[8, 8])
    model.add("Conv", "image weight", "zeros", kernel_shape=[8, 8], strides=[8, 8])
    model.add("Add", "pooled zeros", "logits")
    model.add_output("logits", "batch", 1, "rows", "columns")
    facts = opencv.load(model.save(tmp_path))
    assert signature(facts)[0] == [Tensor("image", "float32", (batch, 1, None, None))]
    for rows, columns in ((2, 3), (4, 1)):
        pixels = np.arange(64 * rows * columns, dtype=np.float32)
        images = pixels.reshape(1, 1, 8 * rows, 8 * columns)
        expected = images.reshape(rows, 8, columns, 8).max(axis=(1, 3))
        assert np.array_equal(opencv.predict(images)[0, 0], expected)
        assert len(opencv.profiles(1, images)[0].layers) >= 1


def test_an_onnx_file_says_its_inputs_and_outputs() -> None:
    assert onnx_signature(str(DIGITS_ONNX)) == ([INPUT], [OUTPUT])


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=8),
            st.sampled_from(DTYPES),
            st.lists(st.one_of(st.integers(1, 1 << 40), st.just("free")), max_size=4),
        ),
        unique_by=lambda value: value[0],
    )
)
def test_any_onnx_signature_is_read_as_onnx_reads_it(
    tmp_path_factory: pytest.TempPathFactory, values: list[Value]
) -> None:
    infos = [helper.make_tensor_value_info(*value) for value in values]
    weight = helper.make_tensor("a weight", TensorProto.FLOAT, [2], [1.0, 2.0])
    listed = [*infos, helper.make_tensor_value_info("a weight", TensorProto.FLOAT, [2])]
    graph = helper.make_graph([], "g", listed, infos, [weight])
    path = tmp_path_factory.getbasetemp() / "signature.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    expected = [tensor_of(value) for value in values]
    assert onnx_signature(str(path)) == (expected, expected)


def tensor_of(value: Value) -> Tensor:
    name, kind, axes = value
    dtype = helper.tensor_dtype_to_np_dtype(kind).name
    shape = tuple(axis if isinstance(axis, int) else None for axis in axes)
    return Tensor(name, dtype, shape)


@given(st.binary(max_size=200))
def test_a_file_that_is_no_onnx_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "none.onnx"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is no ONNX file"):
        onnx_signature(str(path))


@given(st.integers(1, 104_000))
def test_half_an_onnx_file_is_refused(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.getbasetemp() / "half.onnx"
    path.write_bytes(DIGITS_ONNX.read_bytes()[:size])
    with pytest.raises(ValueError, match="is no ONNX file"):
        onnx_signature(str(path))


def test_a_name_that_is_a_number_is_no_onnx_either(tmp_path: Path) -> None:
    """Field 7, the graph, with field 11, an input, with field 1, its name, as a whole number."""
    path = tmp_path / "number.onnx"
    path.write_bytes(bytes([0x3A, 4, 0x5A, 2, 0x08, 0x7F]))
    with pytest.raises(ValueError, match="is no ONNX file"):
        onnx_signature(str(path))


INPUT_LAYER = """
layer {
  name: "x" type: "Input" top: "image"
  input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } }
}
"""
PUNCTUATED = """
layer { type: "Input", top: "image"; input_param: { shape: { dim: 1 dim: 1 dim: 8 dim: 8 } } } # } "
"""
INPUT_DIM = """
input: "image" input_dim: 1 input_dim: 1 input_dim: 8 input_dim: 8 layer { name: "a \\" b" }
"""
INPUT_SHAPE = """
input: 'image'
input_shape { dim: 10
 dim: 1 dim: 8 dim: 8 }
"""


@pytest.mark.parametrize("text", [INPUT_LAYER, PUNCTUATED, INPUT_DIM, INPUT_SHAPE])
def test_a_prototxt_says_its_inputs_in_three_ways(tmp_path: Path, text: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    assert caffe_inputs(str(path)) == [INPUT]


@pytest.mark.parametrize("text", ["layer {", "}", "{ }", '"x"', "layer", "name: }", "\xff"])
def test_a_file_that_is_no_prototxt_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "net.prototxt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="is no prototxt of Caffe"):
        caffe_inputs(str(path))


def test_a_prototxt_for_training_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "data" type: "Data" top: "data" }')
    with pytest.raises(ValueError, match="give it a layer of type Input"):
        caffe_inputs(str(path))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"target": "opencl"}, "has no backend default with target opencl here"),
        ({"fusion": "false"}, "fusion is 'false'; write true or false"),
    ],
)
def test_options_that_can_not_be_obeyed_are_refused(
    opencv: Framework, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused, match=reason):
        opencv.load(DIGITS_ONNX, **options)
