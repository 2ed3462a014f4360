"""The verdict on the outputs of an upgrade, and its text: what was compared, on how many inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from pytest_mlms.core.records import Comparison, Verdict
from pytest_mlms.core.statistics import Interval, binomial_bounds
from pytest_mlms.decide.upgrade.compared_inputs import PictureSweep
from pytest_mlms.decide.upgrade.rounds import SideName
from pytest_mlms.decide.upgrade.served_share import ServedShare, bounds_of_calls
from pytest_mlms.measure.agent.predictor import RepeatedCalls
from pytest_mlms.measure.evaluate.closeness import Tolerance
from pytest_mlms.measure.evaluate.output_sweep import SPREADS, OutputFinding, OutputSweep

_BOUND_OF_FAILING = 0.01
_BOUND_OF_PASSING = 0.05
_SEEN = 0.95
_MOST_NAMED = 3
_WRITTEN_OUT = 100
_MOST_WRITTEN_OUT = 1e9
_MOST_UNJUDGED = 0.1
_MUCH_WORSE = 10  # times the difference of the baseline's own calls
_MOST_VARYING = 0.01
"""The share by which a baseline may vary from call to call and still be a measure."""
TIMED = "for the timed inputs"
BY_CALL = "from call to call"
BY_THREADS = "with other numbers of threads"
OWN_THREADS = "at the frameworks' own number of threads"
_OF_ITSELF = "B against itself "
OF_LOAD = f"{_OF_ITSELF}under load"
OF_PROCESS = f"{_OF_ITSELF}in another process"
OF_FIRST_CALL = f"{_OF_ITSELF}in the first call of a process"
CONTINUED = f"{_OF_ITSELF}with the first half of its answer in the prompt"
JOINED = "in the batches that queries under load were joined to"
PICTURES = "the decoded pictures"
"""The part whose texts a ``PictureSweep`` has."""
_OF_ONE_SIDE = (PICTURES, OF_LOAD, OF_PROCESS, OF_FIRST_CALL, CONTINUED)


@dataclass
class _Repeats:
    """Repeated calls of a side on the same batch, over the rounds so far."""

    calls: int = 0
    differing: int = 0
    ratio: float = 0.0
    lost: int = 0

    def add(self, found: RepeatedCalls, sweep: OutputSweep) -> None:
        """Add those of a round, and what the outputs that differ come to."""
        self.calls += found.calls
        self.differing += found.differing
        self.ratio = max(self.ratio, math.inf if sweep.problem else sweep.ratio)
        self.lost += sweep.lost

    @property
    def share(self) -> Interval:
        """The bounds of the share of calls that gave something else."""
        return binomial_bounds(self.differing, self.calls, _BOUND_OF_FAILING, _BOUND_OF_PASSING)

    @property
    def is_faulty(self) -> bool:
        """True if calls gave something else by more than rounding."""
        return self.differing > 0 and self.ratio > 1


@dataclass
class Circumstances:
    """All that decides beside the inputs that went through both sides once.

    ``inputs`` is the share of them that must agree, ``of`` how many the dataset has (0 without
    one), ``seed`` that of a sample or of random inputs. ``spreads`` has the share by which an
    output of the baseline varies by itself, by its name and the words for how; it is infinite where
    nothing can be allowed. ``parts`` has what was compared elsewhere, by the words for it, of
    which ``own`` has that of the baseline with itself; ``served`` are the calls under load by side.
    ``unheld`` is why nothing was compared at the frameworks' own numbers of threads: ``is_killed``
    is whether the candidate was killed there, as by a lack of memory for the processes of both.
    ``unbatched`` is why the baseline was not compared by the size of its batch, where it died.
    ``unjudged`` names those of ``timed`` inputs whose outputs rounding decides.
    """

    tolerance: Tolerance | None = None
    inputs: float = 1.0
    of: int = 0
    seed: int | None = None
    spreads: dict[tuple[str, str], float] = field(default_factory=dict)
    parts: dict[str, OutputSweep] = field(default_factory=dict)
    own: dict[str, OutputSweep] = field(default_factory=dict)
    served: dict[SideName, ServedShare] = field(
        default_factory=lambda: {"a": ServedShare(), "b": ServedShare()}
    )
    repeats: dict[SideName, _Repeats] = field(
        default_factory=lambda: {"a": _Repeats(), "b": _Repeats()}
    )
    unheld: str = ""
    is_killed: bool = False
    unbatched: str = ""
    unjudged: list[str] = field(default_factory=list)
    timed: int = 0

    def part(self, where: str, fresh: OutputSweep, side: SideName = "b") -> OutputSweep:
        """Return the comparison of a part so far, to be added to: ``fresh`` at first.

        The few inputs of a call or a round would not show which share of them differs.
        """
        fresh.may_differ = 1 - self.inputs
        return (self.own if side == "a" else self.parts).setdefault(where, fresh)

    def note(self, where: str, sweep: OutputSweep) -> None:
        """Keep what was compared elsewhere; of several comparisons there the worst one."""
        earlier = self.parts.get(where)
        if earlier is None or _badness(sweep) > _badness(earlier):
            self.parts[where] = sweep

    def undecided(self, sweep: OutputSweep) -> str:
        """Return why equal or close outputs show nothing, "" where they do."""
        for (name, how), share in self.spreads.items():
            if how == BY_CALL and share > _MOST_VARYING:
                return (
                    f"the baseline's own {name!r} varies by {share:.2g} {how}, which is no measure "
                    f"of the candidate; fix the model's seed"
                )
        if len(set(sweep.nan)) > _MOST_UNJUDGED * sweep.inputs:
            return "the baseline has NaN for too many inputs, which can't be compared"
        unjudged = len(set(sweep.unjudged)) > _MOST_UNJUDGED * sweep.inputs
        if unjudged or len(self.unjudged) > _MOST_UNJUDGED * self.timed:
            return "rounding decides the outputs for too many inputs; write an agreement"
        return f"{self.unheld}; free memory for two processes more" if self.is_killed else ""

    @property
    def intermittent(self) -> bool:
        """True if repeated calls of B give something else now and then, and those of A do not.

        Where A's do, B is worse where its own are off by far more, or by no far less and twice as
        often: of equal faults either side's largest may be the larger one. NaN is worse than
        another form, though both are infinitely far off.
        """
        a, b = self.repeats["a"], self.repeats["b"]
        if not b.is_faulty or not a.is_faulty:
            return b.is_faulty
        if b.lost and not a.lost:
            return True
        is_often = b.share.low > SPREADS * a.share.high
        return (is_often and _MUCH_WORSE * b.ratio >= a.ratio) or b.ratio > _MUCH_WORSE * a.ratio


class OutputsCompared(NamedTuple):
    """Record of what outputs were compared on, and of what was found.

    ``inputs`` went through both sides, of as many as the dataset has (0 without one), drawn by
    ``seed`` where they are a sample or random. ``beyond`` of them differ by more than is allowed,
    and ``flips`` have another best class. ``nan`` names those for which the baseline has NaN.
    ``repeated`` has by side how many calls were repeated on the same batch, and how many of them
    gave something else. ``spreads`` has the share of its size by which an output of the baseline
    varies by itself, where that is more than rounding. ``elsewhere`` has what differs beside these
    inputs, such as the decoded pictures that they are made of.
    """

    inputs: int
    of: int
    seed: int | None
    beyond: int
    flips: int
    nan: Sequence[str]
    outputs: Sequence[OutputFinding]
    repeated: Mapping[str, tuple[int, int]]
    spreads: Mapping[str, float]
    elsewhere: Sequence[str] = ()


def compared(sweep: OutputSweep, about: Circumstances) -> OutputsCompared:
    """Return the record of a comparison."""
    return OutputsCompared(
        inputs=sweep.inputs,
        of=about.of,
        seed=about.seed,
        beyond=sweep.beyond,
        flips=sweep.flips,
        nan=sweep.nan[:_MOST_NAMED],
        outputs=list(sweep.outputs.values()),
        repeated={side: (each.calls, each.differing) for side, each in about.repeats.items()},
        spreads={
            name: share for (name, _), share in sorted(about.spreads.items(), key=itemgetter(1))
        },
        elsewhere=_wrong_parts(about),
    )


def agreement_of(sweep: OutputSweep, about: Circumstances) -> Comparison:
    """Return the verdict on B's outputs. The ratio is the largest multiple of the tolerance."""
    wrong = _wrong_parts(about)
    judged = [sweep, *[about.parts[where] for where in wrong]]
    ratio = max(each.ratio for each in judged)
    verdict = verdict_on_share(sweep, about.inputs)
    if wrong or about.intermittent:
        verdict = Verdict.REGRESSED
        ratio = max(ratio, about.repeats["b"].ratio if about.intermittent else 0.0)
    problems = [each.problem for each in judged if each.problem]
    lacking = problems[0] if problems else ""
    if verdict is Verdict.INCONCLUSIVE:
        judged_inputs = sweep.inputs - sweep.excused
        lacking = (
            f"{sweep.beyond} of {judged_inputs} inputs neither show that {about.inputs:.4g} of all "
            f"agree nor that fewer do; a larger dataset decides it"
        )
    allowed = max((found.allowed for found in sweep.outputs.values()), default=0.0)
    return Comparison(
        quantity="agreement",
        a=math.nan,
        b=math.nan,
        unit="fraction",
        tolerance=allowed if about.tolerance is None else about.tolerance.rtol,
        gate=True,
        replicates=sweep.inputs,
        of="outputs",
        lacking=lacking,
        ratio=ratio,
        low=ratio,
        high=ratio,
        verdict=verdict,
        told="; ".join(_texts(sweep, about, wrong)),
    )


