"""TensorFlow beside the contract: its formats, its layers and inner outputs, and what is refused."""

from __future__ import annotations

import itertools
import json
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.agent.process import Refused
from pytest_mlms.measure.structure.onnx_structure import describe_onnx
from tests.support.frameworks import (
    FIRST_BYTES,
    INPUT,
    OUTPUT,
    Framework,
    assert_close,
    convert,
    cost,
    python_of,
    reference,
    signature,
    stack_launch,
)
from tests.support.project import DIGITS, ROOT

CONVOLUTIONS = 3
CHANNELS_LAST = (8, 8, 8, 16)
"""The shape of the first convolution's output."""
WORKER = ROOT / "predictors" / "_run" / "worker.py"


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    log = tmp_path_factory.mktemp("agent") / "log"
    framework = Framework(python_of("tensorflow"), "tensorflow", log)
    yield framework
    framework.agent.close()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped SavedModel unpacked."""
    folder = tmp_path_factory.mktemp("saved")
    with zipfile.ZipFile(DIGITS / "digits_cnn_savedmodel.zip") as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the digits network in the other formats."""
    folder = tmp_path_factory.mktemp("formats")
    return convert(python_of("tensorflow"), "convert_tensorflow.py", folder)


@pytest.fixture(params=["SavedModel", "digits_cnn.keras", "digits_cnn.pb"])
def graph(request: pytest.FixtureRequest, saved: Path, formats: Path) -> Path:
    """The digits network in each format."""
    return saved if request.param == "SavedModel" else formats / request.param


@pytest.mark.slow
def test_every_format_agrees(tensorflow: Framework, graph: Path) -> None:
    facts = tensorflow.load(graph)
    assert signature(facts) == ([INPUT], [OUTPUT])
    assert facts["threads"] == 1
    tensorflow.check()


@pytest.mark.slow
def test_every_format_shows_its_layers_and_inner_outputs(
    tensorflow: Framework, graph: Path
) -> None:
    tensorflow.load(graph)
    convolutions = [layer for layer in tensorflow.layers() if "Conv2D" in layer.type]
    assert len(convolutions) == CONVOLUTIONS
    assert convolutions[0].bytes == FIRST_BYTES
    assert convolutions[0].shape == CHANNELS_LAST
    inner = tensorflow.inner()
    assert_close(list(inner.values())[-1], reference())


@pytest.mark.slow
def test_every_format_costs_what_the_network_does(tensorflow: Framework, graph: Path) -> None:
    tensorflow.load(graph)
    found = cost(tensorflow.agent, image=(4, 1, 8, 8))
    own = describe_onnx(DIGITS / "digits_cnn.onnx", 4)
    assert found.flops == own.flops
    assert found.parameters == own.parameters
    assert found.unknown == ()


@pytest.mark.slow
def test_the_nodes_of_a_frozen_graph_can_be_named(tensorflow: Framework, formats: Path) -> None:
    graph = formats / "digits_cnn.pb"
    facts = tensorflow.load(graph, inputs="image:0", outputs="logits")
    assert signature(facts) == ([INPUT], [OUTPUT])
    with pytest.raises(Refused, match="nowhere"):
        tensorflow.load(graph, outputs="nowhere")


@pytest.mark.slow
def test_an_operator_that_it_lacks_is_named(
    tensorflow: Framework, formats: Path, tmp_path: Path
) -> None:
    data = (formats / "digits_cnn.pb").read_bytes()
    graph = tmp_path / "unknown.pb"
    graph.write_bytes(data.replace(b"MaxPool", b"MexPool"))
    with pytest.raises(Refused, match="MexPool"):
        tensorflow.load(graph)


