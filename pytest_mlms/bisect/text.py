"""A bisection in words: a line for each probe as it happens, and the answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pytest_mlms.bisect.judgement import CRASH, Judgement
from pytest_mlms.bisect.record import Conclusion, Probe, Record
from pytest_mlms.bisect.search import Outcome
from pytest_mlms.text import shortened
from pytest_mlms.units import format_quantity

__all__ = ["answer_lines", "figure_text", "probe_lines"]

_WIDTH = 100
_PURPOSES = {"ends": "ends", "packages": "", "search": "", "neighbours": "fresh data"}
_MOST_LAYERS = 4
_LEAST_SHARE = 0.01  # of the change of all layers
_NAME_OF_LAYER = 50  # characters
_LARGE = 100  # a ratio from which on it has no decimals


def probe_lines(probe: Probe, record: Record) -> Iterator[str]:
    """Yield the line of a probe, and one with the reason where it has one."""
    judged = probe.judgement
    after = _short(probe.after, record)
    if judged.outcome is Outcome.UNAVAILABLE:
        yield f"  {after}: can't be installed here, and is left out"
        yield _cut(_last_line(judged.reason), indent=4)
        return
    pair = f"{after} against {_short(probe.before, record)}"
    columns = f"{pair:<25} {judged.verdict:<12} {figure_text(judged):<37} {_note(probe)}"
    yield _cut(columns.rstrip(), indent=2)
    if judged.reason and judged.outcome is not Outcome.GOOD:
        yield _cut(judged.reason, indent=4)


def _note(probe: Probe) -> str:
    """Return the purpose of a probe, and the time that it took."""
    parts = [_PURPOSES[probe.purpose]]
    if probe.effort > 1 and probe.purpose != "neighbours":
        parts.append("again")
    parts.append(f"{probe.seconds:.0f} s")
    return ", ".join(part for part in parts if part)


def _short(name: str, record: Record) -> str:
    """Return the name of a stack without what all names have in common."""
    return name.removeprefix("good-with-" if record.changed else f"{record.package}-")


def _last_line(text: str) -> str:
    """Return the last line of an installer's error, which tells the reason."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _cut(text: str, indent: int = 0) -> str:
    return " " * indent + shortened(text, _WIDTH - indent)


def figure_text(judged: Judgement) -> str:
    """Return the quantity and its change with the interval; "" where nothing was measured."""
    change = _change(judged)
    return f"{judged.quantity} {change}" if change else ""


def _change(judged: Judgement) -> str:
    """Return how much a quantity changed; "" where nothing was measured."""
    if judged.ratio is None:
        return ""
    if judged.of == "outputs":
        return _change_of_outputs(judged.ratio, judged.reason)
    low = judged.low or 0.0
    if judged.of == "inputs":
        high = judged.high or 0.0
        interval = f"{100 * low:+.2f} to {100 * high:+.2f} %"
        return f"{100 * judged.ratio:+.2f} % ({interval})"
    end = "unbounded" if judged.high is None else f"{judged.high:.3f}"
    return f"×{judged.ratio:.3f} ({low:.3f} to {end})"


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
        yield _cut(f"changed with it: {', '.join(answer.others)}")
        name, old, *_ = answer.others[0].split()
        if not record.changed and old != "none":
            yield f"  --with {name}=={old} has that one alike in all stacks"


def _same(quantity: str, answer: Conclusion) -> Iterator[str]:
    judged = answer.judgement
    if judged.outcome is Outcome.GOOD:
        figure = figure_text(judged)
        shown = ", ".join(part for part in (judged.verdict, figure) if part)
        yield f"the ends don't differ in {quantity}: {shown}"
        yield "a change that was undone again is found with --good or --bad inside of it"
        return
    yield f"the ends are not shown to differ in {quantity}: {judged.verdict}"
    if judged.reason:
        yield _cut(judged.reason, indent=2)


def _found(quantity: str, answer: Conclusion) -> Iterator[str]:
    judged = answer.judgement
    release = f"{answer.package} {answer.new}".rstrip()
    before = answer.old or "without it"
    if quantity == CRASH:
        yield f"{release} crashes, and {before} does not:"
        yield _cut(judged.reason, indent=2)
        return
    yield f"{quantity} became worse in {release}: {_change(judged)} beside {before}"
    if judged.reason:
        yield _cut(judged.reason, indent=2)
    if judged.of == "rounds" and judged.a is not None and judged.b is not None:
        a = format_quantity(judged.a, judged.unit)
        yield f"  {a} → {format_quantity(judged.b, judged.unit)}"


def _together(quantity: str, record: Record, answer: Conclusion) -> Iterator[str]:
    names = ", ".join(record.culprits)
    yield _cut(f"{quantity} is worse with these packages, not with fewer: {names}")
    yield from _last_judgement(answer)


def _range(quantity: str, answer: Conclusion) -> Iterator[str]:
    releases = (*answer.between, answer.new)
    if len(releases) == 1:
        yield f"{quantity} became worse about {answer.package} {answer.new}, but is undecided there"
    else:
        count = len(releases)
        yield f"{quantity} became worse in one of {count} releases of {answer.package}:"
        yield _cut(", ".join(releases), indent=2)
    yield from _last_judgement(answer)
    if answer.spent:
        yield "  all probes were used; --resume with more --probes goes on"


def _last_judgement(answer: Conclusion) -> Iterator[str]:
    judged = answer.judgement
    pair = f"{answer.new} beside {answer.old}: " if answer.new and answer.old else ""
    parts = [part for part in (judged.verdict, figure_text(judged), judged.reason) if part]
    yield _cut(f"{pair}{', '.join(parts)}", indent=2)


def _layers(layers: Sequence[Sequence[Any]]) -> Iterator[str]:
    """Yield the layers that moved most; those without a type are sums."""
    moved = [layer for layer in layers if layer[1] and _has_moved(layer)]
    if moved:
        yield "layers that moved most:"
    for name, kind, a, b, _, share in moved[:_MOST_LAYERS]:
        label = shortened(f"{name} ({kind})", _NAME_OF_LAYER)
        line = f"  {label:<{_NAME_OF_LAYER}} {_seconds(a):>8} → {_seconds(b):<8}"
        if share is not None:
            line += f" {100 * share:.0f} % of the change"
        yield line.rstrip()


def _has_moved(layer: Sequence[Any]) -> bool:
    share = layer[-1]
    return share is None or abs(share) >= _LEAST_SHARE


def _seconds(value: float | None) -> str:
    return "none" if value is None else format_quantity(value, "s")