def without_measure(agreement: Comparison, lacking: str) -> Comparison:
    """Return the verdict on outputs of which the baseline's own are no measure.

    What the baseline never gives stays REGRESSED: outputs of another form, NaN, and more than
    twice of what the baseline varies. Otherwise nothing is known.
    """
    if agreement.verdict is Verdict.REGRESSED:
        return agreement
    return agreement.but(verdict=Verdict.INCONCLUSIVE, lacking=lacking)


def by_design(
    agreement: Comparison, sweep: OutputSweep, about: Circumstances, has_accuracy: bool
) -> Comparison:
    """Return the verdict on the outputs of two variants, which differ by design.

    How far is told and not judged; that is up to accuracy, and a manifest without it must say how
    far they may differ. What no variant may do is REGRESSED: outputs of another form, NaN, and a
    variant that disagrees with itself.
    """
    own = [at for at in _wrong_parts(about) if at in _OF_ONE_SIDE]
    is_broken = bool(sweep.problem or own)
    parts = [part for at, part in about.parts.items() if not _is_alike(part, at, about)]
    has_nan = any(each.lost for each in (sweep, *parts))
    if is_broken or has_nan or about.intermittent:
        return agreement
    text = f"variants differ by design: {agreement.told}"
    if has_accuracy:
        return agreement.but(verdict=Verdict.PASSED, gate=False, lacking="", told=text)
    lacking = "nothing says how far the outputs of variants may differ; write an agreement"
    return agreement.but(verdict=Verdict.INCONCLUSIVE, lacking=lacking, told=text)


