"""Candidates that fail where the baseline does not: at import, load, a call, or the exit."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun, MlmsError, OutputError
from pytest_mlms.core.records import Comparison, Verdict, device_name
from pytest_mlms.decide.upgrade.rounds import Outputs, SideName
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor

CRASH = "crash"
"""The quantity of a candidate that fails."""

CRASH_SUMMARY = "REGRESSED (crash), B fails where A does not"

_NO_ROOM = re.compile(
    r"out.?of.?memory|\boom\b|resource.?exhausted|alloc_failed|(fail\w*|unable|cannot) to allocate",
    re.IGNORECASE,
)
"""Messages of frameworks where a GPU's memory is full."""

_EXIT_SECONDS = 10.0  # that a process may take to end, or ten times what the baseline takes
_TIMES_THE_BASELINE = 10
_LEAST_FAILURES = {0: 2, 1: 6}
"""Exits of B that fail, for those of A that did: what happens once may happen to either side.

Where both fail equally often, six beside one of twelve are seen in less than one item of 100.
"""


@dataclass
class Exits:
    """How the processes of an upgrade ended: the failures of each side, over all rounds.

    ``binds_threads`` is whether one had threads on cores that it started on, after it was moved.
    """

    binds_threads: bool = False
    failures: dict[SideName, list[str]] = field(default_factory=lambda: {"a": [], "b": []})

    def end(self, predictors: Mapping[SideName, Predictor]) -> None:
        """End both sides as programs end.

        Raises Crashed where the candidate failed so again and the baseline never, or far more often
        than the baseline, which did so once.
        """
        began = time.monotonic()
        for predictor in predictors.values():
            predictor.agent.leave(_EXIT_SECONDS)
        of_baseline = self.failures["a"]
        if len(of_baseline) not in _LEAST_FAILURES or self._fails("a", predictors, _EXIT_SECONDS):
            return  # there is nothing to compare with
        taken = time.monotonic() - began
        if self._fails("b", predictors, max(_EXIT_SECONDS, _TIMES_THE_BASELINE * taken)):
            failures = self.failures["b"]
            if len(failures) >= _LEAST_FAILURES[len(of_baseline)]:
                raise Crashed(failures[-1])

    def _fails(
        self, side: SideName, predictors: Mapping[SideName, Predictor], seconds: float
    ) -> bool:
        problem = predictors[side].agent.end_of_leaving(seconds)
        if problem:
            self.failures[side].append(problem)
        return bool(problem)


def crash_or(
    error: MlmsError, sides: Mapping[str, PredictorSpec], batches: Sequence[Outputs]
) -> MlmsError:
    """Return Crashed for an error of the candidate that a fresh baseline does not have, too.

    The baseline loads its model, and runs the batches if there are some. Where a side found no room
    on a GPU that it alone has, InvalidRun is returned: both have their models there at once. Other
    errors are returned as they are, with what the baseline says.
    """
    if not error.side or not isinstance(error, (AgentError, OutputError)):
        return error
    if _NO_ROOM.search(str(error)) and _has_room_alone(sides[error.side], batches):
        device = sides[error.side].case.device
        return InvalidRun(
            f"both sides have their models on {device} at once, and don't fit: each "
            f"may take half of its memory; use smaller batches or a larger GPU\n{error}"
        )
    if error.side != "b":
        return error
    another = _error_alone(sides["a"], batches)
    if another is not None:
        name = sides["a"].case.stack.name
        return AgentError(f"the baseline {name} fails, too: {another}\n{error}")
    crashed = Crashed(str(error))
    crashed.side, crashed.killed = error.side, error.killed
    return crashed


def _has_room_alone(spec: PredictorSpec, batches: Sequence[Outputs]) -> bool:
    """Return whether a side that found a GPU's memory full runs there without the other one."""
    on_gpu = device_name(spec.case.device) != "cpu"
    return on_gpu and _error_alone(spec, batches) is None


def _error_alone(spec: PredictorSpec, batches: Sequence[Outputs]) -> MlmsError | None:
    """Return the error of a fresh process while the other side has none; None where it works."""
    try:
        with open_predictor(spec) as predictor:
            if batches:
                predictor.bind(batches)
            for place in range(len(batches)):  # each has the time of a reply
                predictor.turn(first=place, outputs=True)
    except MlmsError as error:
        return error
    return None


def crash_comparison(reason: str) -> Comparison:
    """Return the comparison of a candidate that fails, for this reason."""
    return Comparison(
        quantity=CRASH,
        a=math.nan,
        b=math.nan,
        unit="",
        tolerance=0.0,
        gate=True,
        replicates=1,
        of="processes",
        lacking=reason,
        verdict=Verdict.REGRESSED,
    )
