"""The outcome of an item: its verdict, the text of its report, and its result.

pytest's report of the phase that decides an item carries the item's line of the results as
``report.mlms``. That of a tear-down that fails afterwards has ``report.mlms_teardown``. The
reporter writes both; with xdist, that is in the controller.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pytest

from pytest_mlms.core.errors import InvalidRun, MlmsError
from pytest_mlms.core.records import Verdict
from pytest_mlms.keep.results.item_result import ItemResult, case_digest, identity_of
from pytest_mlms.keep.results.line import Outcome
from pytest_mlms.keep.results.recorder import RECORDER, Recorder
from pytest_mlms.provide.cases import Case, case_of
from pytest_mlms.provide.host.machine import machine_state
from pytest_mlms.session import SESSION
from pytest_mlms.show.report.exports import junit_properties
from pytest_mlms.show.report.reproduce import reproduce_command
from pytest_mlms.warning_types import MlmsWarning

Category: TypeAlias = tuple[str, str, tuple[str, Mapping[str, bool]]]
"""A category of reports for pytest: its name, its letter, and its word with markup."""

_UNDECIDED: Category = ("undecided", "u", ("UNDECIDED", {"yellow": True}))

_REPEAT_PARAMETER = "__pytest_repeat_step_number"
_FAILURES = (AssertionError, pytest.fail.Exception)  # other exceptions are errors
_LOG_TAIL = 4000  # characters
_LONGEST_FIRST_LINE = 100  # characters
_SETUP_SECONDS = pytest.StashKey[float]()
_LINE = pytest.StashKey[dict[str, Any]]()
"""The key of an item's stash that has the line of the last time that it was decided."""

_IN_CALL = pytest.StashKey[bool]()
_FAILED_SUBTESTS = pytest.StashKey[list[tuple[BaseException | None, str]]]()
"""The key of the errors and messages of an item's subtests that failed."""


@contextlib.contextmanager
def calling(item: pytest.Item) -> Iterator[None]:
    """Take the reports that are made of an item meanwhile for those of its subtests."""
    item.stash[_IN_CALL] = True
    item.stash[_FAILED_SUBTESTS] = []
    try:
        yield
    finally:
        item.stash[_IN_CALL] = False