LAMBDA = """
import sys
import keras

given = keras.Input((8,), name="image")
keras.Model(given, keras.layers.Lambda(lambda x: (open('RAN', 'w'), x)[1])(given)).save(sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_layer_of_code_is_refused_whatever_keras_would_do(
    tensorflow: Framework, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"lambda{suffix}"
    ran = tmp_path / "ran"
    script = LAMBDA.replace("RAN", str(ran))
    subprocess.run([python_of("tensorflow"), "-c", script, str(path)], check=True)
    ran.unlink()  # Keras calls a layer when it makes the model
    with pytest.raises(Refused, match="a layer is code: Lambda; allow it with --mlms-allow-code"):
        tensorflow.load(path)
    assert not ran.exists()


Change = Callable[[dict[str, Any]], None]


def set_class(module: str | None, name: str, config: Any = None) -> Change:
    def change(layer: dict[str, Any]) -> None:
        named = {"module": module, "class_name": name, "config": config}
        layer["config"]["activity_regularizer"] = named

    return change


CODE = [
    (set_class("os", "function", "system"), "system of os"),
    (set_class("builtins", "function", "exec"), "exec of builtins"),
    (set_class("keras.src.applications.resnet", "ResNet50"), r"ResNet50 of keras\.src\.appl"),
    (set_class("keras.utils", "function", "get_file"), r"get_file of keras\.utils"),
    (set_class("keras.config", "function", "enable_unsafe_deserialization"), "enable_unsafe"),
    (set_class("keras.models", "model_from_json"), r"model_from_json of keras\.models"),
    (set_class("keras.models", "load_model"), r"load_model of keras\.models"),
    (set_class("keras.models", "function", "load_model"), r"load_model of keras\.models"),
    (set_class("kerasx.layers", "Mine"), r"Mine of kerasx\.layers"),
    (set_class("keras.layers", "TorchModuleWrapper"), "a layer is code: TorchModuleWrapper"),
    (set_class("keras.layers", "TFSMLayer", {"filepath": "/tmp"}), "a layer is code: TFSMLayer"),
    (set_class(None, "__lambda__", {"code": "4wEA"}), "a layer is code: __lambda__"),
    (set_class("keras.layers", "StringLookup", {"vocabulary": "/etc/passwd"}), "/etc/passwd"),
]


def digits_keras(formats: Path, path: Path, change: Change) -> Path:
    """Copy the digits network of Keras, with a change of its first layer."""
    with zipfile.ZipFile(formats / "digits_cnn.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                model = json.loads(data)
                change(model["config"]["layers"][1])
                data = json.dumps(model).encode()
            new.writestr(name, data)
    return path


@pytest.mark.parametrize(("change", "problem"), CODE)
def test_a_model_of_keras_names_only_keras_own_classes(
    tensorflow: Framework, formats: Path, tmp_path: Path, change: Change, problem: str
) -> None:
    path = digits_keras(formats, tmp_path / "code.keras", change)
    with pytest.raises(Refused, match=f"{problem}.*allow it with --mlms-allow-code"):
        tensorflow.load(path)


def test_a_model_that_was_trained_with_functions_of_ones_own_is_read(
    tensorflow: Framework, formats: Path, tmp_path: Path
) -> None:
    path = tmp_path / "trained.keras"
    with zipfile.ZipFile(formats / "digits_cnn.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "config.json":
                loss = {"module": "mine", "class_name": "function", "config": "loss"}
                data = json.dumps({**json.loads(data), "compile_config": {"loss": loss}}).encode()
            new.writestr(name, data)
    tensorflow.load(path)


GRAPHS = """
import sys
import tensorflow as tf

v1 = tf.compat.v1
folder, path = sys.argv[1:]
kinds = {
    "WriteFile": lambda x: tf.io.write_file(path, tf.io.encode_base64("x")),
    "ReadFile": lambda x: tf.io.read_file(path),
    "SaveV2": lambda x: tf.raw_ops.SaveV2(
        prefix=path, tensor_names=["x"], shape_and_slices=[""], tensors=[x]
    ),
    "PrintV2": lambda x: tf.print(x, output_stream="file://" + path),
    "GenerateVocabRemapping": lambda x: tf.raw_ops.GenerateVocabRemapping(
        new_vocab_file=path, old_vocab_file=path, new_vocab_offset=0, num_new_vocab=1
    ).num_present,
    "DecodeProtoV2": lambda x: tf.raw_ops.DecodeProtoV2(
        bytes="", message_type="x", field_names=[], output_types=[], descriptor_source=path
    ).sizes,
    "EagerPyFunc": lambda x: tf.py_function(lambda x: x, [x], tf.float32),
}
for name, effect in kinds.items():
    module = tf.Module()

    @tf.function(input_signature=[tf.TensorSpec((None, 2), name="image")])
    def run(image):
        effect(image)
        return {"logits": image + 1}

    module.run = run
    module.weights = tf.Variable([1.0])
    tf.saved_model.save(module, f"{folder}/{name}", {"serving_default": run})
    with v1.Graph().as_default() as graph:
        image = v1.placeholder(tf.float32, (None, 2), "image")
        with tf.control_dependencies([made for made in [effect(image)] if made is not None]):
            tf.identity(image, "logits")
        with open(f"{folder}/{name}.pb", "wb") as file:
            file.write(graph.as_graph_def().SerializeToString())
