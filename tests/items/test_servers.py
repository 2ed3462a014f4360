"""Items whose model is on a server: our own portal, which speaks the Open Inference Protocol."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import damaging_proxy
from tests.support.portals import serving
from tests.support.project import Project, copy_digits

pytest.importorskip("fastapi")

PROXY = [sys.executable, damaging_proxy.__file__, "{port}", "{port2}"]


def command(folder: Path, port: str = "port") -> list[str]:
    """Return the words that start a portal, whose locks and cache are its own."""
    words = ["env", f"MLMS_LOCKS={folder / 'locks'}", f"MLMS_CACHE={folder / 'cache'}"]
    words += ["python", "-m", "pytest_mlms", "portal", "--allow-predict"]
    words += [f"--manifests={folder / 'm'}", f"--results={folder / 'results'}"]
    return [*words, f"--listen=127.0.0.1:{{{port}}}"]


@pytest.fixture
def folder(project: Project) -> Path:
    """The folder of the portal, beside that of the project's manifest, whose model it serves."""
    made = project.path / "served"
    made.mkdir()
    (made / "results").mkdir()
    copy_digits(made / "m")
    project.edit("onnxruntime >=1.17", "oip")
    project.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
    project.edit("[single_stream, offline]", "[single_stream]")
    project.set_thresholds("  top1: {min: 90 %}")
    return made


def declare(project: Project, **stacks: dict[str, Any]) -> None:
    entries = {}
    for name, keys in stacks.items():
        options = {"model": "digits.yaml", **keys.pop("options", {})}
        entries[name] = {"framework": "oip", "options": options, **keys}
    (project.folder / "stacks.yaml").write_text(json.dumps(entries))


def test_a_server_is_measured_as_a_model_is(project: Project, folder: Path) -> None:
    declare(project, served={"serve": {"command": command(folder), "timeout": "600 s"}})
    project.run("--mlms-stack=served").assert_outcomes(passed=2)
    accuracy, performance = project.items()
    assert accuracy["estimates"]["top1"]["value"] > 0.95
    assert performance["launch"]["command"][0] == sys.executable
    assert performance["stack"]["declared"]["serve"]["command"][:1] == ["env"]
    estimates = performance["estimates"]
    assert estimates["peak_memory"]["value"] > 32 << 20, "of the server, which has a framework"
    assert "import_memory" not in estimates, "a server is measured as a whole"
    assert estimates["start_time"]["value"] > estimates["load_time"]["value"] > 0


def test_a_limit_on_what_an_endpoint_does_not_tell_stays_undecided(
    project: Project, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never PASSED: a figure of the client would be far below each limit."""
    project.set_thresholds("  peak_memory: {max: 100 GiB}\n  start_time: {max: 1000 s}")
    environment = {"MLMS_LOCKS": str(folder / "locks"), "MLMS_CACHE": str(folder / "cache")}
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        portal = serving(
            folder / "results", "--allow-predict", f"--manifests={folder / 'm'}", token=None
        )
        running = portal.__enter__()
    try:
        declare(project, there={"endpoint": running.origin})
        result = project.run("--mlms-stack=there", "-k", "performance")
    finally:
        portal.__exit__(None, None, None)
    (item,) = project.items()
    assert item["verdict"] == "INCONCLUSIVE"
    result.stdout.fnmatch_lines(
        ["*start_time, peak_memory*undecided: the server was not started here*"]
    )
    told = {"peak_memory", "start_time", "load_time", "memory_growth", "energy_per_input"}
    assert not told & set(item["estimates"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("crash", "*the server was ended by SIGSEGV*"),
        ("500", "*was answered 500 Internal Server Error: out of memory*"),
        ("hang", "*the server gave no answer in 5 s*"),
        ("cut", "*the server closed the connection within its answer*"),
    ],
)
def test_an_upgrade_to_a_server_with_a_fault_is_regressed(
    project: Project, folder: Path, fault: str, expected: str
) -> None:
    def served(fault: str) -> dict[str, Any]:
        words = [*PROXY, fault, *command(folder, "port2")]
        serve = {"command": words, "timeout": "600 s"}
        return {"serve": serve, "options": {"timeout": 5 if fault == "hang" else 60}}

    declare(project, old=served("none"), new=served(fault))
    result = project.run("--mlms-stack=new", "--mlms-against=old")
    result.stdout.fnmatch_lines([expected])
    (item,) = project.items()
    assert item["verdict"] == "REGRESSED"


RUNTIME = """\
import os

import numpy as np
import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Digits(MLModel):
    async def load(self):
        self.session = onnxruntime.InferenceSession(os.environ["GRAPH"])
        return True

    async def predict(self, payload):
        image = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        (logits,) = self.session.run(None, {"image": image})
        outputs = [NumpyCodec.encode_output("logits", logits)]
        return InferenceResponse(model_name=self.name, outputs=outputs)
"""
SETTINGS = {
    "name": "digits",
    "implementation": "runtime.Digits",
    "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}],
    "outputs": [{"name": "logits", "datatype": "FP32", "shape": [-1, 10]}],
}


@pytest.mark.slow(seconds=80)
def test_mlserver_of_an_environment_is_measured(project: Project, folder: Path) -> None:
    """A server that others wrote: its answers are JSON, and its metadata those of its settings."""
    models = project.folder / "models"
    models.mkdir()
    (models / "runtime.py").write_text(RUNTIME)
    (models / "settings.json").write_text('{"parallel_workers": 0}')
    (models / "model-settings.json").write_text(json.dumps(SETTINGS))
    words = ["env", "GRAPH={graph}", f"PYTHONPATH={models}", "MLSERVER_HTTP_PORT={port}"]
    words += ["MLSERVER_GRPC_PORT={port2}", "MLSERVER_METRICS_PORT={port3}", "mlserver", "start"]
    stack = {
        "requirements": ["mlserver==1.7.1", "onnxruntime", "numpy"],
        "serve": {"command": [*words, "./models"], "timeout": "600 s"},
        "options": {"model": "digits"},
    }
    declare(project, mlserver=stack)
    project.run("--mlms-stack=mlserver", "--mlms-cache=cache").assert_outcomes(passed=2)
    accuracy, performance = project.items()
    assert accuracy["estimates"]["top1"]["value"] > 0.95
    assert performance["estimates"]["peak_memory"]["value"] > 32 << 20
    assert performance["device_facts"]["server"] == "mlserver 1.7.1"


def test_a_model_of_a_server_is_skipped_where_no_stack_has_one(
    project: Project, folder: Path
) -> None:
    result = project.run("-rs", "-k", "accuracy")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*stack here has no server of oip; name one that has 'serve'*"])


def test_a_server_for_a_framework_that_asks_none_is_an_error_with_its_line(
    project: Project, folder: Path
) -> None:
    """The framework would run the model by itself, and the server would idle."""
    stack = {"framework": "onnxruntime", "endpoint": "http://127.0.0.1:1"}
    path = project.folder / "stacks.yaml"
    path.write_text(f"a: {json.dumps(stack)}")
    project.manifest.unlink()
    copy = copy_digits(project.path / "again")
    copy.rename(project.manifest)
    for file in copy.parent.iterdir():
        file.replace(project.folder / file.name)
    result = project.run("--mlms-stack=a")
    assert result.ret
    result.stderr.fnmatch_lines(
        ["*stacks.yaml:1: onnxruntime runs models itself, and asks no server*"]
    )
    shown = project.pytester.run(sys.executable, "-m", "pytest_mlms", "lint", "manifests")
    shown.stdout.fnmatch_lines(["*stacks.yaml:1: onnxruntime runs models itself*"])
