"""Series selected by expressions, and what is said where none is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from pytest_mlms.keep.history.adding import add_run
from pytest_mlms.keep.history.errors import HistoryError
from pytest_mlms.keep.history.queries import series_by_id
from pytest_mlms.keep.history.selection import ALL, is_main, select_series
from pytest_mlms.keep.history.store import open_history, open_to_read
from tests.support.histories import ITEM, item_line, run_lines, write_lines


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """A history with items of batches 8 and 64, and an item of another kind."""
    folder = tmp_path_factory.mktemp("history")
    first, last = (line for line in run_lines(0) if line["type"] != "item")
    small = item_line(0, batch_size=8, nodeid="a.yaml::test_performance[b8]")
    own = {"fairness": {"value": 1.0, "unit": "", "better": "higher"}}
    nodeid = "test_own.py::test_fair[onnxruntime-cpu]"
    fair = item_line(
        0, item=1, nodeid=nodeid, kind="accuracy", scenario=None, estimates={}, quantities=own
    )
    write_lines(folder / "run", [first, item_line(0), small, fair, last])
    address = folder / "history.sqlite"
    add_run(open_history(address), folder / "run")
    with open_to_read(address).connect() as reading:
        yield reading


def selected(connection: Connection, expression: str, quantity: str = "") -> list[tuple[str, str]]:
    ids = select_series(connection, expression, quantity)
    return [(series.case, series.quantity) for series in series_by_id(connection, ids)]


def test_expressions_are_those_of_pytest(connection: Connection) -> None:
    small = [("onnxruntime-cpu-b8-offline", "latency_p50")]
    large = [("onnxruntime-cpu-b64-offline", "latency_p50")]
    assert selected(connection, "latency_p50") == small + large
    assert selected(connection, "PERFORMANCE and latency_p50 and not b64") == small
    assert selected(connection, "(b8 or b64) and latency_p50") == small + large
    assert selected(connection, "cpu-b64-offline", "latency_p50") == large
    assert selected(connection, "fairness") == [("test_fair[onnxruntime-cpu]", "fairness")]
    assert len(selected(connection, "icelake")) == 2 * len(ITEM["estimates"]) + 1


def test_without_an_expression_all_series_are_selected(connection: Connection) -> None:
    assert len(selected(connection, "")) == 2 * len(ITEM["estimates"]) + 1
    assert len(selected(connection, " ", ALL)) == 2 * len(ITEM["estimates"]) + 1


@pytest.mark.parametrize(
    ("expression", "quantity", "message"),
    [
        ("b7", "", "-k 'b7' selects no series; there are model-0, model-1: try -k model-0"),
        ("b8 or", "", "is no expression: .*; write words, 'and', 'or', 'not' and brackets"),
        ("", "latency_p5", "no series has the quantity 'latency_p5'; did you mean 'latency_p"),
        ("", "wer", "no series has the quantity 'wer'; there are fairness, first_inference,"),
    ],
)
def test_where_nothing_is_selected_the_error_says_what_there_is(
    connection: Connection, expression: str, quantity: str, message: str
) -> None:
    with pytest.raises(HistoryError, match=message):
        select_series(connection, expression, quantity)


def test_an_empty_history_says_how_to_fill_it(tmp_path: Path) -> None:
    message = "no measurements yet; pytest --mlms-history or"
    empty = open_history(tmp_path / "h.sqlite")
    with empty.connect() as connection, pytest.raises(HistoryError, match=message):
        select_series(connection, "")


def test_the_median_latency_stands_for_a_performance_item() -> None:
    assert is_main("latency_p50")
    assert not is_main("load_time")
    assert is_main("top1")
    assert is_main("fairness")