def _badness(sweep: OutputSweep) -> tuple[bool, float]:
    return bool(sweep.problem), sweep.ratio


def _wrong_parts(about: Circumstances) -> list[str]:
    """Return where a candidate is wrong, and not as the baseline is where that may differ, too."""
    return [
        where
        for where in _parts_of(Verdict.REGRESSED, about)
        if not _is_alike(about.parts[where], where, about)
    ]


def _parts_of(verdict: Verdict, about: Circumstances) -> list[str]:
    """Return where the verdict on what differs is this one."""
    return [
        where
        for where, part in about.parts.items()
        if verdict_on_share(part, about.inputs, _share(part, where, about)) is verdict
    ]


def _is_alike(part: OutputSweep, where: str, about: Circumstances) -> bool:
    """Return whether the baseline differs from itself, too, and the candidate not surely more."""
    own = about.own.get(where)
    if own is None or not own.beyond or (part.problem and not own.problem):
        return False
    if part.lost and not own.lost:
        return False
    b, a = _share(part, where, about).low, _share(own, where, about, "a").high
    is_often = b * (1 - a) > SPREADS * a * (1 - b)  # the odds, as no share is twice of most
    return not is_often and part.ratio <= _MUCH_WORSE * own.ratio


def _share(sweep: OutputSweep, where: str, about: Circumstances, side: SideName = "b") -> Interval:
    """Return the bounds of the share of inputs that differ; one counts once, however often."""
    if where == OF_LOAD:
        return about.served[side].bounds(_BOUND_OF_FAILING, _BOUND_OF_PASSING)
    return _bounds(sweep)


