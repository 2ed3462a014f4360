"""Many decisions at once: the rule over arrays is that of the gate."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pytest_mlms.upgrade.round_estimate import RoundSpan, estimate_change
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from gate_many import ends_of


@pytest.mark.parametrize("count", [6, 7, 9, 10, 12, 17])
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("outliers", [0.0, 0.2])
def test_the_rule_over_arrays_is_that_of_the_gate(
    count: int, ordered: bool, outliers: float
) -> None:
    span = RoundSpan(6, 20)
    rng = np.random.default_rng(count)
    values = rng.normal(0, 0.01, (20, count)) + 0.3 * (rng.random((20, count)) < outliers)
    orders = np.resize([1, -1], (20, count)) if ordered else np.zeros((20, count), int)
    low, high = ends_of(values, orders, span)
    for index, row in enumerate(values):
        found = estimate_change(row.tolist(), span, orders[index].tolist())
        assert (low[index], high[index]) == pytest.approx((found.low, found.high), abs=1e-12)
