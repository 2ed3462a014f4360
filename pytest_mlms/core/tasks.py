"""The tasks of machine learning that accuracy is measured for, as manifests are checked by them.

``TASKS`` has ours; other packages add theirs by an entry point. Nothing here imports the code of a
task of ours: ``pytest_mlms.measure.evaluate.scoring`` does that when an item needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, NamedTuple

GROUP = "pytest_mlms.tasks"
"""The group of entry points that add tasks: the name of a task, and its class."""

LabelForm = Literal["class", "text", "array", "mask", "image", "boxes"]
"""The form of the labels of N elements.

- class: an int64 array of N indices of classes
- text: a sequence of N texts
- array: an array with N rows of numbers, or a sequence of N arrays
- mask: a sequence of N arrays, H x W, of the class of each pixel
- image: a sequence of N arrays, H x W x C
- boxes: the boxes of a COCO file

Masks and images of files are read when they are asked for.
"""


class TaskFacts(NamedTuple):
    """The facts of a task that the check of a manifest needs.

    ``labels`` is the form of the label of an input. ``output_types`` are the types of outputs that
    the task scores, of which a manifest has at least one, and ``quantities`` its quantities in
    ``core.quantities``. ``location`` is the task's class as module:class. ``problem`` says why a
    task of another package can't be used.
    """

    labels: LabelForm
    output_types: tuple[str, ...]
    quantities: tuple[str, ...]
    location: str
    problem: str = ""


def _facts(location: str, labels: LabelForm, output_types: str, quantities: str) -> TaskFacts:
    where = f"pytest_mlms.measure.evaluate.tasks.{location}"
    return TaskFacts(labels, tuple(output_types.split()), tuple(quantities.split()), where)


_CLASSIFICATION = _facts(
    "classification:Classification",
    "class",
    "classification",
    "top1 top5 f1_macro precision recall auc average_precision ece",
)
_REGRESSION = _facts("regression:Regression", "array", "tensor", "mae rmse r2 cosine")
_SEGMENTATION = _facts(
    "segmentation:SemanticSegmentation", "mask", "mask", "miou pixel_accuracy dice"
)
_ENHANCEMENT = _facts("enhancement:ImageEnhancement", "image", "image", "psnr ssim ssim_uniform")

TASKS: Mapping[str, TaskFacts] = {
    "image-classification": _CLASSIFICATION,
    "text-classification": _CLASSIFICATION,
    "audio-classification": _CLASSIFICATION,
    "keyword-spotting": _CLASSIFICATION,
    "speech-recognition": _facts(
        "text_task:SpeechRecognition", "text", "text", "wer cer exact_match"
    ),
    "ocr": _facts("text_task:Ocr", "text", "text", "cer wer exact_match"),
    "translation": _facts("text_task:Translation", "text", "text", "bleu chrf"),
    "summarisation": _facts("text_task:Summarisation", "text", "text", "rouge1 rouge2 rouge_l"),
    "question-answering": _facts(
        "question_answering:QuestionAnswering",
        "text",
        "text span_start span_end",
        "exact_match answer_f1",
    ),
    "text-generation": _facts(
        "text_generation:TextGeneration",
        "array",
        "tokens",
        "same_tokens tokens_before_divergence exact_match",
    ),
    "object-detection": _facts(
        "object_detection:ObjectDetection",
        "boxes",
        "boxes scores classes count",
        "ap ap50 ap75 ar100",
    ),
    "instance-segmentation": _facts(
        "object_detection:InstanceSegmentation",
        "boxes",
        "boxes scores classes count masks",
        "mask_ap mask_ap50 mask_ap75 mask_ar100",
    ),
    "regression": _REGRESSION,
    "pitch-estimation": _REGRESSION,
    "embedding": _REGRESSION,
    "semantic-segmentation": _SEGMENTATION,
    "image-enhancement": _ENHANCEMENT,
    "super-resolution": _ENHANCEMENT,
}
"""The tasks of this package, by the name that ``task:`` of a manifest has."""


def facts_of(name: str) -> TaskFacts:
    """Return the facts of a task.

    A name that no task has means a classification, which is measured where the manifest has an
    output of that type.
    """
    return tasks().get(name, _CLASSIFICATION)


@functools.cache
def tasks() -> Mapping[str, TaskFacts]:
    """Return all tasks by name: ours, and those that installed packages add.

    The classes of those are imported, so that their quantities are in the registry.
    """
    found = dict(TASKS)
    for entry in entry_points(group=GROUP):
        if entry.name in TASKS:
            continue  # a package can't change what a task of ours means
        found[entry.name] = _installed(entry)
    return found


def _installed(entry: EntryPoint) -> TaskFacts:
    try:
        task = entry.load()
        return TaskFacts(task.labels, task.output_types, task.quantities, entry.value)
    except Exception as error:  # any may come of another package's code; manifests report it
        reason = f"{entry.value} can't be used: {type(error).__name__}: {error}"
        return TaskFacts("class", (), (), entry.value, reason)