def _bounds(sweep: OutputSweep) -> Interval:
    if sweep.calls:
        return bounds_of_calls(sweep.calls, _BOUND_OF_FAILING, _BOUND_OF_PASSING)
    judged = sweep.inputs - sweep.excused
    return binomial_bounds(sweep.beyond, judged, _BOUND_OF_FAILING, _BOUND_OF_PASSING)


def verdict_on_share(sweep: OutputSweep, inputs: float, share: Interval | None = None) -> Verdict:
    """Return the verdict on some inputs, of which a share of ``inputs`` must agree.

    ``share`` has the bounds of that which differs, where it isn't that of the sweep.
    """
    if sweep.problem:
        return Verdict.REGRESSED
    if not sweep.beyond:
        return Verdict.PASSED
    if inputs >= 1:
        return Verdict.REGRESSED
    low, high = share or _bounds(sweep)
    if low > 1 - inputs:
        return Verdict.REGRESSED
    return Verdict.PASSED if high < 1 - inputs else Verdict.INCONCLUSIVE


def _texts(sweep: OutputSweep, about: Circumstances, wrong: Sequence[str]) -> list[str]:
    """Return the parts of the text, the worst first."""
    texts = []
    if about.intermittent:
        texts.append(_repeats_text("B", about.repeats["b"]))
    if sweep.beyond:
        texts.append(_differing(sweep))
    pictures = about.parts.get(PICTURES)
    if isinstance(pictures, PictureSweep):
        texts.append(pictures.told)
    told = {PICTURES, TIMED} if sweep.beyond else {PICTURES}
    texts += _parts_texts(about, [where for where in wrong if where not in told])
    if not sweep.beyond and sweep.inputs:
        texts.append(_agreeing(sweep, about))
    elif sweep.inputs and about.seed is not None:
        texts.append(f"compared on {_on(sweep, about)}")
    return [*texts, *_baseline_texts(sweep, about)]


def _parts_texts(about: Circumstances, wrong: Sequence[str]) -> Iterator[str]:
    """Yield the faults of other parts, and the parts that few calls leave undecided."""
    served = about.served["b"]
    for where in wrong:
        often = f", {served.told}" if where == OF_LOAD else ""
        yield f"{where}, {_what_differs(about.parts[where])}{often}"
    for where in _parts_of(Verdict.INCONCLUSIVE, about):
        part = about.parts[where]
        often = f"on {part.beyond:,} of {part.inputs:,} inputs"
        if where != PICTURES:
            often = served.told if where == OF_LOAD else often
            yield f"undecided {where}: {_what_differs(part)} {often}"


def _what_differs(part: OutputSweep) -> str:
    return part.problem or f"outputs differ by {_times(part.ratio)} what is allowed"


