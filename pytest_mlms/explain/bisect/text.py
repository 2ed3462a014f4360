"""A bisection in words: a line for each probe as it happens, and the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.text import shortened
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import upper_end
from pytest_mlms.explain.bisect.judgement import CRASH, Judgement
from pytest_mlms.explain.bisect.record import Conclusion, Probe, Record
from pytest_mlms.explain.bisect.search import Outcome
from pytest_mlms.provide.stacks.exact_packages import Difference, new_releases

_WIDTH = 100
_PURPOSES = {"ends": "ends", "packages": "", "search": "", "neighbours": "fresh data"}
_MOST_LAYERS = 4
_LEAST_SHARE = 0.01  # of the change of all layers
_NAME_OF_LAYER = 50  # characters
_LARGE = 100  # a ratio from which on it has no decimals


def probe_lines(probe: Probe, record: Record) -> Iterator[str]:
    """Yield the line of a probe, and one with the reason where it has one."""
    judged = probe.judgement
    before = _short(probe.before, record)
    after = _short(probe.after, record)
    if judged.outcome is Outcome.UNAVAILABLE:
        yield f"  {after}: can't be installed here, and is left out"
        reason = _last_line(judged.reason)
        yield _cut(reason, indent=4)
        return
    pair = f"{after} against {before}"
    figure = figure_text(judged)
    note = _note(probe)
    columns = f"{pair:<25} {judged.verdict:<12} {figure:<37} {note}"
    line = columns.rstrip()
    yield _cut(line, indent=2)
    is_good = judged.outcome is Outcome.GOOD
    if judged.reason and not is_good:
        yield _cut(judged.reason, indent=4)


def _note(probe: Probe) -> str:
    """Return the purpose of a probe, and the time that it took."""
    purpose = _PURPOSES[probe.purpose]
    is_again = probe.effort > 1 and probe.purpose != "neighbours"
    again = "again" if is_again else ""
    seconds = f"{probe.seconds:.0f} s"
    return _joined([purpose, again, seconds])


def _joined(parts: Sequence[str]) -> str:
    """Return the parts that are not empty, with commas between."""
    return ", ".join(filter(None, parts))


def _short(name: str, record: Record) -> str:
    """Return the name of a stack without what all names have in common."""
    common = "good-with-" if record.changed else f"{record.package}-"
    return name.removeprefix(common)


def _last_line(text: str) -> str:
    """Return the last line of an installer's error, which tells the reason."""
    _, _, last = text.rstrip().rpartition("\n")
    return last.strip()


def _cut(text: str, indent: int = 0) -> str:
    room = _WIDTH - indent
    return " " * indent + shortened(text, room)


def figure_text(judged: Judgement) -> str:
    """Return the quantity and its change with the interval; "" where nothing was measured."""
    change = _change(judged)
    return f"{judged.quantity} {change}" if change else ""


def _change(judged: Judgement) -> str:
    """Return how much a quantity changed; "" where nothing was measured."""
    ratio = judged.ratio
    if ratio is None and judged.of == "outputs" and judged.outcome is Outcome.BAD:
        return "can't be compared" if judged.reason else "infinitely more than what is allowed"
    if ratio is None:
        return ""
    if judged.of == "outputs":
        return _change_of_outputs(ratio, judged.reason)
    low = judged.low or 0.0
    high = judged.high
    if judged.of == "inputs":
        return _change_of_inputs(ratio, low, high or 0.0)
    end = upper_end(math.inf if high is None else high)
    return f"×{ratio:.3f} ({low:.3f} to {end})"


def _change_of_inputs(change: float, low: float, high: float) -> str:
    shown = 100 * change
    begin = 100 * low
    end = 100 * high
    return f"{shown:+.2f} % ({begin:+.2f} to {end:+.2f} %)"


def _change_of_outputs(ratio: float, reason: str) -> str:
    if reason:
        return "can't be compared"
    if ratio == 0:
        return "of all outputs"
    if ratio >= _LARGE:
        return f"{ratio:,.0f} times what is allowed"
    return f"{ratio:.2g} times what is allowed"


def answer_lines(record: Record, answer: Conclusion) -> Iterator[str]:
    """Yield the answer: what was found, how surely, and what else is known."""
    quantity = record.quantity or answer.judgement.quantity
    if answer.kind == "same":
        yield from _same(quantity, answer)
        return
    if len(record.culprits) > 1:
        yield from _together(quantity, record, answer)
    elif answer.kind == "found":
        yield from _found(quantity, answer)
    elif answer.kind == "gradual":
        yield f"gradual, or not monotone: no release alone makes {quantity} worse"
        yield from _last_judgement(answer)
    else:
        yield from _range(quantity, answer)
    yield from _layers(answer.judgement.layers)
    if answer.others:
        yield from _others(answer.others, record)


