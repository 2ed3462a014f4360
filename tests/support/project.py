"""A project folder with the digits manifest, changed as a test needs it, and run for real.

And where things are.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_mlms.records import Launch, Stack
from pytest_mlms.stacks.launch import prepare

ROOT = Path(__file__).parent.parent.parent
DIGITS = ROOT / "manifests" / "digits"
PREDICTORS = Path(__file__).parent / "predictors"
MANIFEST = Path(__file__).parent / "digits.yaml"

QUICK = (
    *("--mlms-processes=1", "--mlms-duration=0.01"),
    *(
        "--mlms-budget=3600",
        "--mlms-timeout=1800",
        "--mlms-worker-timeout=900",
    ),  # nothing ends as a machine is busy
)

MATRIX = """\
name: matrix
version: 1.0.0
task: regression
license: MIT
models: [{{framework: matrix, graph: w.npy, sha256: {digest}, options: {{input: {told}}}}}]
inputs: [{{name: x, type: tensor, element_type: float32}}]
outputs: [{{name: y, type: tensor}}]
"""

DOCUMENTED = set(re.findall(r"`([a-z0-9_]+)`", (ROOT / "docs" / "results.md").read_text()))


def launch(python: str | Path = sys.executable, **facts: Any) -> Launch:
    """Return how to start an agent in an interpreter, as a stack that names it would."""
    return prepare(Stack("test", "any", interpreter=str(python), **facts), Path("no-cache-needed"))


def copy_digits(folder: Path) -> Path:
    """Make a folder with MANIFEST and the files that it names; return the manifest in there."""
    folder.mkdir()
    for path in (
        MANIFEST,
        *(DIGITS / name for name in ("digits_cnn.onnx", "digits_test.npz", "labels.txt")),
    ):
        shutil.copy(path, folder)
    return folder / MANIFEST.name


def write_matrix(folder: Path, told: str = "whole") -> Path:
    """Write the manifest of a product with a matrix, for tests/support/predictors/matrix.py, which
    says what it is made of.
    """
    np.save(folder / "w.npy", np.zeros((3, 5), np.float32))
    digest = hashlib.sha256((folder / "w.npy").read_bytes()).hexdigest()
    path = folder / "m.yaml"
    path.write_text(MATRIX.format(digest=digest, told=told))
    return path


class Project:
    """A folder with manifests/digits.yaml and its files, in which pytest runs in a process of its
    own.
    """

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.folder = self.path / "manifests"
        self.manifest = copy_digits(self.folder)
        pytester.makeini("[pytest]\n")

    def fork(self, name: str) -> Project:
        """Return a project whose manifest is manifests/NAME/digits.yaml, one more for the same run."""
        made = copy.copy(self)
        made.folder = self.path / "manifests" / name
        made.manifest = copy_digits(made.folder)
        return made

    def drop(self) -> None:
        """Remove the manifest and its files: the forks are what runs."""
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
        old = hashlib.sha256((self.folder / name).read_bytes()).hexdigest()
        (self.folder / name).write_bytes(data)
        self.edit(old, hashlib.sha256(data).hexdigest())

    def use_faulty(self, **spec: Any) -> None:
        """Have the predictor in tests/support/predictors/faulty.py do what ``spec`` says, at batch
        size 1, without limits.
        """
        self.edit("onnxruntime >=1.17", "faulty")
        self.replace_file("digits_cnn.onnx", json.dumps(spec).encode())
        self.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
        self.edit("[single_stream, offline]", "[single_stream]")
        self.set_thresholds()

    def set_thresholds(self, text: str = "") -> None:
        """Have these thresholds instead of the manifest's, which a machine that is busy breaks as
        it likes.
        """
        kept = self.manifest.read_text().partition("thresholds:")[0]
        self.manifest.write_text(kept + (f"thresholds:\n{text}\n" if text else ""))

    def run(self, *arguments: str, timeout: float = 3600) -> pytest.RunResult:
        """Run pytest on the manifests, quickly: one process an item, few calls."""
        options = [
            "--mlms-manifests=manifests",
            f"--mlms-predictors={PREDICTORS}",
            *QUICK,
            *arguments,
        ]
        return self.pytester.runpytest_subprocess(*options, timeout=timeout)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the last run's results."""
        text = (self.path / "mlms-results" / "latest" / "results.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def items(self) -> list[dict[str, Any]]:
        """Return the items of the last run's results, whose every field docs/results.md has."""
        items = [line for line in self.lines() if line["type"] == "item"]
        fields = {field for item in items for field in item}
        assert fields <= DOCUMENTED, f"docs/results.md lacks {sorted(fields - DOCUMENTED)}"
        return items