def _baseline_texts(sweep: OutputSweep, about: Circumstances) -> Iterator[str]:
    """Yield the traits of the baseline's own outputs, and the parts that could not be compared."""
    if about.repeats["a"].is_faulty:
        yield _repeats_text("the baseline", about.repeats["a"])
    for where, own in about.own.items():
        if own.beyond:
            yield f"the baseline gives something else {where.removeprefix(_OF_ITSELF)}, too"
    for (name, how), share in about.spreads.items():
        by = "more than is allowed" if math.isinf(share) else f"{share:.2g}"
        yield f"the baseline's own {name!r} varies by {by} {how}"
    unjudged = list(dict.fromkeys([*sweep.unjudged, *about.unjudged]))
    if unjudged:
        yield f"not judged for {_named(unjudged)}, where rounding decides"
    if sweep.nan:
        count = f"{len(sweep.nan):,} of {sweep.inputs:,} inputs"
        yield f"the baseline has NaN for {count}: {_named(sweep.nan)}"
    yield from filter(None, (about.unheld, about.unbatched))


def _repeats_text(who: str, repeats: _Repeats) -> str:
    """Return that repeated calls differ, how often and by how much."""
    every = repeats.calls / repeats.differing
    return (
        f"{who} gives something else on {repeats.differing:,} of {repeats.calls:,} repeated calls "
        f"on the same input (1 of {every:.2g}), by {_times(repeats.ratio)} what is allowed"
    )


def _differing(sweep: OutputSweep) -> str:
    text = f"outputs differ by {_times(sweep.ratio)} what is allowed"
    text += f" on {sweep.beyond:,} of {sweep.inputs:,} inputs"
    if sweep.worst_names:
        text += f" (worst: {', '.join(sweep.worst_names[:_MOST_NAMED])})"
    if sweep.flips:
        text += f", and {sweep.flips:,} have another best class"
    return text


def _agreeing(sweep: OutputSweep, about: Circumstances) -> str:
    on = _on(sweep, about)
    if sweep.flips:
        on += f"; the best class is another on {sweep.flips:,} of these inputs"
    if sweep.close_calls and not sweep.ratio:
        text = f"tokens are the baseline's, or as likely within rounding ({sweep.close_calls:,}"
        return f"{text} answers), on {on}"
    if sweep.close_calls:
        on += f"; {sweep.close_calls:,} answers have other tokens, as likely within rounding"
    if not (sweep.ratio or sweep.unjudged):
        return f"outputs are equal on {on}"
    worst = max(sweep.outputs.values(), key=lambda found: found.ratio, default=OutputFinding(""))
    if about.tolerance is not None:
        return f"outputs agree within {worst.ratio:.2g} times the manifest's tolerance on {on}"
    within = worst.ratio * worst.allowed
    return f"outputs agree within {within:.1g} (allowed {worst.allowed:.1g}) on {on}"


def _on(sweep: OutputSweep, about: Circumstances) -> str:
    """Return the number of inputs, and of a sample the fault that it would have shown."""
    if not about.of:
        drawn = "" if about.seed is None else f" random inputs (seed {about.seed})"
        return f"{sweep.inputs:,}{drawn or ' inputs'}"
    text = f"{sweep.inputs:,} of {about.of:,} inputs"
    if sweep.inputs < about.of:
        share = 1 - (1 - _SEEN) ** (1 / sweep.inputs)
        text += (
            f" (seed {about.seed}); a fault on {100 * share:.2g} % of them would have been seen "
            f"with {_SEEN:.0%}"
        )
    return text


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    text = ", ".join(names[:_MOST_NAMED])
    return f"{text} and {more:,} more" if more > 0 else text


def _times(ratio: float) -> str:
    if math.isinf(ratio):
        return "infinitely more than"
    number = f"{ratio:,.0f}" if _WRITTEN_OUT <= ratio < _MOST_WRITTEN_OUT else f"{ratio:.3g}"
    return f"up to {number} times"
