"""What rounding explains of an output: no element that it decides excuses another one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, nearby_outputs
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep
from pytest_mlms.measure.evaluate.rounded_elements import _edits

RANDOM = np.random.default_rng(0)
MASK = RANDOM.integers(0, 2, (1, 64, 64)).astype(np.uint8)
LOGITS = RANDOM.standard_normal((1, 200)).astype(np.float32)
TOKENS = np.array([[5, 3, 8, 9, 2, 7, 1, 4]])
OTHER_END = np.array([[5, 3, 8, 9, 2, 7, 3, 3]])
TEXT = np.array([["the cat sat on the mat"]])
OTHER_TEXT = np.array([["the cat sat on the map"]])
CLASS = np.array([[3]])
BOXES = np.arange(1, 41, dtype=np.float32).reshape(10, 4) * 100


def swept(expected: Any, rounded: Sequence[Any], ours: Any) -> OutputSweep:
    """Compare an output, given the baseline's own for its inputs and for rounded ones."""
    near = NearbyOutputs([{"y": expected}] * 4, [{"y": each} for each in rounded])
    sweep = OutputSweep({"y": Rule()})
    are_alike = expected.shape == ours.shape
    names = [""] * (len(expected) if are_alike else 1)
    sweep.add({"y": expected}, {"y": ours}, names, lambda: near)
    return sweep


def with_flips(mask: Any, *places: int) -> Any:
    flipped = mask.copy()
    for place in places:
        flipped.flat[place] = 1 - flipped.flat[place]
    return flipped


def off_by(values: Any, count: int, change: float) -> Any:
    changed = values.copy()
    changed[0, :count] += np.float32(change)
    return changed


def masks(kind: type) -> list[Any]:
    return [with_flips(MASK, *places).astype(kind) for places in ((7,), (7, 9), (), (7,))]


def more_boxes(first: float = 0.0) -> Any:
    boxes = np.concatenate([BOXES, [[1, 2, 3, 4]]]).astype(np.float32)
    boxes[0, 0] += np.float32(first)
    return boxes


