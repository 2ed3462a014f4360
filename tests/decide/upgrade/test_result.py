"""Result of an upgrade."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from pytest_mlms.core.records import Verdict
from pytest_mlms.core.serialization import from_plain, to_plain
from pytest_mlms.decide.upgrade.output_check import check_outputs
from pytest_mlms.decide.upgrade.result import UpgradeResult
from pytest_mlms.decide.upgrade.round_record import RoundRecord
from tests.support.upgrades import ROUND_RECORD, alike, changed, result_of


def test_a_record_comes_back_from_json_as_it_was() -> None:
    record = replace(ROUND_RECORD, figures={"latency": changed(0.1)})
    text = json.dumps(to_plain(record), allow_nan=False)
    assert from_plain(RoundRecord, json.loads(text)) == record


def test_the_keys_of_a_round_are_those_that_results_document() -> None:
    plain = to_plain(ROUND_RECORD)
    assert set(plain) == {
        "started_first",
        "cores",
        "pairs",
        "calls",
        "skipped",
        "calling_core",
        "warmup_pairs",
        "steady",
        "turns_exclusive",
        "seconds",
        "sides",
        "figures",
        "loads",
        "peaks",
        "started_together",
        "clock_step",
        "starts",
        "groups",
    }
    assert plain["sides"]["b"]["pid"] == 102


def test_a_result_without_rounds_is_inconclusive() -> None:
    empty = UpgradeResult()
    assert empty.verdict is Verdict.INCONCLUSIVE
    assert empty.latency is None
    assert empty.margin == math.inf


@pytest.mark.parametrize("value", [-0.2, 0.0, 0.2])
def test_the_margin_is_the_distance_of_the_interval_from_its_limit(value: float) -> None:
    result = result_of(alike(value))
    assert result.latency is not None
    assert result.margin == pytest.approx(1.03 - result.latency.high)
    assert (result.margin < 0) is (value > 0)


def test_regressed_quantities_and_undecided_gates_are_listed() -> None:
    rounds = [{**figures, "peak_memory": changed(1.0, a=1e8)} for figures in alike(0.03)]
    result = result_of(rounds)
    assert [one.quantity for one in result.regressed] == ["peak_memory"]
    assert [one.quantity for one in result.undecided_gates] == ["latency"]


def test_outputs_are_wrong_where_a_comparison_of_them_regressed() -> None:
    slower = result_of(alike(0.2))
    assert not slower.wrong_outputs
    wrong = check_outputs({"y": np.ones(2)}, {"y": np.zeros(2)})
    assert replace(slower, comparisons=[wrong]).wrong_outputs


def test_the_margin_of_a_rate_is_that_of_its_loss() -> None:
    faster, slower = (
        result_of([{"peak_rate": changed(value, a=100)}] * 8, ["peak_rate"])
        for value in (0.2, -0.2)
    )
    assert faster.margin > 0 > slower.margin
