"""Marks on pictures that scorers keep."""

from __future__ import annotations

import numpy as np

from pytest_mlms.measure.evaluate.tasks.task import MaskPair, WorstMasks


def masks(side: int = 4) -> MaskPair:
    return MaskPair(np.zeros((side, side), np.uint8), np.ones((side, side), np.int64))


def test_the_masks_with_the_largest_losses_are_kept() -> None:
    worst = WorstMasks(most=3)
    for index, loss in enumerate([0.1, 0.9, 0.0, 0.5, 0.2, 0.7]):
        worst.offer(loss, index, masks())
    assert sorted(worst.kept()) == [1, 3, 5]


def test_of_equal_losses_the_first_inputs_are_kept() -> None:
    worst = WorstMasks(most=2)
    for index in range(4):
        worst.offer(0.5, index, masks())
    assert sorted(worst.kept()) == [0, 1]


def test_masks_are_kept_small_and_volumes_not_at_all() -> None:
    worst = WorstMasks()
    worst.offer(1, 0, masks(1000))
    worst.offer(1, 1, MaskPair(np.zeros((3, 3, 3)), np.ones((3, 3, 3))))
    assert list(worst.kept()) == [0]
    assert worst.kept()[0].label.shape == (125, 125)
