"""Variants of a manifest's inputs after some changes of their steps, and the text of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep
from pytest_mlms.manifest.types import Layout

StepsChange = Callable[[Sequence[InputStep]], list[InputStep]]
"""Returns other steps in the place of those of an image input."""


def make_step(name: str, parameters: Any) -> InputStep:
    """Return a step; raises ValueError for parameters that it doesn't have."""
    return InputStep.model_validate({name: parameters})


def parameters_of(steps: Sequence[InputStep], name: str) -> Any:
    """Return the parameters of the first step with this name, None where there is none."""
    for step in steps:
        if step.name == name:
            return step.parameters
    return None


def written_parameters(parameters: Any) -> dict[str, Any]:
    """Return the parameters that are written, with lists for tuples."""
    found = {}
    for name in parameters.model_fields_set:
        value = getattr(parameters, name)
        found[name] = list(value) if isinstance(value, tuple) else value
    return found


def with_parameters(
    steps: Sequence[InputStep], name: str, parameters: Mapping[str, Any]
) -> list[InputStep]:
    """Return steps of which those with this name have other parameters; None removes one."""
    changed = []
    for step in steps:
        if step.name != name:
            changed.append(step)
            continue
        values = {**written_parameters(step.parameters), **parameters}
        kept = {key: value for key, value in values.items() if value is not None}
        changed.append(make_step(name, kept))
    return changed


def step_text(step: InputStep) -> str:
    """Return a step as a manifest has it."""
    written = written_parameters(step.parameters)
    pairs = []
    for name in type(step.parameters).model_fields:
        if name in written:
            pairs.append(f"{name}: {_value_text(written[name])}")
    return f"{step.name}: {{{', '.join(pairs)}}}" if pairs else step.name


def _value_text(value: Any) -> str:
    if isinstance(value, list):
        texts = [_value_text(one) for one in value]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return str(value)


def unchanged(steps: Sequence[InputStep]) -> list[InputStep]:
    """Return the same steps."""
    return list(steps)


@dataclass(frozen=True)
class Change:
    """One change of an image input, or of the labels.

    Attributes:
        axis: The thing that it changes; two changes of one axis exclude each other.
        name: The change in words.
        apply: Returns the changed steps.
        layout: The other layout, None for the same.
        offset: The number that is added to the labels.
    """

    axis: str
    name: str
    apply: StepsChange = unchanged
    layout: Layout | None = None
    offset: int = 0


@dataclass(frozen=True)
class Variant:
    """A manifest's inputs after some changes."""

    changes: tuple[Change, ...]
    inputs: tuple[Input, ...]

    @property
    def name(self) -> str:
        """The name of the change."""
        return ", ".join(change.name for change in self.changes) or "as written"

    @property
    def offset(self) -> int:
        """The number that is added to labels."""
        return sum(change.offset for change in self.changes)


def varied(inputs: Sequence[Input], changes: Sequence[Change]) -> Variant:
    """Return the inputs with these changes."""
    made = []
    for spec in inputs:
        if spec.type != "image":
            made.append(spec)
            continue
        steps = list(spec.steps)
        layout = spec.layout
        for change in changes:
            steps = change.apply(steps)
            layout = change.layout or layout
        made.append(spec.model_copy(update={"steps": steps, "layout": layout}))
    return Variant(tuple(changes), tuple(made))


def pairs_of(changes: Sequence[Change], best: Sequence[Change]) -> Iterator[tuple[Change, Change]]:
    """Yield pairs worth trying: a colour order with a range, and each of ``best`` with others."""
    seen = set()
    for one in changes:
        for other in changes:
            is_pixel_pair = (one.axis, other.axis) == ("color", "scale")
            is_of_best = one in best and one.axis != other.axis
            key = frozenset((one.name, other.name))
            if (is_pixel_pair or is_of_best) and key not in seen:
                seen.add(key)
                yield one, other


def step_lines(variant: Variant) -> list[str]:
    """Return the lines of a variant's image input, to be put into the manifest."""
    lines = []
    for spec in variant.inputs:
        if spec.type != "image":
            continue
        if any(change.layout for change in variant.changes):
            lines.append(f"layout: {spec.layout}")
        lines.append("steps:")
        for step in spec.steps:
            lines.append(f"  - {step_text(step)}")
    return lines
