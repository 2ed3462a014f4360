"""Error reports of items that no worker could finish."""

from __future__ import annotations

import pytest

from pytest_mlms.distribute.lost_items import LostItem, as_error, report_of
from pytest_mlms.distribute.queue import ItemTable
from pytest_mlms.distribute.recovery import AbandonedItem
from tests.distribute.fakes import make_needs

NODEID = "m.yaml::test_performance[x]"
COMMAND = f"reproduce: pytest '{NODEID}'"


@pytest.fixture
def items() -> ItemTable:
    needs = make_needs(case="x", kind="performance", manifest={"name": "digits"})
    return ItemTable([NODEID], [needs], [0], {})


def abandon(items: ItemTable, pytester: pytest.Pytester) -> pytest.TestReport:
    config = pytester.parseconfig()
    return report_of(AbandonedItem(0, "no worker is left"), items, config)


def test_an_abandoned_item_fails_with_its_reason_and_has_a_result(
    items: ItemTable, pytester: pytest.Pytester
) -> None:
    report = abandon(items, pytester)
    assert report.nodeid == NODEID
    assert report.failed
    assert report.head_line == "digits: test_performance[x]"
    assert report.longreprtext == f"digits x: not run: no worker is left\n{COMMAND}"
    result = report.mlms
    assert result["verdict"] == "ERROR"
    assert result["case"] == "x"
    assert result["message"] == "digits x: not run: no worker is left"
    assert "attempt" not in result


def test_what_only_chooses_a_host_is_not_in_the_result(
    items: ItemTable, pytester: pytest.Pytester
) -> None:
    result = abandon(items, pytester).mlms
    assert not {"exclusive", "here", "hardware"} & result.keys()


def test_a_second_attempt_is_in_the_result(items: ItemTable, pytester: pytest.Pytester) -> None:
    items.retry_elsewhere(0, "gpu1", "gpu1 was lost")
    report = abandon(items, pytester)
    item = LostItem.of(items, 0, "gpu1 was lost; then gpu2")
    as_error(report, item, pytester.parseconfig())
    result = report.mlms
    assert result["attempt"] == 2
    assert result["earlier"] == "gpu1 was lost"
    assert result["message"] == "digits x: gpu1 was lost; then gpu2"
