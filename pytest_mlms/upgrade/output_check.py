"""Comparison of the outputs and the accuracy of both sides of an upgrade.

A candidate that is faster because it is wrong is no upgrade.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np

from pytest_mlms.cases import Case
from pytest_mlms.errors import InvalidRun, OutputError
from pytest_mlms.evaluate.accuracy import classify_dataset, hits
from pytest_mlms.evaluate.agreement import (
    ROUNDING_SHARE,
    Tolerance,
    differences,
    rounding_tolerance,
)
from pytest_mlms.evaluate.inputs import Inputs
from pytest_mlms.manifest.schema import Output
from pytest_mlms.pipeline import Dataset
from pytest_mlms.quantities import upgrade_rules
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.upgrade.agents import AgentPair
from pytest_mlms.upgrade.decision import compare_accuracy
from pytest_mlms.upgrade.rounds import Array, Outputs, SideName

__all__ = ["OutputCheck", "Scores", "check_outputs"]

Scores = tuple[Array, Array]
"""Values that rank the classes of all inputs (inputs x classes), and the labels of the inputs."""


def check_outputs(
    expected: Outputs, actual: Outputs, tolerance: Tolerance | None = None
) -> Comparison:
    """Return the verdict on B's outputs by name, given A's for the same inputs.

    ``tolerance`` is the manifest's for an agreement; None: the default for rounding. The ratio is
    the largest difference as a multiple of what is allowed.
    """
    worst = 0.0
    missing = ""
    for name, reference in expected.items():
        output = actual.get(name)
        unusable = _unusable(name, output, reference)
        if unusable or output is None:
            missing = unusable
        else:
            allowed = tolerance or rounding_tolerance(reference)
            worst = max(worst, _largest_deviation(output, reference, allowed))
    wrong = bool(missing) or worst > 1
    return Comparison(
        quantity="agreement",
        a=math.nan,
        b=math.nan,
        unit="fraction",
        tolerance=ROUNDING_SHARE if tolerance is None else tolerance.rtol,
        gate=True,
        replicates=len(expected),
        of="outputs",
        lacking=missing,
        ratio=worst,
        low=worst,
        high=worst,
        verdict=Verdict.REGRESSED if wrong else Verdict.PASSED,
    )


def _unusable(name: str, output: Array | None, reference: Array) -> str:
    """Return why an output cannot be compared, "" where it can."""
    if output is None:
        return f"{name!r} is absent, and {reference.shape} of the baseline"
    if output.shape != reference.shape:
        return f"{name!r} is {output.shape}, and {reference.shape} of the baseline"
    if not np.isfinite(output).all():
        return f"{name!r} has NaN or infinity"
    return ""


def _largest_deviation(output: Array, reference: Array, allowed: Tolerance) -> float:
    found = differences(output, reference, allowed)
    return float(found.deviation.max(initial=0.0))


@dataclass(frozen=True)
class OutputCheck:
    """Check of the outputs for the timed inputs, and of the accuracy where there are labels.

    ``tolerances`` of accuracy by quantity override the default. ``scores`` keeps the scores of
    each side for other items of the session.
    """

    case: Case
    dataset: Dataset | None
    tolerances: Mapping[str, float]
    scores: MutableMapping[Hashable, Scores]

    def __call__(self, pair: AgentPair, timed: Mapping[SideName, Outputs]) -> list[Comparison]:
        """Return the verdicts on agreement and accuracy.

        ``timed`` has the outputs for the timed inputs by side. Raises InvalidRun where the
        baseline's own outputs cannot be used.
        """
        manifest = self.case.loaded.manifest
        names = [output.name for output in manifest.outputs]
        baseline = {name: timed["a"][name] for name in names}
        candidate = {name: timed["b"][name] for name in names}
        _check_baseline(baseline)
        agreement = check_outputs(baseline, candidate, self._tolerance())
        comparisons = [agreement]
        if agreement.verdict is not Verdict.PASSED or self.dataset is None:
            return comparisons
        if manifest.has_accuracy and manifest.classification is not None:
            accuracy = _AccuracyCheck(self, self.dataset, manifest.classification, pair)
            try:
                comparisons += accuracy.compare()
            except OutputError as error:
                wrong = agreement.but(verdict=Verdict.REGRESSED, lacking=str(error))
                return [wrong]
        return comparisons

    def _tolerance(self) -> Tolerance | None:
        agreement = self.case.agreement
        if agreement is None:
            return None
        return Tolerance(agreement.rtol, agreement.atol)


def _check_baseline(outputs: Outputs) -> None:
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            raise InvalidRun(
                f"the baseline's output {name!r} has NaN or infinity; "
                f"there is nothing to compare with"
            )


@dataclass(frozen=True)
class _AccuracyCheck:
    """Comparison of the accuracy of both sides over a dataset."""

    check: OutputCheck
    dataset: Dataset
    output: Output
    pair: AgentPair

    def compare(self) -> list[Comparison]:
        """Return the verdicts on top-1, and on top-5 where there are more than five classes.

        Raises InvalidRun where the baseline's scores cannot be used, OutputError where the
        candidate's cannot.
        """
        try:
            scores_a, labels = self._scores("a")
        except OutputError as error:
            raise InvalidRun(f"the baseline's outputs can't be used: {error}") from None
        scores_b, _ = self._scores("b")
        classes = scores_a.shape[1]
        comparisons = []
        for k in (1, 5):
            if k > 1 and classes <= k:
                continue
            right_a = hits(scores_a, labels, k)
            right_b = hits(scores_b, labels, k)
            comparisons.append(self._compare(f"top{k}", right_a, right_b))
        return comparisons

    def _compare(self, name: str, right_a: Array, right_b: Array) -> Comparison:
        declared = self.check.tolerances
        default = upgrade_rules("inputs")[name].tolerance
        compared = compare_accuracy(name, right_a, right_b, declared.get(name, default))
        return compared.but(gate=name in declared)

    def _scores(self, side: SideName) -> Scores:
        """Return the scores of a side, computed once a session."""
        case = self.check.case if side == "b" else self.check.case.baseline
        key = (case.loaded.path, case.model.framework, case.stack, case.device)
        known = self.check.scores
        if key not in known:
            with self.pair.running(side) as predictor:
                inputs = Inputs.of(case, self.dataset, predictor)
                found = classify_dataset(predictor, inputs, self.dataset, self.output)
            known[key] = (found.ranking, found.labels)
        return known[key]
