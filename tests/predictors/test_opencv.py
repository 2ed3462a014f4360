"""OpenCV beside the contract.

Caffe's files, and what is read out of files that it doesn't describe.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors import Tensor
from mlms_predictors._opencv_files import caffe_inputs, onnx_signature
from onnx import TensorProto, helper

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import IMAGES, LAYERS, in_its_stack, reference
from tests.support.project import DIGITS

CAFFE = DIGITS / "digits_cnn.prototxt", DIGITS / "digits_cnn.caffemodel"
IMAGE = Tensor("image", "float32", (None, 1, 8, 8))


def test_it_reads_caffes_files_too(tmp_path: Path) -> None:
    opencv = in_its_stack("opencv", tmp_path / "log")
    facts = opencv.load(*CAFFE)
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert facts["outputs"] == [["logits", "float32", [None, 10]]]
    opencv.check()
    layers, inner = opencv.layers(), opencv.inner()
    assert layers[0][:2] == ["conv2d_0", "Convolution"]
    assert layers[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 16, 8, 8]]
    assert len(layers) < LAYERS == len(inner), "what it fuses has no time of its own"
    np.testing.assert_allclose(inner["logits"], reference(IMAGES), rtol=1e-4, atol=1e-5)
    with pytest.raises(Refused, match=r"weights: MODEL\.caffemodel"):
        opencv.load(CAFFE[0])
    opencv.agent.close()


def test_an_onnx_file_says_its_inputs_and_outputs() -> None:
    assert onnx_signature(DIGITS / "digits_cnn.onnx") == (
        [IMAGE],
        [Tensor("logits", "float32", (None, 10))],
    )


@given(
    st.lists(
        st.tuples(
            st.text(min_size=1, max_size=8),
            st.sampled_from(
                [TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.FLOAT16]
            ),
            st.lists(st.one_of(st.integers(1, 1 << 40), st.just("free")), max_size=4),
        ),
        unique_by=lambda value: value[0],
    )
)
def test_any_onnx_signature_is_read_as_onnx_reads_it(
    tmp_path_factory: pytest.TempPathFactory, values: list[tuple[str, int, list[int | str]]]
) -> None:
    infos = [helper.make_tensor_value_info(*value) for value in values]
    weight = helper.make_tensor("a weight", TensorProto.FLOAT, [2], [1.0, 2.0])
    listed = [*infos, helper.make_tensor_value_info("a weight", TensorProto.FLOAT, [2])]
    path = tmp_path_factory.getbasetemp() / "signature.onnx"
    path.write_bytes(
        helper.make_model(helper.make_graph([], "g", listed, infos, [weight])).SerializeToString()
    )
    expected = [
        Tensor(
            name,
            helper.tensor_dtype_to_np_dtype(kind).name,
            tuple(None if n == "free" else n for n in shape),
        )
        for name, kind, shape in values
    ]
    assert onnx_signature(path) == (expected, expected)


@given(st.binary(max_size=200))
def test_what_is_no_onnx_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "none.onnx"
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is no ONNX file"):
        onnx_signature(path)


@given(st.integers(1, 104_000))
def test_half_an_onnx_file_is_refused_or_has_the_whole_signature(
    tmp_path_factory: pytest.TempPathFactory, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "half.onnx"
    path.write_bytes((DIGITS / "digits_cnn.onnx").read_bytes()[:size])
    with pytest.raises(ValueError, match="is no ONNX file"):
        onnx_signature(path)
    assert onnx.load(DIGITS / "digits_cnn.onnx").graph.input[0].name == "image"


@pytest.mark.parametrize(
    "text",
    [
        'layer { name: "x" type: "Input" top: "image" input_param { shape { dim: 1 dim: 1 dim: 8 dim: 8 } } }',
        'layer { type: "Input", top: "image"; input_param: { shape: { dim: 1 dim: 1 dim: 8 dim: 8 } } } # } "',
        'input: "image" input_dim: 1 input_dim: 1 input_dim: 8 input_dim: 8 layer { name: "a \\" b" }',
        "input: 'image'\ninput_shape { dim: 10\n dim: 1 dim: 8 dim: 8 }",
    ],
)
def test_a_prototxt_says_its_inputs_in_three_ways(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.prototxt").write_text(text)
    assert caffe_inputs(tmp_path / "net.prototxt") == [IMAGE]


@pytest.mark.parametrize("text", ["layer {", "}", "{ }", '"x"', "layer", "name: }", "\xff"])
def test_what_is_no_prototxt_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "net.prototxt").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match="is no prototxt of Caffe"):
        caffe_inputs(tmp_path / "net.prototxt")


def test_a_prototxt_for_training_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text('layer { name: "data" type: "Data" top: "data" }')
    with pytest.raises(ValueError, match="give it a layer of type Input"):
        caffe_inputs(tmp_path / "net.prototxt")
