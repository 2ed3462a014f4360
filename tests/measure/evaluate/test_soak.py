"""Soaks, and estimates from their blocks."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlms_predictors._run.replies import UsageReply

from pytest_mlms.core.records import Limit, Place, Verdict
from pytest_mlms.core.statistics import theil_sen_interval
from pytest_mlms.measure.agent.predictor import ScenarioRun
from pytest_mlms.measure.evaluate.closeness import Rule
from pytest_mlms.measure.evaluate.limits import explain, judge
from pytest_mlms.measure.evaluate.soak import SoakRun, estimate_soak
from tests.support.processes import scenario_run

BATCH = {"x": np.full((2, 3), 0.3, np.float32) + np.arange(3, dtype=np.float32)}


def chaos(x: Any) -> Any:
    return np.sin(1e9 * x.astype(np.float64)).astype(np.float32)


class Model:
    """A predictor whose blocks after the first give what ``later`` returns."""

    def __init__(self, later: Callable[[Any], Any], again: Callable[[Any], Any] = chaos) -> None:
        self._outputs: list[Callable[[Any], Any]] = [chaos]
        self._later = later
        self._again = again

    def run(self, scenario: str, **limits: Any) -> ScenarioRun:
        outputs = {"y": self._outputs.pop()(BATCH["x"])}
        self._outputs.append(self._later)
        return replace(scenario_run([0.001]), outputs=outputs)

    def predict(self, batch: Any) -> dict[str, Any]:
        return {"y": self._again(batch["x"])}

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(1, None, 1, 1)


def off(x: Any) -> Any:
    return chaos(x + np.float32(1e-6))


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        (Model(chaos), 0, 0),
        (Model(off), 0, 0),
        (Model(off, again=off), 100, 1e6),
        (Model(lambda x: chaos(x) + 10), 1000, 1e6),
        (Model(lambda x: x[:1]), np.inf, np.inf),
    ],
)
def test_outputs_of_later_blocks_differ_by_more_than_rounding_decides(
    model: Any, least: float, most: float
) -> None:
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"].difference
    while len(found) < 2:
        soak.run()
    assert found[0] == 0
    assert least <= max(found[1:]) <= most


def nan(x: Any) -> Any:
    return np.full_like(x, np.nan)


@pytest.mark.parametrize(
    ("b", "a", "verdict"),
    [
        (chaos, [], Verdict.PASSED),
        (nan, [], Verdict.FAILED),
        (nan, [chaos], Verdict.FAILED),
        (chaos, [nan], Verdict.PASSED),
        (nan, [nan], Verdict.PASSED),
    ],
)
def test_nan_from_the_beginning_is_no_output_that_stays_the_same(
    b: Any, a: Sequence[Any], verdict: Verdict
) -> None:
    def running(give: Callable[[Any], Any]) -> Any:
        model: Any = Model(give, again=give)
        model._outputs = [give]
        return lambda: contextlib.nullcontext(model)

    soak = SoakRun(dict(zip("ba", map(running, [b, *a]), strict=False)), BATCH, 0.001)
    while len(soak.series["b"].calls) < 40:
        soak.run()
    blocks = {side: series.arrays() for side, series in soak.series.items()}
    estimates = estimate_soak(blocks["b"], blocks.get("a"))
    limit = Limit("soak_outputs", 1.0, Place(Path("m.yaml"), 1))
    assert judge([limit], estimates)[0].verdict is verdict


def test_scores_that_drift_beside_boxes_in_pixels_are_beyond_rounding() -> None:
    """Rules of the case were not asked: 1 % of a score is less than rounding of its box."""
    boxes = np.tile(np.array([300.0, 200, 640, 480, 0.9], np.float32), (2, 3, 1))
    later = boxes * np.array([1, 1, 1, 1, 0.99], np.float32)
    model: Any = Model(lambda x: later, again=lambda x: boxes)
    model._outputs = [lambda x: boxes]
    rules = {"y": Rule(unlike=-1)}
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001, lambda: rules)
    found = soak.series["b"]
    while len(found.calls) < 2:
        soak.run()
    assert found.difference[1] > 10


@pytest.mark.parametrize("draws", [True, False])
def test_calls_in_a_row_tell_a_model_that_draws_numbers(draws: bool) -> None:
    numbers = np.random.default_rng(1)

    def drawn(x: Any) -> Any:
        return numbers.normal(size=x.shape).astype(np.float32)

    model: Any = Model(drawn, again=drawn if draws else lambda x: chaos(x) + 10)
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"]
    while len(found.repeat) < 2:
        soak.run()
    assert found.difference[1] > 100
    assert found.repeat[0] == 0
    assert (found.repeat[1] > 100) is draws


@pytest.mark.parametrize("draws", [True, False])
def test_calls_in_a_row_tell_a_model_that_draws_how_much_it_finds(draws: bool) -> None:
    counts = itertools.cycle([1, 2, 0])

    def drawn(x: Any) -> Any:
        return chaos(x)[: next(counts)]

    model: Any = Model(drawn, again=drawn if draws else lambda x: chaos(x)[:1])
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"]
    while len(found.repeat) < 3:
        soak.run()
    assert found.form[0] == 0
    assert max(found.form) == (2 if draws else 1)


def test_a_model_that_draws_how_many_numbers_has_another_form_wherever_it_is_infinitely_far() -> (
    None
):
    """A rounded input's outputs may by chance have the form of these, which rounding then decides."""
    numbers = np.random.default_rng(2)

    def drawn(x: Any) -> Any:
        return numbers.normal(size=x.shape)[:, : numbers.integers(2, 4)].astype(np.float32)

    model: Any = Model(drawn, again=drawn)
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    found = soak.series["b"]
    while len(found.repeat) < 200:
        soak.run()
    of_first_form = np.array(found.form) == 0
    assert np.isfinite(np.array(found.difference)[of_first_form]).all()
    assert len(set(found.form)) == 3


