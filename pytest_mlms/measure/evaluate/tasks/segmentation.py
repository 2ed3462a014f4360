"""Semantic segmentation: the class of each pixel or voxel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.output_steps import Mask
from pytest_mlms.measure.evaluate.tasks.labels import (
    in_shape,
    labels_of,
    number_texts,
    resized_mask,
)
from pytest_mlms.measure.evaluate.tasks.task import (
    ClassCounts,
    Evidence,
    MaskPair,
    Scorer,
    Task,
    WorstMasks,
)
from pytest_mlms.measure.pipeline.outputs import steps_done

if TYPE_CHECKING:
    from pytest_mlms.manifest.schema import Output
    from pytest_mlms.measure.pipeline import Dataset

_MOST_CLASSES = 10_000


class SemanticSegmentation(Task):
    """The first mask, a class for each pixel, against the label's."""

    def scorer(self, outputs: Sequence[Output], dataset: Dataset) -> Scorer:
        """Return a scorer; raises DatasetError for a dataset without labels."""
        return SegmentationScorer(outputs[0], dataset)


class SegmentationScorer(Scorer):
    """Collector of the pixels of each class: in the label, in the output, and in both."""

    def __init__(self, output: Output, dataset: Dataset) -> None:
        self._output = output
        self._dataset = dataset
        self._labels = labels_of(dataset, "the class of each pixel")
        self._parameters = _parameters(output)
        self._pixels: list[Array] = []
        self._worst = WorstMasks()

    def add(self, outputs: Mapping[str, Array], inputs: range) -> None:
        """Take the masks of a batch.

        Raises OutputError for masks that aren't of classes, and DatasetError for labels of another
        size, and with classes that the model hasn't.
        """
        values = outputs[self._output.name]
        classes = _classes(values, self._output)
        masks = steps_done(values, self._output)
        for mask, index in zip(masks, inputs, strict=True):
            label = np.asarray(self._dataset.label(index))
            fitting = self._mask(np.asarray(mask), label, index)
            self._pixels.append(self._count(fitting, label, index, classes))

    def evidence(self) -> SegmentationEvidence:
        """Return the evidence of all inputs."""
        classes = max(len(counts[0]) for counts in self._pixels)
        pixels = np.zeros((len(self._pixels), 3, classes))
        for counts, found in zip(pixels, self._pixels, strict=True):
            counts[:, : found.shape[1]] = found
        return SegmentationEvidence(pixels, self._worst.kept())

    def _mask(self, mask: Array, label: Array, index: int) -> Array:
        """Return the mask of an input in the shape of its label."""
        name = self._output.name
        if mask.dtype.kind not in "biu":
            advice = "add a step 'argmax' over the axis of the classes, or 'threshold'"
            raise OutputError(f"output {name!r} has {mask.dtype}, not classes of pixels; {advice}")
        mask = in_shape(mask, label.shape)
        if self._parameters.resize == "nearest":
            mask = resized_mask(mask, label.shape)
        if mask.shape != label.shape:
            found = f"the label is {label.shape}, and output {name!r} {mask.shape}"
            advice = "add the step 'mask: {resize: nearest}', or resize the label to that"
            raise self._dataset.label_error(index, f"{found}; {advice}")
        return mask

    def _count(self, mask: Array, label: Array, index: int, classes: int | None) -> Array:
        """Return the pixels of the label, of the mask and of both (3 x classes)."""
        counted = np.ones(label.shape, bool)
        if self._parameters.ignore is not None:
            counted = label != self._parameters.ignore
        truth = label[counted].astype(np.int64) - self._parameters.offset
        found = mask[counted].astype(np.int64)
        of_label = _ClassRange.of(truth)
        of_mask = _ClassRange.of(found)
        most = classes or _MOST_CLASSES
        if not of_label.is_within(most):
            raise self._dataset.label_error(index, self._wrong_label(of_label.wrong, classes))
        if not of_mask.is_within(most):
            place = self._dataset.place(index)
            raise OutputError(f"{place}: {self._wrong_output(of_mask.wrong)}")
        size = max(of_label.high, of_mask.high) + 1
        is_right = found == truth
        both = found[is_right]
        loss = 1 - float(is_right.mean()) if len(found) else 0.0
        shown = np.where(counted, label.astype(np.int64) - self._parameters.offset, -1)
        self._worst.offer(loss, index, MaskPair(shown, mask))
        return np.array([np.bincount(of, minlength=size) for of in (truth, found, both)])

    def _wrong_label(self, wrong: int, classes: int | None) -> str:
        label = wrong + self._parameters.offset
        known = f"the model has {classes} from 0" if classes else "classes are numbered from 0"
        advice = f"write a step 'mask: {{ignore: {label}}}', or 'mask: {{offset: …}}'"
        return f"the label has class {label}, and {known}; {advice}"

    def _wrong_output(self, wrong: int) -> str:
        found = f"output {self._output.name!r} has class {wrong}"
        known = f"classes are numbered from 0 to {_MOST_CLASSES - 1}"
        return f"{found}, and {known}; name the output that has the classes of pixels"