"""


@pytest.mark.slow
def test_a_graph_that_does_more_than_compute_is_refused_before_tensorflow_loads_it(
    tensorflow: Framework, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    command = [python_of("tensorflow"), "-c", GRAPHS, str(tmp_path), str(ran)]
    subprocess.run(command, check=True)
    graphs = sorted(path for path in tmp_path.iterdir() if path != ran)
    assert len(graphs) == 14
    for graph in graphs:
        with pytest.raises(Refused, match=f"{graph.stem} .*allow it with --mlms-allow-code"):
            tensorflow.load(graph)
    tensorflow.load(tmp_path / "WriteFile", allow_code=True)
    tensorflow.predict(np.zeros((1, 2), np.float32))
    assert ran.exists()


HIDDEN = """
import shutil
import sys
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

v1 = tf.compat.v1
folder, path = sys.argv[1:]
with v1.Graph().as_default(), v1.Session() as session:
    image = v1.placeholder(tf.float32, (None, 2), "image")
    logits = image + v1.get_variable("weights", initializer=[1.0])
    session.run(v1.global_variables_initializer())
    v1.saved_model.simple_save(session, f"{folder}/of_1", {"image": image}, {"logits": logits})
with v1.Graph().as_default() as effect:
    tf.io.write_file(path, "x")


@tf.function(input_signature=[tf.TensorSpec((None, 2), name="image")])
def run(image):
    tf.io.write_file(path, "x")
    return {"logits": image + 1}


module = tf.Module()
module.run = run
tf.saved_model.save(module, f"{folder}/of_2", {"serving_default": run})


def change(name, source, edit):
    shutil.copytree(f"{folder}/{source}", f"{folder}/{name}")
    model = saved_model_pb2.SavedModel()
    with open(f"{folder}/{name}/saved_model.pb", "rb") as file:
        model.ParseFromString(file.read())
    edit(model.meta_graphs[0])
    with open(f"{folder}/{name}/saved_model.pb", "wb") as file:
        file.write(model.SerializeToString())


def restores(graph):
    graph.graph_def.node.extend(effect.as_graph_def().node)
    for node in graph.graph_def.node:
        if node.name == graph.saver_def.restore_op_name:
            node.input.append("^WriteFile")


def sparse(graph):
    output = graph.signature_def["serving_default"].outputs["logits"]
    named = output.name
    output.coo_sparse.values_tensor_name = output.coo_sparse.indices_tensor_name = named
    output.coo_sparse.dense_shape_tensor_name = named
    graph.graph_def.node.extend(effect.as_graph_def().node)
    for node in graph.graph_def.node:
        if node.name == named.partition(":")[0]:
            node.input.append("^WriteFile")


def unlisted(graph):
    graph.object_graph_def.concrete_functions.clear()
    graph.signature_def.clear()


