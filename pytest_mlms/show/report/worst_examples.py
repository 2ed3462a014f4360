"""The worst inputs of an item of accuracy, kept for people to look at once the dataset is away.

worst.json has what was expected and predicted, with the waveform of sounds, and worst-01.png … are
thumbnails of pictures.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import write_atomically
from pytest_mlms.core.serialization import to_plain
from pytest_mlms.core.text import shortened, visible
from pytest_mlms.measure.evaluate.scoring import largest_losses
from pytest_mlms.measure.evaluate.tasks.task import BoxMark, MaskPair
from pytest_mlms.measure.pipeline.coco import CocoLabels
from pytest_mlms.measure.pipeline.shown import COLOURS, picture_of
from pytest_mlms.measure.pipeline.sounds import read_sounds
from pytest_mlms.show.pages.examples import WORST, Example, Examples, Waveform

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

_COLOURED = 0.55  # share of the colour in a pixel that is marked
_KEPT = 0.45  # share of the picture in it
_RIGHT = (20, 160, 70)
_WRONG = (220, 30, 40)
_LABEL = (255, 214, 10)
_COLUMNS = 120
_LOUDEST = 1.0


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
        picture = picture_of(self._dataset, index)
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
                parts = element if isinstance(element, tuple) else np.ravel(element).tolist()
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


def draw_masks(picture: Image.Image | None, masks: MaskPair) -> Image.Image:
    """Return a picture with its masks; without the picture where that has another shape.

    Instances have a colour for each detection, and a yellow outline for each object of the labels.
    Other masks have wrong pixels in red, and right ones of objects (not 0) in green.
    """
    height, width = masks.label.shape
    pixels = _grey(picture, (width, height))
    if masks.are_instances:
        _mark_instances(pixels, masks)
    else:
        _mark_pixels(pixels, masks)
    return Image.fromarray(pixels.astype(np.uint8))


def _mark_instances(pixels: Any, masks: MaskPair) -> None:
    colours = itertools.cycle(COLOURS)
    last = int(masks.found.max(initial=0))
    for number in range(1, last + 1):
        _tint(pixels, masks.found == number, next(colours))
    pixels[_outlines(masks.label)] = _LABEL


def _mark_pixels(pixels: Any, masks: MaskPair) -> None:
    is_counted = masks.label >= 0
    is_same = masks.label == masks.found
    is_object = masks.label > 0
    _tint(pixels, is_object & is_same, _RIGHT)
    _tint(pixels, is_counted & ~is_same, _WRONG)


def _outlines(numbers: Any) -> Any:
    """Return the pixels of objects (H x W) beside which another object or none begins."""
    padded = np.pad(numbers, 1)
    centre = padded[1:-1, 1:-1]
    beside = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    differs = np.zeros(numbers.shape, bool)
    for neighbour in beside:
        differs |= neighbour != centre
    return differs & (numbers > 0)


def _tint(pixels: Any, chosen: Any, colour: tuple[int, int, int]) -> None:
    """Mix a colour into chosen pixels of a picture (H x W x 3), in place."""
    pixels[chosen] = _KEPT * pixels[chosen] + _COLOURED * np.array(colour)


def _grey(picture: Image.Image | None, size: tuple[int, int]) -> Any:
    """Return a picture of this size without colours; even grey for one of another shape."""
    width, height = size
    if picture is None or not _have_one_shape(picture.size, size):
        return np.full((height, width, 3), 128.0)
    grey = picture.convert("L").convert("RGB")
    return np.array(grey.resize(size), np.float64)


def _have_one_shape(first: tuple[int, int], second: tuple[int, int]) -> bool:
    """Return whether two sizes have about the same ratio of their sides."""
    width, height = first
    other_width, other_height = second
    ratio = (width * other_height) / (height * other_width)
    return abs(ratio - 1) < 0.05


def waveform_of(dataset: Dataset, index: int) -> Waveform | None:
    """Return the sound of an input; None for an input without one, and for one that is broken."""
    for spec in dataset.inputs:
        if spec.type == "audio":
            element = dataset.elements[spec.name][index]
            try:
                (samples,) = read_sounds([element], spec)
            except MlmsError:
                return None
            return _waveform(samples, spec.sample_rate or 1)
    return None


def _waveform(samples: NDArray[Any], rate: int) -> Waveform | None:
    """Return the least and the greatest sample of each of the columns; None without samples."""
    if not samples.size:
        return None
    loudness = np.clip(np.nan_to_num(samples), -_LOUDEST, _LOUDEST)
    columns = np.array_split(loudness, min(_COLUMNS, loudness.size))
    lows = tuple(round(float(column.min()), 3) for column in columns)
    highs = tuple(round(float(column.max()), 3) for column in columns)
    return Waveform(samples.size / rate, lows, highs)
