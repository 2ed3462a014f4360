"""Tests of the outcome of items: verdict, text and line, for each way in which a test ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.config import Config
from pytest_mlms.core.errors import InvalidRun, MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.line import Judgement
from pytest_mlms.keep.results.recorder import RECORDER, Recorder
from pytest_mlms.session import SESSION, Session
from pytest_mlms.show.report.outcome import category_of, finish_report, interrupted_result
from pytest_mlms.warning_types import MlmsInconclusive
from tests.support.cases import digits_case

CASE = digits_case()
NODEID = "m.yaml::test_performance[x]"
COMMAND = "pytest 'm.yaml::test_performance[x]'"


class FakeItem:
    """Has what the outcome reads of an item: its case, its stash, and its place."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        config = pytester.parseconfig()
        config.stash[SESSION] = Session(Config.from_pytest(config), pytester.path / "run", "gw0")
        self.config = config
        self.nodeid = NODEID
        self.path = pytester.path / "m.yaml"
        self.location = ("m.yaml", 8, "test_performance[x]")
        self.stash = pytest.Stash()
        self.user_properties: list[tuple[str, object]] = []
        self.callspec = SimpleNamespace(params={"mlms_case": CASE})
        self.fixturenames = ["mlms_case"]
        self.recorder = Recorder(NODEID, pytester.path / "run", CASE.place())
        self.stash[RECORDER] = self.recorder


@pytest.fixture
def item(pytester: pytest.Pytester) -> FakeItem:
    made = FakeItem(pytester)
    finish(made, "setup", "passed")
    return made


def finish(
    item: FakeItem,
    when: Any,
    outcome: Any,
    error: BaseException | None = None,
    longrepr: Any = None,
    **fields: Any,
) -> pytest.TestReport:
    """Finish a phase as pytest does, and return its report."""
    report = pytest.TestReport(NODEID, item.location, {}, outcome, longrepr, when, duration=1.5)
    report.__dict__.update(fields)
    excinfo = None if error is None else SimpleNamespace(value=error)
    call = cast("pytest.CallInfo[None]", SimpleNamespace(excinfo=excinfo))
    finish_report(cast(pytest.Item, item), call, report)
    return report


def line_of(report: pytest.TestReport) -> dict[str, Any]:
    line: dict[str, Any] = report.mlms
    return line


def settle(item: FakeItem, verdict: Verdict) -> None:
    item.recorder._judgement = Judgement(verdict, 0.1)


def test_a_phase_that_decides_nothing_has_no_result(item: FakeItem) -> None:
    assert not hasattr(finish(item, "teardown", "passed"), "mlms")


def test_a_passed_item_has_a_line_with_the_time_of_each_phase(item: FakeItem) -> None:
    settle(item, Verdict.PASSED)
    line = line_of(finish(item, "call", "passed"))
    assert line["nodeid"] == NODEID
    assert line["worker"] == "gw0"
    assert line["case"] == CASE.id
    assert (line["verdict"], line["outcome"], line["phase"]) == ("PASSED", "passed", "call")
    assert line["message"] is None
    assert line["seconds"] == {"setup": 1.5, "call": 1.5}
    assert line["machine"]["host"]


def test_the_properties_of_junit_are_those_of_the_item(item: FakeItem) -> None:
    report = finish(item, "call", "passed")
    assert ("mlms_verdict", "PASSED") in report.user_properties
    assert report.user_properties == item.user_properties


@pytest.mark.parametrize(
    ("recorded", "outcome", "error", "verdict"),
    [
        (None, "passed", None, "PASSED"),
        (None, "skipped", None, "SKIPPED"),
        (None, "failed", AssertionError("1 == 2"), "FAILED"),
        (None, "failed", ValueError("no"), "ERROR"),
        (None, "failed", InvalidRun("disturbed"), "INVALID"),
        (Verdict.FAILED, "failed", pytest.fail.Exception("slow"), "FAILED"),
        (Verdict.REGRESSED, "failed", pytest.fail.Exception("slow"), "REGRESSED"),
        (Verdict.INCONCLUSIVE, "passed", None, "INCONCLUSIVE"),
        (Verdict.PASSED, "failed", AssertionError("a user's own"), "FAILED"),
        (Verdict.PASSED, "failed", ValueError("later"), "ERROR"),
        (Verdict.PASSED, "failed", None, "FAILED"),  # where xfail_strict expects a failure
        (Verdict.IMPROVED, "failed", None, "FAILED"),
        (Verdict.INCONCLUSIVE, "failed", AssertionError("a user's own"), "FAILED"),
        (Verdict.INCONCLUSIVE, "failed", ValueError("later"), "ERROR"),
        (Verdict.INCONCLUSIVE, "failed", MlmsInconclusive("a warning is an error"), "INCONCLUSIVE"),
    ],
)
def test_the_verdict_is_the_recorded_one_unless_the_item_failed_later(
    item: FakeItem,
    recorded: Verdict | None,
    outcome: str,
    error: BaseException | None,
    verdict: str,
) -> None:
    if recorded is not None:
        settle(item, recorded)
    report = finish(item, "call", outcome, error, longrepr=str(error) if error else None)
    assert line_of(report)["verdict"] == verdict