def finish_report(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Complete the report of a phase, and attach the result to the one that decides the item.

    The report of a subtest decides nothing by itself: where one failed, the item has failed.
    """
    case = case_of(item)
    error = call.excinfo.value if call.excinfo else None
    if report.when == "teardown":  # the item may run again
        if RECORDER in item.stash:
            del item.stash[RECORDER]
        if _LINE in item.stash:
            del item.stash[_LINE]
    if report.failed and case is not None:
        path, line, name = report.location
        report.location = (path, line, f"{case.loaded.manifest.name}: {name}")
        _explain_failure(report, error, case, item)
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, _ = item.location  # of the manifest; pytest names ours, which skipped
        report.longrepr = (path, (line or 0) + 1, report.longrepr[2])

    failed = item.stash.get(_FAILED_SUBTESTS, [])
    if item.stash.get(_IN_CALL, False):
        failed += [(error, _message(report) or "")] if report.failed else []
        return
    if report.when == "setup":
        item.stash[_SETUP_SECONDS] = report.duration
    if report.when == "call" and failed and not report.failed:
        error = _fail_by_subtests(report, failed)
    if case is None:
        return
    if report.when != "teardown" and (report.when == "call" or not report.passed):
        _attach_result(report, error, case, item)
    elif report.when == "teardown" and report.failed:
        repetition = repetition_of(item)
        report.mlms_teardown = {  # type: ignore[attr-defined]
            "nodeid": item.nodeid,
            **({"repetition": repetition} if repetition > 1 else {}),
            "verdict": Verdict.ERROR.value,
            "message": _message(report),
        }


def _attach_result(
    report: pytest.TestReport, error: BaseException | None, case: Case, item: pytest.Item
) -> None:
    """Give a report that decides an item its line, and its properties in JUnit XML."""
    recorder = item.stash.get(RECORDER, None)
    recorded = recorder.verdict if recorder else None
    is_undecided = recorded is Verdict.INCONCLUSIVE and not hasattr(report, "wasxfail")
    if recorder is not None and report.passed and is_undecided:
        # Whoever reads it, such as JUnit XML, takes it for skipped; we know it by its mark.
        path, place, _ = item.location
        report.outcome = "skipped"
        report.longrepr = (path, (place or 0) + 1, recorder.undecided)
        report.mlms_undecided = True  # type: ignore[attr-defined]
    outcome = Outcome(
        verdict=_verdict(report, error, recorded, item.config.stash[SESSION].config.strict),
        outcome=_pytest_outcome(report),
        message=_message(report),
        phase=report.when,
        seconds={"setup": item.stash[_SETUP_SECONDS], report.when or "call": report.duration},
    )
    line = _result(item, case, recorder, outcome).as_line()
    if "unwritten" in line:
        _fail_unwritten(report, line)
    item.stash[_LINE] = line
    report.mlms = line  # type: ignore[attr-defined]

    properties = junit_properties(line)
    report.user_properties += properties
    # JUnit XML takes those of the tear-down's report. An earlier run of the item gave it others.
    names = {name for name, _ in properties}
    kept = [pair for pair in item.user_properties if pair[0] not in names]
    item.user_properties[:] = [*kept, *properties]


def _fail_by_subtests(
    report: pytest.TestReport, failed: Sequence[tuple[BaseException | None, str]]
) -> BaseException | None:
    """Fail a test whose subtests failed, as pytest does later; return what decides its verdict."""
    count = f"{len(failed)} failed subtest" + ("s" if len(failed) > 1 else "")
    report.outcome = "failed"
    report.longrepr = "\n".join([f"contains {count}", *(message for _, message in failed)])
    report.__dict__.pop("wasxfail", None)
    errors = [error for error, _ in failed]
    return next((error for error in errors if not isinstance(error, _FAILURES)), errors[0])


def _fail_unwritten(report: pytest.TestReport, line: dict[str, Any]) -> None:
    """Fail an item that noted what can't be written, which is then missing in its line."""
    reasons = [f"{name}: {reason}" for name, reason in line["unwritten"].items()]
    noted = "\n  ".join(reasons)
    text = f"what the test noted can't be written; note plain values of JSON instead\n  {noted}"
    if not report.failed:
        report.outcome = "failed"
        report.longrepr = without_traceback(text)
        line["message"] = text
    line["verdict"] = Verdict.ERROR.value
    line["outcome"] = "failed"


def category_of(report: pytest.CollectReport | pytest.TestReport) -> Category | None:
    """Return the category of an undecided item in pytest's output; None for other reports."""
    if getattr(report, "mlms_undecided", False):
        return _UNDECIDED
    return None


def interrupted_result(item: pytest.Item) -> dict[str, Any] | None:
    """Return the line of an item that was interrupted; None for an item that has no case.

    An item that was interrupted in its tear-down has the line that it was given before.
    """
    case = case_of(item)
    if case is None:
        return None
    line = item.stash.get(_LINE, None)
    if line is not None and line.get("repetition", 1) == repetition_of(item):
        return line

    recorder = item.stash.get(RECORDER, None)
    artifacts = recorder.recording().artifacts if recorder else {}
    kept = [name for name in artifacts if name.endswith(".npz")]
    message = "interrupted before it was done"
    if kept:
        message += f"; measured until then: {', '.join(kept)}"
    if recorder and recorder.verdict:
        message += f"; as far as it goes it is {recorder.verdict.value}"
    verdict = (recorder and recorder.verdict) or Verdict.ERROR
    outcome = Outcome(verdict, "interrupted", message)
    return _result(item, case, recorder, outcome).as_line()


def _result(
    item: pytest.Item, case: Case, recorder: Recorder | None, outcome: Outcome
) -> ItemResult:
    recording = recorder.recording() if recorder else None
    session = item.config.stash[SESSION]
    other_version = ""
    if recording and recording.software:
        version = recording.software.versions.get(case.stack.framework, "")
        if not case.model.is_for(version):
            asked = case.model.framework
            other_version = f"asked for {asked}, ran with {version} of stack {case.stack.name}"
    return ItemResult(
        nodeid=item.nodeid,
        worker=session.worker,
        digest=case_digest(case, session.config),
        identity=identity_of(case, session.bring),
        machine=machine_state(),
        outcome=outcome,
        recording=recording,
        repetition=repetition_of(item),
        reproduce=reproduce_command(item),
        other_version=other_version,
    )


def repetition_of(item: pytest.Item) -> int:
    """Return the number of this run of an item, from 1 on.

    pytest-rerunfailures counts the runs of an item; pytest-repeat makes a parameter of the number.
    """
    reruns: int = getattr(item, "execution_count", 1)
    callspec = getattr(item, "callspec", None)
    step: int = callspec.params.get(_REPEAT_PARAMETER, 0) if callspec else 0
    return max(reruns, step + 1)


def _verdict(
    report: pytest.TestReport, error: BaseException | None, recorded: Verdict | None, strict: bool
) -> Verdict:
    """Return the verdict: the recorded one, unless the item failed for another reason.

    What is undecided fails by itself where ``strict`` is set, or where warnings are errors.
    """
    if hasattr(report, "wasxfail") and report.skipped:
        return Verdict.XFAILED
    harmless = [Verdict.PASSED, Verdict.IMPROVED]
    if not strict and not isinstance(error, MlmsWarning):
        harmless.append(Verdict.INCONCLUSIVE)
    if recorded is not None and not (report.failed and recorded in harmless):
        return recorded
    if isinstance(error, InvalidRun):
        return Verdict.INVALID
    if report.passed:
        return Verdict.PASSED
    if report.skipped:
        return Verdict.SKIPPED
    if error is None or isinstance(error, _FAILURES):
        return Verdict.FAILED  # without an error, it passed where xfail_strict expects a failure
    return Verdict.ERROR


def _pytest_outcome(report: pytest.TestReport) -> str:
    """Return the category in pytest's output.

    Reports call an expected failure skipped, a surprise passed, and an undecided item skipped.
    """
    category = category_of(report)
    if category is not None:
        return category[0]
    if not hasattr(report, "wasxfail"):
        return report.outcome
    if report.skipped:
        return "xfailed"
    return "xpassed"


def _message(report: pytest.TestReport) -> str | None:
    if isinstance(report.longrepr, tuple):  # of a skip: path, line, reason
        return report.longrepr[2]
    return str(report.longrepr or "") or None


def _explain_failure(
    report: pytest.TestReport, error: BaseException | None, case: Case, item: pytest.Item
) -> None:
    """Show a text that names the case and says how to run the item again.

    A test that failed otherwise keeps its traceback; it gets the agents' logs.
    """
    command = reproduce_command(item)
    text = _text_of(error, case)
    if text:
        report.longrepr = without_traceback(f"{text}\nreproduce: {command}")
        return
    recorder = item.stash.get(RECORDER, None)
    for log in recorder.logs if recorder else ():
        with contextlib.suppress(OSError):
            tail = log.read_text(errors="replace")[-_LOG_TAIL:]
            if tail:
                report.sections.append((f"agent log {log}", tail))
    report.sections.append((case.label, f"reproduce: {command}"))


def _text_of(error: BaseException | None, case: Case) -> str:
    """Return the text of an error that needs no traceback, with the case; "" for other errors.

    An error of ours quotes what matters of the log. It has the manifest's line of the model in
    front, unless it begins with a line.
    """
    if isinstance(error, (MlmsError, MlmsWarning)):
        text = str(error)
        if not _place_in(text, case):
            text = f"{case.place('graph')}: {text}"
        return _with_label(text, case)
    if isinstance(error, pytest.fail.Exception) and not error.pytrace:
        return _with_label(str(error.msg), case)
    return ""


def _with_label(text: str, case: Case) -> str:
    """Return the text with the model and the case in its first line, behind a place if it has one.

    Where the line would be too long for a summary, they stand in the second. The text of a warning
    has them already.
    """
    first_line, *others = text.splitlines() or [""]
    if case.label in first_line:
        return text
    place = _place_in(text, case)
    whole = f"{case.label}: {first_line}"
    if others and not place and len(first_line) <= _LONGEST_FIRST_LINE < len(whole):
        return "\n".join([first_line, f"  {case.label}", *others])
    return f"{place}{case.label}: {text.removeprefix(place)}"


def _place_in(text: str, case: Case) -> str:
    """Return the line of the manifest that a text begins with, "" where there is none."""
    manifest = re.escape(str(case.place().path))
    place = re.match(rf"{manifest}:[\d:]+: ", text)
    return place[0] if place else ""


def without_traceback(text: str) -> Any:
    """Return a text as pytest represents a failure; summaries have its first line."""
    try:
        pytest.fail(text, pytrace=False)
    except pytest.fail.Exception:
        shown = pytest.ExceptionInfo.from_current().getrepr(style="value")
    if shown.reprcrash is not None:
        shown.reprcrash.message = text.partition("\n")[0]
    return shown
