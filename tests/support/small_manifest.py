"""A small valid manifest, and the errors of changed ones."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_mlms.core.errors import ManifestError
from pytest_mlms.manifest import load

DIGEST = "0123456789abcdef" * 4
FRAMEWORKS = ["onnxruntime", "mxnet"]

MODEL = {"framework": "onnxruntime >=1.17", "graph": "model.onnx", "sha256": DIGEST}
DATASET = {"name": "d", "version": "1.0.0", "source": "d.npz", "sha256": DIGEST}
IMAGE = {"name": "x", "type": "image", "element_type": "float32", "layout": "NCHW"}

_SMALL: dict[str, Any] = {
    "name": "small",
    "version": "1.0.0",
    "task": "image-classification",
    "models": [MODEL],
    "inputs": [{"name": "x", "type": "tensor", "element_type": "float32"}],
    "outputs": [{"name": "y", "type": "classification"}],
}


def small(**changes: Any) -> dict[str, Any]:
    """Return the manifest with some sections changed or added."""
    return {**copy.deepcopy(_SMALL), **changes}


def write(folder: Path, content: object) -> Path:
    """Write a manifest's text, or values as YAML; return its path."""
    text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    path = folder / "m.yaml"
    path.write_text(text)
    return path


def errors_of(folder: Path, content: object) -> list[str]:
    """Return the errors of a manifest that must have some, without its path."""
    path = write(folder, content)
    with pytest.raises(ManifestError) as raised:
        load(path, FRAMEWORKS)
    return [line.removeprefix(f"{path}:") for line in str(raised.value).splitlines()]


def error_of(folder: Path, content: object) -> str:
    """Return the only error of a manifest."""
    (error,) = errors_of(folder, content)
    return error
