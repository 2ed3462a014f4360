"""TensorFlow Lite beside the contract: its kernels, its layers, its signatures, what is refused."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlms_predictors._tflite_files import check_operators, keeps_state
from mlms_predictors._tflite_profiler import Event, library_of, operators_of

from pytest_mlms.measure.agent.process import Refused
from tests.support.frameworks import (
    IMAGES,
    INPUT,
    OUTPUT,
    Framework,
    assert_close,
    python_of,
    reference,
    signature,
)
from tests.support.project import DIGITS, ROOT

GRAPH = DIGITS / "digits_cnn.tflite"

COMPARE = """
import json, os, sys
sys.path.insert(0, os.path.join(sys.argv[1], "_run"))
import numpy
import worker  # makes mlms_predictors importable
from mlms_predictors import Load, _tflite_profiler, tflite

def tasks():
    return len(os.listdir("/proc/self/task"))

def compare(threads, xnnpack):
    before = tasks()
    loaded = tflite.load(Load({"graph": sys.argv[2]}, "cpu", threads, {"xnnpack": xnnpack}, False))
    expected = tflite.predict(loaded, {"image": images})[0]
    interpreter = tasks() - before
    found = numpy.zeros_like(expected)
    before = tasks()
    library = _tflite_profiler.library_of(tflite.package)
    compilation = _tflite_profiler.Compilation(sys.argv[2], 0, threads, xnnpack, [images], [found])
    with _tflite_profiler.compiled(library, compilation) as call:
        call()
        compiled = tasks() - before
    numpy.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    return {"interpreter": interpreter, "compiled": compiled, "after": tasks() - before}

images = numpy.random.default_rng(7).standard_normal((64, 1, 8, 8)).astype("float32")
print(json.dumps([compare(threads, xnnpack) for xnnpack in (True, False) for threads in (1, 2)]))
"""
"""Prints how many threads an interpreter starts, and the profiler's model.

The two must compute the same.
"""


TWO_GRAPHS = """
import sys
import tensorflow as tf

class Both(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([2], tf.float32, name="a")])
    def first(self, a):
        return {"x": a + 1}

    @tf.function(input_signature=[tf.TensorSpec([3], tf.float32, name="b")])
    def second(self, b):
        return {"y": b * 2}

both = Both()
names = ["first", "second"]
signatures = {name: getattr(both, name).get_concrete_function() for name in names}
tf.saved_model.save(both, sys.argv[1], signatures=signatures)
converter = tf.lite.TFLiteConverter.from_saved_model(sys.argv[1], signature_keys=names)
with open(sys.argv[2], "wb") as file:
    file.write(converter.convert())
"""


OF_WINDOWS = """
import sys
import tensorflow as tf

@tf.function(input_signature=[tf.TensorSpec([1, None, 1, 1], tf.float32, name="x")])
def means(x):
    return {"y": tf.nn.conv2d(x, tf.ones([4, 1, 1, 1]) / 4, 4, "VALID")}

converter = tf.lite.TFLiteConverter.from_concrete_functions([means.get_concrete_function()])
with open(sys.argv[1], "wb") as file:
    file.write(converter.convert())
"""


WITH_A_VARIABLE = """
import sys
import tensorflow as tf

class Sum(tf.Module):
    def __init__(self):
        self.sum = tf.Variable([0.0])

    @tf.function(input_signature=[tf.TensorSpec([1], tf.float32, name="x")])
    def add(self, x):
        return {"y": self.sum.assign_add(x)}

model = Sum()
function = model.add.get_concrete_function()
converter = tf.lite.TFLiteConverter.from_concrete_functions([function], model)
converter.experimental_enable_resource_variables = True
with open(sys.argv[1], "wb") as file:
    file.write(converter.convert())
