"""Objects whose scores are equal, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_mlms.manifest.schema import Output
from pytest_mlms.measure.evaluate.closeness import NearbyOutputs, Rule, Tolerance
from pytest_mlms.measure.evaluate.objects import ObjectOrder, order_of
from pytest_mlms.measure.evaluate.output_sweep import OutputSweep, largest_difference

Outputs = dict[str, Any]

COUNT = 60
RANDOM = np.random.default_rng(0)
SCORES = np.sort(RANDOM.uniform(0.05, 1, COUNT).astype(np.float32))[::-1].copy()
SCORES[10:13] = SCORES[10]
SCORES[20] = SCORES[21] * np.float32(1 + 1e-6)
SCORES[40:] = 0  # fill up the list
BOXES = RANDOM.uniform(0, 640, (COUNT, 4)).astype(np.float32)
BOXES[40:] = 0
CLASSES = RANDOM.integers(0, 80, COUNT)
TIES = np.arange(COUNT)
TIES[[10, 11, 12, 20, 21]] = [12, 10, 11, 21, 20]


def apart(order: Any, scores: Any = SCORES) -> Outputs:
    masks = np.repeat(BOXES, 40, axis=1).reshape(COUNT, 4, 40)
    found = {"boxes": BOXES, "scores": scores, "classes": CLASSES, "masks": masks}
    return {name: values[order] for name, values in found.items()}


def batched(order: Any, scores: Any = SCORES) -> Outputs:
    """Return the same for two inputs, the second with all in the order that is usual."""
    usual = apart(np.arange(COUNT), scores)
    return {name: np.stack([each, usual[name]]) for name, each in apart(order, scores).items()}


def columns(order: Any, scores: Any = SCORES) -> Outputs:
    table = np.column_stack([np.zeros(COUNT), CLASSES, scores, BOXES])[order]
    return {"boxes": table[np.newaxis, np.newaxis].astype(np.float32)}


FORMS = [(apart, None), (batched, None), (columns, 2)]


def beyond(a: Outputs, b: Outputs, column: int | None, nearby: NearbyOutputs | None = None) -> int:
    order = ObjectOrder(list(a), "boxes" if column else "scores", column)
    unlike = None if column is None else -1
    sweep = OutputSweep({name: Rule(unlike=unlike, order=order) for name in a})
    names = ["picture"] * (2 if a["boxes"].ndim == 3 else 1)
    sweep.add(a, b, names, None if nearby is None else lambda: nearby)
    return sweep.beyond


@pytest.mark.parametrize(("form", "column"), FORMS)
def test_objects_of_equal_scores_may_come_in_any_order(form: Any, column: int | None) -> None:
    usual = np.arange(COUNT)
    assert beyond(form(usual), form(usual), column) == 0
    assert beyond(form(usual), form(TIES), column) == 0
    assert beyond(form(TIES), form(usual), column) == 0


@pytest.mark.parametrize(("form", "column"), FORMS)
def test_objects_of_other_scores_may_not(form: Any, column: int | None) -> None:
    usual = np.arange(COUNT)
    swapped = usual.copy()
    swapped[[30, 31]] = swapped[[31, 30]]
    assert beyond(form(usual), form(swapped), column) == 1
    assert beyond(form(usual), form(usual[::-1]), column) == 1


@pytest.mark.parametrize(("form", "column"), FORMS)
@pytest.mark.parametrize("place", [10, 11, 20, 30, 50])
def test_an_object_that_is_another_one_is_found_in_any_order(
    form: Any, column: int | None, place: int
) -> None:
    wrong = form(TIES)
    values = wrong["boxes"].reshape(-1, COUNT, wrong["boxes"].shape[-1])
    values[0, place, -1] += 5
    assert beyond(form(np.arange(COUNT)), wrong, column) == 1


def test_an_object_twice_is_not_the_two_that_were_expected() -> None:
    twice = np.arange(COUNT)
    twice[11] = 10
    assert beyond(apart(np.arange(COUNT)), apart(twice), None) == 1


def test_ties_of_one_model_in_another_order_are_no_other_output() -> None:
    """Processes of one detector, or its calls under load, may sort equal scores in any order."""
    usual = apart(np.arange(COUNT))
    order = ObjectOrder(list(usual), "scores")

    def found(ours: Outputs) -> str:
        def rules() -> dict[str, Rule]:
            return {name: Rule(order=order) for name in usual}

        return largest_difference(ours, usual, "process 1", lambda: NearbyOutputs([], []), rules)[0]

    assert found(apart(TIES)) == ""
    wrong = apart(TIES)
    wrong["boxes"][0, 1] += 1
    assert found(wrong) == "boxes"


def test_objects_that_are_not_sorted_by_score_are_compared_as_they_are() -> None:
    usual = np.arange(COUNT)
    assert beyond(apart(usual[::-1]), apart(TIES[::-1]), None) == 1


@pytest.mark.parametrize(("form", "column"), FORMS)
def test_many_close_scores_do_not_tie_the_first_object_to_the_last(
    form: Any, column: int | None
) -> None:
    """Each is close to the next one, as in the tail of a list: it stays sorted by score."""
    scores = np.linspace(0.5, 0.49, COUNT, dtype=np.float32)
    usual = np.arange(COUNT)
    swapped = usual.copy()
    swapped[[30, 31]] = swapped[[31, 30]]
    wide = 2.5  # times the gap of two scores
    order = ObjectOrder(list(form(usual)), "boxes" if column else "scores", column)
    tolerance = Tolerance(0, wide / 2 * 0.01 / (COUNT - 1))
    for given, is_tie in ((swapped, True), (usual[::-1], False)):
        expected = form(usual, scores)
        found = order.aligned(form(given, scores), expected, tolerance)
        assert np.array_equal(found["boxes"], expected["boxes"]) == is_tie


@pytest.mark.parametrize(("form", "column"), FORMS)
def test_ties_that_rounding_swaps_in_the_baseline_excuse_no_other_box(
    form: Any, column: int | None
) -> None:
    usual, ties = form(np.arange(COUNT)), form(TIES)
    wrong = form(np.arange(COUNT))
    wrong["boxes"].reshape(-1, COUNT, wrong["boxes"].shape[-1])[0, 30, -1] += 5
    nearby = NearbyOutputs([usual] * 4, [ties] * 4)
    assert beyond(usual, wrong, column, nearby) == 1
    assert beyond(usual, wrong, column, NearbyOutputs([ties] * 4, [usual] * 4)) == 1


@pytest.mark.parametrize(
    ("off", "name", "is_other"), [(0, "cat", False), (300, "cat", True), (0, "dog", True)]
)
def test_names_beside_boxes_excuse_no_other_object_where_rounding_decides_how_many(
    off: float, name: str, is_other: bool
) -> None:
    def found(count: int, off: float = 0.0, name: str = "cat") -> Outputs:
        boxes = 10 * np.arange(4 * count, dtype=np.float32).reshape(count, 4)
        return {"boxes": boxes + np.float32(off), "names": np.array([name] * count)}

    nearby = NearbyOutputs([found(5)] * 4, [found(5), found(4)] * 2)
    sweep = OutputSweep({"boxes": Rule(), "names": Rule()})
    assert sweep.add(found(5), found(4, off, name), ["x"], lambda: nearby).any() == is_other


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_a_mask_is_compared_whole_where_rounding_decides_how_many_objects_there_are(
    kind: Any,
) -> None:
    """64 of its values stood for all, and 723 wrong ones of 784 PASSED."""
    masks = (np.indices((5, 28, 28)).sum(axis=0) % 7 < 3).astype(kind)

    def found(count: int, *wrong: int) -> Outputs:
        given = masks[:count].copy()
        given.reshape(count, -1)[0, list(wrong)] = 9
        return {"boxes": BOXES[:count], "scores": SCORES[:count], "masks": given}

    def is_other(ours: Outputs, rounded: list[Outputs]) -> bool:
        sweep = OutputSweep({name: Rule() for name in ours})
        nearby = NearbyOutputs([found(5)] * 4, rounded)
        return bool(sweep.add(found(5), ours, ["x"], lambda: nearby).any())

    alike = [found(5), found(4)] * 2
    assert not is_other(found(4), alike)
    unsampled = [place for place in range(784) if place % 13]
    assert is_other(found(4, *unsampled), alike)
    assert is_other(found(4, 100), alike)
    decided = [found(5, 100), found(4, 101), found(5, 100), found(4)]
    assert not is_other(found(4, 100), decided)
    assert is_other(found(4, *range(200, 208)), decided)


def test_objects_are_in_order_also_where_some_of_their_outputs_are_not_compared() -> None:
    usual, ties = apart(np.arange(COUNT)), apart(TIES)
    order = ObjectOrder(list(usual), "scores")
    sweep = OutputSweep({name: Rule(order=order) for name in ("boxes", "scores")})
    sweep.add(usual, ties, ["picture"])
    assert sweep.beyond == 0


@pytest.mark.filterwarnings("error")
def test_scores_may_be_whole_numbers_or_infinite() -> None:
    whole = (SCORES * 255).astype(np.uint8)
    usual = np.arange(COUNT)
    assert beyond(apart(usual, whole), apart(TIES, whole), None) == 0
    endless = np.where(usual < 40, SCORES, -np.inf).astype(np.float32)
    assert beyond(apart(usual, endless), apart(TIES, endless), None) == 0


def test_a_score_for_each_of_four_classes_is_no_list_of_objects() -> None:
    scores = np.array([[0.9, 0.0, 0.0, 0.0]], np.float32)
    boxes = np.array([[1, 2, 3, 4]], np.float32)
    ours = {"boxes": boxes[:, [0, 2, 1, 3]], "scores": scores}
    order = ObjectOrder(["boxes", "scores"], "scores")
    assert order.aligned(ours, {"boxes": boxes, "scores": scores}, Tolerance(0, 0)) is ours


def part(name: str, kind: str, *steps: Any) -> Output:
    return Output.model_validate({"name": name, "type": kind, "steps": list(steps)})


def test_the_outputs_of_objects_are_those_of_the_manifest() -> None:
    apart = [
        part("num", "count"),
        part("s", "scores"),
        part("c", "classes"),
        part("b", "boxes", {"boxes": {"format": "xyxy"}}),
    ]
    assert order_of(apart) == ObjectOrder(["b", "s", "c"], "s")
    names = ["image", "class", "score", "x1", "y1", "x2", "y2"]
    assert order_of([part("d", "boxes", {"columns": {"names": names}})]) == ObjectOrder(
        ["d"], "d", 2
    )
    assert order_of([part("head", "boxes", {"yolo": {}})]) is None
    assert order_of([part("y", "tensor")]) is None


def test_what_is_not_there_or_of_another_shape_is_left_as_it_is() -> None:
    order = ObjectOrder(["boxes", "scores"], "scores")
    a = {"boxes": BOXES, "scores": SCORES}
    for ours in ({"scores": SCORES}, {"boxes": BOXES[:5], "scores": SCORES[:5]}):
        assert order.aligned(ours, a, Tolerance(0, 0)) is ours
    nothing = {"boxes": BOXES[:0], "scores": SCORES[:0]}
    one = {"boxes": BOXES[0], "scores": SCORES[0]}  # as a model gives it that squeezes its lists
    for same in (nothing, one):
        assert order.aligned(same, same, Rule().rounding(same["scores"])) is same
    table = ObjectOrder(["boxes"], "boxes", 4)
    for narrow in (BOXES, BOXES[0], BOXES[0, 0]):
        ours = {"boxes": narrow}
        assert table.aligned(ours, ours, Tolerance(0, 0)) is ours
