"""A legacy manifest as typed records, with the line of each key.

Its dialect is told by the form of a file and not by its folder. Where it says nothing, the defaults
of MLModelScope's agents hold, by framework and year. Warnings and refusals of a translation have
the line that they are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pytest_mlms.core.errors import ManifestError


class Note(NamedTuple):
    """A warning about a line of a file."""

    line: int
    text: str


class Refused(ManifestError):
    """A manifest that can't be read or translated; ``kind`` is a short reason for tables."""

    def __init__(self, place: object, text: str, kind: str) -> None:
        super().__init__(f"{place}: {text}")
        self.kind = kind


class UnclearManifest(Exception):
    """A reason not to translate a manifest, and its line; the caller knows the file."""

    def __init__(self, line: int, text: str, kind: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text
        self.kind = kind


@dataclass(frozen=True)
class LineOf:
    """The lines of the keys of a section, and its own under ""."""

    lines: Mapping[str, int]

    def __getitem__(self, key: str) -> int:
        return self.lines.get(key, self.lines[""])


@dataclass(frozen=True)
class LegacyFramework:
    """A framework by the name that manifests have for it, and the versions as they are written."""

    name: str
    version: str
    line: LineOf


@dataclass(frozen=True)
class LegacyInput:
    """An input: what the agents made of an image, or a tensor.

    ``layer`` is a name or an index. ``mean`` and ``scale`` are in the order R, G, B, or one number
    for all channels. ``dimensions`` are channels, height, width whatever the layout.
    """

    type: str
    line: LineOf
    layer: str | int | None = None
    element_type: str = ""
    layout: str = ""
    color_mode: str = ""
    dimensions: Sequence[int] = ()
    mean: Sequence[float] = ()
    scale: Sequence[float] = ()
    max_dimension: int | None = None
    keep_aspect_ratio: bool = False
    url: str = ""


@dataclass(frozen=True)
class LegacyOutput:
    """An output, or in the dialects A all outputs together.

    ``layers`` has names or indices by the key that has them, such as ``boxes_layer``; a key that is
    there and empty has "". ``corners`` are the numbers of the columns of ymin, xmin, ymax and
    xmax of a box.
    """

    type: str
    line: LineOf
    layers: Mapping[str, str | int] = field(default_factory=dict)
    element_type: str = ""
    transform: str = ""
    labels: str = ""
    labels_md5: str = ""
    corners: Sequence[int] = ()
    scale_width: float | None = None
    scale_height: float | None = None
    background: int | None = None


@dataclass(frozen=True)
class LegacyFiles:
    """The files of a model: addresses below ``base_url``, or below nothing; members of an archive.

    The digests are md5, "" where there is none.
    """

    line: LineOf
    base_url: str = ""
    graph: str = ""
    graph_md5: str = ""
    weights: str = ""
    weights_md5: str = ""
    is_archive: bool = False
    onnx_url: str = ""
    labels: str = ""
    labels_md5: str = ""


@dataclass(frozen=True)
class LegacyManifest:
    """A legacy manifest. Versions are texts as they are written.

    ``preprocess`` and ``postprocess`` are Python, which is never run. ``claimed`` are the figures
    of accuracy that the file claims. ``has_container`` is True if it names images of containers.
    """

    path: Path
    dialect: Dialect
    name: str
    version: str
    framework: LegacyFramework
    inputs: Sequence[LegacyInput]
    outputs: Sequence[LegacyOutput]
    files: LegacyFiles
    line: LineOf
    description: str = ""
    license: str = ""
    references: Sequence[str] = ()
    is_hidden: bool = False
    modality: str = ""
    preprocess: str = ""
    postprocess: str = ""
    before: str = ""
    training_dataset: str = ""
    claimed: Mapping[str, str] = field(default_factory=dict)
    has_container: bool = False
    notes: Sequence[Note] = ()


Dialect = Literal["A0", "A1", "A2", "A3", "B"]
"""A0: stubs of 2017. A1: agents before 2019. A2, A3: agents of 2019 and 2021. B: Python inside."""

A1_TYPES = ("feature", "coordinates")
"""Types of an output that only agents before 2019 handled."""

REVISED = frozenset(
    {
        "xmin_index",
        "ymin_index",
        "xmax_index",
        "ymax_index",
        "scale_width",
        "scale_height",
        "background_index",
        "before_preprocess",
    }
)
"""Keys of A3 that A2 doesn't have; a file without them is the same in both."""


def dialect_of(content: Any) -> Dialect | None:
    """Return the dialect of the content of a YAML file; None where it is no such manifest."""
    if not isinstance(content, Mapping) or "framework" not in content or "models" in content:
        return None
    if isinstance(content["framework"], str) and ("input" in content or "trained_url" in content):
        return "A0"
    if "outputs" in content:
        return "B"
    if "output" not in content and "model" not in content:
        return None
    output = content.get("output")
    if not isinstance(output, Mapping):
        return "A2"
    if output.get("type") in A1_TYPES:
        return "A1"
    parameters = output.get("parameters")
    keys = set(parameters) if isinstance(parameters, Mapping) else set()
    return "A3" if REVISED & (keys | set(content)) else "A2"


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
