"""The range and the order of pixels of a drafted manifest, by what scores best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_mlms.author.doctor.comparison import Finding
from pytest_mlms.author.doctor.examination import Examination, open_patient
from pytest_mlms.author.doctor.search import Diagnosis, diagnose
from pytest_mlms.author.doctor.variants import step_text
from pytest_mlms.author.draft.parts import Draft, InputPart
from pytest_mlms.core.units import format_quantity

_AXES = ("color", "scale")


def with_best_pixels(draft: Draft, examination: Examination, say: Callable[[str], None]) -> Draft:
    """Return a draft with the usual range and order of pixels that scores surely better, if any.

    A draft without pictures or labels stays as it is. Raises MlmsError where it does not run.
    """
    image = _only_image(draft)
    if image is None or not examination.loaded.manifest.has_accuracy:
        return draft
    with open_patient(examination) as patient:
        diagnosis = diagnose(patient, lambda text: None, _AXES)
    part = _with_best(image, diagnosis)
    step, comment = part.steps[_place_of_range(part.steps)]
    say(f"pixels: {comment or step}")
    inputs = [part if other is image else other for other in draft.inputs]
    return replace(draft, inputs=inputs)


def _only_image(draft: Draft) -> InputPart | None:
    """Return the only image, None where there is none, another one, or one that is not scaled."""
    images = [part for part in draft.inputs if part.type == "image"]
    if len(images) != 1 or images[0].element_type == "uint8":
        return None
    return images[0]


def _with_best(part: InputPart, diagnosis: Diagnosis) -> InputPart:
    """Return an input with the steps of the best variant, and a comment that says why."""
    best = diagnosis.best
    tried = len(diagnosis.findings)
    if best is None:
        found = _score(diagnosis, diagnosis.as_written)
        reason = f"{found}; none of {tried} other ranges is surely better"
        return replace(part, steps=_commented(part.steps, reason))
    found = _score(diagnosis, best.value)
    reason = f"{best.variant.name}: {found}, the best of {tried + 1}"
    return replace(part, steps=_commented(_steps_of(best, part.name), reason))


def _score(diagnosis: Diagnosis, value: float) -> str:
    quantity = diagnosis.quantity
    shown = format_quantity(value, quantity.unit or "")
    return f"{quantity.name} {shown} of {diagnosis.inputs} inputs"


def _steps_of(finding: Finding, name: str) -> list[tuple[str, str]]:
    """Return the steps of an input in a variant, without comments."""
    for spec in finding.variant.inputs:
        if spec.name == name:
            return [(step_text(step), "") for step in spec.steps]
    return []


def _commented(steps: Sequence[tuple[str, str]], comment: str) -> list[tuple[str, str]]:
    """Return steps of which the one of the range has another comment."""
    place = _place_of_range(steps)
    return [
        (step, comment if number == place else known) for number, (step, known) in enumerate(steps)
    ]


def _place_of_range(steps: Sequence[tuple[str, str]]) -> int:
    """Return the place of the step that makes the range of pixels, else of the last one."""
    for number, (step, _) in enumerate(steps):
        if step.startswith("normalize"):
            return number
    return len(steps) - 1
