"""Summary of a run in one line."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.show.pages.item import ItemView
from pytest_mlms.show.report.terminal import is_gated, summary_line
from tests.support.result_lines import upgrade
from tests.support.views import view_of

MEASURED = {"latency_p50": {"value": 0.001}}
LIMIT = {"quantity": "latency_p50", "verdict": "PASSED"}


def item(verdict: str, case: str = "cpu-b8", **fields: Any) -> ItemView:
    """Return a performance item."""
    made = {
        "nodeid": f"m.yaml::test_performance[{case}]",
        "kind": "performance",
        "verdict": verdict,
        "manifest": {"path": "m.yaml", "name": "digits"},
        "stack": {"name": "here"},
        "estimates": MEASURED,
        "limits": [LIMIT],
    }
    return view_of({**made, **fields})


def test_models_verdicts_and_what_was_measured_are_counted() -> None:
    other = {"path": "n.yaml", "name": "words"}
    results = [
        item("PASSED", "a"),
        item("PASSED", "b", limits=[]),
        item("FAILED", "c", manifest=other),
        item("INCONCLUSIVE", "d"),
        item("SKIPPED", "e", estimates=None),
    ]
    assert summary_line(results) == (
        "mlms: 2 models: 1 failed, 1 undecided, 2 passed, 1 skipped; 4 measured, 1 not gated"
    )


def test_the_last_result_of_an_item_counts() -> None:
    results = [item("ERROR", estimates=None), item("PASSED")]
    assert summary_line(results) == "mlms: 1 model: 1 passed; 1 measured, 0 not gated"


def test_errors_are_counted_in_words() -> None:
    results = [item("ERROR", "a", estimates=None), item("INVALID", "b", estimates=None)]
    assert "1 model: 1 with errors, 1 invalid; 0 measured" in summary_line(results)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kind": "trace", "estimates": {}, "trace": {"levels": ["model"]}, "limits": []},
        {
            "kind": "upgrade",
            "estimates": None,
            "comparisons": upgrade()["comparisons"],
            "limits": None,
        },
        {"stack": {"name": "gpu=new#1"}, "limits": []},
        {"estimates": None, "limits": None},
    ],
    ids=["a limit", "a trace", "an upgrade", "one of two hosts", "not measured"],
)
def test_items_that_something_judges_or_that_measured_nothing_are_gated(
    fields: dict[str, Any],
) -> None:
    assert is_gated(item("PASSED", **fields))


@pytest.mark.parametrize("kind", ["accuracy", "performance", "agreement"])
def test_a_measurement_without_a_limit_is_not_gated(kind: str) -> None:
    assert not is_gated(item("PASSED", kind=kind, limits=[]))
