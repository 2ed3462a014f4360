"""Comparison of the outputs of two sides over many inputs, of which little is kept."""

from __future__ import annotations

import contextlib
import functools
import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.core.errors import OutputError
from pytest_mlms.manifest.schema import LOGPROBS, TOKENS, Output
from pytest_mlms.measure.evaluate.closeness import (
    Closeness,
    NearbyOutputs,
    Rounding,
    Rule,
    Tolerance,
    are_of_one_type,
    finite_rows,
    problem_of,
    rounding_share,
    unlike_axis,
)
from pytest_mlms.measure.evaluate.objects import deviation_from_forms, order_of
from pytest_mlms.measure.evaluate.rounded_elements import (
    SPREADS,
    are_explained,
    are_explained_by_many,
    are_short,
)
from pytest_mlms.measure.evaluate.token_choices import HeldAnswer, held_answer
from pytest_mlms.measure.pipeline import best_classes
from pytest_mlms.provide.cases import Case

__all__ = [
    "SPREADS",
    "Nearby",
    "OutputFinding",
    "OutputSweep",
    "OwnRules",
    "largest_difference",
    "own_rules",
    "own_sweep",
    "rules_of",
]


_MOST_NAMED = 5  # inputs
_MOST_SHOWN = 60  # characters of a text
_MOST_JUDGED = 64
"""Inputs that differ for sure, after which the baseline isn't asked again what rounding does.

Where a share of inputs may differ it is asked until twice as many do, if these are more.
"""

Nearby = Callable[[], NearbyOutputs]
"""Returns what the model that was expected gives for the same inputs, and for rounded ones."""

OwnRules = Callable[[], Mapping[str, Rule]]
"""Returns new rules of outputs: a rule remembers the sizes that it met."""


class OutputFinding(NamedTuple):
    """The differences of one output.

    ``ratio`` is its largest difference as a multiple of what is allowed, at ``place`` of an input,
    where the sides gave the numbers ``a`` and ``b``. ``allowed`` is the share of the size of like
    values that is taken for rounding; 0 for whole numbers, texts and a manifest's tolerance.
    ``beyond`` is the number of inputs that differ by more.
    """

    name: str
    ratio: float = 0.0
    allowed: float = 0.0
    beyond: int = 0
    place: tuple[int, ...] = ()
    a: float = 0.0
    b: float = 0.0


class _Far(NamedTuple):
    """An input that differs by more than is allowed."""

    ratio: float
    order: int
    name: str
    text: str