MANY = np.ones((1, 1500, 4), np.float32)
ONE_MORE = np.ones((1, 1501, 4), np.float32)
SOME = RANDOM.choice(MASK.size, MASK.size // 20, replace=False)
NAN = np.full_like(LOGITS, np.nan)
ONE_INFINITE = off_by(LOGITS, 1, np.inf)

WRONG = {
    "all pixels": (MASK, masks(np.uint8), 1 - MASK),
    "a pixel of twenty": (MASK, masks(np.uint8), with_flips(MASK, *SOME)),
    "all pixels in floats": (MASK.astype(np.float32), masks(np.float32), 1 - MASK.astype("f")),
    "all scores": (LOGITS, [off_by(LOGITS, 1, 0.5)] * 4, LOGITS + np.float32(0.4)),
    "a score of twenty": (LOGITS, [off_by(LOGITS, 1, 0.5)] * 4, off_by(LOGITS, 10, 0.4)),
    "tokens before the one that rounding decides": (TOKENS, [OTHER_END] * 3, 0 * TOKENS),
    "another end of an answer": (TOKENS, [OTHER_END] * 3, np.array([[5, 3, 8, 9, 2, 7, 6, 6]])),
    "another text": (TEXT, [OTHER_TEXT] * 4, np.array([["the dog sat on a mat"]])),
    "no text": (TEXT, [OTHER_TEXT] * 4, np.array([[""]])),
    "a class that is none of two": (CLASS, [CLASS + 2] * 2 + [CLASS] * 2, CLASS + 4),
    "an answer of another length": (TOKENS[0], [np.arange(12)] * 2 + [TOKENS[0]], -np.arange(12)),
    "many boxes and one more": (MANY, [ONE_MORE] * 4, 3 * ONE_MORE),
    "boxes where rounding moves one": (
        BOXES,
        [more_boxes(60), more_boxes(60), more_boxes(), more_boxes()],
        more_boxes() + 40,
    ),
    "numbers where two others nearby are NaN": (LOGITS, [NAN, NAN, LOGITS, LOGITS], LOGITS + 1),
    "a number that is infinite nearby": (
        LOGITS,
        [ONE_INFINITE] * 3 + [LOGITS],
        off_by(LOGITS, 1, 2),
    ),
}


@pytest.mark.parametrize("what", list(WRONG))
def test_elements_are_wrong_beside_one_that_rounding_decides(what: str) -> None:
    """They were not judged: one such element excused all of the input's others."""
    expected, rounded, ours = WRONG[what]
    found = swept(expected, rounded, ours)
    assert (found.beyond, found.unjudged) == (1, [])


ALIKE = {
    "other pixels": (MASK, masks(np.uint8), with_flips(MASK, 7, 12)),
    "other pixels in floats": (
        MASK.astype(np.float32),
        masks(np.float32),
        with_flips(MASK, 7, 12).astype(np.float32),
    ),
    "that score": (LOGITS, [off_by(LOGITS, 1, 0.5)] * 4, off_by(LOGITS, 1, -0.6)),
    "that end": (TOKENS, [OTHER_END] * 3, OTHER_END),
    "that text": (TEXT, [OTHER_TEXT] * 4, OTHER_TEXT),
    "that class": (CLASS, [CLASS + 2] * 2 + [CLASS] * 2, CLASS + 2),
    "that length": (TOKENS[0], [np.arange(12)] * 2 + [TOKENS[0]], np.arange(12)),
    "that box more of many": (MANY, [ONE_MORE] * 4, ONE_MORE),
    "that box more": (BOXES, [more_boxes(60), more_boxes(60), more_boxes()], more_boxes(-70)),
    "infinity as nearby": (LOGITS, [ONE_INFINITE] * 2 + [LOGITS] * 2, ONE_INFINITE),
    "numbers as far off as others where two are NaN": (
        LOGITS,
        [NAN, NAN, LOGITS, off_by(LOGITS, 200, 0.5)],
        off_by(LOGITS, 200, -0.9),
    ),
    "answers that are others each time": (
        TOKENS,
        [RANDOM.integers(0, 1000, TOKENS.shape) for _ in range(4)],
        RANDOM.integers(0, 1000, TOKENS.shape),
    ),
    "lengths that are others each time": (
        TOKENS[0],
        [np.arange(length) for length in (9, 10, 11, 12)],
        -np.arange(12),
    ),
}


@pytest.mark.parametrize("what", list(ALIKE))
def test_what_rounding_changes_is_not_judged(what: str) -> None:
    found = swept(*ALIKE[what])
    assert (found.problem, found.beyond, len(found.unjudged)) == ("", 0, 1)


SHORT = np.zeros((2, 16), np.uint8)


def swept_further(ours: Any, further: Sequence[Any]) -> tuple[OutputSweep, int]:
    """Compare short rows, of which two of four rounded ones differ; how often were more asked?"""
    rounded = [with_flips(SHORT, 3, 19), with_flips(SHORT, 3, 19), SHORT, SHORT]
    asked = []

    def more() -> list[Any]:
        asked.append(True)
        return [{"y": each} for each in further]

    near = NearbyOutputs([{"y": SHORT}] * 4, [{"y": each} for each in rounded], more)
    sweep = OutputSweep({"y": Rule()})
    sweep.add({"y": SHORT}, {"y": ours}, ["one", "other"], lambda: near)
    return sweep, len(asked)


def test_of_short_rows_more_rounded_inputs_tell_what_four_can_not() -> None:
    """The four had not changed that pixel, and an equal candidate REGRESSED for one in nine rows."""
    further = [with_flips(SHORT, number % 16) for number in range(28)]
    found, asked = swept_further(with_flips(SHORT, 5), further)
    assert (found.beyond, found.unjudged, asked) == (0, ["one"], 1)
    found, asked = swept_further(with_flips(SHORT, 5, 21), further)
    assert (found.beyond, found.unjudged, asked) == (1, ["one"], 1)
    found, asked = swept_further(1 - SHORT, further)  # each pixel was changed once
    assert (found.beyond, found.unjudged, asked) == (2, [], 1)
    found, asked = swept_further(with_flips(SHORT, 3, 19), further)
    assert (found.beyond, found.unjudged, asked) == (0, ["one", "other"], 0)


def test_more_rounded_inputs_are_others_and_computed_once() -> None:
    seen = []

    def predict(batch: Any) -> Any:
        seen.append(batch["x"].tobytes())
        return batch

    near = nearby_outputs(predict, {"x": LOGITS})
    assert (len(near.again), len(near.rounded), len(seen)) == (4, 4, 8)
    changed = near.by(lambda found: {"y": found["x"] + 1})
    assert len(changed.further_of("y")) == len(changed.further_of("y")) == 28
    assert len(seen) == 36
    assert len(set(seen)) == 33


def test_more_rounded_inputs_end_where_they_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """28 calls of 5 s were made for each of many inputs."""
    closeness = import_module("pytest_mlms.measure.evaluate.closeness")
    clock = [0.0]
    monkeypatch.setattr(closeness, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def predict(batch: Any) -> Any:
        clock[0] += 5
        return batch

    assert len(nearby_outputs(predict, {"x": LOGITS}).further()) == 7


def test_inputs_that_rounding_decides_are_in_no_share_of_those_that_agree() -> None:
    rounded = [with_flips(SHORT, 3, 19), with_flips(SHORT, 3, 19), SHORT, SHORT]
    near = NearbyOutputs([{"y": SHORT}] * 4, [{"y": each} for each in rounded])
    sweep = OutputSweep({"y": Rule()})
    for ours in (with_flips(SHORT, 3), with_flips(SHORT, 3, 19)):
        sweep.add_call(["a", "b"], {"y": SHORT}, {"y": ours}, ["one", "other"], lambda: near)
    assert (sweep.inputs, sweep.beyond, sweep.excused) == (4, 0, 3)
    ((inputs, differing),) = sweep.calls
    assert (inputs, differing.tolist()) == (["b"], [0.0])


def test_a_row_that_varies_little_is_not_excused_by_one_that_varies_much() -> None:
    expected = np.array([[1.0], [2.0]], np.float32)
    rounded = [np.array([[1.0003], [900]], np.float32)] * 4
    for first, beyond in ((1.003, 0), (1.5, 1)):
        ours = np.array([[first], [500]], np.float32)
        assert swept(expected, rounded, ours).beyond == beyond


@given(st.text("ab", max_size=6), st.text("ab", max_size=6))
def test_edits_are_the_fewest(ours: str, other: str) -> None:
    """By the definition of Levenshtein's distance."""

    def fewest(left: str, right: str) -> int:
        if not (left and right):
            return len(left) + len(right)
        if left[0] == right[0]:
            return fewest(left[1:], right[1:])
        rests = ((left[1:], right), (left, right[1:]), (left[1:], right[1:]))
        return 1 + min(fewest(*rest) for rest in rests)

    assert _edits(np.array([ours]), np.array([other])).tolist() == [fewest(ours, other)]
