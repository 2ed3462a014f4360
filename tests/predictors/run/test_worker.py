"""The agent: its requests, how it frees models, and every interpreter from Python 3.6 up."""

from __future__ import annotations

import ast
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from mlms_predictors._run import protocol
from mlms_predictors._run.worker import REQUESTS, Worker

from pytest_mlms.measure.agent.process import Refused, start_agent
from tests.support.closing import ClosingAgent
from tests.support.project import DIGITS, PREDICTORS, ROOT, launch

VERSIONS = ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
NUMPY = {"3.6": "numpy==1.19.5", "3.7": "numpy==1.21.6", "3.8": "numpy==1.24.4"}

BARE = """
def versions():
    return {"bare": "1.0"}
def devices():
    return ["cpu"]
def load(request):
    raise NotImplementedError
def predict(loaded, arrays):
    raise NotImplementedError
"""

IMAGES = np.zeros((2, 1, 8, 8), np.float32)


@pytest.fixture
def worker() -> Worker:
    """A worker in this process, with the digits network loaded."""
    worker = Worker(str(ROOT / "predictors" / "onnxruntime.py"))
    worker.hello({}, [])
    files = {"graph": str(DIGITS / "digits_cnn.onnx")}
    worker.load({"files": files, "device": "cpu", "threads": 1}, [])
    return worker


def test_each_request_is_a_method() -> None:
    methods = {name for name in vars(Worker) if not name.startswith("_")}
    assert methods == {*REQUESTS, "close"}


def test_hello_has_the_version_of_the_protocol() -> None:
    reply = Worker(str(ROOT / "predictors" / "onnxruntime.py")).hello({}, [])
    assert reply.fields["protocol"] == protocol.VERSION
    assert set(reply.fields) == {
        "protocol",
        "process",
        "python",
        "executable",
        "versions",
        "devices",
        "cores",
        "ready",
        "import_seconds",
        "import_waited",
        "requests",
    }


STARTED = """
import builtins, runpy, sys, time
imports = builtins.__import__
first = []
def noting(name, *arguments, **options):
    if name.startswith("mlms_predictors"):
        first.append(time.monotonic())
    return imports(name, *arguments, **options)
builtins.__import__ = noting
worker = runpy.run_path(sys.argv[1], run_name="worker")["Worker"](sys.argv[2])
assert worker.hello({}, []).fields["ready"] <= first[0]
"""


def test_the_files_of_the_agent_are_no_part_of_the_start_of_the_interpreter(tmp_path: Path) -> None:
    predictor = tmp_path / "bare.py"
    predictor.write_text(BARE)
    command = [sys.executable, "-c", STARTED, str(ROOT / "predictors/_run/worker.py")]
    subprocess.run([*command, str(predictor)], check=True)


def test_a_model_that_is_loaded_is_traced(worker: Worker) -> None:
    header = {"level": "hardware", "probes": ["perf", "io"], "count": 3, "plain": 2, "options": {}}
    fields, arrays = worker.trace(header, [("image", IMAGES)])
    columns = dict(arrays)
    assert len(columns["plain"]) == 4
    assert columns["span_request"].tolist() == [0, 1, 2]
    start, end = fields["load"]
    assert 0 < start < end <= columns["span_start"].min()
    assert {status["probe"] for status in fields["probes"]} == {"perf", "io"}


def test_turns_have_times_and_outputs_on_demand(worker: Worker) -> None:
    worker.bind({"batches": 2}, [("image", IMAGES), ("image", IMAGES + 1)])
    fields, arrays = worker.turn(
        {"first": 1, "skip": 1, "count": 3, "outputs": True, "memory": True}, []
    )
    times = dict(arrays)
    assert len(times["time:start"]) == len(times["time:end"]) == 3
    assert np.array_equal(times["logits"], worker.predict({}, [("image", IMAGES + 1)]).arrays[0][1])
    assert fields["peak_rss"] > 1 << 20
    fields, arrays = worker.turn({"first": 0, "skip": 0, "count": 2, "outputs": False}, [])
    assert fields["peak_rss"] is None
    assert "logits" not in dict(arrays)


@pytest.mark.parametrize("request_type", ["bind", "run"])
def test_the_time_to_bind_the_first_batch_is_told(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, request_type: str
) -> None:
    clock = itertools.count(0, 5)
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    stop = {"seconds": 0, "least": 1, "longest": 9}
    header = {"batches": 2, "scenario": "single_stream", "stop": stop}
    arrays = [("image", IMAGES), ("image", IMAGES + 1)]
    fields, _ = getattr(worker, request_type)(header, arrays)
    assert fields["bind_seconds"] == 5


def test_nothing_is_predicted_before_a_model_is_loaded() -> None:
    worker = Worker(str(ROOT / "predictors" / "onnxruntime.py"))
    with pytest.raises(RuntimeError, match="request 'hello' first"):
        worker.predict({}, [])
    worker.hello({}, [])
    with pytest.raises(RuntimeError, match="request 'load' first"):
        worker.predict({}, [])


def test_a_model_is_closed_when_the_agent_ends(closing: ClosingAgent) -> None:
    closing.load("one")
    closing.agent.close()
    assert closing.notes() == ["load one", "close one"]
    assert closing.agent.process.returncode == 0


