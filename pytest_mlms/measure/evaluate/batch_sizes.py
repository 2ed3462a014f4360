"""Comparison of a model with itself by the size of its batch: inputs alone, and as one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array, Refused
from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.evaluate.inputs import random_batch
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep, rules_of
from pytest_mlms.measure.evaluate.outputs import NearbyOutputs, nearby_outputs
from pytest_mlms.measure.evaluate.rows import BatchRows, batch_axes_of
from pytest_mlms.measure.evaluate.timed_inputs import alike_elements
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.provide.cases import Case

Outputs = Mapping[str, Array]

TOGETHER = 8
"""Inputs that are run alone, and as one batch."""

NO_ROWS = "no output has a row for each input"
"""Why there is nothing to compare where outputs are of a whole batch."""

BEYOND_MEASURE = 1e9
"""The multiple of rounding that stands for NaN, other whole numbers and forms, and no outputs."""


@dataclass(frozen=True)
class ByBatch:
    """A model's outputs for inputs alone and together: ``sweep`` has their differences.

    ``lacking`` is why nothing was compared, ``refused`` why the model took only some of the calls.
    """

    sweep: OutputSweep = field(default_factory=lambda: OutputSweep({}))
    lacking: str = ""
    refused: str = ""

    @property
    def ratio(self) -> float:
        """The largest difference, as a multiple of rounding or of the manifest's agreement."""
        if self.refused or self.sweep.problem:
            return BEYOND_MEASURE
        return min(self.sweep.ratio, BEYOND_MEASURE)

    @property
    def ratios(self) -> dict[str, float]:
        """The differences of each output that could be compared."""
        found = self.sweep.outputs.items()
        return {name: min(each.ratio, BEYOND_MEASURE) for name, each in found}


@dataclass
class BatchSizes:
    """Compares processes of a case by the size of the batch, all of them on the same inputs.

    Whether there is something to compare is up to the first one: of an upgrade the baseline.
    """

    case: Case
    dataset: Dataset | None
    seed: int
    _drawn: Outputs | None = None
    _missing: str | None = None

    def compare(self, predictor: Predictor, rules: Mapping[str, Rule] | None = None) -> ByBatch:
        """Return how far the outputs of a few inputs alone are from their outputs in one batch.

        ``rules`` say how far each may be; by default they are the case's.
        """
        if self._missing is None:
            self._missing = self._lacking(predictor)
        if self._missing:
            return ByBatch(lacking=self._missing)
        batch = self._batch(predictor)
        try:
            alone = self._alone(predictor, batch)
        except Refused as error:
            return ByBatch(refused=f"it refuses a batch of 1: {error}")
        try:
            together = self._rows(predictor, batch, TOGETHER)
        except Refused as error:
            return ByBatch(refused=f"it refuses a batch of {TOGETHER}: {error}")
        rules = rules_of(self.case) if rules is None else rules
        known = {name: rule for name, rule in rules.items() if _are_rows(alone, together, name)}
        if not known:
            return ByBatch(lacking=NO_ROWS)
        sweep = OutputSweep(known, of_itself=True)
        names = [f"input {row + 1}" for row in range(TOGETHER)]

        def nearby() -> NearbyOutputs:
            return nearby_outputs(partial(self._alone, predictor), batch, self._axes)

        sweep.add(alone, together, names, nearby)
        return ByBatch(sweep)

    @property
    def _axes(self) -> Mapping[str, int | None]:
        return self.case.loaded.manifest.batch_axes

    def _lacking(self, predictor: Predictor) -> str:
        """Return why there is nothing to compare, "" where there is."""
        if self.case.loaded.manifest.has_state:
            return "the model has a state"
        for tensor in predictor.inputs:
            axis = self._axes.get(tensor.name, 0)
            if axis is None or tensor.shape[axis : axis + 1] != (None,):
                return "the model doesn't say that it takes batches of any size"
        if self.dataset is not None and len(self._elements) < TOGETHER:
            return f"the dataset has fewer than {TOGETHER} inputs of one shape"
        return ""

    @cached_property
    def _elements(self) -> Sequence[int]:
        return alike_elements(self.dataset, TOGETHER, self.seed) if self.dataset else []

    def _batch(self, predictor: Predictor) -> Outputs:
        if self._drawn is None:
            if self.dataset is not None:
                self._drawn = self.dataset.batch(self._elements)
            else:
                case = replace(self.case, batch_size=TOGETHER)
                self._drawn = random_batch(predictor, case, self.seed)
        return self._drawn

    def _alone(self, predictor: Predictor, batch: Outputs) -> dict[str, Array]:
        """Return the outputs of inputs one by one, a row an input where each has one."""
        found = []
        for row in range(TOGETHER):
            one = {
                name: np.take(values, [row], self._axes.get(name, 0) or 0)
                for name, values in batch.items()
            }
            found.append(self._rows(predictor, one, 1))
        joined = {}
        for name in found[0]:
            rows = [np.atleast_1d(each[name]) for each in found]
            if {each.shape for each in rows} == {(1, *rows[0].shape[1:])}:
                joined[name] = np.concatenate(rows)
        return joined

    def _rows(self, predictor: Predictor, batch: Outputs, size: int) -> dict[str, Array]:
        outputs = self.case.loaded.manifest.outputs
        axes = batch_axes_of(outputs, predictor, self._axes)
        return BatchRows(axes, predictor.predict(batch), size, size).by_input()


def _are_rows(alone: Outputs, together: Outputs, name: str) -> bool:
    """Return whether both have a row of an output for each input."""
    return name in alone and len(np.atleast_1d(together.get(name, ()))) == TOGETHER
