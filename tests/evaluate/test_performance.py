"""Estimates from samples made up for the purpose, and the looks.

How many processes it takes to decide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Tensor

from pytest_mlms.agent.predictor import Predictor, ScenarioRun
from pytest_mlms.errors import OutputError
from pytest_mlms.evaluate import performance as measure
from pytest_mlms.evaluate.limits import judge
from pytest_mlms.evaluate.performance import (
    Plan,
    ProcessResult,
    draw_batches,
    estimate_performance,
    measure_performance,
)
from pytest_mlms.manifest.schema import Input, Output
from pytest_mlms.pipeline import Dataset
from pytest_mlms.records import Limit, Place, Verdict

LIMIT = Limit("latency_p50", 0.010, Place(Path("m.yaml"), 1))


def run(latencies: Any, gap: float = 0.0, **outputs: Any) -> ScenarioRun:
    latencies = np.asarray(latencies, float)
    start = np.concatenate([[0.0], np.cumsum(latencies + gap)[:-1]])
    values = outputs.get("values", [[1.0, 2.0]])
    return ScenarioRun(
        {"start": start, "end": start + latencies}, {"logits": np.array(values)}, "digest", 100
    )


def process(latencies: Any, **facts: Any) -> ProcessResult:
    times = {"start_seconds": 0.1, "load_seconds": 0.2, "first_seconds": 0.3, "loop_seconds": 1.0}
    fields = {
        **times,
        "warmup_calls": 8,
        "steady": True,
        "peak_bytes": 1000,
        "peak_is_since_load": True,
    }
    made = facts.pop("run", None) or run(latencies)
    return ProcessResult(**{**fields, **facts, "run": made})


def plan(**changes: Any) -> Plan:
    fields = {
        "scenario": "single_stream",
        "batch_size": 4,
        "processes": 3,
        "duration": 1.0,
        "budget": 60.0,
        "limits": (),
    }
    return Plan(**{**fields, **changes})


def test_the_processes_are_the_replicates_not_the_calls() -> None:
    done = [process([value] * 1000) for value in (0.010, 0.011, 0.012)]
    p50 = estimate_performance(plan(), done)["latency_p50"]
    assert (p50.value, p50.replicates, p50.of) == (pytest.approx(0.011), 3, "processes")
    assert p50.high - p50.value == pytest.approx(4.3027 * 0.001 / 3**0.5, rel=1e-4)


def test_a_plan_with_limits_shares_its_confidence_between_the_looks() -> None:
    assert plan().confidence == pytest.approx(0.95)
    assert plan(limits=(LIMIT,)).confidence == pytest.approx(1 - 0.05 / 3)


def test_throughput_counts_the_gaps_only_where_all_requests_are_there() -> None:
    done = [process([], run=run([0.010] * 100, gap=0.010))]
    assert estimate_performance(plan(), done)["throughput"].value == pytest.approx(400)
    offline = estimate_performance(plan(scenario="offline"), done)["throughput"].value
    assert offline == pytest.approx(400 / (1.99 + 0.0), rel=0.01)


def test_throughput_is_what_a_fixed_amount_of_work_gets() -> None:
    done = [process([seconds] * 100) for seconds in (0.010, 0.010, 0.010, 0.170)]
    found = estimate_performance(plan(batch_size=1), done)
    assert found["throughput"].value == pytest.approx(4 / 0.200)
    assert found["throughput"].value == pytest.approx(1 / found["latency_mean"].value)


def test_a_stalled_process_takes_no_end_of_the_throughput_to_0_or_infinity() -> None:
    limits = [Limit("throughput", bound, LIMIT.place) for bound in (1e-3, 50.0, 1e15)]
    done = [process([seconds] * 100) for seconds in (0.010, 0.010, 0.010, 0.170)]
    estimates = estimate_performance(plan(batch_size=1, limits=limits), done)
    verdicts = [one.verdict for one in judge(limits, estimates)]
    assert verdicts == [Verdict.PASSED, Verdict.INCONCLUSIVE, Verdict.FAILED]


def test_a_percentile_with_too_few_calls_says_what_it_lacks() -> None:
    found = estimate_performance(plan(), [process([0.01] * 60)] * 3)
    assert found["latency_p95"].lacking == ""
    assert found["latency_p99"].lacking == "needs 299 calls a process, had 60: raise --mlms-budget"
    assert plan(limits=(Limit("latency_p99", 1, LIMIT.place),)).least == 299


def test_memory_whose_peak_can_not_be_reset_is_not_judged() -> None:
    found = estimate_performance(plan(), [process([0.01], peak_is_since_load=False)] * 3)
    assert "can't reset the peak" in found["peak_memory"].lacking


class Fakes:
    """Stands in for the agents, whose own tests are elsewhere.

    Each process gives the next latency.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, latencies: list[float], seconds: float = 1.0
    ) -> None:
        self.latencies, self.kept, self.now, self.seconds = (
            iter(latencies),
            list[int](),
            0.0,
            seconds,
        )
        monkeypatch.setattr(measure, "_one_process", lambda plan, predictor, batches: self.next())
        monkeypatch.setattr("pytest_mlms.evaluate.performance.time.monotonic", lambda: self.now)

    def next(self) -> ProcessResult:
        self.now += self.seconds
        return process([next(self.latencies)] * 100)

    @contextlib.contextmanager
    def predictor(self) -> Iterator[Any]:
        yield None

    def measure(self, plan: Plan) -> Any:
        return measure_performance(
            plan,
            self.predictor,
            lambda predictor: [],
            lambda index, result: self.kept.append(index),
        )


