"""Defaults of MLModelScope's agents, by framework and year, where a manifest says nothing."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_mlms.author.legacy.dialects import Dialect

FRAMEWORKS = {
    "tensorflow": "TensorFlow",
    "mxnet": "MXNet",
    "pytorch": "PyTorch",
    "caffe": "Caffe",
    "caffe2": "Caffe2",
    "cntk": "CNTK",
    "tensorrt": "TensorRT",
    "onnxruntime": "ONNX Runtime",
}
"""Predictor, which is the name in legacy manifests in small letters -> the name for tables."""


@dataclass(frozen=True)
class Pixels:
    """The order of colours and of axes of an agent; a fixed one ignores what a manifest says."""

    color: str
    layout: str
    is_fixed: bool = False


_SINCE_2019 = Pixels("RGB", "HWC")
_BEFORE_2019 = {
    "mxnet": Pixels("RGB", "CHW", is_fixed=True),
    "caffe": Pixels("BGR", "CHW", is_fixed=True),
    "caffe2": Pixels("BGR", "CHW", is_fixed=True),
    "tensorrt": Pixels("BGR", "CHW", is_fixed=True),
    "cntk": Pixels("BGR", "CHW"),  # its agent's HWC contradicts CNTK's own arrays
    "tensorflow": Pixels("RGB", "HWC"),
}
"""Source: predict.go of each agent in rai-project, and its common code dlframework."""


def pixels_of(dialect: Dialect, framework: str) -> Pixels:
    """Return the defaults of the agent that ran manifests of a dialect."""
    if dialect != "A1":
        return _SINCE_2019
    return _BEFORE_2019.get(framework, _SINCE_2019)
