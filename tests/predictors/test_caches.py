"""Caches of real compilers: each framework keeps its work in the folder that it is told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run.options import caches_of

from tests.support.frameworks import Framework, stack_launch
from tests.support.project import DIGITS, ROOT

PREDICTORS = ROOT / "predictors"
FILES = {"openvino": "digits_cnn.onnx", "jax": "digits_cnn.jax", "pytorch": "digits_cnn.pt2"}
OPTIONS: dict[str, dict[str, Any]] = {"pytorch": {"mode": "compile"}}


def run_once(name: str, caches: Path, log: Path) -> dict[str, int]:
    """Run a batch in a fresh process that keeps its caches in a folder; return the files there."""

    def filled(part: str) -> dict[str, str]:
        texts = caches_of(PREDICTORS / f"{name}.py").get(part, {})
        return {key: text.replace("{caches}", str(caches)) for key, text in texts.items()}

    launch = stack_launch(name, 1)
    framework = Framework(replace(launch, env={**launch.env, **filled("env")}), name, log)
    try:
        options = {**OPTIONS.get(name, {}), **filled("options")}
        framework.load_files({"graph": DIGITS / FILES[name]}, options=options)
        framework.check()
    finally:
        framework.agent.close()
    files = [path for path in caches.rglob("*") if path.is_file()]
    return {str(path.relative_to(caches)): path.stat().st_mtime_ns for path in files}


@pytest.mark.slow(seconds=50)
@pytest.mark.parametrize("name", FILES)
def test_a_second_process_finds_what_the_first_one_compiled(name: str, tmp_path: Path) -> None:
    if name == "pytorch" and not shutil.which("g++"):
        pytest.skip("torch.compile needs a C++ compiler, and there is no g++")
    caches = tmp_path / "caches"
    caches.mkdir()
    first = run_once(name, caches, tmp_path / "log")
    assert first, "the framework kept nothing"
    second = run_once(name, caches, tmp_path / "log")
    written = {path for path in second if second[path] != first.get(path)}
    assert len(written) < len(first) / 2, written


def test_only_known_frameworks_have_caches() -> None:
    declared = {path.stem for path in PREDICTORS.glob("[a-z]*.py") if caches_of(path)}
    assert declared == {"jax", "onnxruntime", "openvino", "pytorch", "tensorrt"}
