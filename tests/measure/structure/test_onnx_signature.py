"""The inputs and outputs of ONNX files."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from mlms_predictors import Tensor
from onnx import TensorProto

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.measure.structure.onnx_signature import read_signature
from tests.support.onnx_models import ModelBuilder
from tests.support.project import DIGITS


def test_the_shipped_model_has_its_names_types_and_shapes() -> None:
    signature = read_signature(DIGITS / "digits_cnn.onnx")
    assert signature.inputs == [Tensor("image", "float32", (None, 1, 8, 8))]
    assert signature.outputs == [Tensor("logits", "float32", (None, 10))]


def test_weights_among_the_inputs_are_left_out(tmp_path: Path) -> None:
    model = ModelBuilder()
    model.add_input("x", "n", 3)
    model.add_input("w", 3)
    model.add_weight("w", 3)
    model.add("Add", "x w", "y")
    model.add_output("y")
    signature = read_signature(model.save(tmp_path))
    assert signature.inputs == [Tensor("x", "float32", (None, 3))]
    assert signature.outputs == [Tensor("y", "float32", ())]


def test_what_is_no_array_of_numbers_has_another_type(tmp_path: Path) -> None:
    model = ModelBuilder()
    model.add_output("text")
    proto = model.build()
    outputs = proto.graph.output
    outputs[0].type.tensor_type.elem_type = TensorProto.STRING
    maps = outputs.add(name="maps").type.sequence_type.elem_type.map_type
    maps.key_type = TensorProto.INT64
    path = tmp_path / "model.onnx"
    onnx.save(proto, path)
    signature = read_signature(path)
    assert [tensor.dtype for tensor in signature.outputs] == ["string", "sequence"]


def test_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"<html>")
    with pytest.raises(MlmsError, match=r"model\.onnx is not an ONNX model"):
        read_signature(path)
