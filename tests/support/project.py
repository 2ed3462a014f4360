"""A project folder with a manifest of the digits model, in which pytest runs in a process."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from pytest_mlms.core.records import Launch, Stack
from pytest_mlms.provide.stacks.launch import prepare

ROOT = Path(__file__).parent.parent.parent
DIGITS = ROOT / "manifests" / "digits"
PREDICTORS = Path(__file__).parent / "predictors"
MANIFEST = Path(__file__).parent / "digits.yaml"
FILES = ("digits_cnn.onnx", "digits_test.npz", "labels.txt")

HANG_GUARD = 900.0
"""Seconds after which a run of a project is ended: many times what it takes on a busy machine."""

QUICK = (
    "--mlms-processes=1",
    "--mlms-duration=0.01",
    # Nothing ends early because the machine is busy.
    "--mlms-budget=600",
    "--mlms-timeout=600",
    "--mlms-worker-timeout=600",
    # Most tests have no thresholds.
    "-Wignore:no limit judges",
)

ALONE = ("-pno:benchmark", "-pno:xdist", "-pno:xdist.looponfail")
"""Options that leave out other plugins, which take as long to import as pytest itself."""

_OF_OTHERS = ("-n", "--tx", "--dist", "--benchmark")
"""How options of these plugins begin."""

_ONE_AFTER_ANOTHER = """
import json
import sys

import pytest

for arguments in json.loads(sys.argv[1]):
    status = pytest.main(arguments)
    print("==", int(status), flush=True)
"""

TWIN = """
from mlms_predictors import onnxruntime
from mlms_predictors.onnxruntime import bind, devices, load, predict

def versions():
    return {**onnxruntime.versions(), "twin": "1.0"}
