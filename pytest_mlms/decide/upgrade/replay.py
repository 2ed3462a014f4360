"""Replay of the decisions on recorded upgrades; nothing is measured.

The decisions are made from the raw pairs where their files are there, and otherwise from the
figures of each round in results.jsonl.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.core.files import DamagedFile, read_arrays
from pytest_mlms.core.quantities import QUANTITIES, upgrade_rules
from pytest_mlms.core.recorded import Recorded
from pytest_mlms.core.records import Comparison, InputGroup, Verdict, main_comparison
from pytest_mlms.core.serialization import from_plain, lines_from
from pytest_mlms.core.token_times import TokenTimes
from pytest_mlms.decide.upgrade.criteria import MISSING, Criteria, missing_gates
from pytest_mlms.decide.upgrade.decision import (
    compare_rounds,
    compare_stalls,
    is_decided,
    verdict_of,
)
from pytest_mlms.decide.upgrade.figures import OF_PROCESS, Figure, figures_of, group_figures
from pytest_mlms.decide.upgrade.labels import point_label, sides_label
from pytest_mlms.decide.upgrade.round_record import RoundRecord, SideRecord, start_orders
from pytest_mlms.decide.upgrade.rounds import (
    CLOCKS,
    Array,
    Clock,
    Round,
    RoundInputs,
    Side,
    SideName,
    available_clocks,
)
from pytest_mlms.decide.upgrade.slow_inputs import groups_beside
from pytest_mlms.measure.evaluate.timed_inputs import ONE_GROUP, Mix


class _Measured(NamedTuple):
    """The figures of a round, and of its groups of inputs where these have several shapes."""

    figures: Mapping[str, Figure]
    groups: Mapping[str, Figure]


_LONGEST_REASON = 200  # characters


@dataclass(frozen=True)
class _Named:
    """A manifest or a stack, of which only the name counts here."""

    name: str


@dataclass(frozen=True)
class RecordedUpgrade:
    """The fields of an upgrade's line in results.jsonl that its decision rests on."""

    nodeid: str
    verdict: Verdict
    manifest: _Named
    stack: _Named
    against: _Named
    framework: str
    device: str
    batch_size: int
    clock: Clock
    terms: Criteria
    rounds: list[RoundRecord]
    comparisons: list[Comparison] = field(default_factory=list)
    artifacts: dict[str, str] = field(default_factory=dict)
    scenario: str | None = None
    shape: str | None = None
    input_groups: list[InputGroup] = field(default_factory=list)

    @property
    def mix(self) -> Mix:
        """The groups of its inputs, and their shares."""
        if not self.input_groups:
            return ONE_GROUP
        groups = [(group.name, group.share) for group in self.input_groups]
        return Mix(*zip(*groups, strict=True))

    @property
    def sides(self) -> str:
        """Both stacks, as tables name them."""
        return sides_label(self.stack.name, self.against.name, self.framework)

    @property
    def point(self) -> str:
        """The rest of the case."""
        return point_label(self.device, self.batch_size, self.scenario, self.shape)


class Replay(NamedTuple):
    """The decision on a recorded upgrade, as it would be now.

    ``rounds`` is after how many of its rounds it is decided, ``from_pairs`` whether the raw pairs
    were there.
    """

    upgrade: RecordedUpgrade
    verdict: Verdict
    comparisons: Sequence[Comparison]
    rounds: int
    from_pairs: bool

    @property
    def is_changed(self) -> bool:
        """True if the verdict differs from the recorded one."""
        return self.verdict is not self.upgrade.verdict


def read_upgrades(path: Path) -> tuple[Path, list[RecordedUpgrade]]:
    """Return the folder of a run, and its upgrades that were measured.

    ``path`` is that folder or its results.jsonl. The last line of an item counts, as it may have
    run again. A last line that is cut off is skipped: the run was killed while it wrote it. Raises
    MlmsError where there are no upgrades.
    """
    file = path / "results.jsonl" if path.is_dir() else path
    try:
        with file.open("rb") as lines:
            by_item = {upgrade.nodeid: upgrade for upgrade in _upgrades(lines, file)}
    except OSError as error:
        raise MlmsError(
            f"{file} can't be read: {error.strerror}; name a run's folder, or its results.jsonl"
        ) from None
    if not by_item:
        raise MlmsError(
            f"{file} has no upgrade that was measured; "
            f"it takes a run with --mlms-against or --mlms-aa"
        )
    return file.parent, list(by_item.values())


