"""Traced calls: with the framework's layer profiler and with probes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from mlms_predictors import Layer, Profile
from mlms_predictors._run import probes, steps, tracing
from mlms_predictors._run.probe import Probe, Span
from mlms_predictors._run.tracing import TracedModel, TraceRequest, trace

from tests.support.probes import linux


def profile() -> Profile:
    """Return the profile of a call with two layers."""
    start = time.perf_counter()
    time.sleep(0.001)
    middle = time.perf_counter()
    time.sleep(0.001)
    end = time.perf_counter()
    first = Layer("conv", "Conv", start, middle, 64, (1, 8))
    second = Layer("relu", "Relu", middle, end, None, None)
    return Profile(start, end, [first, second])


def model(profile: Callable[[], Profile] | None = profile) -> TracedModel:
    def call() -> None:
        time.sleep(0.001)

    def profiles(count: int) -> list[Profile]:
        assert profile is not None
        return [profile() for _ in range(count)]

    return TracedModel(call, profiles if profile else None, "cpu")


def request(level: str, *names: str) -> TraceRequest:
    return TraceRequest(level, list(names), observed=2, plain=1, options={})


def use_probe(monkeypatch: pytest.MonkeyPatch, probe_class: type[Probe]) -> None:
    """Have one probe, under every name."""

    def open_probe(name: str, *arguments: Any) -> Probe:
        return probe_class(*arguments)

    monkeypatch.setattr(probes, "open_probe", open_probe)


def test_calls_without_a_probe_come_before_and_after_those_with_one() -> None:
    found = trace(model(), TraceRequest("model", [], observed=3, plain=2, options={}))
    assert len(found.plain) == 4
    assert [span.request for span in found.spans] == [0, 1, 2]
    for span in found.spans:
        assert span.level == "model"
        assert span.end > span.start


def test_layers_lie_inside_of_their_call() -> None:
    found = trace(model(), request("layer"))
    names = [(span.level, span.name, span.request) for span in found.spans]
    assert names == [
        ("model", "predict", 0),
        ("layer", "conv", 0),
        ("layer", "relu", 0),
        ("model", "predict", 1),
        ("layer", "conv", 1),
        ("layer", "relu", 1),
    ]
    call, conv, relu = found.spans[:3]
    assert call.start <= conv.start <= conv.end <= relu.start <= relu.end <= call.end
    assert [(span.shape, span.bytes) for span in (conv, relu)] == [("1 x 8", 64), ("", -1)]
    (status,) = found.probes
    assert status.as_fields() == {
        "probe": "layers",
        "available": True,
        "reason": "",
        "missing": {},
        "fault": "",
        "stepwise": False,
    }


def stepwise() -> Profile:
    """Return the profile of a call whose two layers run one by one."""
    layers = []
    for name in ("conv", "relu"):
        steps.between()
        start = time.perf_counter()
        layers.append(Layer(name, name, start, time.perf_counter(), None, None))
    steps.between()
    return Profile(layers[0].start, time.perf_counter(), layers)


def test_counters_are_read_between_layers_that_run_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Constant(Probe):
        name = "constant"

        def read(self) -> dict[str, int]:
            return {"seven": 7}

    use_probe(monkeypatch, Constant)
    found = trace(model(stepwise), request("layer+hardware", "constant"))
    assert [status.stepwise for status in found.probes] == [True, None]
    (series,) = found.series
    calls = 2
    moments = 3 * calls
    assert len(series.values) == 1 + moments + 1
    steps.between()
    assert len(series.values) == 1 + moments + 1, "the probe is no observer any more"


@linux
def test_a_call_does_not_count_the_system_calls_of_other_probes() -> None:
    def call() -> None:
        pass

    names = sorted(probes.probes_at("hardware"))
    asked = TraceRequest("hardware", names, observed=20, plain=1, options={})
    found = trace(TracedModel(call, None, "cpu"), asked)
    series = next((series for series in found.series if series.name == "syscr"), None)
    if series is None:
        pytest.skip("the kernel shows no /proc/self/io")
    readings = list(zip(series.times, series.values, strict=True))
    counted = []
    for span in found.spans:
        before = max(reading for reading in readings if reading[0] <= span.start)
        after = min(reading for reading in readings if reading[0] >= span.end)
        counted.append(after[1] - before[1])
    assert min(counted) <= 3, "its own, and those of a probe that samples by itself"


def test_a_layer_has_the_number_of_the_moment_before_it() -> None:
    def span(start: int, end: int, level: str = "layer") -> Span:
        return Span(level, "x", "", "", start, end, thread=1)

    spans = [
        span(0, 100, "model"),
        span(12, 20),
        span(20, 30),
        span(5, 9),  # before the first moment
        span(35, 60),  # with a moment inside
        span(90, 95),
    ]
    found = tracing._with_numbers(spans, [(10, 1), (20, 2), (30, 3), (40, 4)])
    assert [one.external for one in found] == [0, 1, 2, 0, 0, 4]


def test_every_probe_notes_the_moments_between_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Numbering(Probe):
        name = "numbering"

        def moment(self) -> None:
            now = int(time.perf_counter() * 1e9)
            number = 40 + len(self.moments)
            self.moments.append((now, number))

    use_probe(monkeypatch, Numbering)
    found = trace(model(stepwise), request("kernel", "numbering"))
    layers = [span for span in found.spans if span.level == "layer"]
    assert [layer.external for layer in layers] == [40, 41, 43, 44]


def test_calls_are_traced_without_a_layer_profiler() -> None:
    found = trace(model(None), request("layer"))
    assert [span.level for span in found.spans] == ["model", "model"]
    assert "no layer profiler" in found.probes[0].reason


@pytest.mark.parametrize(
    ("level", "used"), [("layer", True), ("library", False), ("kernel", False)]
)
def test_a_layer_profiler_that_takes_cupti_has_a_run_of_its_own(level: str, used: bool) -> None:
    found = trace(model()._replace(takes_cupti=True), request(level))
    assert ("layer" in {span.level for span in found.spans}) == used
    assert len([span for span in found.spans if span.level == "model"]) == 2
    (status,) = found.probes
    assert status.available == used
    assert ("takes CUPTI" in status.reason) != used


@pytest.mark.parametrize("level", ["layer", "kernel"])
def test_times_of_launches_are_no_times_of_layers(level: str) -> None:
    def launches() -> Profile:
        return profile()._replace(of_launches=True)

    found = trace(model(launches), request(level))
    (status,) = found.probes
    assert status.available == (level == "kernel"), "kernels find their layers by launches"
    if level == "layer":
        assert "--mlms-trace=layer waits for each launch" in status.reason


def test_a_layer_profiler_that_raises_is_not_available() -> None:
    def broken() -> Profile:
        raise RuntimeError("another profiler is active")

    found = trace(model(broken), request("layer"))
    assert found.probes[0].reason == "RuntimeError: another profiler is active"
    assert [span.level for span in found.spans] == ["model", "model"]


def test_the_other_probes_observe_where_one_can_not() -> None:
    found = trace(model(), request("hardware", "cupti", "io", "magic"))
    statuses = {status.probe: status for status in found.probes}
    assert "the device is cpu" in statuses["cupti"].reason
    assert "there is no probe 'magic'" in statuses["magic"].reason
    if statuses["io"].available:
        assert found.series
        assert all(len(series.times) == 1 + 2 for series in found.series)
    else:
        assert statuses["io"].reason


def test_a_fault_of_a_probe_does_not_cost_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> Probe:
        raise ZeroDivisionError("a fault of the probe")

    monkeypatch.setattr(probes, "open_probe", broken)
    found = trace(model(), request("hardware", "perf"))
    assert found.probes[0].reason == "ZeroDivisionError: a fault of the probe"
    assert len(found.spans) == 2
