"""Tests of the requests to a loaded model."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_mlms.core.errors import OutputError
from pytest_mlms.core.records import Stack
from pytest_mlms.measure.agent.opening import open_predictor
from pytest_mlms.measure.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.measure.agent.process import Refused
from tests.support.agents import faulty_spec, open_faulty
from tests.support.cases import faulty_case
from tests.support.project import PREDICTORS, launch

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
BATCH = {"image": np.zeros((4, 1, 8, 8), np.float32)}


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Predictor]:
    folder = tmp_path_factory.mktemp("agent")
    with open_faulty(folder, answer=7, layers="stepwise", pages=1) as opened:
        yield opened


def test_a_batch_is_answered_by_the_outputs_names(predictor: Predictor) -> None:
    logits = predictor.predict(BATCH)["logits"]
    assert logits.argmax(axis=1).tolist() == [7, 7, 7, 7]


def test_a_batch_that_does_not_fit_is_not_sent(predictor: Predictor) -> None:
    with pytest.raises(OutputError, match="there is no array for input 'image'"):
        predictor.predict({"picture": BATCH["image"]})


def test_a_scenario_returns_raw_times_outputs_and_their_digest(predictor: Predictor) -> None:
    run = predictor.run("single_stream", [BATCH], seconds=0, least=3, longest=60)
    assert len(run.latencies) == 3
    assert (run.latencies >= 0).all()
    assert run.outputs["logits"].shape == (4, 10)
    assert run.peak_bytes > 0
    assert run.energy.missing, "three calls are too few for any counter"
    assert run.energy.total is None
    again = predictor.run("single_stream", seconds=0, least=1, longest=60)
    assert again.sha256 == run.sha256, "without batches those of the last run are taken"


@pytest.mark.skipif(len(CORES) < 2, reason="there are no two cores to move between")
def test_all_threads_of_an_agent_move_to_other_cores(tmp_path: Path) -> None:
    first, second = CORES[:2]
    spec = replace(faulty_spec(tmp_path), launch=replace(launch(), cores=(first,)))
    with open_predictor(spec) as predictor:
        moved, were_beyond = predictor.moved({first: second})
        assert (moved.cores, were_beyond) == ((second,), False)
        _, were_beyond = predictor.moved({first: second})
        assert were_beyond


def test_latencies_are_from_start_to_end() -> None:
    times = {"start": np.array([1.0, 3.0]), "end": np.array([2.5, 3.5])}
    assert ScenarioRun(times, {}, "digest", 0).latencies.tolist() == [1.5, 0.5]


def test_a_turn_times_the_calls_that_were_asked_for(predictor: Predictor) -> None:
    clocks = predictor.bind([BATCH, BATCH])
    assert clocks.device is False
    turn = predictor.turn(count=2, skip=1)
    assert len(turn.times["start"]) == 2
    assert turn.outputs == {}
    assert turn.peak_bytes is None
    checked = predictor.turn(outputs=True)
    assert checked.outputs["logits"].shape == (4, 10)
    assert checked.peak_bytes is None
    assert predictor.turn(memory=True).peak_bytes is not None


def test_a_profile_has_the_layers_of_each_call(predictor: Predictor) -> None:
    profiles = predictor.profile(BATCH, 2)
    assert len(profiles) == 2
    names = [layer[0] for layer in profiles[0][2]]
    assert names == ["small", "large"]


def test_what_a_framework_can_not_tell_is_refused(predictor: Predictor) -> None:
    with pytest.raises(Refused) as refused:
        predictor.inner(BATCH)
    assert refused.value.error == "NotImplementedError"
    with pytest.raises(Refused):
        predictor.structure({"image": (1, 1, 8, 8)})


def test_the_model_is_closed_when_the_agent_ends(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    case = faulty_case()
    manifest = case.loaded.manifest.model_copy(
        update={
            "inputs": [],
            "outputs": [case.loaded.manifest.outputs[0].model_copy(update={"name": "y"})],
        }
    )
    closing = replace(
        case,
        loaded=replace(case.loaded, manifest=manifest),
        model=case.model.model_copy(update={"framework": "closing"}),
        stack=Stack("here", "closing", interpreter="current"),
    )
    started = launch(env=(("MLMS_CLOSING", str(notes)),))
    spec = replace(
        faulty_spec(tmp_path, closing), predictor=PREDICTORS / "closing.py", launch=started
    )
    (tmp_path / "graph").write_text("model")
    with open_predictor(spec):
        assert notes.read_text() == "load model\n"
    assert notes.read_text() == "load model\nclose model\n"
