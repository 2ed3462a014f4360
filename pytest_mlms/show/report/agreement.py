"""Files and texts of an agreement: the differences of each input, and of the worst one."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_mlms.core.files import write_arrays
from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.agreement import Differences, most_different
from pytest_mlms.measure.evaluate.closeness import Tolerance
from pytest_mlms.measure.evaluate.kept_outputs import DepartureSearch, OutputComparison, Reference

_INDEX = "input"  # in outputs.npz, the number of each input
_MOST_BYTES = 64 << 20  # of outputs that are kept: those of the worst inputs where not all fit

Outputs = Mapping[str, Array]


def keep_differences(
    recorder: Recorder, outputs: Outputs, reference: Reference, found: OutputComparison
) -> None:
    """Write the differences of each input (differences.csv), and both outputs (outputs.npz)."""

    def write_table(path: Path) -> None:
        differences = found.differences
        inputs = range(len(differences.deviation))
        columns: dict[str, Any] = {"input": inputs}
        if reference.inputs.files is not None:
            columns["file"] = reference.inputs.files
        columns["label"] = [reference.inputs.label(index) for index in inputs]
        columns["deviation"] = differences.deviation
        columns["difference"] = differences.absolute
        columns["relative_difference"] = differences.relative
        if found.ranking:
            columns["class"] = found.ranking.ours
            columns["reference_class"] = found.ranking.reference
            columns.update(found.ranking.divergences)
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(columns)
            table.writerows(zip(*columns.values(), strict=True))

    def write_outputs(path: Path) -> None:
        inputs = _worst_inputs(reference.outputs, found.differences)
        arrays: dict[str, Any] = {_INDEX: inputs}
        for name, values in outputs.items():
            key = f"output_{name}" if name == _INDEX else name
            arrays[key] = values[inputs]
        for name, values in reference.outputs.items():
            arrays[f"reference_{name}"] = values[inputs]
        write_arrays(path, arrays)

    recorder.keep("differences.csv", write_table)
    recorder.keep("outputs.npz", write_outputs)


def _worst_inputs(reference: Outputs, found: Differences) -> Array:
    """Return the indices of the inputs whose outputs are kept, in ascending order."""
    count = len(found.deviation)
    one_side = sum(values.nbytes for values in reference.values())
    bytes_an_input = 2 * one_side // count
    most = max(1, _MOST_BYTES // max(1, bytes_an_input))
    worst_first = np.argsort(-found.deviation, kind="stable")
    return np.sort(worst_first[:most])


def explain_worst(
    outputs: Outputs, reference: Reference, found: OutputComparison, tolerance: Tolerance
) -> str:
    """Return a text on the input that differs most: its label, the classes, the worst values."""
    deviation = found.differences.deviation
    index = int(deviation.argmax())
    over = int((deviation > 1).sum())
    allowed = f"{tolerance.atol:g} + {tolerance.rtol:g} |reference|"
    count = f"{over} of {len(deviation)} inputs"
    lines = [f"the reference is {reference.name}; {count} differ from it by more than {allowed}"]

    facts = [f"number {index}"]
    if reference.inputs.files is not None:
        facts.append(reference.inputs.files[index])
    label = reference.inputs.label(index)
    if label is not None:
        facts.append(f"label {label}")
    if found.ranking:
        best, expected = found.ranking.ours[index], found.ranking.reference[index]
        facts.append(f"best class {best}, the reference's {expected}")
    lines.append(f"  worst input: {', '.join(facts)}")

    row, expected_row = (
        {name: values[index] for name, values in side.items()}
        for side in (outputs, reference.outputs)
    )
    for value in most_different(row, expected_row, tolerance):
        place = "".join(f"[{axis}]" for axis in value.place)
        ours, theirs = (
            repr(side) if isinstance(side, str) else f"{side:.7g}"
            for side in (value.ours, value.reference)
        )
        lines.append(f"    {value.output}{place} is {ours}, the reference's {theirs}")
    return "\n".join(lines)


def explain_departure(search: DepartureSearch) -> str:
    """Return a line with the first layer that departs, or why it is not known."""

    def layer(reference: str, ours: str) -> str:
        return repr(reference) if reference == ours else f"{reference!r} (here {ours!r})"

    departure = search.departure
    if departure is None:
        return f"  the first layer that departs is not known: {search.reason}"
    difference = f"by up to {departure.difference:.3g} of {departure.size:.3g}"
    after = "none before it agrees"
    if departure.after:
        after = f"those up to {layer(*departure.after)} agree"
    first = layer(departure.layer, departure.ours)
    return f"  first layer that departs: {first}, {difference}; {after}"
