"""What is kept and said of an agreement.

The differences of every input, and of the worst one where it fails.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.agent.predictor import Predictor
from pytest_mlms.agent.process import Array, Refused
from pytest_mlms.cases import Case
from pytest_mlms.errors import MlmsError
from pytest_mlms.evaluate.agreement import (
    Differences,
    Ranking,
    Tolerance,
    find_departure,
    most_different,
)
from pytest_mlms.evaluate.reference import Reference
from pytest_mlms.recorder import Recorder

__all__ = ["explain_layers", "explain_worst", "keep_differences"]

_MOST_BYTES = 64 << 20  # of outputs that are kept: those of the worst inputs where not all fit

Outputs = Mapping[str, Array]


def keep_differences(
    recorder: Recorder,
    outputs: Outputs,
    reference: Reference,
    found: Differences,
    ranking: Ranking | None,
) -> None:
    """Write what differs by how much for each input (differences.csv), and the outputs of both
    (outputs.npz).
    """
    recorder.keep("differences.csv", lambda path: _write_table(path, reference, found, ranking))
    recorder.keep(
        "outputs.npz", lambda path: _write_outputs(path, outputs, reference.outputs, found)
    )


def _write_table(
    path: Path, reference: Reference, found: Differences, ranking: Ranking | None
) -> None:
    columns: dict[str, Any] = {
        "input": range(len(found.deviation)),
        "label": [reference.inputs.label(index) for index in range(len(found.deviation))],
        "deviation": found.deviation,
        "difference": found.absolute,
        "relative_difference": found.relative,
    }
    if ranking:
        columns.update(
            {"class": ranking.ours, "reference_class": ranking.reference}, **ranking.divergences
        )
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows(zip(*columns.values(), strict=True))


def _write_outputs(path: Path, outputs: Outputs, reference: Outputs, found: Differences) -> None:
    count = len(found.deviation)
    each = 2 * sum(values.nbytes for values in reference.values()) // count
    worst = np.sort(
        np.argsort(-found.deviation, kind="stable")[: max(1, _MOST_BYTES // max(1, each))]
    )
    arrays: dict[str, Any] = {
        "input": worst,
        **{name: values[worst] for name, values in outputs.items()},
    }
    arrays.update({f"reference_{name}": values[worst] for name, values in reference.items()})
    np.savez(path, **arrays)


def explain_worst(
    outputs: Outputs,
    reference: Reference,
    found: Differences,
    ranking: Ranking | None,
    tolerance: Tolerance,
) -> str:
    """Say which input differs most, its label, the best class of both, and the values that differ
    most.
    """
    over = int((found.deviation > 1).sum())
    index = int(found.deviation.argmax())
    label = reference.inputs.label(index)
    facts = [f"number {index}"] + ([] if label is None else [f"label {label}"])
    if ranking:
        facts.append(
            f"best class {ranking.ours[index]}, the reference's {ranking.reference[index]}"
        )
    first = (
        f"the reference is {reference.name}; {over} of {len(found.deviation)} inputs differ from it by more than "
        f"{tolerance.atol:g} + {tolerance.rtol:g} |reference|"
    )
    lines = [first, f"  worst input: {', '.join(facts)}"]
    one, other = (
        {name: values[index] for name, values in each.items()}
        for each in (outputs, reference.outputs)
    )
    for value in most_different(one, other, tolerance):
        place = "".join(f"[{axis}]" for axis in value.place)
        lines.append(
            f"    {value.output}{place} is {value.ours:.7g}, the reference's {value.reference:.7g}"
        )
    return "\n".join(lines)


def explain_layers(
    case: Case, predictor: Predictor, reference: Reference, worst: int, tolerance: Tolerance
) -> str:
    """Say which layer departs first for the worst input, or why that can't be said."""
    batch = reference.inputs.one(worst)
    try:
        name = reference.case.stack.label
        with reference.open() as other:
            expected = other.inner(batch)
        name = case.stack.label
        departure = find_departure(predictor.inner(batch), expected, tolerance)
    except MlmsError as error:  # whatever it is, it must not hide that the outputs differ
        mute = isinstance(error, Refused) and error.error == "NotImplementedError"
        return f"  the first layer that departs is not known: {f'{name} does not show its layers' if mute else error}"
    if departure is None:
        return "  the first layer that departs is not known: of the layers that can be matched, none does"
    after = (
        f"those up to {_both(*departure.after)} agree"
        if departure.after
        else "none before it agrees"
    )
    layer = _both(departure.layer, departure.ours)
    return f"  first layer that departs: {layer}, by up to {departure.difference:.3g} of {departure.size:.3g}; {after}"


def _both(reference: str, ours: str) -> str:
    return repr(reference) if reference == ours else f"{reference!r} (here {ours!r})"