"""
"""ONNX Runtime as another framework."""

MATRIX = """\
name: matrix
version: 1.0.0
task: regression
license: MIT
models: [{{framework: matrix, graph: w.npy, sha256: {digest}, options: {{input: {shape}}}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: y, type: tensor}}]
"""

DOCUMENTED = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "results.md").read_text()))
"""The words in backticks of docs/results.md, among them every field of the results."""


def sources(*folders: str) -> list[Path]:
    """Return the files in folders of the tree, without what begins with a dot: ``ci/.nox`` has whole environments."""
    found: list[Path] = []
    for name in folders:
        for folder, inner, files in os.walk(ROOT / name):
            inner[:] = [one for one in inner if not one.startswith(".")]
            found += [Path(folder, file) for file in files]
    return sorted(found)


def launch(python: str | Path = sys.executable, **fields: Any) -> Launch:
    """Return how to start an agent in an interpreter; ``fields`` are those of its stack."""
    stack = Stack("test", "any", interpreter=str(python), **fields)
    return prepare(stack, Path("no-cache-needed"))


def copy_digits(folder: Path) -> Path:
    """Make a folder with MANIFEST and the files that it names; return the manifest in there."""
    folder.mkdir()
    shutil.copy(MANIFEST, folder)
    for name in FILES:
        shutil.copy(DIGITS / name, folder)
    return folder / MANIFEST.name


def write_matrix(folder: Path, shape: str = "whole") -> Path:
    """Write a model for tests/support/predictors/matrix.py, and its manifest; return that one.

    ``shape`` is the predictor's option ``input``.
    """
    weights = folder / "w.npy"
    np.save(weights, np.zeros((3, 5), np.float32))
    manifest = folder / "m.yaml"
    manifest.write_text(MATRIX.format(digest=sha256(weights.read_bytes()), shape=shape))
    return manifest


def sha256(data: bytes) -> str:
    """Return the digest that manifests have."""
    return hashlib.sha256(data).hexdigest()


class Project:
    """A folder with manifests/digits.yaml and its files."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.folder = self.path / "manifests"
        self.manifest = copy_digits(self.folder)
        pytester.makeini("[pytest]\n")

    @property
    def results(self) -> Path:
        """The folder of the last run's results."""
        return self.path / "mlms-results" / "latest"

    def fork(self, name: str) -> Project:
        """Add manifests/NAME/digits.yaml to the project; return a project with that manifest."""
        made = copy.copy(self)
        made.folder = self.path / "manifests" / name
        made.manifest = copy_digits(made.folder)
        return made

    def drop(self) -> None:
        """Remove the manifest and its files, so that only forks are left."""
        for path in self.folder.iterdir():
            if path.is_file():
                path.unlink()

    def edit(self, old: str, new: str) -> None:
        """Replace a part of the manifest, which must be there."""
        text = self.manifest.read_text()
        assert old in text
        self.manifest.write_text(text.replace(old, new))

    def replace_file(self, name: str, data: bytes) -> None:
        """Replace a file that the manifest names, and its digest there."""
        path = self.folder / name
        old_digest = sha256(path.read_bytes())
        path.write_bytes(data)
        self.edit(old_digest, sha256(data))

    def use_faulty(self, **spec: Any) -> None:
        """Use tests/support/predictors/faulty.py, which does what ``spec`` says.

        It runs at one batch size and in one scenario, without limits.
        """
        self.edit("onnxruntime >=1.17", "faulty")
        self.replace_file("digits_cnn.onnx", json.dumps(spec).encode())
        self.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
        self.edit("[single_stream, offline]", "[single_stream]")
        self.set_thresholds()

    def set_thresholds(self, text: str = "") -> None:
        """Replace the manifest's thresholds; those of speed would fail on a busy machine."""
        kept, _, _ = self.manifest.read_text().partition("thresholds:")
        if text:
            kept += f"thresholds:\n{text}\n"
        self.manifest.write_text(kept)

    def run(self, *arguments: str, timeout: float = HANG_GUARD) -> pytest.RunResult:
        """Run pytest on the manifests, quickly: one process an item, few calls.

        Other plugins are loaded where an option is theirs.
        """
        options = self._options(arguments)
        return self.pytester.runpytest_subprocess(*options, timeout=timeout)

    def run_in_one_process(self, *runs: Sequence[str], plain: bool = False) -> pytest.RunResult:
        """Run pytest once for each list of arguments, one after another in a process.

        A line "== STATUS" follows each. ``plain`` ones are run without the options of ``run``.
        """
        options = [[*arguments] if plain else self._options(arguments) for arguments in runs]
        command = [sys.executable, "-c", _ONE_AFTER_ANOTHER, json.dumps(options)]
        return self.pytester.run(*command, timeout=HANG_GUARD)

    def _options(self, arguments: Sequence[str]) -> list[str]:
        uses_others = any(str(argument).startswith(_OF_OTHERS) for argument in arguments)
        return [
            "--mlms-manifests=manifests",
            f"--mlms-predictors={PREDICTORS}",
            *QUICK,
            *(() if uses_others else ALONE),
            *arguments,
        ]

    def cut_off(self, items: int) -> None:
        """Leave what a kill would leave of the last run's lines: some items, half of the next."""
        path = self.results / "results.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        whole = lines[: items + 1]
        half = lines[items + 1][:40]
        path.write_text("".join([*whole, half]))

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the last run's results."""
        text = (self.results / "results.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def items(self) -> list[dict[str, Any]]:
        """Return the items of the last run's results; each field must be in docs/results.md."""
        items = [line for line in self.lines() if line["type"] == "item"]
        fields: set[str] = set()
        for item in items:
            fields.update(item)
        missing = sorted(fields - DOCUMENTED)
        assert not missing, f"docs/results.md does not have {missing}"
        return items


class Ran(NamedTuple):
    """A project, and a run of it."""

    project: Project
    result: pytest.RunResult


class SharedRuns:
    """Runs that several tests only read; the first of these makes each."""

    def __init__(self) -> None:
        self._made: dict[Callable[[Project], pytest.RunResult], Ran] = {}

    @property
    def folders(self) -> list[Path]:
        """The folders of the projects that runs were made of."""
        return [ran.project.path for ran in self._made.values()]

    def of(self, run: Callable[[Project], pytest.RunResult], project: Project) -> Ran:
        """Return what ``run`` made of an earlier test's project, or else makes of this one."""
        if run not in self._made:
            self._made[run] = Ran(project, run(project))
        return self._made[run]
