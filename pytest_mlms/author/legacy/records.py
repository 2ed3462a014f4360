"""A legacy manifest as typed records, with the line of each key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_mlms.author.legacy.dialects import Dialect
from pytest_mlms.author.legacy.notes import Note


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
