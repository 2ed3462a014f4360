"""Tests of the text of small models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from pytest_mlms.explain.repro.bundle import Bundle
from pytest_mlms.explain.repro.small_model import SmallModel, small_model
from tests.support.bundles import bundle_of_matrix
from tests.support.varied_models import bundle_of, varied_model

POOL = """
    <ir_version: 8, opset_import: ["" : 13]>
    reduced (float[N, 3, 15, 15] r2) => (float[N, 3, 6, 6] p2)
    <float[3] w = {1, 2, 3}>
    { [pool2] p2 = MaxPool <ceil_mode = 1, kernel_shape = [2, 2]> (r2) }
"""


@pytest.fixture
def pool(tmp_path: Path) -> Bundle:
    path = tmp_path / "pool.onnx"
    onnx.save(parser.parse_model(POOL), str(path))
    return bundle_of(path, {"r2": np.ones((1, 3, 15, 15), np.float32)})


def test_a_small_model_is_told_with_its_attributes_and_without_weights(pool: Bundle) -> None:
    found = small_model(pool)
    assert found.operator == "MaxPool"
    assert found.lines == (
        "opset 13 of ai.onnx",
        "input r2: float32 [1, 3, 15, 15]",
        "weight w: float32 [3]",
        "[pool2] p2 = MaxPool <ceil_mode: int = 1, kernel_shape: ints = [2, 2]> (r2)",
    )


def test_a_large_model_and_one_of_another_format_have_no_text(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    onnx.save(varied_model(), str(path))
    assert small_model(bundle_of(path)) == SmallModel()
    assert small_model(replace(bundle_of_matrix(tmp_path))) == SmallModel()
