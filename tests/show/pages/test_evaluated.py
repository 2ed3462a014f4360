"""May we upgrade? No case, run, clock or history that is not seen is answered with yes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_mlms.show.pages.evaluated import Answer, Evaluated, Loss, Losses, Unfinished, answers_of
from pytest_mlms.show.pages.series import ChangeView

UPGRADE = Evaluated(
    run="r",
    number=1,
    link="#a",
    nodeid="m.yaml::test_upgrade[new-vs-old]",
    model="m",
    stack="new",
    framework="onnxruntime",
    version="1.32.0",
    baseline="1.31.1",
    kind="upgrade",
    case="new-vs-old",
    machine="a machine",
    host="vm",
    verdict="PASSED",
    time="2026-11-28T04:00:00+00:00",
    whole=True,
)
MEASURED = replace(UPGRADE, kind="performance", nodeid="m.yaml::test_performance[new]", baseline="")
LOST = ChangeView(
    id=1,
    series=1,
    model="m",
    kind="performance",
    case="new-cpu-b1",
    machine="a machine",
    quantity="latency_p50",
    unit="s",
    first_run="r",
    started="2026-11-28T04:00:00+00:00",
    before=1.0,
    after=1.1,
    ratio=1.1,
    low=None,
    high=None,
    status="open",
    cause=None,
    confirmed_by=None,
    reason=None,
    is_worse=True,
    text="+10 %",
)


CAME = {("onnxruntime", "1.32.0"), ("numpy", "3")}
BEFORE = "2026-11-27T04:00:00+00:00"
LATER = "2026-11-29T04:00:00+00:00"
AHEAD = "2099-01-01T00:00:00+00:00"


def a_loss(
    came: Collection[tuple[str, str]] | None, stack: str = "else", status: str = "open"
) -> Loss:
    return Loss(replace(LOST, status=status), 0, None, None, stack, came)


def the_answer(items: Sequence[Evaluated], *losses: Loss) -> Answer:
    (answer,) = answers_of(items, Losses(losses))
    return answer


def of_model(item: Evaluated, model: str, **fields: Any) -> Evaluated:
    """Return such an item of another model."""
    nodeid = item.nodeid.replace("m.yaml", f"{model}.yaml")
    return replace(item, model=model, nodeid=nodeid, **fields)


def test_an_upgrade_that_passed_is_answered_with_yes_and_for_how_many_models() -> None:
    answer = the_answer([UPGRADE, MEASURED, replace(UPGRADE, model="n")])
    assert answer == ("yes", "onnxruntime 1.32.0", "2 of 2 upgrades passed, of 2 models")


@pytest.mark.parametrize(
    ("items", "word"),
    [
        ([replace(UPGRADE, verdict="REGRESSED")], "no"),
        ([UPGRADE, replace(UPGRADE, model="n", verdict="FAILED")], "no"),
        ([UPGRADE, replace(UPGRADE, model="n", verdict="SKIPPED")], "open"),
        ([UPGRADE, replace(UPGRADE, model="n", verdict="INCONCLUSIVE")], "open"),
        ([replace(UPGRADE, whole=False)], "open"),
        ([UPGRADE, replace(MEASURED, verdict="FAILED")], "open"),
        ([UPGRADE, replace(MEASURED, verdict="INCONCLUSIVE")], "open"),
        ([UPGRADE, replace(MEASURED, stack="else", verdict="ERROR")], "open"),
        ([UPGRADE, replace(MEASURED, version="1.31.1", stack="old", verdict="FAILED")], "yes"),
    ],
)
def test_what_is_bad_undecided_or_not_whole_is_not_answered_with_yes(
    items: list[Evaluated], word: str
) -> None:
    assert the_answer(items).word == word


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([UPGRADE, of_model(UPGRADE, "n", verdict="ERROR", version="", baseline="")], "1 ERROR"),
        ([UPGRADE, of_model(UPGRADE, "n", verdict="SKIPPED", version="")], "1 SKIPPED"),
        ([replace(UPGRADE, verdict="INVALID")], "1 INVALID"),
        ([UPGRADE, of_model(MEASURED, "n", version="1.31.1", stack="old")], "1 other model had"),
        ([UPGRADE, replace(MEASURED, verdict="WORST")], "1 undecided"),
    ],
)
def test_what_was_not_measured_is_neither_yes_nor_no(items: list[Evaluated], reason: str) -> None:
    answer = the_answer(items)
    assert answer[:2] == ("open", "onnxruntime 1.32.0")
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("then", "word"),
    [
        (replace(MEASURED, verdict="SKIPPED", time=LATER), "open"),
        (replace(MEASURED, version="1.31.1", time=LATER), "open"),
        (replace(MEASURED, time=AHEAD), "open"),
        (replace(MEASURED, time="tomorrow"), "open"),
        (replace(MEASURED, verdict="INCONCLUSIVE", time=LATER), "open"),
        (replace(MEASURED, time=LATER), "yes"),
        (replace(MEASURED, machine="another", time=LATER), "open"),
        (replace(MEASURED, time=BEFORE, received=2), "open"),
        (replace(MEASURED, time=LATER, received=2), "yes"),
    ],
)
def test_a_failure_stands_until_the_same_was_measured_again(then: Evaluated, word: str) -> None:
    assert the_answer([UPGRADE, replace(MEASURED, verdict="FAILED"), then]).word == word


@pytest.mark.parametrize(
    ("then", "word"),
    [
        (replace(UPGRADE, verdict="SKIPPED", version="", time=LATER), "no"),
        (replace(UPGRADE, verdict="ERROR", version="", baseline="", time=LATER), "no"),
        (replace(UPGRADE, verdict="INVALID", time=LATER), "no"),
        (replace(UPGRADE, verdict="INCONCLUSIVE", time=LATER), "open"),
        (replace(UPGRADE, time=AHEAD), "no"),
        (replace(UPGRADE, time=LATER), "yes"),
    ],
)
def test_an_upgrade_that_regressed_is_forgotten_only_by_a_later_one(
    then: Evaluated, word: str
) -> None:
    assert the_answer([replace(UPGRADE, verdict="REGRESSED"), then]).word == word


@pytest.mark.parametrize(("received", "word"), [(0, "yes"), (1, "yes"), (2, "open")])
def test_a_failure_that_was_read_later_counts_whatever_its_clock_says(
    received: int, word: str
) -> None:
    failed = replace(MEASURED, verdict="FAILED", time=BEFORE, received=received)
    assert the_answer([UPGRADE, failed, replace(MEASURED, received=1)]).word == word


def test_an_upgrade_that_regressed_counts_for_its_version_after_another_one_came() -> None:
    items = [
        replace(UPGRADE, verdict="REGRESSED"),
        replace(UPGRADE, version="1.33.0", time=LATER),
        of_model(UPGRADE, "n"),
    ]
    words = {answer.target: answer.word for answer in answers_of(items, Losses())}
    assert words == {"onnxruntime 1.32.0": "no", "onnxruntime 1.33.0": "open"}


def test_an_upgrade_that_passed_and_was_skipped_then_is_not_known() -> None:
    skipped = replace(UPGRADE, verdict="SKIPPED", version="", baseline="", time=LATER)
    assert the_answer([UPGRADE, skipped]).word == "open"


@pytest.mark.parametrize(("started", "word"), [(BEFORE, "yes"), (LATER, "open")])
def test_a_run_that_was_cut_off_after_an_upgrade_may_have_had_a_worse_one(
    started: str, word: str
) -> None:
    (answer,) = answers_of([UPGRADE], Losses(), [Unfinished("cut", started)])
    assert answer.word == word
    assert ("cut" in answer.reason) == (word == "open")


def test_what_was_skipped_or_is_expected_to_fail_is_told_with_the_yes() -> None:
    items = [
        UPGRADE,
        replace(MEASURED, verdict="XFAILED"),
        replace(MEASURED, nodeid="another", verdict="SKIPPED"),
    ]
    answer = the_answer(items)
    assert answer.word == "yes"
    assert "1 expected to fail" in answer.reason
    assert "1 skipped" in answer.reason


@pytest.mark.parametrize(
    ("came", "status", "word"),
    [
        (CAME, "open", "open"),
        (CAME, "confirmed", "no"),
        ({("onnxruntime", "1.32.0.post1")}, "confirmed", "yes"),
        ({("numpy", "1.32.0")}, "confirmed", "yes"),
        (set(), "open", "yes"),
        (None, "open", "open"),
        (None, "confirmed", "open"),
    ],
)
def test_a_change_for_the_worse_counts_where_the_version_may_have_come_with_it(
    came: set[tuple[str, str]] | None, status: str, word: str
) -> None:
    assert the_answer([UPGRADE], a_loss(came, status=status)).word == word


def test_a_framework_is_known_by_any_form_of_its_name() -> None:
    upgrade = replace(UPGRADE, framework="onnxruntime_genai")
    assert the_answer([upgrade], a_loss({("onnxruntime-genai", "1.32.0")})).word == "open"


def test_changes_that_were_not_read_are_no_yes() -> None:
    (answer,) = answers_of([UPGRADE], Losses(lack="the history can't be read now"))
    assert (answer.word, "can't be read" in answer.reason) == ("open", True)


def test_sides_of_one_version_are_told_apart_by_the_stack() -> None:
    alike = [replace(UPGRADE, baseline="1.32.0")]
    assert the_answer(alike)[:2] == ("yes", "the stack new")
    assert the_answer(alike, a_loss(set(), "new")).word == "open"
    assert the_answer(alike, a_loss(set(), "new", "confirmed")).word == "no"
    assert the_answer(alike, a_loss(set(), "new-gpu", "confirmed")).word == "yes"


VERDICTS = st.sampled_from(["ERROR", "REGRESSED", "INCONCLUSIVE", "PASSED", "IMPROVED", "SKIPPED"])
ITEMS = st.builds(
    lambda kind, verdict, whole, model: replace(
        UPGRADE if kind else MEASURED, verdict=verdict, whole=whole, model=model
    ),
    st.booleans(),
    VERDICTS,
    st.booleans(),
    st.sampled_from("mno"),
)


@given(st.lists(ITEMS, max_size=6))
def test_yes_needs_all_of_it_to_be_fine(made: list[Evaluated]) -> None:
    items = [replace(each, nodeid=f"m{place}") for place, each in enumerate(made)]
    for answer in answers_of(items, Losses()):
        upgrades = [each for each in items if each.kind == "upgrade"]
        ran = {each.model for each in items if each.verdict != "SKIPPED"}
        compared = ran <= {each.model for each in upgrades}
        fine = all(each.verdict in ("PASSED", "IMPROVED") for each in upgrades)
        quiet = all(each.verdict in ("PASSED", "IMPROVED", "SKIPPED") for each in items)
        whole = all(each.whole for each in items)
        assert (answer.word == "yes") == (fine and quiet and whole and compared)