"""


def run(python: str, program: str, *arguments: Path) -> str:
    """Run a program in an interpreter and return what it prints."""
    command = [python, "-B", "-c", program, *(str(argument) for argument in arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def tflite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    log = tmp_path_factory.mktemp("agent") / "log"
    framework = Framework(python_of("tflite"), "tflite", log)
    yield framework
    framework.agent.close()


@pytest.mark.parametrize("xnnpack", [True, False])
def test_both_kinds_of_kernels_agree(tflite: Framework, xnnpack: bool) -> None:
    facts = tflite.load(GRAPH, xnnpack=xnnpack, signature="serving_default")
    assert signature(facts) == ([INPUT], [OUTPUT])
    tflite.check()


def test_inner_outputs_end_with_the_logits(tflite: Framework) -> None:
    tflite.load(GRAPH)
    inner = tflite.inner()
    assert any("conv2d_0" in name for name in inner)
    assert_close(list(inner.values())[-1], reference())


def test_batches_of_two_sizes_may_take_turns(tflite: Framework) -> None:
    tflite.load(GRAPH)
    stop = {"seconds": 0, "least": 5, "longest": 600}
    fields = {"scenario": "single_stream", "batches": 2, "stop": stop}
    batches = [("image", IMAGES), ("image", IMAGES[:1])]
    arrays = tflite.agent.request("run", fields, batches).arrays
    assert len(arrays["time:start"]) == 5
    assert_close(arrays["logits"], reference())


def test_layers_are_the_files_operators_under_the_names_of_their_outputs(
    tflite: Framework,
) -> None:
    tflite.load(GRAPH, xnnpack=False)
    layers = tflite.layers()
    assert [layer.name for layer in layers] == list(tflite.inner())
    assert [layer.type for layer in layers].count("CONV_2D") == 3
    assert layers[-1].bytes == 8 * 10 * 4
    assert layers[-1].shape == (8, 10)


def test_layers_that_xnnpack_runs_have_its_own_types(tflite: Framework) -> None:
    tflite.load(GRAPH)
    kinds = [layer.type for layer in tflite.layers()]
    assert sum(kind.startswith("Convolution") for kind in kinds) == 3
    assert "RESHAPE" in kinds
    assert kinds[-1].startswith("Fully Connected")


def test_the_profiled_model_computes_the_same_on_as_many_threads_and_keeps_none() -> None:
    output = run(python_of("tflite"), COMPARE, ROOT / "predictors", GRAPH)
    rows: list[dict[str, int]] = json.loads(output)
    assert len(rows) == 4
    for row in rows:
        assert row["compiled"] == row["interpreter"], row
        assert row["after"] == 0, row
    starts_threads = [row["interpreter"] > 0 for row in rows]
    assert starts_threads == [False, True, False, True], "threads beside the first"


@pytest.mark.slow
def test_the_interpreter_inside_tensorflow_has_no_profiler(tmp_path: Path) -> None:
    framework = Framework(python_of("tensorflow"), "tflite", tmp_path / "log")
    framework.load(GRAPH)
    reason = r"the profiler is that of ai-edge-litert 2\.2 .*; this is tensorflow 2\."
    with pytest.raises(Refused, match=reason):
        framework.layers()
    framework.check()
    framework.agent.close()


@pytest.mark.parametrize("version", ["2.1.6", "3.0.0"])
def test_another_version_of_the_library_is_not_called(version: str, tmp_path: Path) -> None:
    (tmp_path / "libLiteRt.so").write_bytes(b"")
    package = SimpleNamespace(
        __name__="ai_edge_litert",
        __version__=version,
        __file__=str(tmp_path / "__init__.py"),
    )
    with pytest.raises(NotImplementedError, match=f"this is ai_edge_litert {version}"):
        library_of(package)


BEGIN = Event(b"Invoke", 1, 10, 90)
END = Event(b"Invoke", 32)


def test_operators_in_a_called_subgraph_belong_to_the_operator_that_calls_it() -> None:
    events = [
        BEGIN,
        Event(b"Convolution", 8, 0, 7),
        Event(b"WHILE", 2, 20, 40, place=3),
        Event(b"Invoke", 1, 25, 30),
        Event(b"ADD", 2, 26, 5),
        Event(b"Multiply", 8, 0, 9),
        END,
        Event(b"Convolution", 8, 0, 6),
        Event(b"ADD", 2, 70, 5, place=5),
        END,
    ]
    found: list[Any] = []
    for operator in operators_of(events):
        start = round(operator.start * 1e6)
        end = round(operator.end * 1e6)
        found.append((operator.kind, operator.place, start, end))
    assert found == [
        ("Convolution", None, 10, 17),
        ("WHILE", 3, 20, 60),
        ("Convolution", None, 60, 66),
        ("ADD", 5, 70, 75),
    ]


@pytest.mark.parametrize("events", [[], [BEGIN, END], [BEGIN, Event(b"ADD", 2, 20, 5)]])
def test_events_that_are_no_whole_call_are_an_error(events: list[Event]) -> None:
    with pytest.raises(RuntimeError, match=f"{len(events)} events don't make a call"):
        operators_of(events)


WITH_FLEX = """
import sys
import tensorflow as tf

@tf.function(input_signature=[tf.TensorSpec((1, 2), name="image")])
def run(image):
    written = tf.raw_ops.WriteFile(filename="ran", contents=tf.strings.as_string(image[0, 0]))
    with tf.control_dependencies([written]):
        return {"logits": image + 1}

module = tf.Module()
module.run = run
made = tf.lite.TFLiteConverter.from_concrete_functions([run.get_concrete_function()], module)
made.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
with open(sys.argv[2], "wb") as file:
    file.write(made.convert())