def _upgrades(lines: IO[bytes], file: Path) -> Iterator[RecordedUpgrade]:
    for number, line in enumerate(lines_from(lines), 1):
        if line.content is None:
            reason = "is no object of JSON; is it a run's results.jsonl?"
            raise MlmsError(f"{file}:{number}: {reason}")
        if line.content.get("kind") == "upgrade" and line.content.get("rounds"):
            yield _upgrade(line.content, f"{file}:{number}")


def _upgrade(line: dict[str, Any], place: str) -> RecordedUpgrade:
    try:
        return from_plain(RecordedUpgrade, line)
    except ValueError as error:  # pydantic's ValidationError is one
        reason = textwrap.shorten(str(error), _LONGEST_REASON)
        raise MlmsError(
            f"{place}: is no upgrade of this version of pytest-mlms ({reason}); measure it again"
        ) from None


def replay_upgrade(
    folder: Path, upgrade: RecordedUpgrade, tolerance: float | None, clock: Clock | None
) -> Replay:
    """Decide a recorded upgrade again, look by look as it was measured.

    ``tolerance``, of latency or of queries under load, and ``clock`` replace those of the record;
    None: as recorded. A regression that was expected stays one. Raises MlmsError where that clock
    was not measured, or where another clock is asked for and the raw pairs are not there.
    """
    raw_rounds = list(_raw_rounds(folder, upgrade))
    from_pairs = len(raw_rounds) == len(upgrade.rounds)
    if from_pairs:
        measured = _measured_from_pairs(upgrade, raw_rounds, clock or upgrade.clock)
    else:
        if clock is not None and clock != upgrade.clock:
            raise MlmsError(
                f"{upgrade.nodeid}: another clock needs the raw pairs, pairs-N.npz, which are not "
                f"there"
            )
        measured = [_Measured(record.figures, record.groups) for record in upgrade.rounds]
    tolerances = dict(upgrade.terms.tolerances)
    if tolerance is not None:
        main = main_comparison(upgrade.comparisons)
        tolerances[main.quantity if main else "latency"] = tolerance
    try:
        decision = _decide(upgrade, measured, tolerances)
    except ArithmeticError:
        problem = "its figures are too far apart to be measured ones"
        raise MlmsError(f"{upgrade.nodeid}: {problem}; was the file edited?") from None
    verdict = decision.verdict
    if upgrade.verdict in (Verdict.ERROR, Verdict.INVALID):
        verdict = upgrade.verdict  # no tolerance changes that
    if upgrade.verdict is Verdict.XFAILED and verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE):
        verdict = Verdict.XFAILED
    return Replay(upgrade, verdict, decision.comparisons, decision.rounds, from_pairs)


class _Decision(NamedTuple):
    """The decision after so many rounds."""

    verdict: Verdict
    comparisons: Sequence[Comparison]
    rounds: int


def _decide(
    upgrade: RecordedUpgrade, measured: Sequence[_Measured], tolerances: Mapping[str, float]
) -> _Decision:
    """Decide after the first round, and after each further one until every gate is decided."""
    again = {("rounds", name) for name in upgrade_rules()} | {("calls", "stalls")}
    if upgrade.input_groups:
        again.add(("rounds", "group_latency"))
    lasting = [
        one
        for one in upgrade.comparisons
        if (one.of, one.quantity) not in again and one.of != MISSING
    ]
    terms = replace(upgrade.terms, tolerances=tolerances)
    orders = start_orders(upgrade.rounds)
    figures, groups = zip(*measured, strict=True)
    for count in range(1, len(measured) + 1):
        of_rounds = compare_rounds(
            figures[:count], tolerances, terms.gates, terms.rounds, orders[:count]
        )
        of_groups = groups_beside(of_rounds, upgrade.mix, groups[:count], tolerances, terms)
        worst = of_groups and of_groups.worst
        stalls = compare_stalls(figures[:count], tolerances.get("stalls"), terms.rounds)
        comparisons = [*lasting, *of_rounds, *filter(None, (worst, stalls))]
        comparisons += missing_gates(terms, comparisons, upgrade.rounds[:count])
        decision = _Decision(verdict_of(comparisons), comparisons, count)
        if is_decided(comparisons, count, terms.rounds.least):
            break
    return decision


