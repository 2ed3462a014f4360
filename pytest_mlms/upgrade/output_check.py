"""Comparison of the outputs and the accuracy of both sides of an upgrade.

A candidate that is faster because it is wrong is no upgrade. Accuracy says how wrong it is.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pytest_mlms.cases import Case
from pytest_mlms.errors import InvalidRun, MlmsError, OutputError
from pytest_mlms.evaluate.agreement import (
    ROUNDING_SHARE,
    Tolerance,
    differences,
    rounding_tolerance,
)
from pytest_mlms.evaluate.scoring import Files, score_case
from pytest_mlms.evaluate.tasks.task import Evidence
from pytest_mlms.evaluate.worst_inputs import worse_inputs
from pytest_mlms.pipeline import Dataset
from pytest_mlms.records import Comparison, Verdict
from pytest_mlms.tasks import facts_of
from pytest_mlms.upgrade.agents import AgentPair
from pytest_mlms.upgrade.paired_evidence import compare_evidence
from pytest_mlms.upgrade.rounds import Array, Outputs, SideName

__all__ = ["OutputCheck", "OutputFindings", "check_outputs"]


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


class OutputFindings(NamedTuple):
    """The verdicts on outputs and accuracy, and a line for each of the inputs that got worst.

    Inputs are named where the candidate is worse in a quantity of accuracy, or outputs disagree.
    """

    comparisons: Sequence[Comparison]
    worse_inputs: Sequence[str] = ()


@dataclass(frozen=True)
class OutputCheck:
    """Check of the outputs for the timed inputs, and of the accuracy where there are labels.

    ``files`` are those that steps of outputs name. ``tolerances`` of accuracy by quantity override
    the default. ``evidence`` keeps that of each side for other items of the session.
    """

    case: Case
    dataset: Dataset | None
    files: Files
    tolerances: Mapping[str, float]
    evidence: MutableMapping[Hashable, Evidence]

    def __call__(self, pair: AgentPair, timed: Mapping[SideName, Outputs]) -> OutputFindings:
        """Return the verdicts on agreement and accuracy, and the inputs that got worse.

        ``timed`` has the outputs for the timed inputs by side. Accuracy is compared where outputs
        disagree, too. Raises InvalidRun where the baseline's own outputs cannot be used.
        """
        manifest = self.case.loaded.manifest
        names = [output.name for output in manifest.outputs]
        baseline = {name: timed["a"][name] for name in names}
        candidate = {name: timed["b"][name] for name in names}
        _check_baseline(baseline)
        agreement = check_outputs(baseline, candidate, self._tolerance())
        if self.dataset is None or not manifest.has_accuracy:
            return OutputFindings([agreement])
        are_wrong = agreement.verdict is Verdict.REGRESSED
        accuracy = _AccuracyCheck(self, self.dataset, pair, are_wrong)
        try:
            found = accuracy.compare()
        except OutputError as error:
            return OutputFindings([_without_accuracy(agreement, error)])
        except MlmsError as error:
            if not are_wrong:
                raise
            return OutputFindings([_without_accuracy(agreement, error)])
        return found._replace(comparisons=[agreement, *found.comparisons])

    def _tolerance(self) -> Tolerance | None:
        agreement = self.case.agreement
        if agreement is None:
            return None
        return Tolerance(agreement.rtol, agreement.atol)


def _without_accuracy(agreement: Comparison, error: MlmsError) -> Comparison:
    """Return the verdict on outputs whose accuracy can't be computed: they are wrong.

    The reason is that of the outputs, if they have one already.
    """
    return agreement.but(verdict=Verdict.REGRESSED, lacking=agreement.lacking or str(error))


def _check_baseline(outputs: Outputs) -> None:
    for name, values in outputs.items():
        if not np.isfinite(values).all():
            raise InvalidRun(
                f"the baseline's output {name!r} has NaN or infinity; "
                f"there is nothing to compare with"
            )


@dataclass(frozen=True)
class _AccuracyCheck:
    """Comparison of the accuracy of both sides over a dataset.

    ``are_wrong`` is whether the outputs for the timed inputs disagree.
    """

    check: OutputCheck
    dataset: Dataset
    pair: AgentPair
    are_wrong: bool

    def compare(self) -> OutputFindings:
        """Return the verdicts on the quantities of the manifest's task.

        Raises InvalidRun where the baseline's outputs cannot be used, OutputError where the
        candidate's cannot.
        """
        try:
            baseline = self._evidence("a")
        except OutputError as error:
            raise InvalidRun(f"the baseline's outputs can't be used: {error}") from None
        candidate = self._evidence("b")
        manifest = self.check.case.loaded.manifest
        seed = manifest.evaluate.seed
        comparisons = compare_evidence(baseline, candidate, self.check.tolerances, seed)
        order = facts_of(manifest.task).quantities
        comparisons.sort(key=lambda compared: order.index(compared.quantity))
        regressed = any(compared.verdict is Verdict.REGRESSED for compared in comparisons)
        if not regressed and not self.are_wrong:
            return OutputFindings(comparisons)
        return OutputFindings(comparisons, worse_inputs(baseline, candidate, self.dataset))

    def _evidence(self, side: SideName) -> Evidence:
        """Return the evidence of a side, computed once a session."""
        case = self.check.case if side == "b" else self.check.case.baseline
        key = (case.loaded.path, case.model.framework, case.stack, case.device)
        known = self.check.evidence
        if key not in known:
            with self.pair.running(side) as predictor:
                known[key] = score_case(case, predictor, self.dataset, self.check.files)
        return known[key]
