"""Variants of a manifest's inputs: what some changes make of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_mlms.author.doctor.steps import step_text
from pytest_mlms.manifest.schema import Input
from pytest_mlms.manifest.steps import InputStep
from pytest_mlms.manifest.types import Layout

StepsChange = Callable[[Sequence[InputStep]], list[InputStep]]
"""Returns other steps in the place of those of an image input."""


def unchanged(steps: Sequence[InputStep]) -> list[InputStep]:
    """Return the same steps."""
    return list(steps)


@dataclass(frozen=True)
class Change:
    """One change of an image input, or of the labels.

    Attributes:
        axis: The thing that it changes; two changes of one axis exclude each other.
        name: What is done.
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
        made.append(_changed(spec, changes) if spec.type == "image" else spec)
    return Variant(tuple(changes), tuple(made))


def _changed(spec: Input, changes: Sequence[Change]) -> Input:
    steps = list(spec.steps)
    layout = spec.layout
    for change in changes:
        steps = change.apply(steps)
        layout = change.layout or layout
    return spec.model_copy(update={"steps": steps, "layout": layout})


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
