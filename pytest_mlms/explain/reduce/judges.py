"""The judge of models for the failure of a bundle, and the failures that there is one for."""

from __future__ import annotations

from pytest_mlms.core.errors import MlmsError
from pytest_mlms.explain.reduce.judging import CrashJudge, Judge, OutputJudge
from pytest_mlms.explain.reduce.latency import LatencyJudge
from pytest_mlms.explain.reduce.sides import Sides
from pytest_mlms.explain.repro.bundle import Bundle, Expectation
from pytest_mlms.explain.repro.expectation import can_reduce
from pytest_mlms.explain.repro.replay.record import CRASH, OUTPUTS, RATIO

_SLOWER = 0.05
"""How much slower a part may be, as a share, where a bundle doesn't say it."""


def check_reducible(bundle: Bundle) -> None:
    """Raise MlmsError, which says what to do, for a bundle that can't be reduced."""
    expected = bundle.expected
    if bundle.old is None:
        problem = "the failure is one stack's, and a reduction compares two"
        raise MlmsError(f"{problem}; name an item of an upgrade")
    graph = bundle.files.get("graph")
    if graph is None or graph.suffix != ".onnx":
        name = "the model" if graph is None else graph.name
        raise MlmsError(f"{name} is no ONNX file; export the model as ONNX to reduce it")
    if expected.kind not in (OUTPUTS, CRASH) and not _is_of_time(expected):
        problem = f"the failure is of {expected.quantity}"
        raise MlmsError(f"{problem}; what can be reduced is of outputs, latency or a crash")


def judge_of(bundle: Bundle, sides: Sides) -> Judge:
    """Return the judge of a bundle's failure."""
    expected = bundle.expected
    if expected.kind == CRASH:
        return CrashJudge(sides, expected, expected.crash)
    if _is_of_time(expected):
        return LatencyJudge(sides, expected, expected.tolerance or _SLOWER)
    return OutputJudge(sides, expected)


def _is_of_time(expected: Expectation) -> bool:
    return expected.kind == RATIO and can_reduce(expected.quantity, "rounds")
