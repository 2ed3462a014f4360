"""What the tests share: a project folder with the digits manifest, changed as a test needs it, and run for real."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "manifests" / "digits"
PREDICTORS = Path(__file__).parent / "predictors"


class Project:
    """A folder with manifests/digits.yaml and its files, in which pytest runs in a process of its own."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.folder = self.path / "manifests"
        self.manifest = self.folder / "digits.yaml"
        shutil.copytree(DIGITS, self.folder, ignore=shutil.ignore_patterns("train.py", "__pycache__"))
        pytester.makeini("[pytest]\n")

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
        """Have the predictor in tests/predictors/faulty.py do what ``spec`` says, at batch size 1, without limits."""
        self.edit("onnxruntime >=1.17", "faulty")
        self.replace_file("digits_cnn.onnx", json.dumps(spec).encode())
        self.edit("batch_sizes: [1, 8, 64]", "batch_sizes: [8]")
        self.edit("[single_stream, offline]", "[single_stream]")
        text = self.manifest.read_text()
        self.manifest.write_text(text[: text.index("thresholds:")])

    def run(self, *arguments: str, timeout: float = 120) -> pytest.RunResult:
        """Run pytest on the manifests, quickly: one process an item, few calls."""
        quick = ["--mlms-processes=1", "--mlms-duration=0.01", "--mlms-budget=10"]
        options = ["--mlms-manifests=manifests", f"--mlms-predictors={PREDICTORS}", *quick, *arguments]
        return self.pytester.runpytest_subprocess(*options, timeout=timeout)

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines of the last run's results."""
        text = (self.path / "mlms-results" / "latest" / "results.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def items(self) -> list[dict[str, Any]]:
        """Return the items of the last run's results."""
        return [line for line in self.lines() if line["type"] == "item"]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return Project(pytester)
