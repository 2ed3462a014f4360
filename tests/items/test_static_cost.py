"""Static cost of the model of a case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_mlms.items.item_tracer import static_cost
from pytest_mlms.manifest.load import load
from pytest_mlms.provide.artifacts.fetch import CaseFiles
from pytest_mlms.provide.cases import Case
from tests.support.cases import digits_case
from tests.support.project import DIGITS, copy_digits

ONNX = DIGITS / "digits_cnn.onnx"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A case of a manifest with a local ONNX file."""
    loaded = load(copy_digits(tmp_path / "manifests"))
    return digits_case("trace", loaded=loaded)


def files_of(graph: Path) -> CaseFiles:
    return CaseFiles({"graph": graph}, None, {})


def flops_of(case: Case, graph: Path) -> int:
    cost = static_cost(case, files_of(graph))
    assert cost is not None
    return cost.flops


def test_the_work_is_that_of_the_cases_own_onnx_file(case: Case) -> None:
    cost = static_cost(case, files_of(ONNX))
    assert cost is not None
    assert [layer.type for layer in cost.layers].count("Conv") == 3


def test_the_work_is_for_a_whole_batch(case: Case) -> None:
    larger = replace(case, batch_size=8)
    assert flops_of(larger, ONNX) == 8 * flops_of(replace(case, batch_size=1), ONNX)


def test_another_framework_has_the_work_of_the_manifests_onnx_file(case: Case) -> None:
    symbols = DIGITS / "digits_cnn-symbol.json"
    assert flops_of(case, symbols) == flops_of(case, ONNX) > 0


def test_an_onnx_file_that_cannot_be_read_leaves_the_work_unknown(
    case: Case, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    assert static_cost(case, files_of(broken)) is None


def test_a_manifest_without_a_local_onnx_file_leaves_the_work_unknown(case: Case) -> None:
    remote = {"graph": "https://example.org/net.json"}
    model = case.model.model_copy(update=remote)
    manifest = case.loaded.manifest.model_copy(update={"models": [model]})
    without_onnx = replace(case, loaded=replace(case.loaded, manifest=manifest))
    assert static_cost(without_onnx, files_of(DIGITS / "digits_cnn-symbol.json")) is None
