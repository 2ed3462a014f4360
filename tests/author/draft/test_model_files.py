"""The files of a model that a user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_mlms.author.draft.model_files import ModelFiles, recognise_models
from pytest_mlms.core.errors import MlmsError

FRAMEWORKS = (
    "caffe",
    "caffe2",
    "mxnet",
    "onnxruntime",
    "opencv",
    "openvino",
    "tensorflow",
    "tflite",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with some files of models."""
    monkeypatch.chdir(tmp_path)
    names = (
        *("m.onnx", "m.tflite", "net.prototxt", "net.caffemodel", "s-symbol.json", "s-0003.params"),
        *("x.xml", "x.bin", "a_predict.pb", "a_init.pb", "frozen.pb", "saved/saved_model.pb"),
        "script.jit",
        *("w.safetensors", "noise.dat", "alone-symbol.json", "some/one.onnx", "some/two.tflite"),
    )
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("named", "framework", "graph", "weights"),
    [
        ("m.onnx", "onnxruntime", "m.onnx", None),
        ("opencv=m.onnx", "opencv", "m.onnx", None),
        ("net.prototxt", "caffe", "net.prototxt", "net.caffemodel"),
        ("net.caffemodel", "caffe", "net.prototxt", "net.caffemodel"),
        ("s-symbol.json", "mxnet", "s-symbol.json", "s-0003.params"),
        ("s-0003.params", "mxnet", "s-symbol.json", "s-0003.params"),
        ("x.bin", "openvino", "x.xml", "x.bin"),
        ("a_init.pb", "caffe2", "a_predict.pb", "a_init.pb"),
        ("frozen.pb", "tensorflow", "frozen.pb", None),
        ("script.jit", "pytorch", "script.jit", None),
        ("saved", "tensorflow", "saved", None),
        ("saved/saved_model.pb", "tensorflow", "saved", None),
    ],
)
def test_a_file_tells_its_framework(
    named: str, framework: str, graph: str, weights: str | None
) -> None:
    expected = ModelFiles(framework, Path(graph), Path(weights) if weights else None)
    assert recognise_models([named], FRAMEWORKS) == [expected]


def test_weights_that_are_named_belong_to_their_graph() -> None:
    assert len(recognise_models(["net.prototxt", "net.caffemodel"], FRAMEWORKS)) == 1
    assert len(recognise_models(["m.onnx", "openvino=m.onnx", "m.tflite"], FRAMEWORKS)) == 3


def test_several_models_of_a_framework_are_variants_by_what_their_names_differ_in() -> None:
    for name in ("net_fp32.onnx", "net_int8-v2.onnx", "net.onnx", "one.onnx"):
        Path(name).touch()
    found = recognise_models(["net_fp32.onnx", "net_int8-v2.onnx", "m.tflite"], FRAMEWORKS)
    assert [model.variant for model in found] == ["fp32", "int8-v2", ""]
    found = recognise_models(["net.onnx", "net_fp32.onnx"], FRAMEWORKS)
    assert [model.variant for model in found] == ["net", "fp32"]
    with pytest.raises(MlmsError, match="the models are all called one; rename the files"):
        recognise_models(["some/one.onnx", "./one.onnx"], FRAMEWORKS)


@pytest.mark.parametrize(
    ("content", "framework"),
    [
        (b"\x89HDF\r\n\x1a\n .. model_config ..", "tensorflow"),
        (b"\x89HDF\r\n\x1a\n", ""),
        (b"", ""),
    ],
)
def test_a_whole_model_in_hdf5_is_one_of_keras(content: bytes, framework: str) -> None:
    Path("m.h5").write_bytes(content)
    if framework:
        assert recognise_models(["m.h5"], FRAMEWORKS) == [ModelFiles(framework, Path("m.h5"))]
    else:
        with pytest.raises(MlmsError, match=r"m\.h5 has weights without a network"):
            recognise_models(["m.h5"], FRAMEWORKS)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["m.onxx"], "there is no m.onxx; did you mean m.onnx?"),
        (["some/nothing"], "there is no some/nothing; the models there are some/one.onnx, some/two"),
        (["some"], "some is a folder; name one of some/one.onnx, some/two.tflite"),
        (["empty"], "empty is a folder; name a model's file, or a folder with saved_model.pb"),
        (["w.safetensors"], "w.safetensors has weights without a network; export the model"),
        (["noise.dat"], "noise.dat: '.dat' tells no framework; name one of .dnn, .engine"),
        (["alone-symbol.json"], "has no weights beside it; put them there as alone-0000.params"),
        (["https://x.org/m.onnx"], "is an address; download it, and name the file"),
        (["onnxrt=m.onnx"], "no predictor for 'onnxrt'; did you mean 'onnxruntime'?"),
    ],
)  # fmt: skip
def test_what_is_no_model_is_refused_with_what_to_name(named: list[str], message: str) -> None:
    with pytest.raises(MlmsError) as raised:
        recognise_models(named, FRAMEWORKS)
    assert message in str(raised.value)
