"""The recorder of an item: what it measures, decides and keeps while it runs."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pytest_mlms.core.errors import InvalidRun, untrusted
from pytest_mlms.core.files import replacing, write_arrays
from pytest_mlms.core.recorded import folder_of_item
from pytest_mlms.core.records import Decision, Estimate, Launch, Limit, OwnScale, Place, Verdict
from pytest_mlms.core.text import visible
from pytest_mlms.keep.results.item_result import Recording
from pytest_mlms.keep.results.line import (
    EstimateRecord,
    Judgement,
    LaunchRecord,
    LimitRecord,
    OwnQuantity,
    Software,
)
from pytest_mlms.keep.results.own_quantities import (
    Better,
    Values,
    decide_own,
    estimate_own,
    place_of,
)
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.measure.evaluate.limits import alike, explain, judge, margin, summarize, worst
from pytest_mlms.warning_types import (
    MlmsArtifactLost,
    MlmsContention,
    MlmsInconclusive,
    MlmsWarning,
)

_LONGEST_UNIT = 40  # characters
_OF_SERVERS = ("server", "model_versions")  # facts of the predictors that ask them


class Recorder:
    """Collects the results of one item.

    ``folder`` is where its artifacts go; it is made when the first is kept, and has none of an
    earlier run of the item. ``place`` is the line of the manifest that warnings name, and ``label``
    the model and the case. ``cpu_shares`` returns what the host's CPUs did since the item began.
    ``expected`` is what must be decided where the item settles by limits.
    ``without_limits`` is the text of a failure under --mlms-strict where no limit judges the item.
    """

    def __init__(
        self,
        nodeid: str,
        run_folder: Path,
        place: Place,
        cpu_shares: Callable[[], Any] = dict,
        label: str = "",
        expected: Sequence[Limit] = (),
        without_limits: str = "",
    ) -> None:
        self.folder = _new_folder(run_folder / "items", nodeid)
        self.logs: list[Path] = []
        self._run_folder = run_folder
        self._place = place
        self._label = label
        self._expected = expected
        self._without_limits = without_limits
        self.cpu_shares = cpu_shares
        self._launch: LaunchRecord | None = None
        self._software: Software | None = None
        self._versions: dict[str, Mapping[str, str]] = {}
        self._judgement: Judgement | None = None
        self._undecided: list[str] = []
        self._quantities: dict[str, OwnQuantity] = {}
        self._own_decisions: list[Decision] = []
        self._notes: dict[str, Any] = {}
        self._artifacts: dict[str, str] = {}
        self._lost: dict[str, str] = {}

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on what was measured; None until the item has settled."""
        if self._judgement is None:
            return None
        return self._judgement.verdict

    @property
    def undecided(self) -> str:
        """The reasons why the verdict is INCONCLUSIVE, in one line; "" for other verdicts."""
        return "; ".join(self._undecided)

    def note(self, **fields: Any) -> None:
        """Add fields to the item's line; records become plain values when the line is made."""
        self._notes.update(fields)

    def noted(self, name: str) -> Any:
        """Return a field of the item's line that was noted; None for none."""
        return self._notes.get(name)

    def quantity(
        self,
        name: str,
        value: Values,
        *,
        unit: str = "",
        better: Better,
        limit: float | None = None,
    ) -> None:
        """Record a quantity of your own: for tables, JUnit properties and results.

        ``better`` is "lower" or "higher". ``limit`` is the worst value that may be, in the unit of
        the value; it is judged when the test has run to its end. Several values are replicates,
        such as folds or runs: their mean is recorded with Student's interval, which then decides.
        Of a quantity that is recorded again the last value is kept, and each limit is judged.
        Raises ValueError for a name that is taken or is no identifier, for a unit that is no short
        word, and for values that aren't finite.
        """
        estimate = estimate_own(name, value, unit, better)
        if limit is not None:
            scale = OwnScale(unit, better)
            place = place_of(sys._getframe(1))
            self._own_decisions.append(decide_own(name, limit, estimate, scale, place))
        self._quantities[name] = OwnQuantity.of(estimate, unit, better)

    def add_log(self, path: Path) -> None:
        """Add the log of an agent."""
        if path not in self.logs:
            self.logs.append(path)

    def launched(self, launch: Launch) -> None:
        """Record how agents are started."""
        self._launch = LaunchRecord.of(launch)

    def ran_on(self, predictor: Predictor) -> None:
        """Record the software and the device that were really used; raises as ``check_same``."""
        self._software = Software.of(predictor)
        self.add_log(predictor.agent.log.path)
        self.check_same(predictor)

    def check_same(self, predictor: Predictor, side: str = "b") -> None:
        """Raise InvalidRun where a side has other versions, or asks another server, than before."""
        facts = predictor.device_facts or {}
        now = {**predictor.versions, **{name: facts[name] for name in _OF_SERVERS if name in facts}}
        before = self._versions.setdefault(side, now)
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                raise InvalidRun(
                    f"{name} was {before.get(name)} and is {now.get(name)}: it was changed while "
                    f"it was measured; measure again"
                )

    def keep(self, name: str, write: Callable[[Path], None]) -> None:
        """Make an artifact of this name by ``write``, which is given a path with its suffix.

        Where the disk refuses it, the artifact is lost or stays as it was, and the result is kept.
        """
        path = self.folder / name
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as temporary:
                write(temporary)
        except OSError as error:
            self._lose(name, error)
            return
        self._artifacts[name] = self._relative(path)
        self._lost.pop(name, None)

    def keep_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Keep arrays by name in an .npz file, as ``keep`` does.

        Raw times of a process are in samples-N.npz, those of a run of load that a search made in
        load-N.npz, and what there is of one that did not come to its end in part-N.npz.
        mlms_predictors._run.scenarios.Samples describes the arrays. Under load ``start`` is when a
        query was scheduled, and the counters are of all instances, read at the times ``read``.
        """
        self.keep(name, lambda path: write_arrays(path, arrays))

    def settle(
        self,
        estimates: Mapping[str, Estimate],
        decisions: Sequence[Decision],
        strict: bool,
        cause: Callable[[], str] = str,
        problems: Sequence[str] = (),
    ) -> None:
        """Record what was measured and decided.

        Fails the item where a limit is broken, and warns where one is undecided, as one is that was
        expected and has no decision; with ``strict`` that fails, too, and so does an item of a
        manifest without limits. ``cause`` returns more lines for the text of a failure, and is only
        called for one. Raises InvalidRun where there are ``problems``: then nothing can be trusted.
        """
        decided = [decision.limit for decision in decisions]
        missing = [limit for limit in self._expected if limit not in decided]
        decisions = [*decisions, *judge(missing, {})]
        if problems:
            decisions = [replace(decision, verdict=Verdict.INVALID) for decision in decisions]
        records = {}
        for name, estimate in estimates.items():
            records[name] = EstimateRecord.made_of(name, estimate)
        self._judgement = Judgement(
            verdict=Verdict.INVALID if problems else worst([each.verdict for each in decisions]),
            margin=margin(decisions),
            estimates=records,
            limits=tuple(LimitRecord.of(decision) for decision in decisions),
        )
        if problems:
            raise InvalidRun(untrusted(problems))
        self._conclude(decisions, strict, cause)
        if strict and self._without_limits and not decisions:
            _fail([self._without_limits])

    def settle_own(self, strict: bool) -> None:
        """Record the verdict on the quantities that a user's test limits, if it limits any.

        Fails and warns as ``settle`` does.
        """
        decisions = self._own_decisions
        if not decisions:
            return
        self._judgement = Judgement(
            verdict=worst([decision.verdict for decision in decisions]),
            margin=margin(decisions),
            limits=tuple(LimitRecord.of(decision) for decision in decisions),
        )
        self._conclude(decisions, strict)

    def _conclude(
        self, decisions: Sequence[Decision], strict: bool, cause: Callable[[], str] = str
    ) -> None:
        failed = _with_verdict(decisions, Verdict.FAILED, Verdict.REGRESSED, Verdict.INVALID)
        undecided = _with_verdict(decisions, Verdict.INCONCLUSIVE)
        if failed or (strict and undecided):
            lines = [explain(decision) for decision in failed + undecided]
            lines += cause().splitlines()
            _fail(lines)
        for group in alike(undecided):
            self._leave_undecided(summarize(group), group[0].limit.place)

    def settle_upgrade(self, judgement: Judgement, place: Place, strict: bool) -> None:
        """Record the verdict on an upgrade, with the text that explains it.

        Fails the item where it is REGRESSED, and warns where it is INCONCLUSIVE; with ``strict``
        that fails, too. ``place`` is the line that a warning names.
        """
        self._judgement = judgement
        text = judgement.text or ""
        undecided = judgement.verdict is Verdict.INCONCLUSIVE
        if judgement.verdict is Verdict.REGRESSED or (strict and undecided):
            _fail([text])
        if undecided:
            self._leave_undecided(_in_one_line(text), place)

    def settle_without_limits(
        self, shortcomings: Sequence[str], category: type[MlmsWarning], strict: bool
    ) -> None:
        """Record PASSED for an item that has no limits, such as a trace.

        Warns of each of ``shortcomings``; with ``strict`` the item fails for them instead.
        """
        self._judgement = Judgement(Verdict.PASSED, margin([]), estimates={}, limits=())
        if shortcomings and strict:
            self._judgement = Judgement(Verdict.FAILED, margin([]), estimates={}, limits=())
            _fail(shortcomings)
        for text in shortcomings:
            self._warn(text, category, self._place)

    def warn_of_contention(self, text: str) -> None:
        """Warn that other programs disturbed what was measured."""
        self._warn(text, MlmsContention, self._place)

    def recording(self) -> Recording:
        """Return what was recorded so far; logs that were never written are left out."""
        logs = [self._relative(log) for log in self.logs if log.exists()]
        return Recording(
            launch=self._launch,
            software=self._software,
            notes=dict(self._notes),
            quantities=dict(self._quantities),
            judgement=self._judgement,
            artifacts=dict(self._artifacts),
            artifacts_lost=dict(self._lost),
            logs=logs,
            cpu_shares=self.cpu_shares(),
        )

    def _lose(self, name: str, error: OSError) -> None:
        """Warn of the first artifact that an item loses; the results name all of them."""
        is_first = not self._lost
        self._lost[name] = str(error)
        if is_first:
            text = (
                f"{self.folder / name} could not be written: {error.strerror}; "
                f"make room, or name another folder by --mlms-results"
            )
            self._warn(text, MlmsArtifactLost, self._place)

    def _leave_undecided(self, reason: str, place: Place) -> None:
        self._undecided.append(reason)
        self._warn(reason, MlmsInconclusive, place)

    def _warn(self, text: str, category: type[MlmsWarning], place: Place) -> None:
        """Warn with the place in the user's file instead of a place in ours."""
        labelled = f"{self._label}: {text}" if self._label else text
        warnings.warn_explicit(visible(labelled), category, str(place.path), place.line)

    def _relative(self, path: Path) -> str:
        return path.relative_to(self._run_folder).as_posix()


RECORDER = pytest.StashKey[Recorder]()
"""The key of an item's stash that has its recorder."""


def _new_folder(items: Path, nodeid: str) -> Path:
    """Return a folder for an item that is not there yet, as an item may run again."""
    name = folder_of_item(nodeid)
    folder = items / name
    number = 1
    while folder.exists():
        number += 1
        folder = items / f"{name}-{number}"
    return folder


def _with_verdict(decisions: Sequence[Decision], *verdicts: Verdict) -> list[Decision]:
    return [decision for decision in decisions if decision.verdict in verdicts]


def _fail(lines: Sequence[str]) -> NoReturn:
    pytest.fail(visible("\n".join(lines)), pytrace=False)


def _in_one_line(text: str) -> str:
    """Return the first line of an upgrade's text, with its last, which is advice."""
    first, *others = text.splitlines()
    if not others:
        return first
    return f"{first}; {others[-1].strip()}"
