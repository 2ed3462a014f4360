"""PyTorch's profiler as the source of CUDA's calls and kernels, where CUPTI can't be read directly."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run.probes import ProbeUnavailable, cupti, kineto, open_probe

from tests.support.frameworks import python_of
from tests.support.project import ROOT


class Event:
    """An event as Kineto gives it, with its fields as methods."""

    def __init__(self, name: str, device: str, where: int, start: int = 1_000, **more: Any) -> None:
        fields = {
            "name": name,
            "device_type": f"DeviceType.{device}",
            "device_index": 0,
            "device_resource_id": where,
        }
        fields.update(start_ns=start, duration_ns=500, correlation_id=9, **more)
        for field, value in fields.items():
            setattr(self, field, lambda value=value: value)


EVENTS = [
    Event("aten::conv2d", "CPU", 77),
    Event("cudaLaunchKernel", "CPU", 77),
    Event("cuLaunchKernelEx", "CPU", 77),
    Event("sgemm", "CUDA", 7),
    Event(
        "Memcpy HtoD (Pageable -> Device)", "CUDA", 7, metadata_json='"device": 0, "bytes": 4096'
    ),
    Event("Memset (Device)", "CUDA", 7),
    Event("mlms", "CUDA", 7, is_user_annotation=True),
]


def use_torch(
    monkeypatch: pytest.MonkeyPatch,
    events: list[Event],
    activities: tuple[str, ...] = ("cpu", "cuda"),
) -> None:
    """Have a process of PyTorch with these events; a GPU alone has the real ones."""

    class Profile:
        def __init__(self, activities: list[str]) -> None:
            assert activities == ["cuda"]
            results = types.SimpleNamespace(events=lambda: events)
            self.profiler = types.SimpleNamespace(kineto_results=results)

        def __enter__(self) -> Profile:
            return self

        def __exit__(self, *raised: object) -> None:
            pass

    profiler = types.SimpleNamespace(
        ProfilerActivity=types.SimpleNamespace(CUDA="cuda"),
        profile=Profile,
        supported_activities=lambda: set(activities),
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(profiler=profiler))
    monkeypatch.setattr(kineto, "wall_offset", lambda: 100)


def test_its_events_become_the_spans_that_cupti_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, EVENTS)
    with open_probe("kineto", "cuda:0", "kernel") as probe:
        probe.between()
    found = [
        (span.level, span.name, span.type, span.thread, span.stream, span.bytes)
        for span in probe.spans
    ]
    assert found == [
        ("library", "cudaLaunchKernel", "", 77, None, -1),
        ("library", "cuLaunchKernelEx", "", 77, None, -1),
        ("kernel", "sgemm", "kernel", 0, "cuda:0 stream 7", -1),
        ("kernel", "Memcpy HtoD (Pageable -> Device)", "memcpy", 0, "cuda:0 stream 7", 4096),
        ("kernel", "Memset (Device)", "memset", 0, "cuda:0 stream 7", -1),
    ]
    assert all((span.start, span.end, span.correlation) == (900, 1400, 9) for span in probe.spans)
    assert not probe.fault


def test_the_library_level_has_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, EVENTS)
    with open_probe("kineto", "cuda:0", "library") as probe:
        pass
    assert {span.level for span in probe.spans} == {"library"}


def test_it_says_why_it_cannot_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(device: str) -> str:
        with pytest.raises(ProbeUnavailable) as reason, open_probe("kineto", device, "kernel"):
            pass
        return str(reason.value)

    assert "the device is cpu" in refused("cpu")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "which this process doesn't use" in refused("cuda:0")
    use_torch(monkeypatch, [], ("cpu",))
    assert "no CUPTI" in refused("cuda:0")
    monkeypatch.setattr(cupti.Cupti, "watching", True)
    assert "the probe cupti watches" in refused("cuda:0")


def test_a_wall_clock_that_steps_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, EVENTS)
    offsets = iter([0, 3_000_000_000])
    monkeypatch.setattr(kineto, "wall_offset", lambda: next(offsets))
    with open_probe("kineto", "cuda:0", "kernel") as probe:
        pass
    assert "stepped by 3000.000 ms" in probe.fault


REAL = """
import threading, torch
from mlms_predictors._run.probes import kineto
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    torch.randn(10).relu()
events = profile.profiler.kineto_results.events()
assert events and all(kineto._span(event, 0) is None for event in events), "operators are no calls of CUDA's"
kineto._CALL = kineto.re.compile("^aten::relu$")
(span,) = filter(None, (kineto._span(event, 0) for event in events))
assert span.thread == threading.get_native_id() and span.end > span.start > 1.6e18, span
"""


@pytest.mark.slow
def test_events_of_a_real_pytorch_have_the_fields(tmp_path: Path) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    python = python_of("pytorch", "torch")
    command = [python, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{REAL}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
