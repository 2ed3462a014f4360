"""Agents for tests: real processes with the faulty predictor, and fakes that only speak."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pytest_mlms.core.records import Launch
from pytest_mlms.measure.agent.opening import PredictorSpec, open_predictor
from pytest_mlms.measure.agent.predictor import Predictor
from pytest_mlms.provide.cases import Case
from tests.support.cases import faulty_case
from tests.support.project import PREDICTORS, ROOT, launch

TIMEOUT = 300.0  # seconds

_SPEAKER = """
import sys
sys.path.insert(0, {root!r})
import json
from predictors._run import protocol
for reply in json.loads({replies!r}):
    request, _ = protocol.read_frame(sys.stdin.buffer)
    for buffer in protocol.encode({{**request, **reply}}):
        sys.stdout.buffer.write(buffer)
    sys.stdout.buffer.flush()
"""


def faulty_spec(folder: Path, case: Case | None = None, **spec: Any) -> PredictorSpec:
    """Return what loads the faulty predictor, which does what ``spec`` says."""
    graph = folder / "graph"
    graph.write_text(json.dumps(spec))
    return PredictorSpec(
        case=case or faulty_case(),
        launch=launch(),
        predictor=PREDICTORS / "faulty.py",
        files={"graph": graph},
        log=folder / "agent.log",
        timeout=TIMEOUT,
    )


def open_faulty(
    folder: Path, case: Case | None = None, **spec: Any
) -> AbstractContextManager[Predictor]:
    """Load the faulty predictor in an agent."""
    return open_predictor(faulty_spec(folder, case, **spec))


def speaker(*replies: dict[str, Any]) -> Launch:
    """Return how to start a program that answers each request with the next of ``replies``."""
    code = _SPEAKER.format(root=str(ROOT), replies=json.dumps(replies))
    return Launch((sys.executable, "-c", code), launch().env)