"""


@pytest.mark.slow
def test_operators_of_tensorflow_need_consent_where_its_interpreter_has_them(
    tflite: Framework, tmp_path: Path
) -> None:
    graph = tmp_path / "flex.tflite"
    run(python_of("tensorflow"), WITH_FLEX, tmp_path, graph)
    inside = Framework(python_of("tensorflow"), "tflite", tmp_path / "log")
    with pytest.raises(Refused, match=r"its operator Flex\w+ may reach files or hosts; allow it"):
        inside.load(graph)
    inside.agent.close()
    with pytest.raises(Refused, match="Select TensorFlow op"):
        tflite.load(graph)


@pytest.mark.slow
def test_free_axes_that_are_too_short_until_a_call_are_no_error_of_the_load(
    tflite: Framework, tmp_path: Path
) -> None:
    graph = tmp_path / "windows.tflite"
    run(python_of("tensorflow"), OF_WINDOWS, graph)
    facts = tflite.load_files({"graph": graph})
    assert facts["inputs"] == [["x", "float32", [1, None, 1, 1]]]
    sound = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    (found,) = tflite.agent.request("predict", arrays=[("x", sound)]).arrays.values()
    assert found.ravel().tolist() == [1.5, 5.5]
    with pytest.raises(Refused, match="failed to prepare"):
        tflite.agent.request("predict", arrays=[("x", sound[:, :2])])


@pytest.mark.slow
def test_a_file_that_assigns_variables_keeps_a_state(tflite: Framework, tmp_path: Path) -> None:
    graph = tmp_path / "sum.tflite"
    run(python_of("tensorflow"), WITH_A_VARIABLE, graph)
    assert tflite.load_files({"graph": graph})["device_facts"] == {"keeps a state": "variables"}
    one = [("x", np.ones(1, np.float32))]
    found = [tflite.agent.request("predict", arrays=one).arrays for _ in range(2)]
    assert [float(next(iter(arrays.values()))[0]) for arrays in found] == [1, 2]
    assert not keeps_state(str(GRAPH))


def with_operator(name: bytes) -> bytes:
    """Return the flatbuffer of a model with nothing but one operator's name."""
    model = (8, 8, 0, 4, 8, 4)  # where its fields are, and that of its operators
    operator = (8, 8, 0, 4, 8, 4, len(name))
    return struct.pack("<I4s4HiIII4HiII", 16, b"TFL3", *model, 1, 12, *operator) + name + b"\0"


@pytest.mark.parametrize("name", [b"FlexReadFile", b"Flexx", b"Flex_HostSend", b"Flex"])
def test_any_operator_that_tensorflow_would_run_is_found(tmp_path: Path, name: bytes) -> None:
    """TensorFlow looks at the prefix alone; which of its operators runs is in the options."""
    path = tmp_path / "graph.tflite"
    path.write_bytes(with_operator(name))
    with pytest.raises(PermissionError, match=f"its operator {name.decode()} may reach files"):
        check_operators(str(path))


def test_a_name_like_that_of_an_operator_of_tensorflow_is_none(tmp_path: Path) -> None:
    path = tmp_path / "graph.tflite"
    path.write_bytes(with_operator(b"MFCC") + b"FlexNet/conv\0")
    check_operators(str(path))
    check_operators(str(GRAPH))


@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(with_operator(b"MFCC"))
    for place in data.draw(st.lists(st.integers(0, len(content) - 1), max_size=4)):
        content[place] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.tflite"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        check_operators(str(path))
    except (ValueError, PermissionError) as error:
        assert str(error).startswith("it")


@pytest.mark.slow
def test_a_signature_of_another_graph_than_the_first_is_refused(
    tflite: Framework, tmp_path: Path
) -> None:
    graph = tmp_path / "two.tflite"
    run(python_of("tensorflow"), TWO_GRAPHS, tmp_path, graph)
    for options in ({}, {"signature": "first"}):
        facts = tflite.load_files({"graph": graph}, options=options)
        assert facts["inputs"] == [["a", "float32", [2]]]
    reason = "signature 'second' is not of the file's first graph, .*; of that is first"
    with pytest.raises(Refused, match=reason):
        tflite.load(graph, signature="second")


def test_options_that_it_does_not_know_are_refused(tflite: Framework) -> None:
    with pytest.raises(Refused, match="no option 'gpu'; this predictor knows xnnpack"):
        tflite.load(GRAPH, gpu=True)
    with pytest.raises(Refused, match="no signature 'train'; the file has serving_default"):
        tflite.load(GRAPH, signature="train")
    with pytest.raises(Refused, match="runs on the cpu"):
        tflite.load(GRAPH, device="cuda:0")


def test_files_that_are_no_models_of_it_are_refused(tflite: Framework, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not a valid Flatbuffer"):
        tflite.load(DIGITS / "digits_cnn.onnx")
    half = tmp_path / "half.tflite"
    half.write_bytes(GRAPH.read_bytes()[:50000])
    with pytest.raises(Refused):
        tflite.load(half)
