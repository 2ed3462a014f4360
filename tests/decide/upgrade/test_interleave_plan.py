"""The end of a round's turns."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_mlms.decide.upgrade.figures import centre_of, figures_of
from pytest_mlms.decide.upgrade.interleave_plan import ratios_of
from pytest_mlms.decide.upgrade.rounds import SIDES, Array, Round, Side, SideName
from pytest_mlms.measure.agent.predictor import Clocks, Turn

CLOCKS = Clocks(wait=False, device=False, stoppable=True)


def side_of(seconds: Array) -> Side:
    return Side(seconds, None, seconds.mean(axis=1), None, 0.1, 0.01, None)


@pytest.mark.parametrize("step", [1e-9, 1e-6])
def test_the_error_that_ends_a_round_is_that_of_the_latency_which_is_judged(step: float) -> None:
    random = np.random.default_rng(1)
    pace = 20.3e-6 * np.exp(0.01 * random.standard_normal((2, 30, 99)))
    pace[:, :, :20] *= np.exp(random.standard_normal((2, 30, 1)))  # which no median shows
    a, b = step * np.diff(np.floor(np.cumsum(pace, axis=2) / step), axis=2, prepend=0)
    judged = figures_of(Round(side_of(a), side_of(b)), "wall", 1)["latency"]
    turns: dict[SideName, list[Turn]] = {}
    clocks: dict[SideName, Clocks] = {"a": CLOCKS, "b": CLOCKS}
    for side, seconds in zip(SIDES, (a, b), strict=True):
        ends = np.cumsum(seconds, axis=1)
        turns[side] = [
            Turn({"start": end - each, "end": end}, {}, 0)
            for end, each in zip(ends, seconds, strict=True)
        ]
    centre, error = centre_of(ratios_of(turns, clocks))
    assert (centre, error) == pytest.approx((judged.value, judged.error), rel=1e-6, abs=1e-9)
