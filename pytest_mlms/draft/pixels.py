"""The range and the order of pixels of a drafted manifest, by what scores best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pytest_mlms.doctor.examination import Examination, open_patient
from pytest_mlms.doctor.search import Diagnosis, diagnose
from pytest_mlms.doctor.steps import step_text
from pytest_mlms.draft.parts import Draft, InputPart
from pytest_mlms.units import format_quantity

__all__ = ["with_best_pixels"]

_AXES = ("color", "scale")


def with_best_pixels(draft: Draft, examination: Examination, say: Callable[[str], None]) -> Draft:
    """Return a draft with the usual range and order of pixels that scores surely better, if any.

    A draft without pictures or labels stays as it is. Raises MlmsError where it does not run.
    """
    images = [part for part in draft.inputs if part.type == "image"]
    is_labelled = examination.loaded.manifest.has_accuracy
    if len(images) != 1 or images[0].element_type == "uint8" or not is_labelled:
        return draft
    with open_patient(examination) as patient:
        diagnosis = diagnose(patient, lambda text: None, _AXES)
    part = _chosen(images[0], diagnosis)
    say(f"pixels: {part.steps[-1][1] or part.comment}")
    inputs = [part if other is images[0] else other for other in draft.inputs]
    return replace(draft, inputs=inputs)


def _chosen(part: InputPart, diagnosis: Diagnosis) -> InputPart:
    """Return an input with the steps of the best variant, and a comment that says why."""
    best = diagnosis.best
    quantity = diagnosis.quantity
    tried = len(diagnosis.findings)
    where = f"of {diagnosis.inputs} inputs"
    if best is None:
        value = format_quantity(diagnosis.as_written, quantity.unit or "")
        reason = f"{quantity.name} {value} {where}; none of {tried} other ranges is surely better"
        return replace(part, steps=_commented(part.steps, reason))
    value = format_quantity(best.value, quantity.unit or "")
    reason = f"{best.variant.name}: {quantity.name} {value} {where}, the best of {tried + 1}"
    steps: list[tuple[str, str]] = []
    for spec in best.variant.inputs:
        if spec.name == part.name:
            steps = [(step_text(step), "") for step in spec.steps]
    return replace(part, steps=_commented(steps, reason))


def _commented(steps: Sequence[tuple[str, str]], comment: str) -> list[tuple[str, str]]:
    """Return steps of which the last one has another comment."""
    last, _ = steps[-1]
    return [*steps[:-1], (last, comment)]