def test_a_clear_case_takes_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(monkeypatch, [0.0050, 0.0051, 0.0049])
    _, decisions = fakes.measure(plan(limits=(LIMIT,)))
    assert [decision.verdict for decision in decisions] == [Verdict.PASSED]
    assert fakes.kept == [0, 1, 2]


def test_an_open_case_measures_more_until_it_is_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(monkeypatch, [0.0090, 0.0095, 0.0099] + [0.0092, 0.0094, 0.0093])
    _, decisions = fakes.measure(plan(limits=(LIMIT,)))
    assert decisions[0].verdict is Verdict.PASSED
    assert len(fakes.kept) == 6


def test_a_case_that_stays_open_ends_after_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(monkeypatch, [0.0099, 0.0101] * 6)
    estimates, decisions = fakes.measure(plan(limits=(LIMIT,)))
    assert decisions[0].verdict is Verdict.INCONCLUSIVE
    assert estimates["latency_p50"].replicates == 12


def test_the_budget_ends_an_open_case_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(monkeypatch, [0.0099, 0.0101] * 6, seconds=10)
    estimates, decisions = fakes.measure(plan(limits=(LIMIT,), budget=50))
    assert decisions[0].verdict is Verdict.INCONCLUSIVE
    assert estimates["latency_p50"].replicates == 5


def test_more_processes_are_not_spent_on_what_they_can_not_mend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = Fakes(monkeypatch, [0.005] * 12)
    _, decisions = fakes.measure(plan(limits=(Limit("latency_p99", 1, LIMIT.place),)))
    assert decisions[0].verdict is Verdict.INCONCLUSIVE
    assert len(fakes.kept) == 3


def test_processes_that_compute_different_things_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = iter([[[1.0, 2.0]], [[1.0, 9.0]]])
    monkeypatch.setattr(
        measure, "_one_process", lambda *_: process([], run=run([0.01], values=next(values)))
    )
    with pytest.raises(
        OutputError, match="process 2 computed another 'logits' than process 1 .* up to 7 off"
    ):
        measure_performance(
            plan(), lambda: contextlib.nullcontext(None), lambda _: [], lambda *_: None
        )  # type: ignore[arg-type]


