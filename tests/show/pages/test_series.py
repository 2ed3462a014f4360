"""Views of a history with six runs: an upgrade before the fourth, another host in the last."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from pytest_mlms.core.serialization import to_plain
from pytest_mlms.keep.history.store import open_to_read
from pytest_mlms.show.pages.report import render_report
from pytest_mlms.show.pages.run import read_run
from pytest_mlms.show.pages.series import (
    SeriesView,
    history_figures,
    read_series,
    series_chart,
    series_of_items,
)
from tests.support.histories import ITEM, add_upgraded_runs, run_name, write_run

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("history")
    add_upgraded_runs(str(made / "h.sqlite"), made)
    return made


@pytest.fixture(scope="module")
def history(folder: Path) -> Engine:
    return open_to_read(str(folder / "h.sqlite"))


@pytest.fixture(scope="module")
def series(history: Engine, folder: Path) -> SeriesView:
    run = read_run(folder / run_name(5))
    ids = series_of_items(history, run.items)[run.items[0].anchor]
    return read_series(history, ids)[0]


def test_the_series_of_an_item_are_found_by_its_case_limits_first(
    series: SeriesView,
) -> None:
    assert series.quantity == "latency_p50"
    assert series.model == "model-0"
    assert [point.run for point in series.points] == [run_name(night) for night in range(6)]


@pytest.mark.parametrize(
    "fields",
    [
        {"device": "cuda:0"},
        {"stack": {"name": "here", "threads": 4, "cores": []}},
        {"model": {"framework": "onnxruntime", "sha256": {"graph": "0" * 64}}},
        {"machine": {**ITEM["machine"], "memory": 2**40}},
    ],
)
def test_the_series_of_an_item_are_not_those_of_a_like_one(
    history: Engine, tmp_path: Path, fields: dict[str, Any]
) -> None:
    run = read_run(write_run(tmp_path, 5, **fields))
    assert series_of_items(history, run.items) == {run.items[0].anchor: []}


def test_a_point_says_which_software_differs_from_the_one_before(series: SeriesView) -> None:
    differing = [point.software for point in series.points]
    assert [bool(text) for text in differing] == [False, False, False, True, False, False]
    assert differing[3].startswith("onnxruntime 1.32.0 → 1.33.0")


def test_the_chart_has_a_dot_for_each_run_and_is_marked_where_software_differs(
    series: SeriesView,
) -> None:
    picture = ET.fromstring(str(series_chart(series)))
    classes = [circle.attrib["class"] for circle in picture.iter(f"{SVG}circle")]
    assert classes == ["f-c0", "f-c0", "f-c0", "f-c1", "f-c0", "f-c0"]


def test_the_report_shows_the_series_of_its_items(folder: Path) -> None:
    run = read_run(folder / run_name(5))
    figures = history_figures(str(folder / "h.sqlite"), [run])
    captions = [figure.caption for figure in figures]
    assert any(caption.startswith("model-1 ") and "latency p50" in caption for caption in captions)
    page = render_report([run], history=figures)
    assert "Over time" in page


def test_a_series_is_plain_json(series: SeriesView) -> None:
    plain = to_plain(series)
    assert plain["points"][3]["software"].startswith("onnxruntime")
    assert plain["points"][0]["value"] == series.points[0].value


def test_runs_of_one_day_have_their_time_of_day_below_the_chart(series: SeriesView) -> None:
    first = replace(series.points[0], started="2026-01-01T02:10:00+00:00")
    second = replace(first, run="another", started="2026-01-01T14:30:00+00:00")
    assert "02:10" in str(series_chart(replace(series, points=(first, second), changes=())))
    days = str(series_chart(replace(series, points=(first, series.points[3]), changes=())))
    assert "01-04" in days
    assert "02:10" not in days


def test_an_interval_that_is_cut_is_explained_in_the_legend(series: SeriesView) -> None:
    whole = tuple(replace(each, low=each.value, high=each.value) for each in series.points)
    assert "goes on beyond" not in str(series_chart(replace(series, points=whole)))
    wide = replace(whole[0], low=0.0, high=1.0)
    cut = replace(series, points=(wide, *whole[1:]))
    assert "an arrow: it goes on beyond the picture" in str(series_chart(cut))
