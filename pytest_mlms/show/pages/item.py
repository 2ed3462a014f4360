"""View of an item, what pages and tables ask of its line of results.jsonl, and its findings.

Findings are the limits and tolerances that decided an item, each as a person reads it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_mlms.core.quantities import QUANTITIES
from pytest_mlms.core.recorded import Recorded
from pytest_mlms.core.records import Comparison, Verdict, main_comparison, regressed_comparison
from pytest_mlms.core.serialization import plain_as_whole
from pytest_mlms.core.units import format_quantity
from pytest_mlms.decide.upgrade.labels import (
    difference_label,
    format_change,
    group_lines,
    is_told,
    percent,
    point_label,
    sides_label,
    software_text,
    widening_label,
    with_variant,
    worst_change,
)
from pytest_mlms.keep.results.item_line import ItemRecord
from pytest_mlms.keep.results.line import LimitRecord, LoadKeys
from pytest_mlms.show.pages.numbers import (
    distance_text,
    interval_text,
    limit_text,
    more_or_less,
    quantity_label,
    unit_of,
    value_text,
)

BAD = (Verdict.ERROR, Verdict.INVALID, Verdict.FAILED, Verdict.REGRESSED)
_REPRODUCE = "reproduce: "
_OF_PERCENTILE = ("query_latency", "query_ttft", "query_tpot")
HEADLINES = ("top1", "query_latency", "latency_p50", "deviation")


@plain_as_whole
@dataclass(frozen=True, kw_only=True)
class ItemView(ItemRecord):
    """An item of a run: its line, with what people are told of it."""

    @property
    def anchor(self) -> str:
        """The item's name within a page: letters and digits that only it has among some runs."""
        name = f"{self.run} {self.nodeid}#{self.repetition}"
        digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()
        return f"item-{digest[:12]}"

    @property
    def title(self) -> str:
        """The model and the case, as people read them."""
        case = self.case
        if self.against is not None:
            point = point_label(self.device, self.batch_size, self.scenario, self.shape)
            case = f"{self.sides}, {point}"
        again = f" #{self.repetition}" if self.repetition > 1 else ""
        return f"{self.manifest.name}: {case}{again}"

    @property
    def sides(self) -> str:
        """Both sides of an upgrade, as people read them; "" without a baseline."""
        if self.against is None:
            return ""
        return sides_label(self.candidate_label, self.baseline_label, self.framework)

    @property
    def scenario_and_load(self) -> tuple[str | None, LoadKeys | None]:
        """The scenario, of a load by its keys instead of what ids call these."""
        if self.scenario is None or self.load is None:
            return self.scenario, None
        return self.scenario.partition("-")[0], self.load.measured

    @property
    def candidate_label(self) -> str:
        """The name of side B in texts."""
        return with_variant(self.stack.name, self.variant)

    @property
    def baseline_label(self) -> str:
        """The name of side A in texts; "" without a baseline."""
        if self.against is None:
            return ""
        return with_variant(self.against.name, self.against.variant or self.variant)

    @property
    def stack_label(self) -> str:
        """The stack's name; that of the framework for the interpreter that runs pytest."""
        return self.framework if self.stack.name == "here" else self.stack.name

    @property
    def software(self) -> str:
        """The stack with the versions of its software, in a line."""
        side = self.rounds[0].sides.get("b") if self.rounds else None
        if side is not None:
            return _software(self.stack.name, side.versions, side.python)
        return _software(self.stack.name, self.versions, self.python)

    @property
    def baseline_software(self) -> str:
        """The baseline of an upgrade with the versions of its software; "" without one."""
        if self.against is None:
            return ""
        for measured in self.rounds:
            side = measured.sides.get("a")
            if side is not None:
                return _software(self.against.name, side.versions, side.python)
        return self.against.name

    @property
    def case_text(self) -> str:
        """The case in words: device, batch size, scenario, threads."""
        parts = [self.device_used or self.device, f"batch size {self.batch_size}"]
        if self.scenario:
            parts.append(self.scenario.replace("_", " "))
        if self.shape:
            parts.append(f"shape {self.shape}")
        if self.caches:
            parts.append(f"caches {self.caches}")
        threads = self.threads_used or self.stack.threads
        if threads:
            parts.append("1 thread" if threads == 1 else f"{threads} threads")
        if self.kind != "upgrade":  # whose text has them
            parts += self.gpu_notes
        if self.seconds:
            parts.append(f"took {sum(self.seconds.values()):.1f} s")
        return ", ".join(parts)

    @property
    def headline(self) -> str:
        """The number that says most of an item, with its name; "" where nothing was measured."""
        name, _, shown = self._main_number
        return f"{name} {shown}".strip()

    @property
    def headline_order(self) -> str:
        """The text by which headlines are sorted: by their names, and the numbers of each."""
        name, value, _ = self._main_number
        return f"{name} {value:040.15f}"

    @property
    def _main_number(self) -> tuple[str, float, str]:
        """The name, the value and the text of the headline."""
        compared = regressed_comparison(self.comparisons) or main_comparison(self.comparisons)
        if compared is not None:
            words = compared.quantity.replace("_", " ")
            change = "" if math.isnan(compared.ratio) else format_change(compared)
            return words, compared.ratio, change
        broken = [limit.quantity for limit in self.limits if limit.verdict is Verdict.FAILED]
        for name in (*broken, *HEADLINES, *self.estimates):
            estimate = self.estimates.get(name)
            if estimate is not None and estimate.value is not None and not estimate.lacking:
                shown = format_quantity(estimate.value, estimate.unit)
                return self._words(name), estimate.value, shown
        if self.trace is not None and self.trace.slowest:
            slowest = self.trace.slowest[0]
            name = f"slowest of {self.trace.layers:,} layers: {slowest.name},"
            return name, slowest.share, percent(slowest.share, ".2g")
        return "", 0.0, ""

    def _words(self, quantity: str) -> str:
        words = quantity.replace("_", " ")
        if quantity in _OF_PERCENTILE and self.load is not None:
            return f"{words} p{self.load.percentile:g}"
        return words

    def limit_on(self, quantity: str) -> LimitRecord | None:
        """Return the limit on a quantity, the worst where it has several."""
        order = list(Verdict)
        limits = [limit for limit in self.limits if limit.quantity == quantity]
        return min(limits, key=lambda limit: order.index(limit.verdict), default=None)

    @property
    def unread_notes(self) -> Sequence[str]:
        """Texts on what the user's test noted under names that fields of other items have."""
        notes = []
        for name, reason in self.unread.items():
            notes.append(f"the test noted {name}, which is a field of other items: {reason}")
        return notes

    @property
    def group_texts(self) -> Sequence[str]:
        """A line for each group of inputs, and on how many inputs percentiles rest."""
        lines = group_lines(self.input_groups)
        if self.inputs_timed:
            lines.append(f"percentiles are over the calls on {self.inputs_timed:,} inputs")
        return lines

    @property
    def is_bad(self) -> bool:
        """True if the item makes the run fail."""
        return self.verdict in BAD

    @property
    def badness(self) -> tuple[int, float]:
        """The key that sorts items worst first."""
        margin = math.inf if self.margin is None or math.isnan(self.margin) else self.margin
        return list(Verdict).index(self.verdict), margin

    @property
    def command(self) -> str:
        """The command that runs the item again; "" where the results don't have it."""
        if self.reproduce:
            return self.reproduce
        for line in (self.message or "").splitlines():
            if line.startswith(_REPRODUCE):
                return line.removeprefix(_REPRODUCE)
        return ""

    @property
    def explanation(self) -> str:
        """The text of the outcome for a person, without the command that reproduces it."""
        lines = (self.message or self.text or "").splitlines()
        kept = [line for line in lines if not line.startswith(_REPRODUCE)]
        return "\n".join(kept).strip()

    def artifact(self, name: str) -> Path | None:
        """Return the path of a file of the item; None where it is missing or outside of the run."""
        below = self.artifacts.get(name)
        return Recorded(below).file_below(self.folder) if below else None

    def artifacts_like(self, prefix: str, suffix: str) -> Mapping[str, Path]:
        """Return the files whose names begin and end so, by name, in the order of their numbers."""
        found = {}
        for name in sorted(self.artifacts, key=lambda name: (len(name), name)):
            path = self.artifact(name)
            if name.startswith(prefix) and name.endswith(suffix) and path is not None:
                found[name] = path
        return found


