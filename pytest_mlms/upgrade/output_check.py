"""Whether both sides of an upgrade compute the same and are as often right.

Faster because wrong is no upgrade.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np

from pytest_mlms.agent.process import Array
from pytest_mlms.cases import Case
from pytest_mlms.errors import InvalidRun, OutputError
from pytest_mlms.evaluate.accuracy import classify, hits
from pytest_mlms.evaluate.agreement import Tolerance, differences
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import Dataset
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.decision import ACCURACY_LOSS, compare_accuracy
from pytest_mlms.upgrade.interleave import SIDES, AgentPair, SideName

__all__ = ["SHARE", "OutputCheck", "check_outputs"]

SHARE = 0.01
"""How far two stacks' outputs may be apart, as a share of the largest value, where the manifest
doesn't say.
"""


def check_outputs(
    expected: Mapping[str, Array], found: Mapping[str, Array], tolerance: Tolerance | None = None
) -> Comparison:
    """Return the verdict on B's outputs by name, given A's for the same inputs.

    ``tolerance`` is the manifest's for an agreement; None: differences up to SHARE of the largest
    value are rounding. The ratio is the largest difference as a multiple of what is allowed.
    """
    worst, lacking = 0.0, ""
    for name, values in expected.items():
        other = found.get(name)
        if other is None or other.shape != values.shape:
            lacking = f"{name!r} is {'absent' if other is None else other.shape}, and {values.shape} of the baseline"
        elif not np.isfinite(other).all():
            lacking = f"{name!r} has NaN or infinity"
        else:
            allowed = tolerance or Tolerance(
                0.0, SHARE * float(np.abs(values.astype(np.float64)).max(initial=0.0))
            )
            worst = max(worst, float(differences(other, values, allowed)[2].max(initial=0.0)))
    verdict = Verdict.REGRESSED if lacking or worst > 1 else Verdict.PASSED
    share = tolerance.rtol if tolerance else SHARE
    made = Comparison(
        "agreement", math.nan, math.nan, "fraction", share, True, len(expected), "outputs", lacking
    )
    return made.but(ratio=worst, low=worst, high=worst, verdict=verdict)


@dataclass(frozen=True)
class OutputCheck:
    """Compares the outputs of the timed inputs, and of the whole dataset where it has labels.

    ``known`` keeps a side's scores for the other items of the session, by ``key`` of the side.
    """

    outputs: tuple[str, ...]
    classification: Output | None
    dataset: Dataset | None
    batch_size: int
    tolerance: Tolerance | None
    tolerances: Mapping[str, float]
    known: MutableMapping[Hashable, tuple[Array, Array]]
    key: Callable[[SideName], Hashable]

    @classmethod
    def of(
        cls,
        case: Case,
        dataset: Dataset | None,
        tolerances: Mapping[str, float],
        known: MutableMapping[Hashable, tuple[Array, Array]],
    ) -> OutputCheck:
        """Return what an upgrade's outputs are held to by its manifest."""
        manifest, agreement = case.loaded.manifest, case.agreement
        sides = {"a": case.baseline, "b": case}
        return cls(
            outputs=tuple(output.name for output in manifest.outputs),
            classification=manifest.classification if manifest.has_accuracy else None,
            dataset=dataset,
            batch_size=case.batch_size,
            tolerance=Tolerance(agreement.rtol, agreement.atol) if agreement else None,
            tolerances=tolerances,
            known=known,
            key=lambda side: (
                case.loaded.path,
                sides[side].model.framework,
                sides[side].stack,
                case.device,
            ),
        )

    def __call__(
        self, pair: AgentPair, timed: Mapping[str, Mapping[str, Array]]
    ) -> list[Comparison]:
        """Return the verdicts; raises InvalidRun where the baseline's own outputs can't be used."""
        sides = {side: {name: timed[side][name] for name in self.outputs} for side in SIDES}
        for name, values in sides["a"].items():
            if not np.isfinite(values).all():
                raise InvalidRun(
                    f"the baseline's output {name!r} has NaN or infinity; there is nothing to compare with"
                )
        agreement = check_outputs(sides["a"], sides["b"], self.tolerance)
        if agreement.verdict is not Verdict.PASSED or not (self.dataset and self.classification):
            return [agreement]
        try:
            a, labels = self._scores(pair, "a")
        except OutputError as error:
            raise InvalidRun(f"the baseline's outputs can't be used: {error}") from None
        try:
            b, _ = self._scores(pair, "b")
        except OutputError as error:
            return [agreement.but(verdict=Verdict.REGRESSED, lacking=str(error))]
        return [agreement, *self._accuracy(a, b, labels)]

    def _accuracy(self, a: Array, b: Array, labels: Array) -> list[Comparison]:
        return [
            compare_accuracy(
                hits(a, labels, k), hits(b, labels, k), k, self.tolerances.get(f"top{k}", ACCURACY_LOSS),
                f"top{k}" in self.tolerances,
            )
            for k in ((1, 5) if a.shape[1] > 5 else (1,))
        ]  # fmt: skip

    def _scores(self, pair: AgentPair, side: SideName) -> tuple[Array, Array]:
        key = self.key(side)
        if key not in self.known:
            assert self.dataset
            assert self.classification
            with pair.only(side) as predictor:
                self.known[key] = classify(
                    predictor, self.dataset, self.classification, self.batch_size
                )
        return self.known[key]
