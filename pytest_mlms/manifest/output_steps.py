"""Parameters of the output steps of boxes, masks and images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from pytest_mlms.manifest.sources import is_remote
from pytest_mlms.manifest.types import (
    Closed,
    Layout,
    PerChannel,
    Positive,
    Sha256,
    Short,
    Source,
    as_tuple,
)

Units = Literal["pixels", "relative"]
"""Pixels of the model's input, or shares of its width and height."""

_CORNERS = {"x1", "y1", "x2", "y2"}
_CENTRE = {"cx", "cy", "width", "height"}
_CORNER_AND_SIZE = {"x1", "y1", "width", "height"}
_FORMS = (_CORNERS, _CENTRE, _CORNER_AND_SIZE)

Column = Literal[
    "x1", "y1", "x2", "y2", "cx", "cy", "width", "height", "score", "class", "image", "skip"
]


def _four(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (value,) * 4
    return as_tuple(value)


PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Pair = Annotated[tuple[PositiveFloat, PositiveFloat], Short(as_tuple)]
Grid = Annotated[tuple[Positive, Positive], Short(as_tuple)]
FourScales = Annotated[
    tuple[PositiveFloat, PositiveFloat, PositiveFloat, PositiveFloat],
    Short(_four, {"type": "number", "exclusiveMinimum": 0}),
]


class Boxes(Closed):
    """Read an output of K boxes for each input, with four numbers each.

    ``format`` is their order: two corners, a corner and the size, or the centre and the size.
    """

    format: Literal["xyxy", "yxyx", "xywh", "cxcywh"] = "xyxy"
    units: Units = "pixels"


class Columns(Closed):
    """Read an output of K rows for each input, each a detection with these columns.

    A row whose ``image`` or ``score`` is below 0 is empty. ``skip`` is a column that isn't used.
    """

    names: Annotated[list[Column], Field(min_length=4)]
    units: Units = "pixels"

    @model_validator(mode="after")
    def _check_names(self) -> Columns:
        for name, count in Counter(self.names).items():
            if count > 1 and name != "skip":
                raise ValueError(f"column {name!r} is there twice; write skip for the other one")
        box = set(self.names) - {"score", "class", "image", "skip"}
        if box not in _FORMS:
            forms = "x1, y1, x2, y2, or cx, cy, width, height, or x1, y1, width, height"
            raise ValueError(f"the columns {sorted(box)} are no box; write {forms}")
        return self


class Yolo(Closed):
    """Read the raw output of a YOLO head, whose boxes are centre and size.

    v8 has for each input 4 + C rows of A anchors; v5 has A rows of 4 + 1 + C, and multiplies the
    scores with that of the object. With ``classes: all`` a box is a detection for each class. The
    last ``coefficients`` numbers of a box are those of its mask, as in Ultralytics' models for
    segmentation.
    """

    head: Literal["v5", "v8"] = "v8"
    units: Units = "pixels"
    classes: Literal["best", "all"] = "best"
    coefficients: Annotated[int, Field(ge=0)] = 0


class AnchorLayer(Closed):
    """Anchors at the centre of each cell of a grid of rows x columns.

    ``sizes`` are their widths and heights, as shares of the input's.
    """

    grid: Grid
    sizes: Annotated[list[Pair], Field(min_length=1)]


class Anchors(Closed):
    """Read boxes that are relative to anchors, as SSD has them.

    ``layers`` are those of the anchors, in the order of the output. The first four numbers of each
    are divided by ``scale``: the offset of the centre and the size, as shares of the anchor's
    size, or the logarithm of the size's share. More numbers, as of key points, are not used.
    """

    layers: Annotated[list[AnchorLayer], Field(min_length=1)]
    scale: FourScales = (1.0, 1.0, 1.0, 1.0)
    size: Literal["linear", "exponential"] = "exponential"
    order: Literal["xywh", "yxhw"] = "xywh"


class Sigmoid(Closed):
    """Turn logits into scores of 0 to 1; those beyond ``clip`` are clipped to it first."""

    clip: PositiveFloat | None = None


class DropBackground(Closed):
    """Leave out the scores of the class that is no object; later classes move up by one."""

    index: Annotated[int, Field(ge=0)] = 0


class ClassNumbers(Closed):
    """Take the output as the number of each input's class, as ``predict`` of a classifier gives it.

    Numbers are those of the labels, whole and not negative, of any type.
    """


class Dequantize(Closed):
    """Compute (x - zero_point) * scale, the numbers that those of a quantised output stand for."""

    scale: PositiveFloat
    zero_point: int = 0


class BestClass(Closed):
    """Keep the best class of each box; without this step a box is a detection for each class."""


class MinScore(Closed):
    """Leave out detections with a score below this."""

    score: float


class Nms(Closed):
    """Leave out detections that overlap better ones by more than ``iou``.

    With ``class_aware`` only those of their own class. At most ``most`` are kept, the best ones.
    """

    iou: Share = 0.5
    class_aware: bool = True
    most: Positive = 300


class Classes(Closed):
    """Say which category of the dataset each class of the model is, in the model's order.

    By their ``names``, by a file of names (``labels``, one a line), or by the ``ids`` of the
    categories; ``ids: same`` means that classes are numbered by id. ``null`` is a class whose
    detections are left out, as the background. Without the step, classes are the categories in the
    order of their ids.
    """

    FILES: ClassVar[Mapping[str, str]] = {"labels": "sha256"}

    names: Annotated[list[str | None], Field(min_length=1)] | None = None
    labels: Source | None = None
    sha256: Sha256 | None = None
    ids: Annotated[list[int | None], Field(min_length=1)] | Literal["same"] | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Classes:
        given = [name for name in ("names", "labels", "ids") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "nothing"
            raise ValueError(f"classes says {found}; write one of names, labels and ids")
        if self.labels and is_remote(self.labels) and not self.sha256:
            raise ValueError("labels that are fetched need a digest; write 'sha256: …' beside them")
        return self


class Masks(Closed):
    """Read an output of K masks for each input, one for each of its boxes, in their order.

    The values of a mask are for all of the model's input, or for its box. With ``prototypes`` the
    masks are those of the model, and a box has a coefficient for each: its mask is the sigmoid of
    their sum, within the box. What is at least ``threshold``, once the mask has the size of the
    picture, belongs to the object.
    """

    frame: Literal["input", "box", "prototypes"] = "input"
    threshold: float = 0.5


class Mask(Closed):
    """Say how the classes of labels are numbered, and how a mask gets the size of its label.

    ``ignore`` is the number of the pixels of labels that aren't judged, and ``offset`` is how much
    the labels' numbers are above the model's. ``resize`` takes the nearest pixel, as OpenCV does.
    """

    ignore: int | None = None
    offset: int = 0
    resize: Literal["nearest"] | None = None


class Image(Closed):
    """Compute values x scale + mean, the reverse of the input step normalize, channels last.

    ``layout`` is that of the output, with one number for all channels or one for each.
    """

    layout: Layout = "NCHW"
    mean: PerChannel = (0.0,)
    scale: PerChannel = (1.0,)
