"""An item's report: a fault's text instead of a traceback, the agent's log, and the line for the
results.
"""

from __future__ import annotations

from typing import Any

import pytest

from pytest_mlms.cases import Case
from pytest_mlms.errors import InvalidRun, MlmsError
from pytest_mlms.host.machine import machine_state
from pytest_mlms.recorder import RECORDER, MlmsWarning, Recorder, describe
from pytest_mlms.records import Verdict
from pytest_mlms.session import SESSION

__all__ = ["finish_report", "interrupted_result"]

_OF_MANIFEST = {"manifest": "path", "model": "name", "version": "version"}
_LOG_TAIL = 4000  # characters
_SETUP_SECONDS = pytest.StashKey[float]()


def finish_report(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> None:
    """Complete the report of a phase.

    The one that decides the item carries its result as ``report.mlms``.
    """
    recorder = item.stash.get(RECORDER, None)
    error = call.excinfo.value if call.excinfo else None
    case = _case(item)
    if isinstance(error, (MlmsError, MlmsWarning)) and report.failed:
        report.longrepr = _placed(str(error), case)  # which has of the agent's log what matters
    elif report.failed and recorder:
        report.sections += [
            (f"agent log {log}", text) for log in recorder.logs if (text := _tail(log))
        ]
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, _ = item.location
        report.longrepr = (path, (line or 0) + 1, report.longrepr[2])
    if report.when == "setup":
        item.stash[_SETUP_SECONDS] = report.duration
    decides = report.when == "call" or not report.passed
    if decides and case:
        result = _result(item, case, recorder)
        result.update(_outcome(report, error, result), phase=report.when)
        result["seconds"] = {"setup": item.stash[_SETUP_SECONDS], report.when: report.duration}
        report.mlms = result  # type: ignore[attr-defined]
        properties = list(_properties(result))
        item.user_properties += (
            properties  # for JUnit XML, which reads them from the report of the tear-down
        )
        report.user_properties += properties


def interrupted_result(item: pytest.Item) -> dict[str, Any] | None:
    """Return what an item had recorded when it was interrupted.

    None for an item that is no case.
    """
    case = _case(item)
    if case is None:
        return None
    recorded = _result(item, case, item.stash.get(RECORDER, None))
    return {
        **recorded,
        "verdict": "ERROR",
        "outcome": "interrupted",
        "message": "interrupted before it was done",
    }


def _placed(text: str, case: Case | None) -> str:
    """Return the text with the manifest's line of the case's model in front, unless it names a line
    already.
    """
    if case is None or text.startswith(str(case.place().path)):
        return text
    return f"{case.place('graph')}: {text}"


def _case(item: pytest.Item) -> Case | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("mlms_case") if callspec else None


def _result(item: pytest.Item, case: Case, recorder: Recorder | None) -> dict[str, Any]:
    return {
        "nodeid": item.nodeid,
        "worker": item.config.stash[SESSION].worker,
        "case": case.id,
        **describe(case),
        "machine": machine_state(),
        **(recorder.as_dict() if recorder else {}),
    }


def _outcome(
    report: pytest.TestReport, error: BaseException | None, result: dict[str, Any]
) -> dict[str, Any]:
    verdict: str | None = result.get("verdict")
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):  # pytest calls an expected failure skipped
        outcome = "xfailed" if report.skipped else "xpassed"
        verdict = Verdict.XFAILED.value if report.skipped else verdict
    if verdict is None or (report.failed and verdict == Verdict.PASSED.value):
        broken = isinstance(error, (AssertionError, pytest.fail.Exception))
        if isinstance(error, InvalidRun):
            return {
                "verdict": Verdict.INVALID.value,
                "outcome": outcome,
                "message": str(report.longrepr),
            }
        verdict = {
            "passed": "PASSED",
            "skipped": "SKIPPED",
            "failed": "FAILED" if broken else "ERROR",
        }[report.outcome]
    message = (
        report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "")
    )
    return {"verdict": verdict, "outcome": outcome, "message": message or None}


def _properties(result: dict[str, Any]) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [("mlms_verdict", result["verdict"])]
    manifest = result["manifest"]
    pairs += [(f"mlms_{key}", manifest[field]) for key, field in _OF_MANIFEST.items()]
    pairs += [("mlms_framework", result["framework"]), ("mlms_stack", result["stack"]["name"])]
    for name, version in result.get("versions", {}).items():
        pairs.append((f"mlms_version_of_{name}", version))
    for name, estimate in result.get("estimates", {}).items():
        unit = {"s": "_seconds", "B": "_bytes", "/s": "_per_second"}.get(estimate["unit"], "")
        pairs += [
            (f"mlms_{name}{unit}{end}", estimate[key])
            for end, key in (("", "value"), ("_low", "low"), ("_high", "high"))
        ]
    for one in result.get("comparisons", []):
        ends = (("ratio", "ratio"), ("low", "low"), ("high", "high"))
        pairs += [(f"mlms_{end}_of_{one['quantity']}", one[key]) for end, key in ends]
    return [pair for pair in pairs if pair[1] is not None]


def _tail(log: Any) -> str:
    try:
        return str(log.read_text(errors="replace")[-_LOG_TAIL:])
    except OSError:
        return ""