class Leaking(Model):
    """A model that draws numbers, and leaks a kilobyte in each call: a block has one."""

    held = 0

    def run(self, scenario: str, **limits: Any) -> ScenarioRun:
        self.held += 1000
        return super().run(scenario, **limits)

    def predict(self, batch: Any) -> dict[str, Any]:
        self.held += 1000
        return super().predict(batch)

    def usage(self, collect: bool) -> UsageReply:
        return UsageReply(self.held, None, 1, 1)


def test_calls_between_blocks_count_for_what_a_call_leaks() -> None:
    numbers = np.random.default_rng(1)

    def drawn(x: Any) -> Any:
        return numbers.normal(size=x.shape).astype(np.float32)

    model: Any = Leaking(drawn, again=drawn)
    soak = SoakRun({"b": lambda: contextlib.nullcontext(model)}, BATCH, 0.001)
    while len(soak.series["b"].repeat) < 40:
        soak.run()
    growth = estimate_soak(soak.series["b"].arrays())["soak_growth"]
    assert growth.value == pytest.approx(1000)


PLACE = Place(Path("m.yaml"), 1)
COUNT = 240
TIME = np.arange(COUNT, dtype=float)


def blocks(**columns: Any) -> dict[str, np.ndarray]:
    """Return blocks of a second and 100 calls that stay as they are, with some columns changed."""
    steady = {
        "seconds": TIME,
        "calls": np.full(COUNT, 100),
        "latency": np.full(COUNT, 0.01),
        "mean": np.full(COUNT, 0.01),
        "memory": np.full(COUNT, 1 << 26),
        "threads": np.full(COUNT, 4),
        "descriptors": np.full(COUNT, 9),
        "difference": np.zeros(COUNT),
        "repeat": np.zeros(COUNT),
        "form": np.zeros(COUNT, int),
    }
    return {name: np.asarray(values) for name, values in {**steady, **columns}.items()}


LEAK = (1 << 26) + 100_000 * TIME
SLOWER = 0.01 * np.exp(0.3 * TIME / COUNT)


def test_a_steady_process_has_neither_growth_nor_drift() -> None:
    assert {found.value for found in estimate_soak(blocks()).values()} == {0}