def test_a_model_is_closed_before_another_is_loaded(closing: ClosingAgent) -> None:
    closing.load("one")
    closing.load("two")
    assert closing.notes() == ["load one", "close one", "load two"]


def test_a_model_is_closed_once_where_the_next_can_not_be_loaded(closing: ClosingAgent) -> None:
    closing.load("one")
    with pytest.raises(Refused, match="a broken file"):
        closing.load("broken")
    closing.agent.close()
    assert closing.notes() == ["load one", "close one"]


def test_a_model_that_can_not_be_closed_costs_nothing_but_a_log(closing: ClosingAgent) -> None:
    closing.load("fail")
    closing.load("two")
    closing.agent.close()
    assert closing.notes() == ["load fail", "close fail", "load two", "close two"]
    assert "it can't be freed" in closing.agent.log.path.read_text()


def interpreter(version: str) -> str:
    """Return the path of an interpreter of that version, from pyenv or the path.

    Skips where there is none.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    on_path = shutil.which(f"python{version}")
    if on_path:
        found.append(on_path)
    for path in found:
        code = "import sys; print('%d.%d' % sys.version_info[:2])"
        done = subprocess.run([path, "-c", code], capture_output=True, text=True)
        if done.stdout.strip() == version:
            return path
    pytest.skip(f"no Python {version} on this machine")


@pytest.mark.parametrize("version", VERSIONS)
def test_an_agent_greets_from_a_bare_interpreter(version: str, tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(BARE)
    agent = start_agent(launch(interpreter(version)), tmp_path / "bare.py", tmp_path / "log", 300)
    hello = agent.request("hello").facts
    agent.close()
    assert hello["python"].startswith(version + ".")
    assert hello["versions"] == {"bare": "1.0"}
    assert agent.process.returncode == 0


@pytest.fixture
def python_with_numpy(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return an interpreter with numpy, which our own pip has installed."""
    version: str = request.param
    venv = tmp_path / "venv"
    subprocess.run([interpreter(version), "-m", "venv", "--without-pip", venv], check=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    target = venv / "lib" / f"python{version}" / "site-packages"
    command = [*pip, "--no-compile", f"--target={target}", f"--python-version={version}"]
    command += ["--only-binary=:all:", "--ignore-requires-python"]  # of the Python that runs pip
    subprocess.run([*command, NUMPY.get(version, "numpy")], check=True)
    return venv / "bin" / "python"


@pytest.mark.slow
@pytest.mark.parametrize("python_with_numpy", VERSIONS, indirect=True)
def test_an_agent_measures_in_an_interpreter_with_numpy(
    python_with_numpy: Path, tmp_path: Path
) -> None:
    (tmp_path / "graph").write_text(json.dumps({"answer": 4}))
    agent = start_agent(launch(python_with_numpy), PREDICTORS / "faulty.py", tmp_path / "log", 300)
    agent.request("hello")
    files = {"graph": str(tmp_path / "graph")}
    agent.request("load", {"files": files, "device": "cpu", "threads": None})
    stop = {"seconds": 0.05, "least": 10, "longest": 600}
    batches = [("image", IMAGES), ("image", IMAGES + 1)]
    for scenario in ("single_stream", "offline"):
        fields = {"scenario": scenario, "batches": 2, "stop": stop}
        facts, arrays = agent.request("run", fields, batches)
        assert len(arrays["time:start"]) >= 10
        assert (arrays["time:end"] >= arrays["time:start"]).all()
        assert arrays["logits"].shape == (2, 10)
        assert facts["peak_rss"] > 1 << 20
    plan = {"level": "hardware", "probes": ["io", "perf"], "count": 2, "plain": 1, "options": {}}
    facts, arrays = agent.request("trace", plan, batches[:1])
    assert arrays["span_request"].tolist() == [0, 1]
    assert {status["probe"] for status in facts["probes"]} == {"io", "perf"}
    agent.close()


# Modules of frameworks that are not named like their predictors, or that bring others along.
MODULES = {
    "caffe": {"caffe", "google"},
    "caffe2": {"caffe2", "google", "torch"},
    "jax": {"jax", "jaxlib"},
    "loadgen": {"mlperf_loadgen"},
    "opencv": {"cv2"},
    "pictures": {"PIL"},
    "pytorch": {"torch"},
    "tensorflow": {"h5py", "keras", "tensorflow"},
    "tensorrt": {"tensorrt", "tensorrt_rtx"},
    "tflite": {"ai_edge_litert", "tensorflow"},
    "gpus": {"pynvml"},
    "nvml": {"pynvml"},
    "peaks": {"torch"},
}


def imports_of(path: Path) -> set[str]:
    """Return the top-level modules that a file imports; relative imports are left out."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            imported.add(node.module.partition(".")[0])
    return imported


def test_the_agent_side_imports_only_numpy_its_framework_and_itself() -> None:
    own = {"mlms_predictors", "numpy"}
    for path in sorted((ROOT / "predictors").rglob("*.py")):
        framework = path.stem.lstrip("_").partition("_")[0]
        allowed = MODULES.get(framework, {framework})
        assert imports_of(path) <= own | set(sys.stdlib_module_names) | allowed, path
