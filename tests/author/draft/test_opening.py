"""Models that have no manifest yet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from pytest_mlms.author.draft.model_files import recognise_models
from pytest_mlms.author.draft.opening import weights_of
from pytest_mlms.core.errors import MlmsError


@pytest.mark.parametrize("name", ["model.ort", "model.plan", "tensorrt=model.engine"])
def test_a_file_that_is_not_onnx_has_no_weights_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name.rpartition("=")[2]).write_bytes(b"ftrt of another format")
    (model,) = recognise_models([name], ["onnxruntime", "tensorrt"])
    assert weights_of(model) is None


def test_weights_beside_an_onnx_file_are_found(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    output = helper.make_tensor_value_info("w", TensorProto.FLOAT, [64, 64])
    graph = helper.make_graph([], "g", [], [output], [values])
    path = tmp_path / "m.onnx"
    save(helper.make_model(graph), path, save_as_external_data=True, location="m.bin")
    (model,) = recognise_models([str(path)], ["onnxruntime"])
    assert weights_of(model) == tmp_path / "m.bin"
    (tmp_path / "m.bin").unlink()
    with pytest.raises(
        MlmsError, match=r"m\.onnx has weights in m\.bin, and there is no such file; "
    ):
        weights_of(model)


def test_a_broken_onnx_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"<html>")
    (model,) = recognise_models([str(path)], ["onnxruntime"])
    with pytest.raises(MlmsError, match=r"m\.onnx is not an ONNX model"):
        weights_of(model)
