"""The worst inputs of an item of accuracy, kept for people to look at once the dataset is away.

worst.json has what was expected and predicted, with the waveform of sounds, and worst-01.png … are
thumbnails of pictures.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.text import shortened, visible
from pytest_mlms.measure.evaluate.tasks.task import BoxMark, MaskPair
from pytest_mlms.measure.evaluate.worst_inputs import largest_losses
from pytest_mlms.measure.pipeline.coco import CocoLabels
from pytest_mlms.measure.pipeline.pictures import as_image, decode_picture
from pytest_mlms.show.pages.examples import WORST, Example, Examples
from pytest_mlms.show.report.mask_pictures import draw_masks
from pytest_mlms.show.report.waveforms import waveform_of

if TYPE_CHECKING:
    from pytest_mlms.keep.results.recorder import Recorder
    from pytest_mlms.measure.evaluate.tasks.task import Evidence
    from pytest_mlms.measure.pipeline import Dataset

_MOST = 12  # inputs
_MOST_BOXES = 40  # of an input
_MOST_COLUMNS = 12
_LONGEST_VALUE = 200  # characters
_LONGEST_TEXT = 1000  # characters
_SIDE = 128  # pixels of a thumbnail
_SMALL = 64  # pixels: smaller pictures are kept exactly
_DARK = 64  # shade: pictures without a lighter pixel are stretched


def keep_worst_examples(recorder: Recorder, evidence: Evidence, dataset: Dataset) -> None:
    """Keep the inputs with the largest losses; nothing where no input is wrong."""
    losses = np.nan_to_num(evidence.losses, nan=np.inf)
    worst = largest_losses(losses, _MOST)
    if not worst:
        return
    maker = _Maker(recorder, evidence, dataset)
    examples = [maker.example(rank, index) for rank, index in enumerate(worst, 1)]
    wrong = int((losses > 0).sum())
    found = Examples(len(evidence), wrong, tuple(examples))
    text = json.dumps(to_plain(found), indent=1)
    recorder.keep(WORST, lambda path: write_atomically(path, text))


class _Maker:
    """Makes examples, and keeps their thumbnails."""

    def __init__(self, recorder: Recorder, evidence: Evidence, dataset: Dataset) -> None:
        self._recorder = recorder
        self._evidence = evidence
        self._dataset = dataset
        self._columns = evidence.columns()
        self._losses = evidence.losses

    def example(self, rank: int, index: int) -> Example:
        """Return the example of an input."""
        picture = self._picture(index)
        masks = self._evidence.masks_on(index)
        loss = float(self._losses[index])
        return Example(
            input=index,
            name=visible(self._name(index)),
            loss=loss if np.isfinite(loss) else None,
            columns=_cells(self._columns, index),
            picture=self._keep(rank, picture, masks),
            has_masks=masks is not None,
            has_instances=masks is not None and masks.are_instances,
            boxes=self._boxes(index, picture),
            texts=self._texts(index),
            waveform=waveform_of(self._dataset, index),
        )

    def _name(self, index: int) -> str:
        files = self._dataset.files
        return f"row {index}" if files is None else files[index]

    def _picture(self, index: int) -> Image.Image | None:
        """Return the picture before any step; None for an input that is none."""
        for spec in self._dataset.inputs:
            if spec.type == "image":
                decode = spec.steps[0].decode if spec.steps else None
                element = self._dataset.elements[spec.name][index]
                upright = decode is not None and decode.orientation == "exif"
                return _opened(element, upright)
        return None

    def _keep(self, rank: int, picture: Image.Image | None, masks: MaskPair | None) -> str:
        """Keep a thumbnail, and return the name of its artifact; "" where there is none."""
        shown = picture if masks is None else draw_masks(picture, masks)
        if shown is None:
            return ""
        is_small = max(shown.size) <= _SMALL or masks is not None
        name = f"worst-{rank:02}.{'png' if is_small else 'jpg'}"
        thumbnail = shown.convert("RGB")
        thumbnail.thumbnail((_SIDE, _SIDE))
        self._recorder.keep(name, lambda path: thumbnail.save(path, quality=82))
        return name

    def _boxes(self, index: int, picture: Image.Image | None) -> tuple[BoxMark, ...]:
        labels = self._dataset.labels
        if picture is None or not isinstance(labels, CocoLabels):
            return ()
        objects = self._dataset.label(index)
        marks = []
        for box, category in zip(objects.boxes.tolist(), objects.categories, strict=True):
            name = labels.categories[category].name
            marks.append(BoxMark("label", name, None, tuple(box)))
        marks += self._evidence.boxes_on(index)
        return tuple(_in_shares(mark, picture) for mark in marks[:_MOST_BOXES])

    def _texts(self, index: int) -> dict[str, str] | None:
        texts = {}
        for spec in self._dataset.inputs:
            if spec.takes_text:
                element = self._dataset.elements[spec.name][index]
                parts = element if isinstance(element, tuple) else (element,)
                text = " | ".join(map(str, parts))
                texts[spec.name] = visible(shortened(text, _LONGEST_TEXT))
        return texts or None


def _cells(columns: Mapping[str, Sequence[Any]], index: int) -> dict[str, str]:
    cells = {}
    for name, values in list(columns.items())[:_MOST_COLUMNS]:
        value = values[index]
        text = f"{value:.6g}" if isinstance(value, float) else str(value)
        cells[name] = visible(shortened(text, _LONGEST_VALUE))
    return cells


def _opened(element: Any, upright: bool) -> Image.Image | None:
    """Return an element as a picture; None for what can't be shown as one."""
    try:
        if isinstance(element, bytes):
            return decode_picture(element, upright)
        return _image_of(as_image(element))
    except (MlmsError, ValueError, TypeError):
        return None


def _image_of(pixels: Any) -> Image.Image | None:
    """Return an array of H x W x C, or C x H x W, as a picture that uses all shades of grey."""
    channels = (1, 3)
    if pixels.shape[2] not in channels and pixels.shape[0] in channels:
        pixels = np.moveaxis(pixels, 0, 2)
    if pixels.shape[2] not in channels or not np.isfinite(pixels).all():
        return None
    if pixels.dtype != np.uint8 or pixels.max() < _DARK:
        pixels = _stretched(pixels)
    if pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    return Image.fromarray(pixels)


def _stretched(pixels: Any) -> Any:
    """Return pixels from 0, the least, to 255, the greatest."""
    least = pixels.min()
    span = float(pixels.max() - least) or 1.0
    shades = 255 * (pixels.astype(np.float64) - least) / span
    return shades.astype(np.uint8)


def _in_shares(mark: BoxMark, picture: Image.Image) -> BoxMark:
    left, top, width, height = mark.box
    across, down = picture.size
    box = (
        round(left / across, 4),
        round(top / down, 4),
        round(width / across, 4),
        round(height / down, 4),
    )
    return mark._replace(box=box, name=visible(shortened(mark.name, 60)))
