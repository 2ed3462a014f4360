"""The probe ``kineto``, tested with hand-written fakes of PyTorch and its events.

No GPU has run it; a real PyTorch gives its events on the CPU.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run.probes import cupti, open_probe

from tests.support.frameworks import python_of
from tests.support.probes import refusal
from tests.support.project import ROOT


class Event:
    """An event as Kineto gives it, with its fields as methods."""

    def __init__(self, name: str, device: str, where: int, **more: Any) -> None:
        fields = {
            "name": name,
            "device_type": f"DeviceType.{device}",
            "device_index": 0,
            "device_resource_id": where,
            "start_ns": 1_000,
            "duration_ns": 500,
            "correlation_id": 9,
            **more,
        }
        for field, value in fields.items():
            setattr(self, field, functools.partial(_return, value))


def _return(value: Any) -> Any:
    return value


COPIED = '"device": 0, "bytes": 4096'
EVENTS = [
    Event("aten::conv2d", "CPU", 77),
    Event("cudaLaunchKernel", "CPU", 77),
    Event("cuLaunchKernelEx", "CPU", 77),
    Event("sgemm", "CUDA", 7, metadata_json='"device": 0, "graph id": 0'),
    Event("relu", "CUDA", 7, metadata_json='"device": 0, "graph id": 12'),
    Event("Memcpy HtoD (Pageable -> Device)", "CUDA", 7, metadata_json=COPIED),
    Event("Memset (Device)", "CUDA", 7),
    Event("mlms", "CUDA", 7, is_user_annotation=True),
]


def use_torch(
    monkeypatch: pytest.MonkeyPatch,
    events: list[Event],
    activities: tuple[str, ...] = ("cpu", "cuda"),
) -> None:
    """Have PyTorch in this process, with these events."""

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
    monkeypatch.setattr(cupti, "wall_offset", lambda: 100)


def test_events_become_the_spans_that_cupti_would_give(monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("kernel", "relu", "graph kernel", 0, "cuda:0 stream 7", -1),
        ("kernel", "Memcpy HtoD (Pageable -> Device)", "memcpy", 0, "cuda:0 stream 7", 4096),
        ("kernel", "Memset (Device)", "memset", 0, "cuda:0 stream 7", -1),
    ]
    assert {(span.start, span.end, span.correlation) for span in probe.spans} == {(900, 1400, 9)}
    assert not probe.fault


def test_the_library_level_has_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, EVENTS)
    with open_probe("kineto", "cuda:0", "library") as probe:
        pass
    assert {span.level for span in probe.spans} == {"library"}


def test_a_profile_without_a_kernel_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, EVENTS[:3])
    with open_probe("kineto", "cuda:0", "kernel") as probe:
        pass
    assert "not one kernel or copy was seen on cuda:0" in probe.fault


def test_a_process_without_pytorch_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "which this process doesn't use" in refusal("kineto", "cuda:0", "kernel")


def test_a_pytorch_without_cupti_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, [], ("cpu",))
    assert "no CUPTI" in refusal("kineto", "cuda:0", "kernel")


def test_a_probe_of_cupti_that_observes_already_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_torch(monkeypatch, EVENTS)
    monkeypatch.setattr(cupti.Cupti, "active", True)
    assert "the probe cupti observes" in refusal("kineto", "cuda:0", "kernel")


def test_a_step_of_the_wall_clock_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    use_torch(monkeypatch, EVENTS)
    offsets = iter([0, 3_000_000_000])
    monkeypatch.setattr(cupti, "wall_offset", lambda: next(offsets))
    with open_probe("kineto", "cuda:0", "kernel") as probe:
        pass
    assert "stepped by 3000.000 ms" in probe.fault


REAL = """
import threading, torch
from mlms_predictors._run.probes import kineto
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    torch.randn(10).relu()
events = profile.profiler.kineto_results.events()
assert events
assert all(kineto._span(event, 0) is None for event in events), "operators are no calls of CUDA"
kineto._CALL = kineto.re.compile("^aten::relu$")
(span,) = filter(None, (kineto._span(event, 0) for event in events))
assert span.thread == threading.get_native_id() and span.end > span.start > 1.6e18, span
"""


@pytest.mark.slow
def test_events_of_a_real_pytorch_have_the_fields(tmp_path: Path) -> None:
    (tmp_path / "mlms_predictors").symlink_to(ROOT / "predictors")
    python = python_of("pytorch")
    command = [python, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{REAL}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
