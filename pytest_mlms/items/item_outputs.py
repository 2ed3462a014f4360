"""Outputs of an item's case for all inputs: an earlier item's, or new ones.

Accuracy and agreement of one stack need the same outputs. Whichever comes first computes them, and
they are also the reference that other stacks are compared with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import pytest

from pytest_mlms.keep.results.recorder import Recorder
from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Array
from pytest_mlms.measure.evaluate.inputs import Inputs
from pytest_mlms.measure.evaluate.kept_outputs import (
    KeptOutputs,
    OutputsKeeper,
    compute_outputs,
    outputs_key,
)
from pytest_mlms.measure.evaluate.rows import predict_all, predict_rows
from pytest_mlms.measure.pipeline import Dataset
from pytest_mlms.provide.cases import Case
from pytest_mlms.resources import hold_device
from pytest_mlms.session import Session
from pytest_mlms.show.report.outcome import repetition_of

Opening = Callable[..., AbstractContextManager[Predictor]]


@dataclass(frozen=True)
class ItemOutputs:
    """The outputs of the model of one item; ``kept`` are an earlier item's, if any."""

    case: Case
    session: Session
    recorder: Recorder
    opening: Opening
    nodeid: str
    kept: KeptOutputs | None

    @classmethod
    def of(
        cls,
        case: Case,
        session: Session,
        recorder: Recorder,
        opening: Opening,
        item: pytest.Item,
    ) -> ItemOutputs:
        """Return the outputs of an item; its agent starts where none are kept."""
        kept = _find_kept(case, session, item)
        outputs = cls(case, session, recorder, opening, item.nodeid, kept)
        if kept is None:
            outputs.open()
        else:
            recorder.ran_on(kept.predictor)
            recorder.note(outputs_of=kept.nodeid)
        return outputs

    def open(self) -> Predictor:
        """Return the model in the agent that items of one stack share."""
        predictor = self.session.predictor.open(self.case.setting, self.opening)
        self.recorder.ran_on(predictor)
        return predictor

    def batches(self, scored: Sequence[Output], dataset: Dataset) -> Iterator[Mapping[str, Array]]:
        """Yield the rows of some outputs for the dataset by name, a batch at a time.

        The model computes them as they are asked for, unless they are kept.
        """
        names = [output.name for output in scored]
        if self.kept is not None:
            yield from self.kept.batches(names)
            return
        predictor = self.open()
        inputs = Inputs.of(self.case, dataset, predictor)
        outputs = self.case.loaded.manifest.outputs
        keeper = self._keeper()
        for batch in predict_rows(predictor, inputs, outputs):
            yield {name: batch.rows(name) for name in names}
            if keeper:
                keeper.add(batch)
        arrays = keeper.arrays() if keeper else None
        if arrays:
            self._keep(arrays, inputs, predictor)

    def all(self, inputs: Inputs) -> dict[str, Array]:
        """Return all outputs for ``inputs``, N rows each."""
        if self.kept is not None:
            return dict(self.kept.arrays)
        predictor = self.open()
        arrays = predict_all(predictor, inputs, self.case.loaded.manifest.outputs)
        self._keep(arrays, inputs, predictor)
        return arrays

    def _keeper(self) -> OutputsKeeper | None:
        """Return what collects the outputs, where the manifest has agreements that need them."""
        manifest = self.case.loaded.manifest
        if not manifest.thresholds.agreement:
            return None
        names = [output.name for output in manifest.outputs]
        return OutputsKeeper(names, self.session.outputs.most_bytes)

    def _keep(self, arrays: Mapping[str, Array], inputs: Inputs, predictor: Predictor) -> None:
        kept = KeptOutputs(arrays, inputs, predictor, self.nodeid, self.case.kind)
        self.session.outputs.keep(outputs_key(self.case), kept)


def _find_kept(case: Case, session: Session, item: pytest.Item) -> KeptOutputs | None:
    """Return the outputs that an item of another kind computed, None where there are none.

    An item that is repeated computes its own.
    """
    if repetition_of(item) > 1:
        return None
    kept = session.outputs.get(outputs_key(case))
    if kept is None or kept.kind == case.kind:
        return None
    return kept


def reference_outputs(
    case: Case, dataset: Dataset | None, session: Session, item: pytest.Item, opening: Opening
) -> KeptOutputs:
    """Return the outputs of a reference for all inputs, from the agent of its own items."""
    key = outputs_key(case)
    kept = session.outputs.get(key)
    if kept is not None:
        return kept
    with hold_device(case, item):
        predictor = session.predictor.open(case.setting, opening)
        kept = compute_outputs(case, dataset, predictor, item.nodeid)
    session.outputs.keep(key, kept)
    return kept