class Answers:
    """A predictor that gives the next of its outputs to each batch."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = iter(outputs)

    def predict(self, batch: Any) -> dict[str, Any]:
        return {"logits": np.asarray(next(self.outputs), np.float32)}


PIXEL = Input.model_validate({"name": "x", "type": "tensor", "element_type": "float32"})
SIX = Dataset("m.yaml:1: six.npz", (PIXEL,), {"x": np.zeros((6, 1))}, np.array([0, 1, 0, 1, 0, 1]))
LOGITS = Output.model_validate({"name": "logits", "type": "classification", "steps": ["softmax"]})


def test_scores_are_those_of_the_whole_dataset_without_what_filled_the_last_batch() -> None:
    predictor: Any = Answers([[1, 0]] * 4, [[0, 1]] * 4)
    scores, labels = measure.classify(predictor, SIX, LOGITS, 4)
    assert scores.argmax(axis=1).tolist() == [0, 0, 0, 0, 1, 1]
    assert scores.dtype == np.float32
    assert np.allclose(scores.sum(axis=1), 1)
    assert labels is SIX.labels


def test_what_is_not_finite_names_the_first_input() -> None:
    predictor: Any = Answers([[1, 0]] * 4, [[np.nan, 1], [np.inf, 0], [np.nan, 0], [0, 0]])
    with pytest.raises(
        OutputError, match="'logits' has NaN or infinity for 2 of 6 inputs, first for number 4"
    ):
        measure.classify(predictor, SIX, LOGITS, 4)


def test_an_output_that_is_no_table_of_scores_is_named_at_once() -> None:
    predictor: Any = Answers(np.zeros((4, 2, 2)))
    with pytest.raises(
        OutputError, match=r"output 'logits' of 4 inputs is \(4, 2, 2\); expected inputs x classes"
    ):
        measure.classify(predictor, SIX, LOGITS, 4)


@pytest.mark.parametrize(
    ("first", "second", "differ"),
    [
        ([[1.0, 2.0]], [[1.0, 2.01]], False),
        ([[5.0]], [[5.0001]], False),
        ([[1.0, 2.0]], [[1.0, 2.1]], True),
        ([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.0]], True),
        ([[True, False]], [[True, True]], True),
        (3, 3, False),
    ],
)
def test_outputs_differ_by_more_than_rounding_or_in_shape(
    first: Any, second: Any, differ: bool
) -> None:
    done = [process([], run=run([0.01], values=first)), process([], run=run([0.01], values=second))]
    with pytest.raises(OutputError) if differ else contextlib.nullcontext():
        measure._check_alike(done)


class Rows:
    """A dataset whose elements are their own index."""

    def __len__(self) -> int:
        return 1000

    def batch(self, indices: Any) -> dict[str, Any]:
        return {"x": np.repeat(np.array(indices, np.float32)[:, None], self.width, axis=1)}

    width = 4


def test_batches_are_drawn_by_the_seed_and_bounded_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: Any = Rows()
    assert isinstance(rows, Dataset) is False
    first, again, other = (draw_batches(rows, 16, seed) for seed in (7, 7, 8))
    assert len(first) == 8
    assert all(np.array_equal(a["x"], b["x"]) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0]["x"], other[0]["x"])
    monkeypatch.setattr(measure, "_POOL_BYTES", 3 * first[0]["x"].nbytes)
    assert len(draw_batches(rows, 16, 7)) == 3


def test_without_a_dataset_inputs_are_random_in_the_models_own_shape() -> None:
    predictor: Any = type(
        "P",
        (Predictor,),
        {"__init__": lambda self: None, "inputs": (Tensor("x", "float32", (None, 3)),)},
    )()
    (batch,) = measure.random_batch(predictor, 5, 7)
    assert batch["x"].shape == (5, 3)
    assert batch["x"].dtype == np.float32
    free: Any = type(
        "P",
        (Predictor,),
        {"__init__": lambda self: None, "inputs": (Tensor("x", "float32", (None, None)),)},
    )()
    with pytest.raises(OutputError, match="has free axes, .*; add a dataset"):
        measure.random_batch(free, 5, 7)
