"""Checks of the outputs that objects are read from: their types, and the steps of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_mlms.manifest.box_steps import Columns
from pytest_mlms.manifest.schema import Output
from pytest_mlms.manifest.yaml12 import Path

Error = tuple[Path, str]

_READERS = ("boxes", "columns", "yolo", "anchors")
"""Steps that say what the numbers of an output of type boxes are."""

_STEPS: Mapping[str, tuple[str, ...]] = {
    "boxes": (*_READERS, "min_score", "nms", "classes"),
    "scores": ("sigmoid", "softmax", "drop_background", "best_class"),
    "classes": (),
    "count": (),
    "masks": ("masks",),
}
"""Types of outputs that objects are read from -> the steps that they may have."""


def box_output_errors(outputs: Sequence[Output]) -> Iterator[Error]:
    """Yield what is wrong with outputs of these types: the path of a key, and a text, for each."""
    seen: set[str] = set()
    for number, output in enumerate(outputs):
        if output.type not in _STEPS:
            continue
        path = ("outputs", number)
        if output.type in seen:
            yield path, f"there are two outputs of type {output.type}; keep one"
        seen.add(output.type)
        for place, text in _wrong_steps(output):
            yield (*path, "steps", place), text
    if seen and "boxes" not in seen:
        found = " and ".join(sorted(seen))
        yield ("outputs",), f"there are {found} without boxes; give one output 'type: boxes'"
    if "boxes" in seen and "scores" not in seen:
        yield from _missing_scores(outputs)


def _wrong_steps(output: Output) -> Iterator[tuple[int, str]]:
    """Yield the place of each step that is wrong, and a text."""
    allowed = _STEPS[output.type]
    for place, step in enumerate(output.steps):
        if step.name not in allowed:
            known = f"write some of {', '.join(allowed)}" if allowed else "it has none"
            yield place, f"type {output.type} has no step {step.name!r}; {known}"
        elif place and step.name in _READERS:
            yield place, f"step {step.name!r} reads the model's output; move it to the front"


def _missing_scores(outputs: Sequence[Output]) -> Iterator[Error]:
    for number, output in enumerate(outputs):
        if output.type == "boxes" and not _has_scores(output):
            advice = "add an output of type scores, or a step that reads them: columns or yolo"
            yield ("outputs", number), f"the boxes have no scores; {advice}"


def _has_scores(output: Output) -> bool:
    for step in output.steps:
        if step.name == "yolo":
            return True
        if isinstance(step.parameters, Columns):
            return "score" in step.parameters.names
    return False
