"""Candidates that fail where the baseline does not: at import, load, a call, or the exit."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlms_predictors._run.servers import ModelReplacedError

from pytest_mlms.core.errors import AgentError, Crashed, InvalidRun, MlmsError, OutputError
from pytest_mlms.core.records import Comparison, Verdict, device_name
from pytest_mlms.core.statistics import fisher_probability
from pytest_mlms.decide.upgrade.rounds import Outputs, SideName
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.agent.process import Refused

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

EXITS_TO_FAIL = 6
"""Exits of B that show that it fails more often, where all of them do, and none of A's."""

_EVIDENCE = 2 * EXITS_TO_FAIL * math.log(2)  # what so many exits are
MOST_EXITS = 40
"""Exits of a side, beyond which no process is started for its end."""
_SUSPECT = 1 / 6  # share of exits that B fails more of
_UNLIKE = 0.05  # that processes which only end fail so much more seldom by chance
_OF_NO_USE = 0.5  # share of exits that A fails


@dataclass
class ExitCounts:
    """Exits of both sides, as many of each, and how many of them failed."""

    exits: int = 0
    a: int = 0
    b: int = 0

    def add(self, a: bool, b: bool) -> None:
        """Add an exit of each side, which failed or did not."""
        self.exits += 1
        self.a += a
        self.b += b

    @property
    def is_more(self) -> bool:
        """True if B fails more often than A, by a part of the exits that matters."""
        return self.b - self.a >= max(1.0, _SUSPECT * self.exits)

    @property
    def shows_more(self) -> bool:
        """True if B surely fails more often than A: by the ratio of their likelihoods.

        Where both fail equally often, however often that is, it shows in 0.06 % of items at any of
        40 looks; where each exit of B fails after six, and where every other does in 95 %.
        """
        if self.b <= self.a:
            return False
        likely = _log_likelihood(self.a, self.exits) + _log_likelihood(self.b, self.exits)
        alike = _log_likelihood(self.a + self.b, 2 * self.exits)
        return likely - alike > _EVIDENCE - 1e-9


def _log_likelihood(failed: int, exits: int) -> float:
    """Return the log of the largest likelihood of so many failures."""
    parts = (failed, exits - failed)
    return math.fsum(part * math.log(part / exits) for part in parts if part)


@dataclass
class Exits:
    """How the processes of an upgrade ended, over all rounds.

    ``binds_threads`` is whether one had threads on cores that it started on, after it was moved.
    ``counts`` are of all processes and ``of_rounds`` of those that were measured: others
    ``only_end``, after so few calls that they may not fail as these do.
    """

    binds_threads: bool = False
    only_end: bool = False
    counts: ExitCounts = field(default_factory=ExitCounts)
    of_rounds: ExitCounts = field(default_factory=ExitCounts)
    _failure: str = ""

    def end(self, predictors: Mapping[SideName, Predictor]) -> None:
        """End both sides as programs end.

        Raises Crashed where the candidate surely fails more often than the baseline. A side that
        was ended before, as by a profiler, tells nothing.
        """
        if self._is_of_no_use or any(each.agent.was_ended for each in predictors.values()):
            return
        began = time.monotonic()
        for predictor in predictors.values():
            predictor.agent.leave(_EXIT_SECONDS)
        of_baseline = predictors["a"].agent.end_of_leaving(_EXIT_SECONDS)
        taken = time.monotonic() - began
        allowed = max(_EXIT_SECONDS, _TIMES_THE_BASELINE * taken)
        if of_baseline:
            allowed = max(1.0, _EXIT_SECONDS - taken)  # it has had as long as the baseline by then
        failure = predictors["b"].agent.end_of_leaving(allowed)
        self._failure = failure or self._failure
        counts = [self.counts] if self.only_end else [self.counts, self.of_rounds]
        for each in counts:
            each.add(bool(of_baseline), bool(failure))
        if any(each.shows_more for each in counts):
            raise Crashed(f"{self._failure}\n{self._told}")

    @property
    def are_suspect(self) -> bool:
        """True if the candidate seems to fail more often, and further exits may show it."""
        can_show = self.counts.exits < MOST_EXITS and not self._is_of_no_use
        return self.counts.is_more and can_show

    @property
    def always_differ(self) -> bool:
        """True if each exit of the candidate failed, more than one, and none of the baseline."""
        return self.counts.exits == self.counts.b > 1 and not self.counts.a

    def open_comparison(self) -> Comparison | None:
        """Return the comparison of a candidate that failed more often, but not surely; None if not.

        It leaves the item INCONCLUSIVE where that is by a part of the exits that matters: of all,
        or of those of rounds where processes that only end tell nothing of these.
        """
        is_more = self.counts.is_more or self._differs_in_rounds
        if not is_more and self.counts.b <= self.counts.a:
            return None
        advice = "; a larger --mlms-budget may decide it" if self.are_suspect else ""
        failure = self._failure.partition("\n")[0]
        told = crash_comparison(f"{self._told}, which may be chance{advice}: {failure}")
        gate = is_more and not self._is_of_no_use
        return told.but(verdict=Verdict.INCONCLUSIVE, gate=gate, replicates=self.counts.exits)

    @property
    def _differs_in_rounds(self) -> bool:
        """True if B fails more often after the calls of rounds, and not so in other processes."""
        of_rounds = self.of_rounds
        others = self.counts.exits - of_rounds.exits
        failed = self.counts.b - of_rounds.b
        chance = fisher_probability(failed, others, of_rounds.b, of_rounds.exits)
        return of_rounds.is_more and chance < _UNLIKE

    @property
    def _is_of_no_use(self) -> bool:
        """True if the baseline fails so often that nothing can be compared with it."""
        return self.counts.a > _OF_NO_USE * max(EXITS_TO_FAIL, self.counts.exits)

    @property
    def _told(self) -> str:
        counts, rounds = self.counts, self.of_rounds
        told = f"of {counts.exits} exits of each side B failed in {counts.b}, A in {counts.a}"
        if self._differs_in_rounds:
            told += f" (of {rounds.exits} after the calls of rounds in {rounds.b}, A in {rounds.a})"
        return told


def crash_or(
    error: MlmsError, sides: Mapping[str, PredictorSpec], batches: Sequence[Outputs]
) -> MlmsError:
    """Return Crashed for an error of the candidate that a fresh baseline does not have, too.

    The baseline loads its model, and runs the batches if there are some. Where a side found no room
    on a GPU that it alone has, InvalidRun is returned: both have their models there at once. It is,
    too, where a server's model was replaced. Other errors are returned as they are, with what the
    baseline says.
    """
    if not error.side or not isinstance(error, (AgentError, OutputError)):
        return error
    if isinstance(error, Refused) and error.error == ModelReplacedError.__name__:
        return InvalidRun(str(error))
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