def _measured_from_pairs(
    upgrade: RecordedUpgrade, raw_rounds: Sequence[_Raw], clock: Clock
) -> list[_Measured]:
    """Return the figures of pairs by a clock; quantities of a process are as recorded."""
    available = available_clocks(raw_rounds[0].times)
    if clock not in available:
        raise MlmsError(
            f"{upgrade.nodeid}: the clock {clock} ({CLOCKS[clock]}) was not measured; "
            f"there are {', '.join(available)}"
        )
    found = []
    for (times, inputs), record in zip(raw_rounds, upgrade.rounds, strict=True):
        figures = figures_of(times, clock, upgrade.batch_size, inputs)
        groups = group_figures(times, clock, inputs) if inputs and inputs.is_mixed else {}
        under_load = [name for name, quantity in QUANTITIES.items() if quantity.under_load]
        of_no_clock = {
            name: record.figures[name]
            for name in (*OF_PROCESS, *under_load)
            if name in record.figures
        }
        found.append(_Measured({**figures, **of_no_clock}, groups))
    return found


class _Raw(NamedTuple):
    """The raw pairs of a round, and which inputs they were of; None where that isn't known."""

    times: Round
    inputs: RoundInputs | None


def _raw_rounds(folder: Path, upgrade: RecordedUpgrade) -> Iterator[_Raw]:
    """Yield the rounds in their order, up to the first whose raw pairs are not there.

    Pairs that are of groups of inputs without a name in the line are of no use.
    """
    for index, record in enumerate(upgrade.rounds):
        name = upgrade.artifacts.get(f"pairs-{index}.npz")
        path = Recorded(name).file_below(folder) if name else None
        if path is None:
            return
        arrays = _load_arrays(path)
        a = _side(arrays, record.sides["a"], "a")
        b = _side(arrays, record.sides["b"], "b")
        inputs = _inputs_of(arrays, upgrade.mix)
        if inputs is not None and inputs.groups.max(initial=0) >= len(upgrade.mix.names):
            return
        yield _Raw(Round(a, b), inputs)


def _inputs_of(arrays: Mapping[str, Array], mix: Mix) -> RoundInputs | None:
    if "batch" not in arrays or "group" not in arrays:
        return None
    return RoundInputs(arrays["batch"], arrays["group"], mix)


def _load_arrays(path: Path) -> dict[str, Array]:
    try:
        arrays = read_arrays(path)
        for name in ("wall_a", "cpu_a", "wall_b", "cpu_b"):
            if name not in arrays:
                raise DamagedFile(f"it has no {name}")
        return arrays
    except (OSError, DamagedFile) as error:
        raise MlmsError(
            f"{path} can't be read: {error}; remove it to decide from the figures"
        ) from None


def _side(arrays: Mapping[str, Array], record: SideRecord, side: SideName) -> Side:
    return Side(
        wall=arrays[f"wall_{side}"],
        wait=arrays.get(f"wait_{side}"),
        cpu=arrays[f"cpu_{side}"],
        device=arrays.get(f"device_{side}"),
        all_times=arrays.get(f"late_{side}"),
        load_seconds=record.load_seconds,
        first_seconds=record.first_seconds,
        peak_bytes=record.peak_bytes,
        import_bytes=record.import_bytes,
        device_memory=record.device_memory,
        unmeasured=record.unmeasured or {},
        tokens=_tokens(arrays, side),
    )


def _tokens(arrays: Mapping[str, Array], side: SideName) -> TokenTimes | None:
    names = [f"{part}_{side}" for part in ("first", "each", "gaps")]
    if not all(name in arrays for name in names):
        return None
    first, each, gaps = (arrays[name] for name in names)
    return TokenTimes(first, each, gaps, first.size + gaps.size, first.size)