change("restores", "of_1", restores)
change("sparse", "of_1", sparse)
change("unlisted", "of_2", unlisted)
"""


@pytest.mark.slow
def test_an_effect_of_a_saved_model_is_found_however_it_would_run(
    tensorflow: Framework, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    command = [python_of("tensorflow"), "-c", HIDDEN, str(tmp_path), str(ran)]
    subprocess.run(command, check=True)
    for name in ("restores", "sparse", "unlisted"):
        with pytest.raises(Refused, match=r"WriteFile .*allow it with --mlms-allow-code"):
            tensorflow.load(tmp_path / name)
    assert not ran.exists()
    tensorflow.load(tmp_path / "of_1")
    assert tensorflow.predict(np.zeros((1, 2), np.float32)).tolist() == [[1.0, 1.0]]
    tensorflow.load(tmp_path / "restores", allow_code=True)
    assert ran.exists(), "as it would have without the check"


OPEN_GRAPH = """
import importlib.util, sys, time, types
spec = importlib.util.spec_from_file_location("worker", sys.argv[1])
spec.loader.exec_module(importlib.util.module_from_spec(spec))  # mlms_predictors, as an agent has it
import numpy
from mlms_predictors import _tensorflow_graph as graph

images = [numpy.zeros((1, 1, 8, 8), "f4")]
frozen = graph.read_graph(sys.argv[2], [], [], "/CPU:0", 1)
"""
"""The beginning of programs that take the path of worker.py and of a frozen graph."""

CALLED_AT = """
called = []
run = frozen._session.run

def noting(*given, **named):
    called.append(time.perf_counter())
    return run(*given, **named)

frozen._session.run = noting
profile = frozen.trace(images)
first, last = profile.layers[0], profile.layers[-1]
assert called[-2] < profile.start <= called[-1] < first.start, (called, profile)
assert first.start <= last.end <= profile.end, profile
"""

NANOSECONDS = """
stat = types.SimpleNamespace(
    node_name="one",
    all_start_nanos=1795370396012252123,
    op_start_rel_nanos=0,
    op_end_rel_nanos=100,
    output=[],
)
layer = graph._layer(stat, "Relu", 1795370396000000000)
assert (layer.start, layer.end) == (12252123 / 1e9, 12252223 / 1e9), layer
"""

CLOCK_SET = """
offsets = iter([0, 3000000000])
graph.wall_offset = lambda: next(offsets)
try:
    frozen.trace(images)
except RuntimeError as error:
    print(error)
"""


def run_with_graph(program: str, formats: Path) -> str:
    """Run a program after OPEN_GRAPH and return what it prints."""
    command = [python_of("tensorflow"), "-B", "-c", OPEN_GRAPH + program]
    arguments = [str(WORKER), str(formats / "digits_cnn.pb")]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("program", [CALLED_AT, NANOSECONDS], ids=["call", "nanoseconds"])
def test_a_profile_begins_with_the_call_and_keeps_nanoseconds(formats: Path, program: str) -> None:
    run_with_graph(program, formats)


@pytest.mark.slow
def test_a_clock_that_is_set_during_a_profile_is_an_error(formats: Path) -> None:
    assert run_with_graph(CLOCK_SET, formats) == (
        "the wall clock, which TensorFlow's layers are timed by, was set meanwhile; trace again\n"
    )


def test_options_that_it_does_not_know_are_refused(tensorflow: Framework, saved: Path) -> None:
    with pytest.raises(Refused, match="no option 'mode'; this predictor knows signature"):
        tensorflow.load(saved, mode="fast")
    with pytest.raises(Refused, match="no signature 'train'; the model has serving_default"):
        tensorflow.load(saved, signature="train")


def test_files_that_are_no_models_of_it_are_refused(tensorflow: Framework, tmp_path: Path) -> None:
    onnx = DIGITS / "digits_cnn.onnx"
    with pytest.raises(Refused, match="no model of TensorFlow"):
        tensorflow.load(onnx)
    with pytest.raises(Refused, match=r"has no saved_model\.pb"):
        tensorflow.load(tmp_path)
    other = tmp_path / "other.pb"
    other.write_bytes(onnx.read_bytes())
    with pytest.raises(Refused, match="no frozen graph"):
        tensorflow.load(other)


def test_other_threads_in_the_same_process_are_refused(tensorflow: Framework, saved: Path) -> None:
    tensorflow.load(saved, threads=1)
    tensorflow.predict()
    with pytest.raises(Refused, match="in this process already"):
        tensorflow.load(saved, threads=2)


def test_a_gpu_that_is_not_there_is_refused(tensorflow: Framework, saved: Path) -> None:
    if "cuda:0" in tensorflow.hello["devices"]:
        pytest.skip("here is a GPU")
    with pytest.raises(Refused, match="TensorFlow lists 0 GPUs"):
        tensorflow.load(saved, device="cuda:0")


LINKED = """
import sys
import h5py
import keras