def _others(others: Sequence[str], record: Record) -> Iterator[str]:
    """Yield what changed with the release, and how to have the first of it alike."""
    names = ", ".join(others)
    yield _cut(f"changed with it: {names}")
    name, old, *_ = others[0].split()
    if not record.changed and old != "none":
        yield f"  --with {name}=={old} has that one alike in all stacks"


def _same(quantity: str, answer: Conclusion) -> Iterator[str]:
    judged = answer.judgement
    if judged.outcome is Outcome.GOOD:
        figure = figure_text(judged)
        shown = _joined([judged.verdict, figure])
        yield f"the ends don't differ in {quantity}: {shown}"
        yield _advice(judged)
        return
    yield f"the ends are not shown to differ in {quantity}: {judged.verdict}"
    if judged.reason:
        yield _cut(judged.reason, indent=2)


def _advice(judged: Judgement) -> str:
    """Return how to find another change than one for the worse."""
    if judged.verdict == Verdict.IMPROVED:
        return "exchange --good and --bad to find the release that made it better"
    return "a change that was undone again is found with --good or --bad inside of it"


def _release(release: str, answer: Conclusion) -> str:
    """Return a release with what changed together with it, as any of that may be the cause."""
    return new_releases(release, list(map(Difference.parse, answer.others)))


def _found(quantity: str, answer: Conclusion) -> Iterator[str]:
    judged = answer.judgement
    release = _release(f"{answer.package} {answer.new}".rstrip(), answer)
    before = answer.old or "without it"
    if quantity == CRASH:
        yield f"{release} crashes, and {before} does not:"
        yield _cut(judged.reason, indent=2)
        return
    change = _change(judged)
    yield f"{quantity} became worse in {release}: {change} beside {before}"
    if judged.reason:
        yield _cut(judged.reason, indent=2)
    yield from _values(judged)


def _values(judged: Judgement) -> Iterator[str]:
    """Yield the values of both sides, where they were timed in rounds."""
    if judged.of != "rounds" or judged.a is None or judged.b is None:
        return
    before = format_quantity(judged.a, judged.unit)
    after = format_quantity(judged.b, judged.unit)
    yield f"  {before} → {after}"


def _together(quantity: str, record: Record, answer: Conclusion) -> Iterator[str]:
    names = ", ".join(record.culprits)
    alone = ", and not without one of them" if record.minimal else ""
    yield _cut(f"{quantity} is worse with these packages{alone}: {names}")
    yield from _last_judgement(answer)
    if not record.minimal:
        yield "  fewer may be enough: not all could be installed, or judged, without the others"


def _range(quantity: str, answer: Conclusion) -> Iterator[str]:
    releases = (*answer.between, answer.new)
    count = len(releases)
    if count == 1:
        release = _release(f"{answer.package} {answer.new}", answer)
        yield f"{quantity} became worse about {release}, but is undecided there"
    else:
        package = _release(answer.package, answer)
        yield f"{quantity} became worse in one of {count} releases of {package}:"
        names = ", ".join(releases)
        yield _cut(names, indent=2)
    yield from _last_judgement(answer)
    if answer.spent:
        yield "  all probes were used; --resume with more --probes goes on"


def _last_judgement(answer: Conclusion) -> Iterator[str]:
    judged = answer.judgement
    has_pair = answer.new and answer.old
    pair = f"{answer.new} beside {answer.old}: " if has_pair else ""
    figure = figure_text(judged)
    shown = _joined([judged.verdict, figure, judged.reason])
    yield _cut(f"{pair}{shown}", indent=2)


def _layers(layers: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the layers that moved most; those without a type are sums."""
    moved = list(filter(_has_moved, layers))
    if moved:
        yield "layers that moved most:"
    for layer in moved[:_MOST_LAYERS]:
        line = _layer(*layer)
        yield line.rstrip()


def _has_moved(layer: Sequence[Any]) -> bool:
    _, kind, *_, share = layer
    if not kind:
        return False
    return share is None or abs(share) >= _LEAST_SHARE


def _layer(
    name: str, kind: str, a: float | None, b: float | None, change: float, share: float | None
) -> str:
    label = shortened(f"{name} ({kind})", _NAME_OF_LAYER)
    before = _seconds(a)
    after = _seconds(b)
    line = f"  {label:<{_NAME_OF_LAYER}} {before:>8} → {after:<8}"
    if share is None:
        return line
    return f"{line} {100 * share:.0f} % of the change"


def _seconds(value: float | None) -> str:
    if value is None:
        return "none"
    return format_quantity(value, "s")
