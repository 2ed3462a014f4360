"""The tasks of machine learning that accuracy is measured for, as manifests are checked by them.

``TASKS`` has ours; other packages add theirs by an entry point. Nothing here imports the code of a
task of ours: ``pytest_mlms.measure.evaluate.tasks.registry`` does that when an item needs it.
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

    ``labels``, ``output_types`` and ``quantities`` are those of the task's class, ``location`` is
    that class as module:class, and ``problem`` says why a task of another package can't be used.
    """

    labels: LabelForm
    output_types: tuple[str, ...]
    quantities: tuple[str, ...]
    location: str
    problem: str = ""


_CLASSIFICATION = TaskFacts(
    labels="class",
    output_types=("classification",),
    quantities=("top1", "top5", "f1_macro"),
    location="pytest_mlms.measure.evaluate.tasks.classification:Classification",
)


def _of_text(quantities: tuple[str, ...], location: str) -> TaskFacts:
    """Return the facts of a task whose outputs and labels are texts."""
    return TaskFacts(
        "text", ("text",), quantities, f"pytest_mlms.measure.evaluate.tasks.{location}"
    )


_REGRESSION = TaskFacts(
    labels="array",
    output_types=("tensor",),
    quantities=("mae", "rmse", "r2", "cosine"),
    location="pytest_mlms.measure.evaluate.tasks.regression:Regression",
)

_SEGMENTATION = TaskFacts(
    labels="mask",
    output_types=("mask",),
    quantities=("miou", "pixel_accuracy", "dice"),
    location="pytest_mlms.measure.evaluate.tasks.segmentation:SemanticSegmentation",
)

_ENHANCEMENT = TaskFacts(
    labels="image",
    output_types=("image",),
    quantities=("psnr", "ssim", "ssim_uniform"),
    location="pytest_mlms.measure.evaluate.tasks.enhancement:ImageEnhancement",
)

TASKS: Mapping[str, TaskFacts] = {
    "image-classification": _CLASSIFICATION,
    "text-classification": _CLASSIFICATION,
    "audio-classification": _CLASSIFICATION,
    "keyword-spotting": _CLASSIFICATION,
    "speech-recognition": _of_text(
        ("wer", "cer", "exact_match"), "speech_recognition:SpeechRecognition"
    ),
    "ocr": _of_text(("cer", "wer", "exact_match"), "ocr:Ocr"),
    "translation": _of_text(("bleu", "chrf"), "translation:Translation"),
    "summarisation": _of_text(("rouge1", "rouge2", "rouge_l"), "summarisation:Summarisation"),
    "question-answering": TaskFacts(
        labels="text",
        output_types=("text", "span_start", "span_end"),
        quantities=("exact_match", "answer_f1"),
        location="pytest_mlms.measure.evaluate.tasks.question_answering:QuestionAnswering",
    ),
    "text-generation": TaskFacts(
        labels="array",
        output_types=("tokens",),
        quantities=("same_tokens", "tokens_before_divergence", "exact_match"),
        location="pytest_mlms.measure.evaluate.tasks.text_generation:TextGeneration",
    ),
    "object-detection": TaskFacts(
        labels="boxes",
        output_types=("boxes", "scores", "classes", "count"),
        quantities=("ap", "ap50", "ap75", "ar100"),
        location="pytest_mlms.measure.evaluate.tasks.object_detection:ObjectDetection",
    ),
    "instance-segmentation": TaskFacts(
        labels="boxes",
        output_types=("boxes", "scores", "classes", "count", "masks"),
        quantities=("mask_ap", "mask_ap50", "mask_ap75", "mask_ar100"),
        location="pytest_mlms.measure.evaluate.tasks.instance_segmentation:InstanceSegmentation",
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

    A name that no task has is that of a classification, which is measured where the manifest has an
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
