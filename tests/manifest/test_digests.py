"""Digests in the errors of manifests that lack them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_mlms.manifest.digests import found_digests
from tests.support.project import sha256
from tests.support.small_manifest import DATASET, MODEL, error_of, errors_of, small

CONTENT = b"the model"
DIGEST = sha256(CONTENT)
FOUND = f"for model.onnx write 'sha256: {DIGEST}', or let mlms lint --fix write it"
WITHOUT = {"framework": "onnxruntime >=1.17", "graph": "model.onnx"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a manifest and its model."""
    (tmp_path / "model.onnx").write_bytes(CONTENT)
    return tmp_path


@pytest.mark.parametrize(
    "model",
    [
        WITHOUT,
        {**WITHOUT, "sha256": "TODO"},
        {**WITHOUT, "sha256": {"graph": "TODO"}},
        {**WITHOUT, "graph": "model.onnx#inside", "sha256": None},
    ],
    ids=["missing", "placeholder", "by role", "nothing"],
)
def test_a_missing_digest_is_shown_with_that_of_the_file(folder: Path, model: Any) -> None:
    error = error_of(folder, small(models=[model]))
    assert "sha256" in error
    expected = FOUND
    if isinstance(model.get("sha256"), dict):
        expected = FOUND.replace("sha256:", "graph:")
    assert error.endswith(f"; {expected}")


def test_the_digest_of_a_dataset_is_shown_too(folder: Path) -> None:
    dataset = {**DATASET, "source": "model.onnx", "sha256": "1"}
    assert error_of(folder, small(dataset=dataset)).endswith(f"; {FOUND}")


def test_files_that_are_not_there_have_no_digest(folder: Path) -> None:
    for graph in ("other.onnx", "https://example.org/model.onnx"):
        model = {**MODEL, "graph": graph, "sha256": "1"}
        assert "--fix" not in error_of(folder, small(models=[model]))


@pytest.mark.parametrize("graph", ["/proc/self/mem", "http://[x", "x" * 5000, "/dev/zero"])
def test_what_can_not_be_read_has_no_digest(tmp_path: Path, graph: str) -> None:
    model = {"framework": "onnxruntime >=1.17", "graph": graph}
    errors = errors_of(tmp_path, small(models=[model]))
    assert any("'sha256' is missing; write" in error for error in errors)
    assert not any("--fix" in error for error in errors)


def test_an_address_that_is_none_is_an_error(tmp_path: Path) -> None:
    model = {"framework": "onnxruntime >=1.17", "graph": "http://[x", "sha256": "0" * 64}
    error = error_of(tmp_path, small(models=[model]))
    assert "'http://[x' is no address (Invalid IPv6 URL); write a relative path, https://" in error


def test_a_place_that_is_not_in_the_file_has_no_digest(tmp_path: Path) -> None:
    for location in (("models", 0, "onnx", "sha256"), ("models", 3, "sha256"), ("name", "sha256")):
        content = {"name": "x", "models": [{"graph": "a.onnx"}]}
        assert found_digests(location, content, tmp_path) == ""