@pytest.mark.parametrize(
    ("quantity", "column", "values", "expected"),
    [
        ("soak_growth", "memory", LEAK, 1000),
        ("soak_threads", "threads", 4 + TIME // 24, 6),
        ("soak_descriptors", "descriptors", 9 + TIME, 144),
        ("soak_latency_drift", "latency", SLOWER, np.expm1(0.27)),
        ("soak_throughput_drift", "mean", SLOWER, np.expm1(0.27)),
        ("soak_outputs", "difference", np.where(TIME > 200, 3.0, 0.0), 3),
    ],
)
def test_what_time_does_is_found(
    quantity: str, column: str, values: np.ndarray, expected: float
) -> None:
    found = estimate_soak(blocks(**{column: values}))
    assert found[quantity].value == pytest.approx(expected, rel=0.02)
    assert found[quantity].low > 0
    others = {estimate.value for name, estimate in found.items() if name != quantity}
    assert others == {0}


def test_a_step_is_no_growth_and_a_thread_that_came_once_is_none() -> None:
    step = np.where(TIME < 100, 0, 1 << 20)
    found = estimate_soak(blocks(memory=step, threads=np.where(TIME < 100, 4, 5)))
    assert found["soak_growth"].low == 0
    assert found["soak_threads"].value == 0


@pytest.mark.parametrize("place", range(25, COUNT, 7))
def test_a_step_anywhere_keeps_no_soak_from_passing(place: int) -> None:
    found = estimate_soak(blocks(memory=(place <= TIME) * (1 << 20)))["soak_growth"]
    assert (found.low, found.value, found.high) == (0, 0, 0)


@pytest.mark.parametrize(
    ("steps", "verdict"), [(5, "INCONCLUSIVE"), (8, "INCONCLUSIVE"), (20, "FAILED"), (60, "FAILED")]
)
def test_a_leak_in_chunks_never_passes_and_is_found_where_there_are_many(
    steps: int, verdict: str
) -> None:
    memory = TIME * steps // COUNT * (1 << 22)
    found = estimate_soak(blocks(memory=memory))
    assert judge([Limit("soak_growth", 100.0, PLACE)], found)[0].verdict.name == verdict


def test_memory_that_wanders_is_growth_as_seldom_as_the_confidence_says() -> None:
    rng = np.random.default_rng(1)
    missed = 0
    for _ in range(500):
        memory = (1 << 40) + np.cumsum(rng.normal(0, 1e6, COUNT))
        found = estimate_soak(blocks(memory=memory))["soak_growth"]
        missed += not found.low <= 0 <= found.high
    assert missed <= 15


@pytest.mark.parametrize(("wanders", "calls"), [(False, 500), (True, 4100)])
def test_growth_is_shown_to_be_below_its_limit_with_as_many_calls_as_the_docs_say(
    wanders: bool, calls: int
) -> None:
    rng = np.random.default_rng(1)
    passed = 0
    for _ in range(200):
        noise = rng.normal(0, 1 << 20, COUNT)
        memory = (1 << 40) + (np.cumsum(noise) if wanders else noise)
        found = estimate_soak(blocks(memory=memory, calls=np.full(COUNT, calls)))
        (decision,) = judge([Limit("soak_growth", 100.0, PLACE)], found)
        passed += decision.verdict is Verdict.PASSED
    assert 0.9 <= passed / 200 <= 0.99
    few = estimate_soak(blocks(memory=memory, calls=np.full(COUNT, calls // 10)))
    (decision,) = judge([Limit("soak_growth", 100.0, PLACE)], few)
    times = re.search(r"some (\d+) times the --mlms-soak would narrow it", explain(decision))
    assert times is not None
    assert 2 <= int(times[1]) <= 10


def readings(least: float, most: float) -> st.SearchStrategy[list[float]]:
    return st.lists(st.floats(least, most), min_size=27, max_size=27)


COUNTERS = st.fixed_dictionaries(
    {name: readings(0, 1 << 40) for name in ("memory", "threads", "descriptors", "difference")}
)
DURATIONS = st.fixed_dictionaries(
    {name: readings(1, 1000) for name in ("calls", "latency", "mean")}
)


@settings(max_examples=50, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.tuples(COUNTERS, DURATIONS), min_size=1, max_size=2))
def test_a_value_is_within_its_interval_whatever_was_read(drawn: Any) -> None:
    sides = []
    for counters, durations in drawn:
        columns = {name: values[:27] for name, values in blocks().items()}
        changed = {name: np.array(values) for name, values in {**counters, **durations}.items()}
        sides.append({**columns, **changed})
    for found in estimate_soak(*sides).values():
        assert found.low <= found.value <= found.high


def test_what_the_baseline_does_too_is_no_regression() -> None:
    found = estimate_soak(blocks(memory=LEAK, latency=SLOWER), blocks(memory=LEAK, latency=SLOWER))
    assert found["soak_growth"].value == pytest.approx(0)
    assert found["soak_latency_drift"].value == pytest.approx(0)
    worse = estimate_soak(blocks(memory=LEAK), blocks())
    assert worse["soak_growth"].low == pytest.approx(1000)


RNG = np.random.default_rng(1)
DRAWN = RNG.normal(500.0, 50.0, (2, COUNT))


def test_outputs_of_a_model_that_draws_numbers_are_no_measure_of_drift() -> None:
    found = estimate_soak(blocks(difference=DRAWN[0], repeat=DRAWN[1]))["soak_outputs"]
    assert "times rounding from call to call, which is no measure of" in found.lacking
    assert judge([Limit("soak_outputs", 1.0, PLACE)], {"soak_outputs": found})[0].verdict is (
        Verdict.INCONCLUSIVE
    )


def test_a_candidate_that_draws_numbers_where_the_baseline_does_not_has_drifted() -> None:
    drawn = blocks(difference=DRAWN[0], repeat=DRAWN[1])
    found = estimate_soak(drawn, blocks())["soak_outputs"]
    assert (found.lacking, found.value) == ("", DRAWN[0].max())
    assert estimate_soak(drawn, drawn)["soak_outputs"].lacking
    drifts = blocks(difference=np.where(TIME > 120, DRAWN[0].max(), 0))
    beside = estimate_soak(drawn, drifts)["soak_outputs"]
    assert (beside.lacking, beside.value) == ("", DRAWN[0].max()), "a drift is no drawing"


@pytest.mark.parametrize(
    ("candidate", "baseline", "value"),
    [
        (np.where(TIME > 120, 3.1, 0), np.where(TIME > 121, 3.0, 0), 0),
        (np.where(TIME > 120, np.inf, 0), np.where(TIME > 120, np.inf, 0), 0),
        (np.where(TIME > 120, np.inf, 0), np.where(TIME > 120, 3.0, 0), np.inf),
        (np.where(TIME > 120, 9.0, 0), np.where(TIME > 120, 3.0, 0), 9),
        (np.where(TIME > 120, 3.0, 0), np.where(TIME == 120, 3.0, 0), 3),
        (np.where(TIME > 120, 0.9, 0), np.zeros(COUNT), 0.9),
    ],
)
def test_outputs_that_drift_as_those_of_the_baseline_are_no_regression(
    candidate: np.ndarray, baseline: np.ndarray, value: float
) -> None:
    """Growth and drifts are judged beyond the baseline, and a common drift of outputs regressed."""
    found = estimate_soak(blocks(difference=candidate), blocks(difference=baseline))
    assert (found["soak_outputs"].lacking, found["soak_outputs"].value) == ("", value)
    drawn = blocks(difference=DRAWN[0], repeat=DRAWN[1])
    beside = estimate_soak(blocks(difference=candidate), drawn)["soak_outputs"]
    assert beside.value == candidate.max(), "a baseline that draws numbers is no measure"


LATE = np.where(TIME > 120, np.inf, 0)
ONCE = np.where(TIME == 150, np.inf, 0)


@pytest.mark.parametrize(
    ("candidate", "baseline"),
    [
        ({"difference": np.where(TIME > 120, 1e6, 0)}, {"difference": LATE}),
        ({"difference": np.where(TIME == 200, 1e6, 0)}, {"difference": ONCE}),
        (
            {"difference": np.where(TIME > 120, 9, 0)},
            {"difference": np.maximum(3 * (TIME > 9), LATE)},
        ),
        ({"difference": LATE}, {"difference": LATE, "form": LATE > 0}),
        ({"difference": LATE, "form": LATE > 0}, {"difference": LATE}),
        ({"difference": LATE}, {"difference": np.maximum(3 * (TIME > 9), ONCE)}),
    ],
)
def test_outputs_that_drift_in_another_way_than_those_of_the_baseline_are_a_regression(
    candidate: Any, baseline: Any
) -> None:
    found = estimate_soak(blocks(**candidate), blocks(**baseline))["soak_outputs"]
    assert (found.lacking, found.value) == ("", candidate["difference"].max())


def of_forms(begin: int = 0, numbers: float = 0.0) -> dict[str, np.ndarray]:
    """Return blocks of which from one on two of three have another form, as calls in a row do."""
    form = np.where((begin <= TIME) & (TIME % 3 > 0), 2, 0)
    values = np.where(form == 0, numbers, np.inf)
    return blocks(difference=values, repeat=np.where(form == 0, 0.0, np.inf), form=form)


def test_outputs_whose_form_changes_from_call_to_call_are_no_measure_of_drift() -> None:
    drawn = of_forms()
    for sides in ([drawn], [drawn, drawn], [blocks(**{**drawn, "form": np.full(COUNT, 2)})]):
        found = estimate_soak(*sides)["soak_outputs"]
        assert "outputs change their form from call to call" in found.lacking
        (decision,) = judge([Limit("soak_outputs", 1.0, PLACE)], {"soak_outputs": found})
        assert decision.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("share", [0.002, 0.005, 0.01, 0.02, 0.05, 0.3])
def test_a_form_that_changes_seldom_is_drawn_where_numbers_are(share: float) -> None:
    """One of 150 was a drift at 2 % beside a baseline that drew as many."""
    random = np.random.default_rng(3)
    for _ in range(400):
        sides = [drawing(random, share), drawing(random, share)]
        for judged in (sides, sides[:1]):
            assert estimate_soak(*judged)["soak_outputs"].lacking


def drawing(random: np.random.Generator, share: float, begin: int = 0) -> dict[str, np.ndarray]:
    """Return blocks of drawn numbers, of which from one on each call may have another form."""
    of_call, of_first, of_second = (random.random((3, COUNT)) < share) & (begin <= TIME)
    form = np.where(of_first != of_second, 2, of_call.astype(int))
    difference = np.where(of_call, np.inf, 5.0)
    return blocks(difference=difference, repeat=np.where(form == 2, np.inf, 5.0), form=form)


@pytest.mark.parametrize("has_baseline", [True, False])
@pytest.mark.parametrize("share", [0.4, 1.0])
def test_a_form_that_is_drawn_seldom_at_first_and_often_at_the_end_is_drift(
    share: float, has_baseline: bool
) -> None:
    """It was INCONCLUSIVE, also where all blocks of the second half had another one."""
    random = np.random.default_rng(6)
    seldom = drawing(random, 0.01)
    seldom["form"][30] = 2
    often = drawing(random, share)
    later = {name: np.where(TIME < 120, seldom[name], often[name]) for name in often}
    found = estimate_soak(later, *([seldom] if has_baseline else []))["soak_outputs"]
    assert np.isinf(found.value)
    assert not found.lacking


@pytest.mark.parametrize("begin", [0, 160])
def test_a_form_that_only_the_candidate_changes_or_only_later_is_drift(begin: int) -> None:
    random = np.random.default_rng(4)
    later = drawing(random, 0.4, begin)
    others = [] if begin else [drawing(random, 0.0)]
    found = estimate_soak(later, *others)["soak_outputs"]
    assert np.isinf(found.value)
    assert not found.lacking


@pytest.mark.parametrize(
    "sides",
    [
        [of_forms(), blocks()],  # the baseline has one form
        [of_forms(begin=120)],
        [of_forms(numbers=3.0)],  # other numbers than at first, always the same
        [blocks(difference=np.full(COUNT, np.inf), form=np.full(COUNT, 1))],  # it changed once
    ],
)
def test_another_form_by_the_time_or_than_the_baseline_is_drift(sides: Any) -> None:
    found = estimate_soak(*sides)["soak_outputs"]
    assert not found.lacking
    assert found.value > 1


@pytest.mark.parametrize(
    ("difference", "repeat"),
    [
        (3.0 + TIME, np.full(COUNT, 3.0)),  # each call adds to what the one before gave
        (np.where(TIME > 200, np.inf, DRAWN[0]), DRAWN[1]),
        (np.where(TIME > 120, DRAWN[0], 0), np.where(TIME > 120, DRAWN[1], 0)),
        (np.full(COUNT, 3.0), np.zeros(COUNT)),  # they changed once, soon
        (np.full(COUNT, np.inf), np.full(COUNT, np.inf)),  # NaN from then on
    ],
)
def test_outputs_that_end_farther_off_than_calls_in_a_row_are_drift(
    difference: np.ndarray, repeat: np.ndarray
) -> None:
    found = estimate_soak(blocks(difference=difference, repeat=repeat))["soak_outputs"]
    assert (found.lacking, found.value) == ("", difference.max())


def test_a_soak_that_was_too_short_lacks_blocks() -> None:
    short = {name: values[:20] for name, values in blocks().items()}
    (lacking,) = {found.lacking for found in estimate_soak(short).values()}
    assert lacking == "needs 24 blocks of calls after the first tenth, had 18: soak longer"


def test_noise_alone_is_within_the_interval_of_a_slope() -> None:
    rng = np.random.default_rng(1)
    x = np.arange(12.0)
    missed = 0
    for _ in range(2000):
        interval = theil_sen_interval(x, rng.normal(size=12), 0.95)
        missed += not interval.low <= 0 <= interval.high
    assert 50 <= missed <= 150
