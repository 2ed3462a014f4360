"""Tests of the reporter, with results that are made up."""

from __future__ import annotations

import json
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_mlms.config import Config
from pytest_mlms.session import Session
from pytest_mlms.show.report import benchmark_json, terminal
from pytest_mlms.show.report.reporter import Reporter
from tests.support.views import REQUIRED

BENCHMARK_JSON = benchmark_json.__name__  # imported here, as numpy is imported once a process

SKIPPED = {**REQUIRED, "verdict": "SKIPPED", "nodeid": "m.yaml::skipped"}


class FakeTerminal:
    """Records the lines that are written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, text: str, **markup: bool) -> None:
        self.lines.append(text)


@pytest.fixture(autouse=True)
def _without_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the tables, whose tests are those of show/report/terminal.py."""
    monkeypatch.setattr(terminal, "write_tables", lambda terminal, results: None)


def make_reporter(pytester: pytest.Pytester, *arguments: str) -> Reporter:
    config = pytester.parseconfigure(*arguments)
    session = Session(Config.from_pytest(config), pytester.path / "run")
    return Reporter(config, session)


def test_the_line_of_a_run_says_when_its_session_began_however_long_its_first_item_takes(
    pytester: pytest.Pytester,
) -> None:
    before = datetime.now(timezone.utc)
    reporter = make_reporter(pytester)
    configured = datetime.now(timezone.utc)
    time.sleep(0.01)
    reporter.add(SKIPPED)
    run = lines_of(pytester.path)[0]
    began, written = (datetime.fromisoformat(run[name]) for name in ("began", "time"))
    assert before - timedelta(milliseconds=1) <= began <= configured < written


def finish(reporter: Reporter, status: int = 0) -> int:
    """End the session with this exit status; return the one that the reporter makes of it."""
    session = SimpleNamespace(exitstatus=status)
    reporter.pytest_sessionfinish(cast(pytest.Session, session))
    return int(session.exitstatus)


def summary(reporter: Reporter) -> list[str]:
    fake = FakeTerminal()
    reporter.pytest_terminal_summary(cast(pytest.TerminalReporter, fake))
    return fake.lines


def lines_of(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "run" / "results.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_a_result_is_written_at_once_and_given_to_the_hooks(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        "seen = []\ndef pytest_mlms_result(result): seen.append(result['nodeid'])"
    )
    reporter = make_reporter(pytester)
    report = SimpleNamespace(mlms=dict(SKIPPED), outcome="skipped")
    reporter.pytest_runtest_logreport(cast(pytest.TestReport, report))
    assert [line["type"] for line in lines_of(pytester.path)] == ["run", "item"]
    plugins = reporter._config.pluginmanager.get_plugins()
    assert [plugin.seen for plugin in plugins if hasattr(plugin, "seen")] == [["m.yaml::skipped"]]


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("{}['oops']", "KeyError: 'oops'"),
        ("raise AssertionError('too slow')", "AssertionError: too slow"),
        ("__import__('pytest').fail('too slow')", "Failed: too slow"),
    ],
)
def test_an_error_of_a_hook_is_told_with_its_item_and_fails_the_run(
    pytester: pytest.Pytester, code: str, problem: str
) -> None:
    pytester.makeconftest(f"def pytest_mlms_result(result):\n    {code}\n")
    reporter = make_reporter(pytester)
    reporter.add(dict(SKIPPED))
    reporter.add({**SKIPPED, "nodeid": "m.yaml::another"})
    assert finish(reporter) == pytest.ExitCode.TESTS_FAILED
    told = [line for line in summary(reporter) if "the hook" in line]
    assert [line.split(": ")[2] for line in told] == ["m.yaml::skipped", "m.yaml::another"]
    assert all(f"pytest_mlms_result raised {problem}; mend" in line for line in told)
    assert [line["type"] for line in lines_of(pytester.path)] == ["run", "item", "item", "end"]


