"""Study of the changes of a history."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.keep.history.blocks import Blocks
from pytest_mlms.keep.history.change_points import find_shifts
from pytest_mlms.keep.history.shifts import Sensitivity
from pytest_mlms.keep.history.significance import ALARM_RISK, accepted_p_value, predict
from tests.support.project import ROOT

sys.path.insert(0, str(ROOT / "ci"))

from history_nightly import answer, reports, two_sigma
from history_noise import NIGHTS, NOISES, Values, read_recorded, with_drift
from history_page import Cell, Drift, Found, Study, make_page
from history_study import BEGIN, OFF, STEPS, Task, alarms, delays, planted
from history_versions import BEFORE, KINDS, Nights, VersionCell, measure, nights, tell
from history_versions import NOISES as VERSION_NOISES

SERIES = 12
RULES = ["pytest-mlms", "Otava", "ruptures, BIC", "asv", "previous × 1.05", "2 sigma of 30"]


@lru_cache
def series_of(noise: str, count: int = SERIES) -> list[Values]:
    rng = np.random.default_rng(7)
    return [NOISES[noise].logarithms(rng, NIGHTS) for _ in range(count)]


def false_alarms(rule: str, series: list[Values]) -> float:
    found = [answer(rule, Task(values, BEGIN).document()) for values in series]
    return alarms(found, NIGHTS - BEGIN)[0]


def share_found(rule: str, series: list[Values], step: float) -> float:
    tasks, places = planted(series, step, seed=7)
    found = [answer(rule, task.document()) for task in tasks]
    return len(delays(found, places)) / len(places)


@pytest.mark.parametrize("noise", NOISES)
def test_our_rule_seldom_reports_noise_and_finds_a_step_of_a_tenth(noise: str) -> None:
    assert false_alarms("ours", series_of(noise)) <= 0.5
    assert share_found("ours", series_of(noise), 0.10) >= 0.75


def test_our_rule_finds_most_steps_of_five_percent_in_white_noise() -> None:
    assert share_found("ours", series_of("white"), 0.05) >= 0.75
    assert share_found("ours", series_of("white"), 0.001) <= 0.25


@pytest.mark.parametrize("rule", ["previous", "two_sigma"])
def test_simple_rules_report_noise_several_times_a_year(rule: str) -> None:
    assert false_alarms(rule, series_of("white")[:4]) > 5


def test_a_change_is_reported_once_by_a_rule_that_sees_it_every_night() -> None:
    def always_the_same(values: Sequence[float]) -> list[int]:
        return [20]

    def known_before(values: Sequence[float]) -> list[int]:
        return [5]

    def wanders(values: Sequence[float]) -> list[int]:
        return [20 + len(values) % 3] if len(values) > 22 else []

    values = [1.0] * 40
    assert reports(always_the_same, values, 12) == []
    assert reports(known_before, values, 12) == []
    assert reports(wanders, values, 12) == [(22, 22)]
    assert reports(two_sigma, [1.0, 1.1] * 20 + [9.0], 35) == [(40, 40)]


def test_steps_are_planted_up_and_down_where_they_can_be_found() -> None:
    series = series_of("white")
    tasks, places = planted(series, 0.10, seed=1)
    for number, (task, place) in enumerate(zip(tasks, places, strict=True)):
        change = task.values - series[number][: len(task.values)]
        assert not change[:place].any()
        expected = np.log(1.1) if number % 2 == 0 else -np.log(1.1)
        assert change[place:] == pytest.approx(expected)
        assert task.begin == place


def test_a_report_elsewhere_is_no_step_found() -> None:
    at = 70
    there, elsewhere = [(75, at + OFF)], [(75, at - OFF - 1)]
    assert delays([there, elsewhere, []], [at, at, at]) == [6]


def test_slow_drift_is_reported_within_a_year() -> None:
    rng = np.random.default_rng(1)
    found = [answer("ours", Task(with_drift(rng, NIGHTS), BEGIN).document()) for _ in range(5)]
    assert all(found)


def test_the_recorded_series_are_of_as_many_runs_each() -> None:
    recorded = read_recorded()
    assert len(recorded) >= 10
    assert {len(values) for values in recorded.values()} == {len(next(iter(recorded.values())))}
    assert all(np.isfinite(values).all() and len(values) >= 100 for values in recorded.values())


def test_a_study_is_kept_and_a_cell_is_replaced(tmp_path: Path) -> None:
    def cell(rate: float) -> Cell:
        return Cell("ours", "white", 3, rate, 0.1, [Found(step, 0.5, None) for step in STEPS])

    study = Study().with_cell(cell(1.0)).with_drift(Drift("ours", 1.0, 120.0, 2.0))
    study.write(tmp_path / "study.json")
    again = Study.read(tmp_path / "study.json").with_cell(cell(2.0))
    assert [known.rate for known in again.cells] == [2.0]
    page = make_page(again)
    assert "| pytest-mlms | 3 | 2.00 ± 0.10 | 50% |" in page
    assert "| pytest-mlms | 100% | 120 | 2.0 |" in page


def test_the_page_has_every_rule_on_every_kind_of_series() -> None:
    page = (ROOT / "docs" / "history_study.md").read_text()
    for rule in RULES:
        assert page.count(f"| {rule} |") == len(NOISES) + 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_version_that_is_slower_is_found_at_once_and_none_is_imagined(kind: Nights) -> None:
    quiet = measure(kind, 0.003, count=1000, seed=1)
    assert (quiet.found, quiet.named, quiet.false) == (1, 1, 0)
    usual = measure(kind, 0.015, count=10_000, seed=1)
    assert usual.named >= 0.8
    assert usual.false <= 0.002
    assert usual.false_named <= 0.1


def test_the_study_of_versions_tells_what_the_search_does() -> None:
    rng = np.random.default_rng(3)
    kind = Nights("three series", series=3, stepped=2)
    told = set()
    for step in (0.0, 0.04, 0.06, 0.08) * 15:
        values = nights(kind, 0.012, step, 1, rng)
        p_values = []
        for row in values[0]:
            if find_shifts(row, Sensitivity(0.03), changed=[BEFORE]):
                p_values.append(predict(Blocks(row, [0]), BEFORE, 1, 0.006).p_value)
        limit = accepted_p_value(p_values, 3, ALARM_RISK)
        alarms = sum(p_value <= limit for p_value in p_values)
        assert tell(values).alarms.tolist() == [alarms]
        told.add(alarms)
    assert told == {0, 1, 2}


def test_the_page_tells_of_each_kind_of_night_with_a_version() -> None:
    page = (ROOT / "docs" / "history_study.md").read_text()
    _, found, false = page.split("## A version that changes ")
    for kind in KINDS:
        assert f"| {kind.name} |" in found
        assert f"| {kind.name} |" in false


def test_cells_of_versions_are_kept_with_the_others(tmp_path: Path) -> None:
    cells = [
        VersionCell(kind.name, noise, 1000, 0.9, 0.95, 0.8, 0.002, 0.001, 0.05)
        for kind in KINDS
        for noise in VERSION_NOISES
    ]
    study = Study().with_versions(cells).with_drift(Drift("ours", 1.0, 120.0, 2.0))
    study.write(tmp_path / "study.json")
    again = Study.read(tmp_path / "study.json")
    assert again.versions == cells
    assert again.drifts == study.drifts
    assert "| one series | 90.0%, 80.0%, 95.0% |" in make_page(again)
    assert "| one series | 2.00 ± 1.00, 5.0% |" in make_page(again)
