"""The formats of TensorFlow, its layers and inner outputs, and what is refused."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.agent.process import Refused
from pytest_mlms.structure.onnx_graph import describe_onnx
from tests.support.frameworks import Framework, convert, cost, python_of, reference
from tests.support.project import DIGITS, ROOT

CONVOLUTIONS = 3
WORKER = ROOT / "predictors" / "_run" / "worker.py"


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    python = python_of("tensorflow", "tensorflow")
    framework = Framework(python, "tensorflow", tmp_path_factory.mktemp("agent") / "log")
    yield framework
    framework.agent.close()


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped SavedModel unpacked, and the other formats."""
    folder = tmp_path_factory.mktemp("formats")
    convert(python_of("tensorflow", "tensorflow"), "convert_tensorflow.py", folder)
    with zipfile.ZipFile(DIGITS / "digits_cnn_savedmodel.zip") as archive:
        archive.extractall(folder / "saved")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saved", "digits_cnn.keras", "digits_cnn.pb"])
def test_every_format_agrees_and_shows_its_layers(
    tensorflow: Framework, formats: Path, name: str
) -> None:
    facts = tensorflow.load(formats / name)
    assert facts["inputs"] == [["image", "float32", [None, 1, 8, 8]]]
    assert facts["outputs"] == [["logits", "float32", [None, 10]]]
    assert facts["threads"] == 1
    tensorflow.check()
    layers, inner = tensorflow.layers(), tensorflow.inner()
    convolutions = [layer for layer in layers if "Conv2D" in layer[1]]
    assert len(convolutions) == CONVOLUTIONS
    assert convolutions[0][4:] == [8 * 16 * 8 * 8 * 4, [8, 8, 8, 16]]
    np.testing.assert_allclose(list(inner.values())[-1], reference(), rtol=1e-4, atol=1e-5)
    found, own = (
        cost(tensorflow.agent, image=(4, 1, 8, 8)),
        describe_onnx(DIGITS / "digits_cnn.onnx", 4),
    )
    assert (found.flops, found.parameters, found.unknown) == (own.flops, own.parameters, ())


@pytest.mark.slow
def test_the_nodes_of_a_frozen_graph_can_be_named(tensorflow: Framework, formats: Path) -> None:
    facts = tensorflow.load(formats / "digits_cnn.pb", inputs="image:0", outputs="logits")
    assert [facts["inputs"][0][0], facts["outputs"][0][0]] == ["image", "logits"]
    with pytest.raises(Refused, match="nowhere"):
        tensorflow.load(formats / "digits_cnn.pb", outputs="nowhere")


@pytest.mark.slow
def test_an_operator_that_it_lacks_is_named(
    tensorflow: Framework, formats: Path, tmp_path: Path
) -> None:
    data = (formats / "digits_cnn.pb").read_bytes()
    (tmp_path / "lacking.pb").write_bytes(data.replace(b"MaxPool", b"MexPool"))
    with pytest.raises(Refused, match="MexPool"):
        tensorflow.load(tmp_path / "lacking.pb")


@pytest.mark.slow
def test_a_lambda_layer_that_holds_code_is_refused(
    tensorflow: Framework, formats: Path, tmp_path: Path
) -> None:
    path = tmp_path / "lambda.keras"
    with zipfile.ZipFile(formats / "digits_cnn.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                model = json.loads(data)
                layer = next(
                    layer for layer in model["config"]["layers"] if layer["class_name"] == "ReLU"
                )
                layer["class_name"], layer["module"] = "Lambda", "keras.layers"
                code = {
                    "class_name": "__lambda__",
                    "config": {"code": "4wEA", "defaults": None, "closure": None},
                }
                layer["config"] = {
                    "name": layer["config"]["name"],
                    "function": code,
                    "arguments": {},
                }
                data = json.dumps(model).encode()
            new.writestr(name, data)
    with pytest.raises(Refused, match="safe_mode"):
        tensorflow.load(path)


_PROFILES = """
import importlib.util, sys, time, types
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
spec.loader.exec_module(importlib.util.module_from_spec(spec))  # mlms_predictors, as an agent has it
import numpy
from mlms_predictors import _tensorflow_graph as graph

frozen, called = graph.read_graph(sys.argv[2], [], [], "/CPU:0", 1), []
run = frozen._session.run
frozen._session.run = lambda *given, **named: called.append(time.perf_counter()) or run(*given, **named)
begin, end, layers = frozen.trace([numpy.zeros((1, 1, 8, 8), "f4")])
assert called[-2] < begin <= called[-1] < layers[0].start <= layers[-1].end <= end, (called, begin, end, layers)

stat = types.SimpleNamespace(
    node_name="one", all_start_nanos=1795370396012252123, op_start_rel_nanos=0, op_end_rel_nanos=100, output=[]
)
layer = graph._layer(stat, "Relu", 1795370396000000000)
assert (layer.start, layer.end) == (12252123 / 1e9, 12252223 / 1e9), layer

offsets = iter([0, 3000000000])
graph.wall_offset = lambda: next(offsets)
try:
    frozen.trace([numpy.zeros((1, 1, 8, 8), "f4")])
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow
def test_a_profile_begins_with_the_call_keeps_nanoseconds_and_tells_a_clock_that_was_set(
    formats: Path,
) -> None:
    command = [
        python_of("tensorflow", "tensorflow"),
        "-B",
        "-c",
        _PROFILES,
        str(WORKER),
        formats / "digits_cnn.pb",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (
        done.stdout
        == "the wall clock, which TensorFlow's layers are timed by, was set meanwhile; trace again\n"
    )


def test_what_it_can_not_do_is_refused(tensorflow: Framework, tmp_path: Path) -> None:
    with zipfile.ZipFile(DIGITS / "digits_cnn_savedmodel.zip") as archive:
        archive.extractall(tmp_path / "saved")
    with pytest.raises(Refused, match="no option 'mode'; this predictor knows signature"):
        tensorflow.load(tmp_path / "saved", mode="fast")
    with pytest.raises(Refused, match="no signature 'train'; the model has serving_default"):
        tensorflow.load(tmp_path / "saved", signature="train")
    with pytest.raises(Refused, match="no model of TensorFlow"):
        tensorflow.load(DIGITS / "digits_cnn.onnx")
    with pytest.raises(Refused, match=r"has no saved_model\.pb"):
        tensorflow.load(tmp_path)
    (tmp_path / "other.pb").write_bytes((DIGITS / "digits_cnn.onnx").read_bytes())
    with pytest.raises(Refused, match="no frozen graph"):
        tensorflow.load(tmp_path / "other.pb")
    with pytest.raises(Refused, match="in this process already"):
        tensorflow.load(tmp_path / "saved", threads=2)
    if "cuda:0" not in tensorflow.hello["devices"]:
        with pytest.raises(Refused, match="TensorFlow lists 0 GPUs"):
            tensorflow.load(tmp_path / "saved", device="cuda:0")