@pytest.mark.parametrize(
    ("outcome", "name", "verdict"),
    [("skipped", "xfailed", "XFAILED"), ("passed", "xpassed", "PASSED")],
)
def test_an_expected_failure_has_a_verdict_of_its_own(
    item: FakeItem, outcome: str, name: str, verdict: str
) -> None:
    line = line_of(finish(item, "call", outcome, wasxfail="not today"))
    assert (line["outcome"], line["verdict"]) == (name, verdict)


def test_an_undecided_item_is_skipped_with_the_reason_and_has_its_own_category(
    item: FakeItem,
) -> None:
    settle(item, Verdict.INCONCLUSIVE)
    item.recorder._undecided.append("the limit is inside the interval")
    report = finish(item, "call", "passed")
    assert report.outcome == "skipped"
    assert report.longrepr == ("m.yaml", 9, "the limit is inside the interval")
    assert category_of(report) == ("undecided", "u", ("UNDECIDED", {"yellow": True}))
    line = line_of(report)
    assert (line["outcome"], line["message"]) == ("undecided", "the limit is inside the interval")


def test_reports_of_other_items_have_the_categories_of_pytest(item: FakeItem) -> None:
    settle(item, Verdict.INCONCLUSIVE)
    surprise = finish(item, "call", "passed", wasxfail="not today")
    assert surprise.passed
    assert category_of(surprise) is None
    assert category_of(finish(item, "call", "skipped", longrepr=("a.py", 1, "no cuda"))) is None


def test_an_error_of_ours_is_shown_behind_the_models_line(item: FakeItem) -> None:
    report = finish(item, "call", "failed", MlmsError("no such thing; add it"))
    text = f"{CASE.place('graph')}: {CASE.label}: no such thing; add it\nreproduce: {COMMAND}"
    assert str(report.longrepr) == text
    assert line_of(report)["message"] == text


def test_an_error_that_names_a_line_is_shown_as_it_is(item: FakeItem) -> None:
    place = CASE.place("framework")
    report = finish(item, "setup", "failed", MlmsError(f"{place}: no such framework"))
    first_line, *_ = str(report.longrepr).splitlines()
    assert first_line == f"{place}: {CASE.label}: no such framework"


def test_a_failure_names_the_model_and_the_case_in_header_first_line_and_summary(
    item: FakeItem,
) -> None:
    error = pytest.fail.Exception(
        "top1 is not at least 99 %\n  limit set by m.yaml:9", pytrace=False
    )
    report = finish(item, "call", "failed", error)
    assert report.head_line == "digits-cnn: test_performance[x]"
    shown: Any = report.longrepr
    assert shown.reprcrash.message == f"{CASE.label}: top1 is not at least 99 %"
    assert str(shown).startswith(f"{CASE.label}: top1 is not at least 99 %\n")
    assert str(shown).endswith(f"\nreproduce: {COMMAND}")


def test_a_text_that_names_the_case_already_is_kept(item: FakeItem) -> None:
    error = MlmsInconclusive(f"{CASE.label}: undecided")
    report = finish(item, "call", "failed", error)
    assert str(report.longrepr).count(CASE.label) == 1


def test_another_error_is_shown_with_the_end_of_the_agents_log(item: FakeItem) -> None:
    log = item.recorder.folder.parent / "agent.log"
    log.parent.mkdir(parents=True)
    log.write_text("x" * 5000 + "the last words")
    item.recorder.add_log(log)
    item.recorder.add_log(log.with_name("missing.log"))
    report = finish(item, "call", "failed", ValueError("no"), longrepr="a traceback")
    (title, text), last = report.sections
    assert last == (CASE.label, f"reproduce: {COMMAND}")
    assert title == f"agent log {log}"
    assert text.endswith("the last words")
    assert len(text) == 4000


def test_a_skip_is_located_in_the_manifest(item: FakeItem) -> None:
    report = finish(item, "setup", "skipped", longrepr=("resources.py", 40, "Skipped: no cuda"))
    assert report.longrepr == ("m.yaml", 9, "Skipped: no cuda")
    assert line_of(report)["message"] == "Skipped: no cuda"


def test_an_interrupted_item_has_what_was_recorded(item: FakeItem) -> None:
    item.recorder.note(processes=[])
    line = interrupted_result(cast(pytest.Item, item))
    assert line is not None
    assert (line["verdict"], line["outcome"]) == ("ERROR", "interrupted")
    assert line["processes"] == []
    assert "phase" not in line


def test_an_interrupted_test_without_a_case_has_no_result(item: FakeItem) -> None:
    item.callspec.params.clear()
    assert interrupted_result(cast(pytest.Item, item)) is None