source, target = sys.argv[1:]
keras.models.load_model(source).save(target)
with h5py.File(target, "a") as file:
    found = []
    file.visititems(lambda name, item: found.append(name) if hasattr(item, "shape") else None)
    with h5py.File("other.h5", "w") as other:
        other["weights"] = file[found[0]][...]
    del file[found[0]]
    file[found[0]] = LINK
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "link", ["h5py.ExternalLink('other.h5', 'weights')", "h5py.SoftLink('/elsewhere')"]
)
def test_weights_in_another_file_are_refused(
    tensorflow: Framework, formats: Path, tmp_path: Path, link: str
) -> None:
    target = tmp_path / "linked.h5"
    script = LINKED.replace("LINK", link)
    command = [
        python_of("tensorflow"),
        "-c",
        script,
        str(formats / "digits_cnn.keras"),
        str(target),
    ]
    subprocess.run(command, cwd=tmp_path, check=True)
    with pytest.raises(Refused, match="are a link; save the model whole"):
        tensorflow.load(target)


OTHERS = """
import tensorflow as tf

class Texts(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def serve(self, x):
        return {"a_label": tf.strings.as_string(x[:, 0]), "y": 2 * x}

texts = Texts()
tf.saved_model.save(texts, "texts", signatures=texts.serve)
import keras
sequential = keras.Sequential([keras.Input((2,), name="x"), keras.layers.Dense(3, name="last")])
sequential.save("sequential.keras")
sequential.save("sequential.h5")
with tf.Graph().as_default() as graph:
    image = tf.compat.v1.placeholder(tf.float32, [None, 1, 8, 8], "image")
    wide = tf.tile(tf.reshape(image, [-1, 64]), [1, 32])
    weights = tf.constant(0.001, shape=[2048, 2048])
    sides = [tf.matmul(wide + number, weights, name="side%d" % number) for number in range(6)]
    tf.add_n(sides, name="logits")
with open("branches.pb", "wb") as file:
    file.write(graph.as_graph_def().SerializeToString())
"""


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("others")
    command = [python_of("tensorflow"), "-B", "-c", OTHERS]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.slow
def test_texts_are_given_behind_numbers(tensorflow: Framework, others: Path) -> None:
    facts = tensorflow.load(others / "texts")
    assert [tensor[:2] for tensor in facts["outputs"]] == [["y", "float32"], ["a_label", "string"]]
    x = np.ones((3, 2), np.float32)
    arrays = tensorflow.agent.request("predict", arrays=[("x", x)]).arrays
    found = {name: array.tolist() for name, array in arrays.items()}
    assert found == {"y": [[2, 2]] * 3, "a_label": ["1.000000"] * 3}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_sequential_of_keras_3_has_one_output_called_like_its_last_layer(
    tensorflow: Framework, others: Path, suffix: str
) -> None:
    path = others / f"sequential{suffix}"
    facts = tensorflow.load(path)
    assert [tensor[0] for tensor in facts["outputs"]] == ["last"]
    arrays = tensorflow.agent.request("predict", arrays=[("x", np.ones((3, 2), np.float32))]).arrays
    assert arrays["last"].shape == (3, 3)


@pytest.mark.slow
def test_layers_of_a_frozen_graph_run_one_at_a_time_without_a_number_of_threads(
    others: Path, tmp_path: Path
) -> None:
    framework = Framework(stack_launch("tensorflow"), "tensorflow", tmp_path / "log")
    framework.load(others / "branches.pb", threads=None)
    framework.predict()
    layers = [layer for layer in framework.layers() if "MatMul" in layer.type]
    framework.agent.close()
    assert len(layers) == 6
    for one, other in itertools.pairwise(layers):
        assert one.end <= other.start