@dataclass
class OutputSweep:
    """The differences of all outputs that were compared so far.

    Attributes:
        rules: How far each output may differ.
        classification: The output whose best class is counted, if there is one.
        may_differ: The share of inputs that may differ by more than is allowed.
        of_itself: Whether both are of one model, whose NaN differs from any number on either side.
        inputs: The number of inputs that were compared.
        beyond: Those that differ by more than is allowed.
        flips: Those whose best class is another.
        problem: Why outputs can't be compared at all, "" where they can.
        nan: The names of inputs for which the baseline has NaN.
        lost: How many have NaN where the baseline has a number, of one model where either has.
        unjudged: Those that differ as the baseline does where its inputs are rounded.
        excused: How many of these don't differ otherwise, too: they tell nothing of a share.
        close_calls: How many have other tokens where rounding decides which is the likeliest.
        calls: The inputs of each call and which of them differ, 1 or 0, where an input may be in
            several; else empty.
        outputs: What was found of each output.
        channels: The largest deviation of each at the places on its axis of unlike values, where
            inputs differ.
    """

    rules: Mapping[str, Rule]
    classification: Output | None = None
    may_differ: float = 0.0
    of_itself: bool = False
    inputs: int = 0
    beyond: int = 0
    flips: int = 0
    problem: str = ""
    nan: list[str] = field(default_factory=list)
    lost: int = 0
    unjudged: list[str] = field(default_factory=list)
    close_calls: int = 0
    excused: int = 0
    calls: list[tuple[Sequence[object], NDArray[np.float64]]] = field(default_factory=list)
    outputs: dict[str, OutputFinding] = field(default_factory=dict)
    channels: dict[str, Array] = field(default_factory=dict)
    _far: list[_Far] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The largest difference of all outputs, as a multiple of what is allowed."""
        return max((found.ratio for found in self.outputs.values()), default=0.0)

    @property
    def worst(self) -> list[str]:
        """A line for each of the inputs that differ most: its name, and its worst value."""
        return [f"{far.name}: {far.text}" for far in sorted(self._far, reverse=True)]

    @property
    def worst_names(self) -> list[str]:
        """The names of those inputs."""
        return [far.name for far in sorted(self._far, reverse=True)]

    def add(
        self,
        expected: Mapping[str, Array],
        ours: Mapping[str, Array],
        names: Sequence[str],
        nearby: Nearby | None = None,
    ) -> NDArray[np.bool_]:
        """Return which of some inputs differ by more than is allowed.

        ``names`` say what messages call them.
        Where inputs differ, ``nearby`` tells which of them rounding decides; these aren't judged.
        """
        return self._added(expected, ours, names, nearby)[0]

    def _added(
        self,
        expected: Mapping[str, Array],
        ours: Mapping[str, Array],
        names: Sequence[str],
        nearby: Nearby | None,
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which of some inputs differ by more than is allowed, and which are excused."""
        count = len(names)
        beyond, nan, lost, unjudged = np.zeros((4, count), bool)
        unlike: list[str] = []
        known: NearbyOutputs | None = None
        is_asked = self.beyond < max(_MOST_JUDGED, 2 * self.may_differ * self.inputs)
        nearby = functools.cache(nearby) if nearby else None
        held = HeldAnswer(expected, 0, is_judged=True)
        if nearby is not None and is_asked and _have_other_tokens(expected, ours):
            held = self._held_to(expected, ours, nearby(), names[0])
            expected = held.outputs
            unjudged[:] = not held.is_judged
        tolerances = {name: rule.tolerance_of(expected[name]) for name, rule in self.rules.items()}
        if isinstance(scores := tolerances.get(LOGPROBS), Rounding):
            tolerances[LOGPROBS] = Rounding(np.maximum(scores.atol, held.allowed))
        in_order = partial(self._in_order, expected=expected, tolerances=tolerances)
        ours = in_order(ours)
        for name, rule in self.rules.items():
            tolerance = tolerances[name]
            problem = problem_of(name, ours.get(name), expected[name], "the baseline")
            if problem and nearby is not None and is_asked:
                known = known or nearby().by(in_order)
                if _is_form_nearby(ours.get(name), expected[name], known.of(name)):
                    unlike.append(name)
                    continue
            if problem:
                self.problem = self.problem or f"{problem}, for {names[0]}"
                beyond[:] = True
                has_nan = [_has_nan(side.get(name)) for side in (ours, expected)]
                lost |= has_nan[0] > has_nan[1] or (self.of_itself and has_nan[0] != has_nan[1])
                continue

            sides = ours[name], expected[name]
            found = rule.compare(*sides, tolerance)
            if nearby is not None and found.largest > 1 and is_asked:
                known = known or nearby().by(in_order)
                decided = _decided_by_rounding(found, sides, known, name, rule, tolerance)
                found = found._replace(deviation=np.where(decided, 0.0, found.deviation))
                unjudged |= _of_inputs(decided, count)
            if self.of_itself:
                gained = _lost_numbers(expected[name], ours[name])
                found = found._replace(deviation=np.where(gained, math.inf, found.deviation))
                lost |= _of_inputs(gained, count)
            beyond |= _of_inputs(found.deviation > 1, count)
            nan |= _of_inputs(found.nan, count)
            lost |= _of_inputs(_lost_numbers(ours[name], expected[name]), count)

            rows = len(found.deviation)
            named = names if rows == count else [names[0]] * rows
            self._note(name, rule, found, np.atleast_1d(expected[name]), ours[name], named)

        if unlike and known is not None:
            forms = [expected, *known.rounded]
            are_other = self._have_other_objects(ours, forms, unlike, names[0])
            beyond |= are_other
            unjudged |= not are_other
            lost |= are_other and not all(_is_finite(ours[name]) for name in unlike)

        self.inputs += count
        self.beyond += int(beyond.sum())
        self.lost += int(lost.sum())
        self.nan += [name for name, has in zip(names, nan, strict=True) if has]
        self.unjudged += [name for name, has in zip(names, unjudged, strict=True) if has]
        excused = unjudged & ~beyond
        self.excused += int(excused.sum())
        self._count_flips(expected, ours)
        return beyond, excused

    def add_call(
        self,
        inputs: Sequence[object],
        expected: Mapping[str, Array],
        ours: Mapping[str, Array],
        names: Sequence[str],
        nearby: Nearby | None = None,
    ) -> NDArray[np.bool_]:
        """Do what ``add`` does for a call with ``inputs``, which others may have, too."""
        beyond, excused = self._added(expected, ours, names, nearby)
        judged = [each for each, gone in zip(inputs, excused, strict=True) if not gone]
        if judged:
            self.calls.append((judged, beyond[~excused].astype(np.float64)))
        return beyond

    def _held_to(
        self,
        expected: Mapping[str, Array],
        ours: Mapping[str, Array],
        known: NearbyOutputs,
        name: str,
    ) -> HeldAnswer:
        """Return what is expected of an answer with other tokens, and note what rounding decides.

        That is what was expected where the model can't be held to them.
        """
        rule = self.rules.get(TOKENS)
        held = None
        if rule is not None and known.held_to is not None:
            held = held_answer(expected, ours, known.held_to, rule)
        if held is None:
            return HeldAnswer(expected, 0, is_judged=True)
        self.close_calls += held.flips > 0 and not held.fault
        if held.fault:
            self._keep_far(math.inf, name, held.fault)
        return held

    def _in_order(
        self,
        ours: Mapping[str, Array],
        expected: Mapping[str, Array],
        tolerances: Mapping[str, Tolerance | Rounding],
    ) -> Mapping[str, Array]:
        """Return our outputs, with objects of equal scores in the order that was expected."""
        for order in (rule.order for rule in self.rules.values()):
            if order is not None and order.scores in tolerances:
                return order.aligned(ours, expected, tolerances[order.scores])
        return ours

    def _note(
        self, name: str, rule: Rule, found: Any, expected: Array, ours: Array, names: Sequence[str]
    ) -> None:
        """Keep the largest difference of an output, and the inputs that are farthest off."""
        earlier = self.outputs.get(name) or OutputFinding(name)
        shares = np.zeros(()) if rule.tolerance else rule.shares_of(expected)
        shares = np.broadcast_to(shares, expected.shape)
        earlier = earlier._replace(beyond=earlier.beyond + int((found.deviation > 1).sum()))
        if not earlier.place:
            earlier = earlier._replace(allowed=float(shares.max(initial=0.0)))
        if found.channels is not None:
            largest = found.channels.max(axis=0, where=found.deviation[:, None] > 0, initial=0.0)
            known = self.channels.get(name, largest)
            is_alike = known.shape == largest.shape
            self.channels[name] = np.maximum(known, largest) if is_alike else largest
        ours = np.atleast_1d(ours)
        filled = found.deviation if expected[0:1].size else found.deviation[:0]
        for row in np.argsort(-filled, kind="stable")[:_MOST_NAMED]:
            ratio = float(found.deviation[row])
            place = _place(int(found.places[row]), expected.shape[1:])
            sides = (expected[(row, *place)], ours[(row, *place)])
            a, b = map(_number, sides)
            if ratio > earlier.ratio or not earlier.place:
                allowed = float(shares[(row, *place)])
                earlier = earlier._replace(
                    ratio=max(ratio, earlier.ratio), allowed=allowed, place=place, a=a, b=b
                )
            if ratio > 1:
                shown = " -> ".join(map(_shown, sides))
                self._keep_far(ratio, names[row], f"{_element(name, place)} {shown}")
        self.outputs[name] = earlier

    def _have_other_objects(
        self,
        ours: Mapping[str, Array],
        forms: Sequence[Mapping[str, Array]],
        unlike: Sequence[str],
        name_of_input: str,
    ) -> bool:
        """Return whether objects are none that the baseline gives for an input or near it."""
        ratio = deviation_from_forms(ours, forms, {name: self.rules[name] for name in unlike})
        for name in unlike:
            are_finite = all(_is_finite(form[name]) for form in forms if name in form)
            if are_finite and not _is_finite(ours[name]):
                ratio = math.inf  # also of so many objects that they are not compared
        if ratio <= 1:
            return False
        for name in unlike:
            found = self.outputs.get(name) or OutputFinding(name)
            self.outputs[name] = found._replace(
                ratio=max(ratio, found.ratio), beyond=found.beyond + 1
            )
        text = (
            f"{unlike[0]} has objects that the baseline doesn't, nor where its inputs are rounded"
        )
        self._keep_far(ratio, name_of_input, text)
        return True

    def _keep_far(self, ratio: float, name: str, text: str) -> None:
        for far in self._far:
            if far.name == name:
                if ratio <= far.ratio:
                    return
                self._far.remove(far)
                break
        self._far.append(_Far(ratio, -self.inputs, name, text))
        self._far = heapq.nlargest(_MOST_NAMED, self._far)

    def _count_flips(self, expected: Mapping[str, Array], ours: Mapping[str, Array]) -> None:
        spec = self.classification
        if spec is None or spec.name not in expected or spec.name not in ours:
            return
        sides = (expected[spec.name], ours[spec.name])
        if sides[0].shape != sides[1].shape or not sides[0].size:
            return
        with contextlib.suppress(OutputError):  # of another form, which scoring reports
            before, after = (best_classes(spec, side, len(side)) for side in sides)
            self.flips += int((before != after).sum())