def _software(stack: str, versions: Mapping[str, str], python: str) -> str:
    """Return a stack with the versions of its software, in a line."""
    known = software_text(versions, python)
    return f"{stack}: {known}" if known else stack


_DECIDED = (Verdict.PASSED, Verdict.IMPROVED, Verdict.SKIPPED)


@dataclass(frozen=True)
class Finding:
    """A limit or a tolerance: what was measured, the bound, how far apart, and set where.

    All but ``verdict`` are texts; those that aren't known are "".
    """

    quantity: str
    verdict: Verdict
    measured: str
    bound: str
    distance: str = ""
    place: str = ""
    reason: str = ""


def findings_of(item: ItemView) -> Sequence[Finding]:
    """Return what decided an item that did not simply pass, the worst first."""
    return [finding for finding in judged_of(item) if finding.verdict not in _DECIDED]


def judged_of(item: ItemView) -> Sequence[Finding]:
    """Return what an item was judged by, the worst first: limits, and tolerances of an upgrade.

    A quantity that would only fail where it is surely worse is left out while it is open and not
    to be told.
    """
    found = [*_of_limits(item), *_of_comparisons(item)]
    return sorted(found, key=lambda finding: list(Verdict).index(finding.verdict))


def _of_limits(item: ItemView) -> Iterator[Finding]:
    for limit in item.limits:
        estimate = item.estimates.get(limit.quantity)
        own = item.quantities.get(limit.quantity)
        unit = own.unit if own else unit_of(limit, estimate)
        shown = estimate or own
        value = shown.value if shown else None
        measured = "not measured"
        if shown is not None:
            measured = interval_text(value, shown.low, shown.high, unit)
        yield Finding(
            quantity=quantity_label(limit.quantity),
            verdict=limit.verdict,
            measured=measured,
            bound=f"limit {limit_text(limit, unit)}",
            distance=distance_text(limit, value),
            place=limit.place,
            reason=limit.reason or (estimate.lacking if estimate else ""),
        )


