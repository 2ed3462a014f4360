"""TensorFlow Lite beside the contract.

Kernels, layers, inner outputs, sizes of a batch, what is refused.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mlms_predictors._tflite_profiler import Event, library_of, operators_of

from pytest_mlms.agent.process import Refused
from tests.support.frameworks import IMAGES, Framework, python_of, reference
from tests.support.project import DIGITS, ROOT

GRAPH = DIGITS / "digits_cnn.tflite"

BESIDE = """
import json, os, sys
sys.path.insert(0, os.path.join(sys.argv[1], "_run"))
import numpy, worker
tflite = worker._import("mlms_predictors.tflite", os.path.join(sys.argv[1], "tflite.py"))
from mlms_predictors import Load, _tflite_profiler

def tasks():
    return len(os.listdir("/proc/self/task"))

def beside(threads, xnnpack):
    before = tasks()
    loaded = tflite.load(Load({"graph": sys.argv[2]}, "cpu", threads, {"xnnpack": xnnpack}, False))
    wanted = tflite.predict(loaded, {"image": images})[0]
    interpreter, given, rest = tasks() - before, numpy.zeros_like(wanted), tasks()
    library = _tflite_profiler.library_of(tflite.package)
    compilation = _tflite_profiler.Compilation(sys.argv[2], 0, threads, xnnpack, [images], [given])
    with _tflite_profiler.compiled(library, compilation) as call:
        call()
        session = tasks() - rest
    numpy.testing.assert_allclose(given, wanted, rtol=1e-6, atol=1e-6)
    return {"interpreter": interpreter, "session": session, "after": tasks() - rest}

images = numpy.random.default_rng(7).standard_normal((64, 1, 8, 8)).astype("float32")
print(json.dumps([beside(threads, xnnpack) for xnnpack in (True, False) for threads in (1, 2)]))
"""
"""Prints how many threads an interpreter starts, and the profiler's model, which must compute what
that does.
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

both, names = Both(), ["first", "second"]
signatures = {name: getattr(both, name).get_concrete_function() for name in names}
tf.saved_model.save(both, sys.argv[1], signatures=signatures)
with open(sys.argv[2], "wb") as file:
    file.write(tf.lite.TFLiteConverter.from_saved_model(sys.argv[1], signature_keys=names).convert())
"""


@pytest.fixture(scope="module")
def tflite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Framework]:
    framework = Framework(
        python_of("tflite", "ai_edge_litert"), "tflite", tmp_path_factory.mktemp("agent") / "log"
    )
    yield framework
    framework.agent.close()


@pytest.mark.parametrize("xnnpack", [True, False])
def test_the_signature_names_it_and_both_kinds_of_kernels_agree(
    tflite: Framework, xnnpack: bool
) -> None:
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
    fields = {
        "scenario": "single_stream",
        "batches": 2,
        "stop": {"seconds": 0, "least": 5, "longest": 600},
    }
    arrays = tflite.agent.request("run", fields, [("image", IMAGES), ("image", IMAGES[:1])]).arrays
    assert len(arrays["start"]) == 5
    np.testing.assert_allclose(arrays["logits"], reference(), rtol=1e-4, atol=1e-5)


def test_layers_are_the_operators_of_the_file_under_the_names_of_what_they_give(
    tflite: Framework,
) -> None:
    tflite.load(GRAPH, xnnpack=False)
    layers = tflite.layers()
    assert [layer[0] for layer in layers] == list(tflite.inner())
    assert [layer[1] for layer in layers].count("CONV_2D") == 3
    assert layers[-1][4:] == [8 * 10 * 4, [8, 10]]


def test_layers_that_xnnpack_runs_are_its_own_beside_the_others_of_the_file(
    tflite: Framework,
) -> None:
    tflite.load(GRAPH)
    kinds = [layer[1] for layer in tflite.layers()]
    assert sum(kind.startswith("Convolution") for kind in kinds) == 3
    assert "RESHAPE" in kinds
    assert kinds[-1].startswith("Fully Connected")


def test_what_is_profiled_computes_the_same_on_the_same_threads_and_keeps_none(
    tflite: Framework,
) -> None:
    python = python_of("tflite", "ai_edge_litert")
    command = [python, "-B", "-c", BESIDE, str(ROOT / "predictors"), str(GRAPH)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = json.loads(done.stdout)
    assert len(rows) == 4
    for row in rows:
        assert row["session"] == row["interpreter"], row
        assert row["after"] == 0, row
    assert [row["interpreter"] > 0 for row in rows] == [False, True, False, True], (
        "threads beside the first"
    )


@pytest.mark.slow
def test_the_interpreter_inside_tensorflow_says_that_it_has_no_profiler(tmp_path: Path) -> None:
    framework = Framework(python_of("tensorflow", "tensorflow"), "tflite", tmp_path / "log")
    framework.load(GRAPH)
    with pytest.raises(
        Refused, match=r"the profiler is that of ai-edge-litert 2\.2 .*; this is tensorflow 2\."
    ):
        framework.layers()
    framework.check()
    framework.agent.close()


@pytest.mark.parametrize("version", ["2.1.6", "3.0.0"])
def test_another_version_of_the_library_is_not_called(version: str, tmp_path: Path) -> None:
    (tmp_path / "libLiteRt.so").write_bytes(b"")
    package = SimpleNamespace(
        __name__="ai_edge_litert", __version__=version, __file__=str(tmp_path / "__init__.py")
    )
    with pytest.raises(NotImplementedError, match=f"this is ai_edge_litert {version}"):
        library_of(package)


BEGIN, END = Event(b"Invoke", 1, 10, 90), Event(b"Invoke", 32)


def test_what_a_called_subgraph_runs_is_in_the_operator_that_calls_it() -> None:
    inside = [
        Event(b"Invoke", 1, 25, 30),
        Event(b"ADD", 2, 26, 5),
        Event(b"Multiply", 8, 0, 9),
        END,
    ]
    events = [BEGIN, Event(b"Convolution", 8, 0, 7), Event(b"WHILE", 2, 20, 40, place=3), *inside]
    found = operators_of(
        [*events, Event(b"Convolution", 8, 0, 6), Event(b"ADD", 2, 70, 5, place=5), END]
    )
    assert [(kind, index) for kind, index, _, _ in found] == [
        ("Convolution", None),
        ("WHILE", 3),
        ("Convolution", None),
        ("ADD", 5),
    ]
    assert [(round(start * 1e6), round(end * 1e6)) for _, _, start, end in found] == [
        (10, 17),
        (20, 60),
        (60, 66),
        (70, 75),
    ]


@pytest.mark.parametrize("events", [[], [BEGIN, END], [BEGIN, Event(b"ADD", 2, 20, 5)]])
def test_a_call_that_the_profiler_did_not_see_whole_is_an_error(events: list[Event]) -> None:
    with pytest.raises(RuntimeError, match=f"{len(events)} events don't make a call"):
        operators_of(events)


@pytest.mark.slow
def test_a_signature_of_another_graph_than_the_first_is_refused(
    tflite: Framework, tmp_path: Path
) -> None:
    graph = tmp_path / "two.tflite"
    command = [
        python_of("tensorflow", "tensorflow"),
        "-B",
        "-c",
        TWO_GRAPHS,
        str(tmp_path),
        str(graph),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert tflite.load(graph)["inputs"] == [["a", "float32", [2]]]
    assert tflite.load(graph, signature="first")["inputs"] == [["a", "float32", [2]]]
    with pytest.raises(
        Refused, match="signature 'second' is not of the file's first graph, .*; of that is first"
    ):
        tflite.load(graph, signature="second")


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
