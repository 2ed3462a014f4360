"""Every predictor has the functions that the agent calls, with the agreed signatures.

The tables are for mypy, which checks each module against its protocol; no framework is imported.
The tests hold the tables against the files.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mlms_predictors._run.interface import REQUIRED

from tests.support.project import ROOT

if TYPE_CHECKING:
    from mlms_predictors import (
        caffe,
        caffe2,
        cntk,
        jax,
        mxnet,
        oip,
        onnxruntime,
        openai,
        opencv,
        openvino,
        pytorch,
        tensorflow,
        tensorrt,
        tflite,
    )
    from mlms_predictors._run.interface import (
        HasBind,
        HasClose,
        HasDeviceMemory,
        HasDeviceSeconds,
        HasEventTimes,
        HasGenerate,
        HasInner,
        HasLayers,
        HasProfiles,
        HasStructure,
        HasTakesCupti,
        Predictor,
    )

    PREDICTORS: tuple[Predictor, ...] = (
        caffe,
        caffe2,
        cntk,
        jax,
        mxnet,
        oip,
        onnxruntime,
        openai,
        opencv,
        openvino,
        pytorch,
        tensorflow,
        tensorrt,
        tflite,
    )
    BIND: tuple[HasBind, ...] = (
        caffe,
        caffe2,
        cntk,
        jax,
        mxnet,
        oip,
        onnxruntime,
        opencv,
        openvino,
        pytorch,
        tensorflow,
        tensorrt,
        tflite,
    )
    LAYERS: tuple[HasLayers, ...] = (
        caffe,
        caffe2,
        cntk,
        jax,
        mxnet,
        onnxruntime,
        opencv,
        openvino,
        pytorch,
        tensorflow,
        tensorrt,
        tflite,
    )
    PROFILES: tuple[HasProfiles, ...] = (
        onnxruntime,
        tflite,
    )
    TAKES_CUPTI: tuple[HasTakesCupti, ...] = (
        jax,
        pytorch,
        tensorflow,
    )
    INNER: tuple[HasInner, ...] = (
        caffe,
        caffe2,
        cntk,
        mxnet,
        onnxruntime,
        opencv,
        openvino,
        pytorch,
        tensorflow,
        tflite,
    )
    STRUCTURE: tuple[HasStructure, ...] = (
        caffe,
        caffe2,
        cntk,
        mxnet,
        pytorch,
        tensorflow,
        tflite,
    )
    DEVICE_SECONDS: tuple[HasDeviceSeconds, ...] = (pytorch,)
    EVENT_TIMES: tuple[HasEventTimes, ...] = (pytorch,)
    DEVICE_MEMORY: tuple[HasDeviceMemory, ...] = (jax, pytorch, tensorflow)
    GENERATE: tuple[HasGenerate, ...] = (onnxruntime, openai)
    CLOSE: tuple[HasClose, ...] = (
        caffe,
        caffe2,
        jax,
        mxnet,
        oip,
        openai,
        pytorch,
        tensorrt,
    )

TABLES = {
    "bind": "BIND",
    "layers": "LAYERS",
    "profiles": "PROFILES",
    "takes_cupti": "TAKES_CUPTI",
    "inner": "INNER",
    "structure": "STRUCTURE",
    "device_seconds": "DEVICE_SECONDS",
    "event_times": "EVENT_TIMES",
    "device_memory": "DEVICE_MEMORY",
    "generate": "GENERATE",
    "close": "CLOSE",
}
"""The table of the predictors that have a function."""


def table(name: str) -> list[str]:
    """Return the modules of a table, which exists for mypy alone, from this file's text."""
    for node in ast.walk(ast.parse(Path(__file__).read_text())):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            assert isinstance(node.value, ast.Tuple)
            return [ast.unparse(element) for element in node.value.elts]
    raise AssertionError(f"there is no table {name}")


@pytest.mark.parametrize("function", [*REQUIRED, *TABLES])
def test_each_predictor_with_a_function_is_in_the_table_that_mypy_checks(function: str) -> None:
    found = []
    for path in sorted((ROOT / "predictors").glob("[a-z]*.py")):
        names = [
            node.name
            for node in ast.parse(path.read_text()).body
            if isinstance(node, ast.FunctionDef)
        ]
        if function in names:
            found.append(path.stem)
    assert table(TABLES.get(function, "PREDICTORS")) == found