def _have_other_tokens(expected: Mapping[str, Array], ours: Mapping[str, Array]) -> bool:
    """Return whether tokens are others, or as likely only within what is allowed of logits."""
    if TOKENS not in expected or TOKENS not in ours:
        return False
    if not np.array_equal(expected[TOKENS], ours[TOKENS]):
        return True
    if LOGPROBS not in expected or LOGPROBS not in ours:
        return False
    a, b = expected[LOGPROBS], ours[LOGPROBS]
    return a.shape == b.shape and not np.allclose(b, a, rounding_share(a.dtype), 0)


def _of_inputs(rows: Array, count: int) -> Array:
    """Return marks of an output's rows as marks of inputs: rows of none of them mark all."""
    return rows if len(rows) == count else np.full(count, rows.any())


def _decided_by_rounding(
    found: Closeness,
    sides: tuple[Array, Array],
    known: NearbyOutputs,
    name: str,
    rule: Rule,
    tolerance: Tolerance | Rounding,
) -> Array:
    """Return which rows of an output differ, and as the baseline's own do for rounded inputs.

    What another call on the same inputs changes is no rounding, and neither is NaN, nor infinity
    where the baseline has none nearby.
    """
    ours, expected = map(np.atleast_1d, sides)

    def alike(values: Sequence[Array]) -> list[Array]:
        return [each for each in map(np.atleast_1d, values) if _are_alike(each, expected)]

    again, rounded = map(alike, known.of(name))
    is_differing = found.deviation > 1
    if not rounded:
        return np.zeros_like(is_differing)
    is_bad = np.all([finite_rows(each) for each in (expected, *rounded)], axis=0)
    is_bad &= ~finite_rows(ours)
    is_bad |= _lost_numbers(ours, expected)
    for each in again:
        is_bad |= rule.compare(each, expected, tolerance).deviation > 1
    is_explained = are_explained(ours, expected, rounded, tolerance)
    is_open = is_differing & ~is_explained & ~is_bad & are_short(expected, rounded, tolerance)
    if is_open.any():
        rounded += alike(known.further_of(name))
        is_explained |= is_open & are_explained_by_many(ours, expected, rounded, tolerance)
    return np.asarray(is_differing & is_explained & ~is_bad)


