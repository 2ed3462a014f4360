"""The ranking of models by answers for the same inputs: never a winner inside the noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pytest_mlms.core.arrays import Array
from pytest_mlms.decide.advice.ranking import Rank, rank
from pytest_mlms.measure.evaluate.tasks.task import Evidence

RISK = 0.05


@dataclasses.dataclass
class Answers(Evidence):
    """Inputs that are right or wrong."""

    right: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.right)

    @property
    def shares(self) -> Mapping[str, NDArray[np.bool_]]:
        return {"top1": self.right}

    def figures(self, counts: Array) -> Mapping[str, Array]:
        return {}

    @property
    def losses(self) -> Array:
        return 1.0 - self.right

    def columns(self) -> Mapping[str, Sequence[Any]]:
        return {}


@dataclasses.dataclass
class Errors(Answers):
    """Inputs with an error each, of which the mean is a quantity."""

    errors: Array

    @property
    def shares(self) -> Mapping[str, NDArray[np.bool_]]:
        return {}

    def figures(self, counts: Array) -> Mapping[str, Array]:
        return {"mae": counts @ self.errors / counts.sum(axis=1)}


def answers(*rows: Any) -> list[Evidence]:
    return [Answers(np.asarray(row, dtype=bool)) for row in rows]


def errors(values: Array) -> Evidence:
    return Errors(np.ones(len(values), dtype=bool), values)


def standings(ranks: Sequence[Rank]) -> dict[int, str]:
    return {each.number: each.standing for each in ranks}


tables = st.tuples(st.integers(1, 5), st.integers(1, 40)).flatmap(
    lambda shape: arrays(np.bool_, shape)
)


@given(tables)
def test_each_model_has_one_rank_and_the_first_is_never_worse(table: NDArray[np.bool_]) -> None:
    found = rank(answers(*table), "top1", 1, RISK)
    assert sorted(each.number for each in found) == [*range(len(table))]
    values = [each.estimate.value for each in found]
    assert values == sorted(values, reverse=True)
    assert found[0].standing in ("best", "alike")
    assert ("best" in standings(found).values()) == (
        [each.standing for each in found[1:]] == ["worse"] * (len(found) - 1)
    )


@given(tables, st.permutations([*range(5)]))
def test_the_order_of_the_models_changes_no_standing(
    table: NDArray[np.bool_], order: list[int]
) -> None:
    order = [number for number in order if number < len(table)]
    before = standings(rank(answers(*table), "top1", 1, RISK))
    after = standings(rank(answers(*table[order]), "top1", 1, RISK))
    if len({int(row.sum()) for row in table}) == len(table):  # which is first of equals is free
        assert {order[number]: standing for number, standing in after.items()} == before


@given(arrays(np.bool_, st.integers(1, 40)), st.integers(2, 5))
def test_models_that_answer_alike_are_never_told_apart(
    right: NDArray[np.bool_], count: int
) -> None:
    found = rank(answers(*[right] * count), "top1", 1, RISK)
    assert set(standings(found).values()) == {"alike"}


@given(tables)
def test_as_few_differing_inputs_as_chance_explains_make_no_winner(
    table: NDArray[np.bool_],
) -> None:
    for each in rank(answers(*table), "top1", 1, RISK)[1:]:
        assert each.behind is not None
        if each.standing == "worse":
            best = table[rank(answers(*table), "top1", 1, RISK)[0].number]
            lost = int((best & ~table[each.number]).sum())
            assert 0.5**lost <= RISK / 2 / (len(table) - 1)


def test_the_best_of_equally_good_models_is_seldom_called_worse() -> None:
    generator = np.random.default_rng(5)
    lost = won = 0
    for _ in range(400):
        common = generator.random(60)
        pair = [0.6 * common + 0.4 * generator.random(60) < 0.7 for _ in range(2)]
        found = standings(rank(answers(*pair), "top1", 1, RISK))
        lost += found[0] == "worse"
        won += "best" in found.values()
    assert lost <= RISK / 2 * 400
    assert won <= RISK * 400


def test_a_model_that_is_better_by_enough_inputs_is_the_best() -> None:
    good, bad = np.ones(100), np.arange(100) >= 10
    found = rank(answers(bad, good, bad), "top1", 1, RISK)
    assert standings(found) == {1: "best", 0: "worse", 2: "worse"}
    behind = found[1].behind
    assert behind is not None
    assert 0 < behind.low < 0.1 < behind.high


def test_errors_are_compared_by_the_same_samples() -> None:
    generator = np.random.default_rng(2)
    hard = generator.exponential(10, 80)  # which both share, and is far more than they differ by
    found = rank([errors(hard + 0.5), errors(hard + generator.random(80) / 10)], "mae", 1, RISK)
    assert standings(found) == {1: "best", 0: "worse"}
    assert standings(rank([errors(hard), errors(hard)], "mae", 1, RISK)) == {0: "alike", 1: "alike"}


def test_few_inputs_with_errors_make_no_winner() -> None:
    few = np.arange(49.0)
    assert set(standings(rank([errors(few), errors(few + 9)], "mae", 1, RISK)).values()) == {
        "alike"
    }


def test_a_quantity_that_inputs_do_not_tell_makes_no_best() -> None:
    known = errors(np.arange(30.0))
    found = rank([known, errors(np.full(30, np.nan))], "mae", 1, RISK)
    assert standings(found) == {0: "alike", 1: "unknown"}
    assert standings(rank([errors(np.full(30, np.nan))], "mae", 1, RISK)) == {0: "unknown"}