class _ClassRange(NamedTuple):
    """The lowest and the highest of some classes; 0 is always within."""

    low: int
    high: int

    @classmethod
    def of(cls, classes: Array) -> _ClassRange:
        low = classes.min(initial=0)
        return cls(int(low), int(classes.max(initial=0)))

    def is_within(self, count: int) -> bool:
        return self.low >= 0 and self.high < count

    @property
    def wrong(self) -> int:
        """The one that is wrong, of a range that isn't within the known classes."""
        return self.low if self.low < 0 else self.high


def _parameters(output: Output) -> Mask:
    for step in output.steps:
        if isinstance(step.parameters, Mask):
            return step.parameters
    return Mask()


def _classes(values: Array, output: Output) -> int | None:
    """Return how many classes the axis has that argmax is taken over; None where there is none."""
    for step in output.steps:
        if step.name == "argmax":
            return int(values.shape[step.parameters.axis])
    return None


class SegmentationEvidence(Evidence):
    """The pixels of each class in each input: of the label, the output, and both (N x 3 x C).

    ``masks`` has the worst inputs' masks by their number.
    """

    def __init__(self, pixels: Array, masks: Mapping[int, MaskPair] | None = None) -> None:
        self._pixels = pixels
        self._masks = masks or {}

    def __len__(self) -> int:
        return len(self._pixels)

    def figures(self, counts: Array) -> dict[str, Array]:
        """Return the means over classes of both / either and of 2 both / (label + output).

        These are Jaccard's index and Dice's coefficient. A class counts in a sample that has it.
        """
        size, _, classes = self._pixels.shape
        flat = self._pixels.reshape(size, 3 * classes)
        sums = counts @ flat
        return _figures(sums.reshape(len(counts), 3, classes))

    @property
    def losses(self) -> Array:
        """The share of each input's pixels that is wrong."""
        right = _figures(self._pixels)["pixel_accuracy"]
        return np.asarray(1 - np.nan_to_num(right, nan=1.0))

    def by_class(self) -> list[ClassCounts]:
        """Return the pixels of each class that is a label or was found."""
        label, found, both = self._pixels.sum(axis=0).astype(np.int64).tolist()
        counts = []
        for number, labelled in enumerate(label):
            if labelled or found[number]:
                wrong = found[number] - both[number]
                counts.append(ClassCounts(str(number), labelled, both[number], wrong))
        return counts

    def masks_on(self, index: int) -> MaskPair | None:
        """Return the masks of one of the worst inputs."""
        return self._masks.get(index)

    def columns(self) -> dict[str, Sequence[Any]]:
        """Return the quantities of each input by itself, and its worst class."""
        columns: dict[str, Sequence[Any]] = {}
        for name, values in _figures(self._pixels).items():
            columns[name] = number_texts(values)
        label, output, both = np.moveaxis(self._pixels, 1, 0)
        missed = label + output - 2 * both
        columns["worst_class"] = missed.argmax(axis=1).tolist()
        return columns


def _figures(pixels: Array) -> dict[str, Array]:
    """Return the quantities of R sums of pixels (R x 3 x classes); NaN where there are none."""
    label, output, both = np.moveaxis(pixels, 1, 0)
    either = label + output - both
    is_present = either > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        iou = np.where(is_present, both / either, 0)
        dice = np.where(is_present, 2 * both / (label + output), 0)
        classes = is_present.sum(axis=1)
        return {
            "miou": iou.sum(axis=1) / classes,
            "pixel_accuracy": both.sum(axis=1) / label.sum(axis=1),
            "dice": dice.sum(axis=1) / classes,
        }