def _of_comparisons(item: ItemView) -> Iterator[Finding]:
    for compared in item.comparisons:
        is_open_guard = compared.verdict is Verdict.INCONCLUSIVE and not compared.gate
        if is_open_guard and not is_told(compared):
            continue
        place = _place_of(compared, item)
        yield Finding(
            quantity=quantity_label(compared.quantity),
            verdict=compared.verdict,
            measured=_measured(compared),
            bound=_bound(compared, is_default=item.terms is not None and not place),
            distance=_change(compared),
            place=place,
            reason=compared.lacking,
        )


def _place_of(compared: Comparison, item: ItemView) -> str:
    """Return what set a tolerance; "" for a default.

    Other times and throughput have the tolerance of latency where that is wider than their own.
    """
    places = item.terms.places if item.terms else {}
    own = places.get(compared.quantity, "")
    if own or compared.of != "rounds":
        return own
    of_latency = [each.tolerance for each in item.comparisons if each.quantity == "latency"]
    return places.get("latency", "") if compared.tolerance in of_latency else ""


def _bound(compared: Comparison, is_default: bool) -> str:
    if compared.of == "processes":  # that fail, for which there is no tolerance
        return ""
    default = "default " if is_default else ""
    if compared.quantity == "agreement":
        return f"{default}relative tolerance {percent(compared.tolerance)}"
    return f"{default}tolerance {tolerance_text(compared)}"


def _change(compared: Comparison) -> str:
    """Return the change of a ratio from A to B, as its tolerance is written; "" for others."""
    if compared.of != "rounds" or math.isnan(compared.ratio):
        return ""
    return f"is {more_or_less(compared.ratio)}"


def _measured(compared: Comparison) -> str:
    """Return both values of a comparison, and B over A with its interval."""
    if compared.of == "outputs":
        return difference_label(compared)
    a = value_text(compared.a, compared.unit)
    b = value_text(compared.b, compared.unit)
    sides = "" if math.isnan(compared.a) or math.isnan(compared.b) else f"{a} → {b}"
    change = ""
    if not math.isnan(compared.ratio):
        change = format_change(compared)
        if compared.of == "rounds" and math.isinf(compared.high):
            change = f"×{compared.ratio:.3f}"
    return ", ".join(part for part in (sides, change) if part)


def tolerance_text(compared: Comparison) -> str:
    """Return the tolerance of a comparison, and the direction that it bounds."""
    known = QUANTITIES.get(compared.quantity)
    direction = "less" if known is not None and known.better == "higher" else "more"
    share = percent(compared.tolerance)
    allowed = percent(abs(worst_change(compared)))
    if allowed != share:
        share = f"{share}, which is {allowed}"
    return f"{share} {direction}{widening_label(compared)}"
