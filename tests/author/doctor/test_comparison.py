"""Statistics of the doctor, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from pytest_mlms.author.doctor.comparison import holm, mcnemar
from pytest_mlms.author.doctor.examination import sampled
from pytest_mlms.measure.pipeline import Dataset


@pytest.mark.parametrize(("won", "lost"), [(0, 0), (1, 0), (5, 0), (9, 2), (30, 30), (3, 40)])
def test_mcnemar_is_the_exact_test(won: int, lost: int) -> None:
    expected = binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert mcnemar(won, lost) == pytest.approx(expected)


def test_holm_stops_at_the_first_that_is_not_rejected() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([0.013, 0.013, 0.013, 0.013], 0.05) == [False] * 4
    assert holm([], 0.05) == []


def test_holm_holds_its_risk_over_many_variants() -> None:
    generator = np.random.default_rng(1)
    wrong = sum(any(holm(generator.uniform(size=30).tolist(), 0.05)) for _ in range(2000))
    assert wrong / 2000 < 0.065


def test_a_sample_keeps_elements_and_labels_together() -> None:
    elements = {"x": [np.array(number) for number in range(50)]}
    dataset = Dataset("d", (), elements, np.arange(50), files=[f"f{n}" for n in range(50)])
    sample = sampled(dataset, 10)
    assert len(sample) == 10
    assert [sample.elements["x"][n] for n in range(10)] == list(np.asarray(sample.labels))
    assert sample.files is not None
    assert [sample.files[n] for n in range(10)] == [f"f{n}" for n in np.asarray(sample.labels)]
    assert sampled(dataset, 50) is dataset