def _is_form_nearby(
    ours: Array | None, expected: Array, nearby: tuple[Sequence[Array], Sequence[Array]]
) -> bool:
    """Return whether rounding decides the form of an output, such as how many boxes there are.

    The model that was expected gives ours, too, where its inputs are rounded, and always its own
    for the same inputs.
    """
    again, rounded = nearby
    if ours is None or not all(_are_alike(each, expected) for each in again):
        return False
    return any(_are_alike(each, ours) for each in rounded)


def _lost_numbers(values: Array, others: Array) -> Array:
    """Return which rows have NaN where others have a number."""
    values, others = map(np.atleast_1d, (values, others))
    if values.dtype.kind not in "fc":
        return np.zeros(len(values), bool)
    lost = np.isnan(values) & ~np.isnan(others)
    return np.asarray(lost.any(axis=tuple(range(1, lost.ndim))))


def _has_nan(values: Array | None) -> bool:
    return values is not None and values.dtype.kind in "fc" and bool(np.isnan(values).any())


def _is_finite(values: Array) -> bool:
    return bool(finite_rows(values).all())


def _are_alike(found: Array, expected: Array) -> bool:
    return found.shape == expected.shape and are_of_one_type(found, expected)


def _place(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    if not math.prod(shape):
        return ()
    return tuple(int(index) for index in np.unravel_index(number, shape)) if shape else ()


def _shown(value: Any) -> str:
    if isinstance(value, np.integer):
        return str(value)
    if not isinstance(value, str):
        return f"{_number(value):.6g}"
    shown = repr(str(value))
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


def _number(value: Any) -> float:
    """Return an element as a number, the absolute value of a complex one and NaN for a text."""
    if isinstance(value, str):
        return math.nan
    return abs(complex(value)) if isinstance(value, complex | np.complexfloating) else float(value)


def _element(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def rules_of(case: Case) -> dict[str, Rule]:
    """Return the rule of each output of a case: its agreement's tolerance, else the default."""
    manifest = case.loaded.manifest
    agreement = case.upgrade_agreement
    tolerance = Tolerance(agreement.rtol, agreement.atol) if agreement else None
    order = order_of(manifest.outputs)
    rules = {}
    for output in manifest.outputs:
        unlike = unlike_axis(output, manifest.task)
        of_objects = order if order and output.name in order.names else None
        rules[output.name] = Rule(
            tolerance,
            unlike,
            device=case.device,
            order=of_objects,
            are_ids=output.name == TOKENS and manifest.generate is not None,
        )
    return rules


def own_rules(case: Case) -> dict[str, Rule]:
    """Return the rule by which each output of a case is compared with another of the same model.

    A manifest's tolerance is for other models.
    """
    return {name: replace(rule, tolerance=None) for name, rule in rules_of(case).items()}


def own_sweep(names: Iterable[str], rules: OwnRules) -> OutputSweep:
    """Return a sweep of one model's outputs, also of outputs without a rule."""
    known = rules()
    return OutputSweep({name: known.get(name) or Rule() for name in names}, of_itself=True)


def largest_difference(
    ours: Mapping[str, Array],
    expected: Mapping[str, Array],
    other: str,
    nearby: Nearby,
    rules: OwnRules = dict,
) -> tuple[str, str]:
    """Return an output that is not as ``other`` gave it, and how far; "" for both if all are.

    What rounding decides of outputs, as ``nearby`` tells, makes none another.
    """
    names = [name for name in expected if name in ours]
    for name in names:
        if problem := problem_of(name, ours[name], expected[name], other):
            return name, problem
    sweep = own_sweep(names, rules)
    sweep.add(expected, ours, [""], nearby)
    for found in sweep.outputs.values():
        if found.ratio > 1:
            return found.name, f"up to {found.ratio:.3g} times what rounding explains"
    return "", ""