def test_a_hook_may_end_the_run(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("def pytest_mlms_result(): __import__('pytest').exit('enough')")
    reporter = make_reporter(pytester)
    with pytest.raises(pytest.exit.Exception, match="enough"):
        reporter.add(dict(SKIPPED))


def test_a_report_without_a_result_writes_nothing(pytester: pytest.Pytester) -> None:
    reporter = make_reporter(pytester)
    reporter.pytest_runtest_logreport(cast(pytest.TestReport, SimpleNamespace()))
    reporter.note("sides", case="b8")
    assert finish(reporter) == 0
    assert summary(reporter) == []
    assert not (pytester.path / "run").exists()


def test_a_line_of_no_item_is_written_between_them(pytester: pytest.Pytester) -> None:
    reporter = make_reporter(pytester)
    reporter.add(dict(SKIPPED))
    reporter.note("sides", case="b8")
    finish(reporter, 1)
    assert [line["type"] for line in lines_of(pytester.path)] == ["run", "item", "sides", "end"]
    assert lines_of(pytester.path)[-1]["exit_status"] == 1


def test_where_all_was_skipped_the_summary_says_so(pytester: pytest.Pytester) -> None:
    reporter = make_reporter(pytester)
    reporter.add(dict(SKIPPED))
    assert finish(reporter) == 0
    text = (
        "mlms: nothing was measured: the only item was skipped, -rs says why; "
        "--mlms-strict fails what can't run"
    )
    assert text in summary(reporter)


@pytest.mark.parametrize("kind", ["upgrade", "soak"])
def test_a_run_whose_upgrades_or_soaks_were_all_skipped_fails(
    pytester: pytest.Pytester, kind: str
) -> None:
    reporter = make_reporter(pytester)
    reporter.add({**SKIPPED, "verdict": "PASSED"})
    reporter.add({**SKIPPED, "kind": kind})
    assert finish(reporter) == pytest.ExitCode.TESTS_FAILED
    lines = summary(reporter)
    assert any(f"no {kind} was judged" in line for line in lines)
    assert not any("nothing was measured" in line for line in lines)


def test_a_soak_that_was_judged_beside_one_that_was_skipped_is_an_answer(
    pytester: pytest.Pytester,
) -> None:
    reporter = make_reporter(pytester)
    reporter.add({**SKIPPED, "kind": "soak", "verdict": "PASSED"})
    reporter.add({**SKIPPED, "kind": "soak"})
    assert finish(reporter) == 0


def test_a_benchmark_document_that_can_not_be_written_fails_the_run(
    pytester: pytest.Pytester,
) -> None:
    folder = pytester.mkdir("folder")
    reporter = make_reporter(pytester, "--mlms-benchmark-json=folder/x.json")
    folder.rmdir()
    reporter.add(dict(SKIPPED))
    assert finish(reporter) == pytest.ExitCode.TESTS_FAILED
    assert any("can't be written" in line for line in summary(reporter))


def test_an_empty_benchmark_document_is_noted(pytester: pytest.Pytester) -> None:
    reporter = make_reporter(pytester, "--mlms-benchmark-json=x.json")
    reporter.add(dict(SKIPPED))
    assert finish(reporter) == 0
    assert any("x.json is empty: no performance item" in line for line in summary(reporter))
    assert json.loads((pytester.path / "x.json").read_text())["benchmarks"] == []


def test_a_result_that_is_measured_again_is_written_and_not_shown(
    pytester: pytest.Pytester,
) -> None:
    reporter = make_reporter(pytester)
    for outcome in ("rerun", "skipped"):
        report = SimpleNamespace(mlms=dict(SKIPPED), outcome=outcome)
        reporter.pytest_runtest_logreport(cast(pytest.TestReport, report))
    assert len([line for line in lines_of(pytester.path) if line["type"] == "item"]) == 2
    assert any("the only item was skipped" in line for line in summary(reporter))


def test_results_that_can_not_be_written_are_printed_and_fail_the_run(
    pytester: pytest.Pytester,
) -> None:
    (pytester.path / "run").write_text("a file where the folder should be")
    reporter = make_reporter(pytester)
    reporter.add(dict(SKIPPED))
    assert finish(reporter) == pytest.ExitCode.TESTS_FAILED
    lines = summary(reporter)
    assert any('"nodeid": "m.yaml::skipped"' in line for line in lines)
    assert any(line.endswith("3 lines were not written") for line in lines)


def test_a_resumed_run_shows_what_it_had_finished(pytester: pytest.Pytester) -> None:
    folder = pytester.mkdir("run")
    (folder / "results.jsonl").write_text('{"type": "item"}\n{"type": "it')
    reporter = make_reporter(pytester)
    reporter.take_run()
    reporter.show([SKIPPED])
    finish(reporter)
    assert any("the only item was skipped" in line for line in summary(reporter))
    assert lines_of(pytester.path)[0] == {"type": "item"}


def test_a_tear_down_that_fails_makes_its_item_an_error_without_a_second_line(
    pytester: pytest.Pytester,
) -> None:
    reporter = make_reporter(pytester)
    reporter.add(dict(SKIPPED))
    reporter.add({**SKIPPED, "repetition": 2})
    error = {"nodeid": SKIPPED["nodeid"], "verdict": "ERROR", "message": "no room"}
    report = SimpleNamespace(mlms_teardown=error)
    reporter.pytest_runtest_logreport(cast(pytest.TestReport, report))
    assert [row["verdict"] for row in reporter._results] == ["ERROR", "SKIPPED"]
    types = [line["type"] for line in lines_of(pytester.path)]
    assert types == ["run", "item", "item", "teardown"]


def test_an_interrupted_run_names_the_folder_of_what_was_measured(
    pytester: pytest.Pytester,
) -> None:
    pytester.mkdir("run").joinpath("items").mkdir()
    (line,) = summary(make_reporter(pytester))
    assert line.startswith("mlms: no item was finished; what they had measured is in")
