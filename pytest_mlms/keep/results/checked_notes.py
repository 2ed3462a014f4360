"""Notes of items of some kinds, for readers that take them by name; apart, as it imports numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pytest_mlms.core.records import Comparison
from pytest_mlms.decide.upgrade.output_verdict import OutputsCompared
from pytest_mlms.keep.results.checked_lines import NOTED
from pytest_mlms.keep.results.item_line import NotedRound, NotedSide, Notes
from pytest_mlms.keep.results.line import NotedReference, PredictionsRecord
from pytest_mlms.keep.results.strict import Bounds, Count, StrictReader, Taken
from pytest_mlms.measure.evaluate.output_sweep import OutputFinding
from pytest_mlms.measure.trace.records import TraceSummary

_TAKEN: Mapping[type, Taken] = {
    Notes: Taken(
        nullable=NOTED,
        instead={
            "layers": tuple[tuple[Any, ...], ...],
            "outputs": OutputsCompared,
            "predictions": PredictionsRecord,
        },
    ),
    Comparison: Taken(
        required="quantity verdict of unit",
        optional="lacking",
        nullable="a b ratio low high tolerance asked least_change",
    ),
    NotedRound: Taken("sides"),
    NotedSide: Taken("python"),
    OutputsCompared: Taken(
        nullable="beyond seed outputs elsewhere repeated",
        instead={
            "beyond": Count,
            "seed": Annotated[int, Bounds(ge=0)],
            "repeated": Mapping[
                str, Annotated[tuple[Count, ...], Bounds(min_length=2, max_length=2)]
            ],
        },
    ),
    OutputFinding: Taken("name", nullable="allowed"),
    NotedReference: Taken("framework", "versions"),
    TraceSummary: Taken(nullable="layers_sha256"),
    PredictionsRecord: Taken(nullable="sha256 right inputs"),
}

NOTES = StrictReader(_TAKEN, "allow").model(Notes)
