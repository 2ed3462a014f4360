"""Calls under watch, in a worker as an agent has it."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import pytest
from mlms_predictors import Layer, Profile
from mlms_predictors._run import peaks, probes, steps, tracing
from mlms_predictors._run.worker import Worker

from tests.support.project import DIGITS, ROOT


def profile() -> Profile:
    start = time.perf_counter()
    time.sleep(0.001)
    middle = time.perf_counter()
    time.sleep(0.001)
    end = time.perf_counter()
    first, second = (
        Layer("conv", "Conv", start, middle, 64, (1, 8)),
        Layer("relu", "Relu", middle, end, None, None),
    )
    return Profile(start, end, [first, second])


def subject(layers: Any = profile) -> tracing.WatchedModel:
    return tracing.WatchedModel(
        lambda: time.sleep(0.001),
        layers and (lambda count: [layers() for _ in range(count)]),
        "cpu",
    )


def test_calls_without_a_probe_surround_those_with_one() -> None:
    watched = tracing.watch(subject(), "model", [], 3, 2, {})
    assert len(watched.plain) == 4
    assert [span.request for span in watched.spans] == [0, 1, 2]
    assert {span.level for span in watched.spans} == {"model"}
    assert all(span.end > span.start for span in watched.spans)


def test_layers_lie_inside_of_their_call() -> None:
    watched = tracing.watch(subject(), "layer", [], 2, 1, {})
    facts, arrays = tracing.as_reply(watched)
    columns = dict(arrays)
    assert [facts["levels"][index] for index in columns["span_level"]] == [
        "model",
        "layer",
        "layer",
    ] * 2
    assert [facts["strings"][index] for index in columns["span_name"]] == [
        "predict",
        "conv",
        "relu",
    ] * 2
    assert columns["span_bytes"].tolist() == [-1, 64, -1] * 2
    model = columns["span_level"] == facts["levels"].index("model")
    assert columns["span_start"][~model].min() >= columns["span_start"][model].min()
    assert columns["span_end"][~model].max() <= columns["span_end"][model].max()
    word = {
        "probe": "layers",
        "available": True,
        "reason": "",
        "missing": {},
        "fault": "",
        "stepwise": False,
    }
    assert facts["probes"] == [word]


def test_counters_are_read_between_layers_that_run_one_by_one() -> None:
    def stepwise() -> Profile:
        steps.between()
        found = profile()
        steps.between()
        return found

    watched = tracing.watch(subject(stepwise), "layer+hardware", ["io"], 3, 1, {})
    words = {word["probe"]: word for word in watched.probes}
    assert words["layers"]["stepwise"]
    if words["io"]["available"]:
        assert {len(series.times) for series in watched.series} == {1 + 3 * 2 + 1}
    steps.between()
    assert not steps._WATCHERS, "the probe was let go"


def test_a_layer_has_the_number_of_the_moment_before_it_unless_another_is_inside() -> None:
    def layer(start: int, end: int, level: str = "layer") -> probes.Span:
        return probes.Span(level, "x", "", "", start, end, 1, None, -1, 0, 0)

    found = tracing._numbered(
        [
            layer(0, 100, "model"),
            layer(12, 20),
            layer(20, 30),
            layer(5, 9),
            layer(35, 60),
            layer(90, 95),
        ],
        [(10, 1), (20, 2), (30, 3), (40, 4)],
    )
    assert [span.external for span in found] == [0, 1, 2, 0, 0, 4]


def test_moments_between_layers_are_told_to_every_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counts(probes.Probe):
        name = "counts"

        def moment(self) -> None:
            self.moments.append((int(time.perf_counter() * 1e9), 40 + len(self.moments)))

    def stepwise() -> Profile:
        layers = []
        for name in ("conv", "relu"):
            steps.between()
            start = time.perf_counter()
            layers.append(Layer(name, name, start, time.perf_counter(), None, None))
        steps.between()
        return Profile(layers[0].start, time.perf_counter(), layers)

    monkeypatch.setattr(probes, "open_probe", lambda name, device, level, options: Counts(device))
    watched = tracing.watch(subject(stepwise), "kernel", ["counts"], 2, 1, {})
    assert [span.external for span in watched.spans if span.level == "layer"] == [40, 41, 43, 44]
    _, arrays = tracing.as_reply(watched)
    assert sorted(dict(arrays)["span_external"].tolist()) == [0, 0, 40, 41, 43, 44]


def test_a_framework_without_a_layer_profiler_is_told_and_its_calls_are_still_there() -> None:
    watched = tracing.watch(subject(None), "layer", [], 2, 1, {})
    assert [span.level for span in watched.spans] == ["model", "model"]
    assert "no layer profiler" in watched.probes[0]["reason"]


def test_a_layer_profiler_that_raises_is_told() -> None:
    def broken() -> Profile:
        raise RuntimeError("another profiler is active")

    watched = tracing.watch(subject(broken), "layer", [], 2, 1, {})
    assert watched.probes[0]["reason"] == "RuntimeError: another profiler is active"
    assert [span.level for span in watched.spans] == ["model", "model"]


def test_probes_that_cannot_watch_are_told_and_the_others_watch() -> None:
    watched = tracing.watch(subject(), "hardware", ["cupti", "io", "magic"], 2, 1, {})
    words = {word["probe"]: word for word in watched.probes}
    assert "the device is cpu" in words["cupti"]["reason"]
    assert "there is no probe 'magic'" in words["magic"]["reason"]
    assert words["io"]["available"] or words["io"]["reason"]
    if words["io"]["available"]:
        assert all(len(series.times) == 3 for series in watched.series)


def test_a_fault_of_a_probe_costs_the_probe_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, device: str, level: str, options: Any) -> Any:
        raise ZeroDivisionError("a fault of the probe")

    monkeypatch.setattr(probes, "open_probe", broken)
    watched = tracing.watch(subject(), "hardware", ["perf"], 2, 1, {})
    assert watched.probes[0]["reason"] == "ZeroDivisionError: a fault of the probe"
    assert len(watched.spans) == 2


def test_every_probe_can_be_made() -> None:
    assert all(probes.open_probe(name, "cpu", "hardware").name == name for name in probes._PLACES)


def test_a_worker_traces_what_it_has_loaded() -> None:
    worker = Worker(str(ROOT / "predictors" / "onnxruntime.py"))
    worker.hello({}, [])
    worker.load(
        {"files": {"graph": str(DIGITS / "digits_cnn.onnx")}, "device": "cpu", "threads": 1}, []
    )
    image = np.zeros((2, 1, 8, 8), np.float32)
    header = {"level": "hardware", "probes": ["perf", "io"], "count": 3, "plain": 2, "options": {}}
    facts, arrays = worker.trace(header, [("image", image)])
    columns = dict(arrays)
    assert len(columns["plain"]) == 4
    assert columns["span_request"].tolist() == [0, 1, 2]
    assert 0 < facts["load"][0] < facts["load"][1] <= columns["span_start"].min()
    assert {word["probe"] for word in facts["probes"]} == {"perf", "io"}


def test_the_peaks_of_the_cpu_are_measured_and_say_how() -> None:
    found = peaks.peaks("cpu", 2)
    assert found["flops"] > 0
    assert found["bytes"] > 0
    assert "in 2 threads" in found["how"]
    assert "kernels" in found["how"]


def test_the_peaks_of_a_gpu_need_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(RuntimeError, match="measured by PyTorch"):
        peaks.peaks("cuda:0", None)
