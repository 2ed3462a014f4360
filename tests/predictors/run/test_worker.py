"""The agent in every interpreter that the machine has, from Python 3.6 up."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.agent.process import start_agent
from tests.support.project import PREDICTORS, ROOT, launch

VERSIONS = ["3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]
NUMPY = {"3.6": "numpy==1.19.5", "3.7": "numpy==1.21.6", "3.8": "numpy==1.24.4"}

BARE = """
def versions():
    return {"bare": "1.0"}
def devices():
    return ["cpu"]
"""


def interpreter(version: str) -> str:
    """Return the path of an interpreter of that version, from pyenv or the path.

    Skips where there is none.
    """
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    found = [str(path) for root in roots for path in sorted(root.glob(f"{version}.*/bin/python"))]
    found += [path for path in [shutil.which(f"python{version}")] if path]
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


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_an_agent_measures_in_an_interpreter_with_numpy(version: str, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([interpreter(version), "-m", "venv", tmp_path / "venv"], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if version == "3.6":
        subprocess.run(
            [*pip, "pip==21.3.1"], check=True
        )  # the first knows no manylinux2014, the newest no Python 3.6
    subprocess.run([*pip, "--only-binary=:all:", NUMPY.get(version, "numpy")], check=True)
    (tmp_path / "graph").write_text(json.dumps({"answer": 4}))
    agent = start_agent(launch(python), PREDICTORS / "faulty.py", tmp_path / "log", 300)
    agent.request("hello")
    agent.request(
        "load", {"files": {"graph": str(tmp_path / "graph")}, "device": "cpu", "threads": None}
    )
    stop = {"seconds": 0.05, "least": 10, "longest": 600}
    batches = [
        ("image", np.zeros((2, 1, 8, 8), np.float32)),
        ("image", np.ones((2, 1, 8, 8), np.float32)),
    ]
    for scenario in ("single_stream", "offline"):
        facts, arrays = agent.request(
            "run", {"scenario": scenario, "batches": 2, "stop": stop}, batches
        )
        assert len(arrays["start"]) >= 10
        assert (arrays["end"] >= arrays["start"]).all()
        assert arrays["logits"].shape == (2, 10)
        assert facts["peak_rss"] > 1 << 20
    agent.close()


# The modules of frameworks that aren't called as their predictors are, or bring others.
MODULES = {
    "caffe": {"caffe", "google"},
    "caffe2": {"caffe2", "google", "torch"},
    "jax": {"jax", "jaxlib"},
    "opencv": {"cv2"},
    "pytorch": {"torch"},
    "tensorflow": {"keras", "tensorflow"},
    "tensorrt": {"tensorrt", "tensorrt_rtx"},
    "tflite": {"ai_edge_litert", "tensorflow"},
    "nvml": {"pynvml"},
    "peaks": {"torch"},
}


def test_the_agents_side_imports_nothing_but_numpy_its_framework_and_itself() -> None:
    own = {"mlms_predictors", "numpy", ""}
    for path in sorted((ROOT / "predictors").rglob("*.py")):
        imported = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0] if not node.level else "")
        framework = path.stem.lstrip("_").partition("_")[0]
        allowed = MODULES.get(framework, {framework})
        assert imported <= own | set(sys.stdlib_module_names) | allowed, path
