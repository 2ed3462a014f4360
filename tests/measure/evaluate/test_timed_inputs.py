"""Tests of the draws of batches that rounds and processes are timed with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from pytest_mlms.measure.evaluate import timed_inputs
from pytest_mlms.measure.evaluate.fresh_process import measure_process
from pytest_mlms.measure.evaluate.performance import inputs_timed, latency_by_group
from pytest_mlms.measure.evaluate.steadiness import even_out, settling_of
from pytest_mlms.measure.evaluate.timed_inputs import TimedBatches, TimedInputs, first_batch
from tests.support.paced import dataset_of
from tests.support.processes import FakePredictor, plan

ALIKE = np.arange(1000, dtype=np.float32).repeat(4).reshape(1000, 4)
SIZES = (16,) * 40 + (512,) * 60
MIXED = [np.full(size, number, np.float32) for number, size in enumerate(SIZES)]


def draws(elements: Any = ALIKE, size: int = 16, seed: int = 7, run_seed: int = 1) -> TimedInputs:
    return TimedInputs(dataset_of(elements), size, seed, run_seed)


def test_both_seeds_draw_the_batches_and_each_draw_is_another() -> None:
    one, again, other = draws(), draws(), draws(run_seed=2)
    first = one().elements
    assert first == again().elements
    assert first[1:] != other().elements[1:]
    assert first[1:] != one().elements[1:]


def test_the_first_batch_is_the_same_in_every_draw_and_run() -> None:
    one, other = draws(), draws(run_seed=2)
    found = {batches.elements[0] for batches in (one(), one(), other(), other())}
    assert len(found) == 1
    expected = first_batch(dataset_of(list(ALIKE)), 16, seed=7)["x"]
    assert np.array_equal(other()[0]["x"], expected)
    assert not np.array_equal(draws(seed=8)()[0]["x"], expected)


def test_all_inputs_are_taken_before_any_is_taken_again() -> None:
    made = draws(np.zeros((60, 4), np.float32), size=1)
    counts = Counter(element for _ in range(7) for (element,) in made().elements[1:])
    assert set(counts) == set(range(60))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_batches_have_the_names_of_their_elements() -> None:
    batches = draws()()
    for names, batch in zip(batches.names, batches, strict=True):
        assert names == [f"row {int(index)} of arrays" for index in batch["x"][:, 0]]


@pytest.mark.parametrize(
    ("most", "more", "count"), [(3, 0, 3), (100, 0, 8), (0, 0, 1), (8, 20, 20)]
)
def test_drawn_batches_are_bounded_in_memory(
    monkeypatch: pytest.MonkeyPatch, most: int, more: int, count: int
) -> None:
    batch_bytes = 16 * 4 * 4
    monkeypatch.setattr(timed_inputs, "_BYTES", most * batch_bytes)
    monkeypatch.setattr(timed_inputs, "_MORE_BYTES", more * batch_bytes)
    assert len(draws()()) == count


@pytest.mark.parametrize("long", [1, 5, 40, 60, 95])
def test_each_shape_has_its_share_of_the_calls(long: int) -> None:
    elements = [np.zeros(512 if n < long else 16, np.float32) for n in range(100)]
    batches = draws(elements, size=1)()
    assert batches.mix.names == ("16", "512")
    assert batches.mix.shares == pytest.approx((1 - long / 100, long / 100))
    groups = [batches.groups[number] for number in batches.cycle]
    assert np.mean(groups) == pytest.approx(long / 100, abs=0.012)
    assert batches.cycle[0] == 0


def test_a_batch_has_one_shape_also_where_groups_join_several() -> None:
    elements = [np.zeros(4 + n % 20, np.float32) for n in range(200)]
    batches = draws(elements, size=4)()
    assert len(batches.mix.names) == 6
    assert batches.mix.names[0].startswith("4-")
    assert sum(batches.mix.shares) == pytest.approx(1)


def test_inputs_that_are_watched_are_drawn_beside_the_cycle() -> None:
    made = draws(size=1)
    made.watch = [(17,), (4,)]
    batches = made()
    assert batches.elements[-2:] == [(17,), (4,)]
    assert timed_inputs.watched_of(batches) == [len(batches) - 2, len(batches) - 1]


class ByLength(FakePredictor):
    """A predictor whose calls take time by the length of their inputs, in the order of a mix."""

    def __init__(self) -> None:
        super().__init__(self._seconds_of)
        self._order: list[float] = []
        self._place = 0

    def run(self, scenario: str, batches: Any = (), *, order: Any = (), **limits: Any) -> Any:
        if batches:
            sizes = [batches[number]["x"].size for number in order]
            self._order = [2.9e-3 if size == 512 else 164e-6 for size in sizes]
        self._place = 0
        return super().run(scenario, batches, order=order, **limits)

    def _seconds_of(self, call: int) -> float:
        self._place += 1
        return self._order[(self._place - 1) % len(self._order)]


def test_the_latency_of_40_percent_short_inputs_is_that_of_the_mix_and_steady() -> None:
    batches = draws(MIXED, size=1)()
    predictor: Any = ByLength()
    result = measure_process(plan(batch_size=1), predictor, batches, early=False)
    assert result.percentile(50) == pytest.approx(2.9e-3)
    assert result.percentile(10) == pytest.approx(164e-6)
    assert result.mean_latency == pytest.approx(0.4 * 164e-6 + 0.6 * 2.9e-3, rel=0.03)
    assert result.settling.is_settled
    assert result.record.steady
    short, long = latency_by_group([result, result], 0.95)
    assert (short.name, short.share, long.name) == ("16", 0.4, "512")
    assert short.latency == pytest.approx(164e-6)
    assert long.latency == pytest.approx(2.9e-3)
    assert inputs_timed([result]) == short.inputs + long.inputs >= 63


def test_what_inputs_take_is_no_change_of_a_process_but_a_slower_second_half_is() -> None:
    kinds = np.array([0, 0, 1, 1, 1])
    levels = np.array([1.0, 10.0])[kinds[np.arange(400) % 5]]
    assert settling_of(even_out([levels[:8], levels], kinds)).is_settled
    slower = levels * np.repeat([1.0, 1.3], 200)
    assert settling_of(even_out([slower], kinds)).change == pytest.approx(1.3, rel=0.02)


def test_batches_of_one_shape_are_of_one_group() -> None:
    batches = draws()()
    assert isinstance(batches, TimedBatches)
    assert batches.mix == timed_inputs.ONE_GROUP
    assert list(batches.cycle) == list(range(len(batches)))
