"""Report of the study of the upgrade gate."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.project import DIGITS, ROOT

pytest.importorskip("onnx")
sys.path.insert(0, str(ROOT / "ci"))

from gate_models import Network, load_digits
from gate_report import Conditions, Item, make_report, unexpected_decisions

SAME = Item(
    network="digits",
    effect=0.0,
    verdict="PASSED",
    ratio=1.0004,
    cpu_ratio=0.9996,
    seconds=1.5,
    rounds=2,
    decided_by=[],
    others={"mean:5%": True, "min:5%": False},
)
WORSE = replace(SAME, effect=0.05, verdict="REGRESSED", ratio=1.05, decided_by=["latency"])
ABOUT = Conditions(
    asked=9,
    spent=90.0,
    turn_seconds=0.5,
    threads=1,
    beside="no load",
    busy={"busy": 0.5, "steal": None},
)


def report(*items: Item) -> list[str]:
    graph = load_digits(DIGITS)
    verified = {0.0: -0.001, 0.02: 0.021, 0.05: 0.05, 0.10: 0.1}
    network = Network("digits", graph, {}, Path(), verified=verified)
    return make_report(list(items), [network], ["mean:5%", "min:5%"], ABOUT).splitlines()


def test_the_page_says_what_was_run() -> None:
    text = report(SAME, WORSE)[2]
    assert "2 of 9 decisions in 2 minutes, 0.5 s of turns a round, tolerance 3%" in text
    assert text.endswith("threads: 1, beside no load.")


def test_a_change_that_stays_open_is_not_found() -> None:
    lines = unexpected_decisions([WORSE, replace(WORSE, verdict="INCONCLUSIVE", decided_by=[])])
    assert [line for line in lines if "INCONCLUSIVE" in line] == [lines[-1]]
    assert not any("REGRESSED" in line for line in lines)


def test_decisions_are_counted_by_their_real_change() -> None:
    lines = report(SAME, SAME, WORSE)
    none = "| none | -0.04% | 2 | 0 | 0 | 2 | 0 | 1.0004 | 2 of 2 | 0 of 2 |"
    five = "| +5% | -0.04% | 1 | 1 | 0 | 0 | 0 | 1.0500 | 1 of 1 | 0 of 1 |"
    assert none in lines
    assert five in lines


def test_the_work_of_the_variants_is_shown() -> None:
    (row,) = [line for line in report(SAME) if line.startswith("| digits: ")]
    assert row.endswith("| +2.10% | +5.00% | +10.00% | -0.10% |")


def test_decisions_that_are_as_expected_are_not_listed() -> None:
    assert unexpected_decisions([SAME, WORSE]) == []
    edge = replace(SAME, effect=0.02)
    assert unexpected_decisions([edge]) == []


def test_wrong_and_open_decisions_are_listed() -> None:
    flagged = replace(WORSE, effect=0.0)
    missed = replace(SAME, effect=0.10)
    lines = unexpected_decisions([flagged, missed])
    assert lines[1] == "Wrong or undecided decisions:"
    assert lines[3].startswith("- digits, +0%: REGRESSED latency (latency ×1.0500")
    assert lines[4].startswith("- digits, +10%: PASSED ")
