"""The comparison of outputs, on made-up ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, nearby_outputs
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep

Outputs = Mapping[str, Any]
IMAGE = {"image": np.linspace(0.1, 0.9, 64, dtype=np.float32)[np.newaxis]}
LIMIT = IMAGE["image"][0, 40]
"""A pixel that is just too dark for a box."""


def detector(limit: Any) -> Callable[[Outputs], dict[str, Any]]:
    """Return a model that gives a box and a score for each pixel that is brighter."""

    def predict(batch: Outputs) -> dict[str, Any]:
        (places,) = (batch["image"][0] > limit).nonzero()
        boxes = np.repeat(places[:, np.newaxis], 4, axis=1).astype(np.float32)
        return {"boxes": boxes, "scores": batch["image"][0, places]}

    return predict


def swept(a: Callable[[Outputs], Outputs], b: Callable[[Outputs], Outputs]) -> OutputSweep:
    sweep = OutputSweep({"boxes": Rule(), "scores": Rule()})
    sweep.add(a(IMAGE), b(IMAGE), ["a picture"], lambda: nearby_outputs(a, IMAGE))
    return sweep


def test_a_box_more_is_not_judged_where_rounding_decides_it() -> None:
    found = swept(detector(LIMIT), detector(np.nextafter(LIMIT, np.float32(0))))
    assert (found.problem, found.beyond) == ("", 0)
    assert found.unjudged == ["a picture"]


def one_more(change: Callable[[Any, Any], object]) -> Callable[[Outputs], dict[str, Any]]:
    """Return a candidate that gives the box more, with its boxes and scores changed."""

    def predict(batch: Outputs) -> dict[str, Any]:
        found = detector(np.nextafter(LIMIT, np.float32(0)))(batch)
        change(found["boxes"], found["scores"])
        return found

    return predict


def move(boxes: Any, scores: Any) -> None:
    boxes[:] += 9


def move_one(boxes: Any, scores: Any) -> None:
    boxes[5, 2] += 2


def move_that_one(boxes: Any, scores: Any) -> None:
    boxes[0] = 3


def lower_scores(boxes: Any, scores: Any) -> None:
    scores *= 0.9


def exchange_scores(boxes: Any, scores: Any) -> None:
    scores[:] = scores[::-1].copy()


def repeat_a_box(boxes: Any, scores: Any) -> None:
    boxes[0], scores[0] = boxes[1], scores[1]


def lose_a_number(boxes: Any, scores: Any) -> None:
    scores[2] = np.nan


@pytest.mark.parametrize(
    "change",
    [
        move,
        move_one,
        move_that_one,
        lower_scores,
        exchange_scores,
        repeat_a_box,
        lose_a_number,
    ],
)
def test_boxes_are_judged_one_by_one_where_rounding_makes_as_many(
    change: Callable[[Any, Any], object],
) -> None:
    """They were not judged at all where the baseline gives their number for rounded inputs."""
    found = swept(detector(LIMIT), one_more(change))
    assert (found.problem, found.beyond, found.unjudged) == ("", 1, [])
    assert found.ratio > 1
    assert found.lost == (change is lose_a_number)
    assert "that the baseline doesn't" in found.worst[0]
    assert found.worst[0].startswith("a picture: boxes has objects")


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("shapes", [((1, 1500, 4), (1, 1501, 4)), ((1, 3, 8, 8), (1, 4, 9, 8))])
def test_what_is_not_finite_is_wrong_also_where_objects_are_not_compared(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], wrong: float
) -> None:
    """So many objects, and lists that vary along two axes, are not compared one by one."""
    expected, rounded = ({"boxes": np.ones(shape, np.float32)} for shape in shapes)
    near = NearbyOutputs([expected] * 4, [rounded] * 4)
    for values, beyond in ((rounded["boxes"], 0), (wrong * rounded["boxes"], 1)):
        sweep = OutputSweep({"boxes": Rule()})
        sweep.add(expected, {"boxes": values}, ["a picture"], lambda: near)
        assert (sweep.beyond, sweep.lost, len(sweep.unjudged)) == (beyond, beyond, 1 - beyond)


def test_objects_that_are_wrong_are_no_measure_of_later_ones() -> None:
    """Their sizes were remembered as usual ones, of which 1 % more was rounding then."""
    expected, rounded = ({"boxes": np.ones((1, count, 4), np.float32)} for count in (3, 4))
    near = NearbyOutputs([expected] * 4, [rounded] * 4)
    sweep = OutputSweep({"boxes": Rule(unlike=-1)})
    sweep.add(expected, {"boxes": np.float32(3.3e20) * rounded["boxes"]}, ["wrong"], lambda: near)
    sweep.add(expected, {"boxes": np.float32(1.01) * expected["boxes"]}, ["a little"])
    assert sweep.beyond == 2


def in_reverse(boxes: Any, scores: Any) -> None:
    boxes[:], scores[:] = boxes[::-1].copy(), scores[::-1].copy()


def round_off(boxes: Any, scores: Any) -> None:
    boxes *= np.float32(1 + 5e-5)
    scores *= np.float32(1 - 5e-5)


@pytest.mark.parametrize("change", [in_reverse, round_off])
def test_boxes_that_are_those_of_the_baseline_within_rounding_are_not_judged(
    change: Callable[[Any, Any], object],
) -> None:
    found = swept(detector(LIMIT), one_more(change))
    assert (found.problem, found.beyond, found.unjudged) == ("", 0, ["a picture"])


BRIGHTEST = IMAGE["image"][0, -1]


@pytest.mark.parametrize(("off", "beyond"), [(0.0, 0), (9.0, 1)])
def test_a_box_is_judged_where_the_baseline_has_none_for_the_same_input(
    off: float, beyond: int
) -> None:
    def candidate(batch: Outputs) -> dict[str, Any]:
        found = detector(np.nextafter(BRIGHTEST, np.float32(0)))(batch)
        return {**found, "boxes": found["boxes"] + np.float32(off)}

    assert swept(detector(BRIGHTEST), candidate).beyond == beyond


@pytest.mark.parametrize("wrong", [None, (0, 5), (1, 20), (1, 63)])
def test_objects_of_a_batch_are_those_of_their_own_inputs(wrong: Any) -> None:
    """Lists that are shorter are filled with zeros; the longest one may grow by rounding."""

    def boxes(limit: Any) -> Callable[[Outputs], dict[str, Any]]:
        def predict(batch: Outputs) -> dict[str, Any]:
            lists = [detector(limit)({"image": row[np.newaxis]}) for row in batch["image"]]
            most = max(len(each["scores"]) for each in lists)
            found = np.zeros((len(lists), most, 5), np.float32)
            for row, each in enumerate(lists):
                values = np.concatenate([each["boxes"], each["scores"][:, np.newaxis]], axis=1)
                found[row, : len(values)] = values
            return {"found": found}

        return predict

    batch = {"image": np.concatenate([IMAGE["image"], 0.99 * IMAGE["image"]]).astype(np.float32)}
    baseline = boxes(LIMIT)
    expected = baseline(batch)
    ours = boxes(np.nextafter(LIMIT, np.float32(0)))(batch)
    assert ours["found"].shape[1] == expected["found"].shape[1] + 1
    if wrong is not None:
        row, place = wrong
        ours["found"][row, min(place, ours["found"].shape[1] - 1), :4] += 5
    sweep = OutputSweep({"found": Rule(unlike=-1)})
    sweep.add(expected, ours, ["one", "two"], lambda: nearby_outputs(baseline, batch))
    assert (sweep.beyond == 0) == (wrong is None)
    assert (sweep.unjudged == ["one", "two"]) == (wrong is None)


def longest_of(predict: Callable[[Outputs], Outputs]) -> Outputs:
    return max(nearby_outputs(predict, IMAGE).rounded, key=lambda each: len(each["boxes"]))


def test_a_list_that_rounding_changes_in_common_objects_too_is_not_judged() -> None:
    """A baseline that varies as much is no measure."""

    def chaotic(batch: Outputs) -> dict[str, Any]:
        found = detector(LIMIT)(batch)
        return {**found, "scores": found["scores"] + np.sin(1e8 * batch["image"][0, 3])}

    ours = {**longest_of(detector(LIMIT)), "scores": longest_of(chaotic)["scores"] + 0.1}
    found = swept(chaotic, lambda batch: ours)
    assert (found.beyond, found.unjudged) == (0, ["a picture"])


@pytest.mark.parametrize("sign", [1, -1])
def test_tokens_of_another_number_are_judged_by_the_baselines_of_that_number(sign: int) -> None:
    """Nothing tells which token is which, but each has its place."""

    def tokens(batch: Outputs) -> dict[str, Any]:
        (places,) = (batch["image"][0] > LIMIT).nonzero()
        return {"boxes": places, "scores": places}

    longest = longest_of(tokens)
    assert len(longest["boxes"]) > len(tokens(IMAGE)["boxes"])
    found = swept(tokens, lambda batch: {name: sign * each for name, each in longest.items()})
    assert (found.beyond, len(found.unjudged)) == ((0, 1) if sign == 1 else (1, 0))


@pytest.mark.parametrize("limit", [LIMIT - np.float32(0.02), 2.0])
def test_boxes_that_rounding_does_not_make_are_wrong(limit: Any) -> None:
    found = swept(detector(LIMIT), detector(limit))
    assert found.problem.startswith("'boxes' is")
    assert found.beyond == 1


def test_a_model_whose_boxes_vary_from_call_to_call_excuses_no_other_number() -> None:
    calls: list[int] = []

    def vary(batch: Outputs) -> dict[str, Any]:
        calls.append(0)
        return detector(LIMIT - np.float32(1e-3) * (len(calls) % 2))(batch)

    assert swept(vary, detector(LIMIT)).problem


def test_a_detector_that_finds_nothing_on_both_sides_agrees() -> None:
    found = swept(detector(1), detector(1))
    assert (found.problem, found.inputs, found.beyond) == ("", 1, 0)
    assert swept(detector(1), detector(LIMIT)).problem == (
        "'boxes' is (23, 4), and (0, 4) of the baseline, for a picture"
    )


def off_by_a_tenth(values: Any, rule: Rule) -> int:
    """Return how many of some inputs differ where the first value of each is off by a tenth."""
    other = values.copy()
    other[..., 0] *= np.float32(0.9)
    sweep = OutputSweep({"y": rule})
    sweep.add({"y": values}, {"y": other}, [""] * len(values))
    return sweep.beyond


LARGEST = {kind: float(np.finfo(kind).max) for kind in (np.float16, np.float32, np.float64)}
FILLS = [
    (kind, fill)
    for kind, largest in LARGEST.items()
    for fill in (1e4, -5e4, 1e9, -2e9, -1e30, -largest, -largest / 2)
    if abs(fill) <= largest
]


@pytest.mark.parametrize("shape", [(1, 9), (8, 9), (8, 3, 9)])
@pytest.mark.parametrize(("kind", "fill"), FILLS)
def test_what_a_mask_is_filled_with_hides_no_fault(shape: Any, kind: Any, fill: float) -> None:
    values = np.random.default_rng(0).uniform(1, 40, shape).astype(kind)
    values[..., 0] = 5
    values[..., 5:] = fill
    assert off_by_a_tenth(values, Rule()) == len(values)
    near = values.copy()
    near[..., 5:] *= kind(1 - 1e-5)
    sweep = OutputSweep({"y": Rule()})
    sweep.add({"y": values}, {"y": near}, [""] * len(values))
    assert sweep.beyond == 0, "a fill may be off by rounding, too"


def test_a_large_result_is_a_measure_of_those_beside_it() -> None:
    values = np.random.default_rng(0).uniform(1, 9, (8, 9)).astype(np.float32)
    for large in (123456.7, 2e8 / 3):
        values[:, 5] = large
        assert off_by_a_tenth(values, Rule()) == 0


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        ("class_numbers", [0, 3, 2, 1], [0, 2, 2, 0]),
        ("threshold", [0.1, 0.4, 0.9, 0.6], [0.2, 0.6, 0.8, 0.5]),
    ],
)
def test_another_class_of_one_number_an_input_is_counted(
    step: Any, before: Any, after: Any
) -> None:
    spec = Output.model_validate({"name": "y", "type": "classification", "steps": [step]})
    for shape in ((-1,), (-1, 1)):
        sweep = OutputSweep({"y": Rule()}, spec)
        a, b = ({"y": np.array(side).reshape(shape)} for side in (before, after))
        sweep.add(a, b, [""] * 4)
        assert sweep.flips == 2


def test_whole_numbers_are_shown_to_the_last_digit() -> None:
    sweep = OutputSweep({"y": Rule()})
    sweep.add({"y": np.array([20_231_130])}, {"y": np.array([20_231_131])}, ["a row"])
    assert sweep.worst == ["a row: y 20231130 -> 20231131"]
