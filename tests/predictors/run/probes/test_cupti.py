"""The probe ``cupti``, tested with a hand-written fake of cupti-python; no GPU has run it."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
import time
import types
from typing import Any

import numpy as np
import pytest
from mlms_predictors._run.probes import cupti, open_probe

from tests.support.probes import refusal

SLACK = 10_000_000  # ns between readings of two clocks


class FakeCupti:
    """The part of cupti-python that the probe uses, with the records of one launch."""

    ActivityKind = types.SimpleNamespace(
        MEMCPY=1, MEMSET=2, CONCURRENT_KERNEL=10, DRIVER=4, RUNTIME=5, EXTERNAL_CORRELATION=39
    )
    ExternalCorrelationKind = types.SimpleNamespace(CUSTOM0=3)
    CallbackDomain = types.SimpleNamespace(DRIVER_API=1, RUNTIME_API=2)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.registered = False
        self.flushed = False
        self.enabled: list[int] = []
        self.disabled: list[int] = []
        self.pushed: list[int] = []
        self.launched_in: list[int] = []

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        assert kind == 3
        self.pushed.append(number)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        assert kind == 3
        return self.pushed.pop()

    def launch(self) -> None:
        """Launch a kernel as a framework does inside of a layer: CUPTI notes the last number."""
        self.launched_in = self.pushed[-1:]

    def get_callback_name(self, domain: int, number: int) -> str:
        return f"cudaCall{number}"

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        assert requested()[0] > 0
        self.registered = True
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        assert self.registered
        if self.error:
            raise self.error
        self.enabled.append(kind)

    def activity_disable(self, kind: int) -> None:
        assert self.flushed, "what is disabled first is lost"
        self.disabled.append(kind)

    def activity_flush_all(self, flag: int) -> None:
        self.flushed = True
        self.completed(self.records())

    def records(self) -> list[Any]:
        record = types.SimpleNamespace
        now = time.time_ns()
        times = {"start": now, "end": now + 500, "correlation_id": 9}
        place = {"device_id": 0, "stream_id": 7}
        thread = threading.get_ident() & 0xFFFFFFFF
        records = []
        for number in self.launched_in:
            records.append(record(kind=39, correlation_id=9, external_id=number))
        records.append(record(kind=5, cbid=211, thread_id=thread, **times))
        records.append(record(kind=10, name="sgemm", **place, **times))
        records.append(record(kind=1, bytes=4096, copy_kind=1, **place, **times))
        records.append(record(kind=2, bytes=64, **place, **times))
        times.update(start=0, end=0)
        records.append(record(kind=10, name="never ran", **place, **times))
        return records


def use(monkeypatch: pytest.MonkeyPatch, fake: FakeCupti) -> FakeCupti:
    monkeypatch.setitem(sys.modules, "cupti", types.SimpleNamespace(cupti=fake))
    return fake


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCupti:
    return use(monkeypatch, FakeCupti())


def test_the_main_thread_of_a_process_that_was_forked_has_its_own_number() -> None:
    code = (
        "import os, threading\n"
        "from mlms_predictors._run.probes import cupti\n"
        "if os.fork() == 0:\n"
        "    numbers = cupti._thread_numbers()\n"
        "    found = numbers[threading.get_ident() & 0xFFFFFFFF]\n"
        "    os._exit(found != threading.get_native_id())\n"
        "_, status = os.wait()\n"
        "raise SystemExit(status)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_records_become_spans_on_the_monotonic_clock(fake: FakeCupti) -> None:
    before = int(time.perf_counter() * 1e9)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.between()
    after = int(time.perf_counter() * 1e9)
    found = [
        (span.level, span.name, span.type, span.stream, span.bytes, span.correlation)
        for span in probe.spans
    ]
    assert found == [
        ("library", "cudaCall211", "", None, -1, 9),
        ("kernel", "sgemm", "kernel", "cuda:0 stream 7", -1, 9),
        ("kernel", "memcpy HtoD", "memcpy", "cuda:0 stream 7", 4096, 9),
        ("kernel", "memset", "memset", "cuda:0 stream 7", 64, 9),
    ]
    assert probe.spans[0].thread == threading.get_native_id()
    for span in probe.spans:
        assert before - SLACK <= span.start <= after + SLACK
        assert span.end - span.start == 500
    assert fake.disabled == fake.enabled


def test_the_library_level_enables_calls_only(fake: FakeCupti) -> None:
    with open_probe("cupti", "cuda:0", "library"):
        pass
    assert set(fake.enabled) == {4, 5, 39}


def test_calls_of_a_layer_carry_the_number_of_the_moment_before_it(fake: FakeCupti) -> None:
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.moment()
        probe.moment()
        fake.launch()
        probe.moment()
    numbers = [number for _, number in probe.moments]
    assert len(set(numbers)) == 3
    assert [span.external for span in probe.spans] == [numbers[1]] * 4
    assert probe.moments == sorted(probe.moments)
    assert fake.pushed == [], "the last number was popped"


def test_a_number_is_used_once_in_a_process(fake: FakeCupti) -> None:
    numbers = []
    for _ in range(2):
        with open_probe("cupti", "cuda:0", "kernel") as probe:
            probe.moment()
        numbers.append(probe.moments[0][1])
    assert numbers[0] != numbers[1]


def test_a_number_that_cupti_refuses_is_a_fault_and_the_layer_runs(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(kind: int, number: int) -> None:
        raise RuntimeError("CUPTI_ERROR_INVALID_PARAMETER")

    monkeypatch.setattr(fake, "activity_push_external_correlation_id", refuse)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.moment()
    assert probe.moments == []
    assert probe.fault == "RuntimeError: CUPTI_ERROR_INVALID_PARAMETER"
    assert {span.external for span in probe.spans} == {0}


def test_records_are_kept_where_disabling_fails(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def disable(kind: int) -> None:
        tried.append(kind)
        raise RuntimeError("CUPTI_ERROR_UNKNOWN")

    monkeypatch.setattr(fake, "activity_disable", disable)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.between()
    assert len(probe.spans) == 4
    assert sorted(tried) == [1, 2, 4, 5, 10, 39]
    assert probe.fault == "RuntimeError: CUPTI_ERROR_UNKNOWN"


def test_a_step_of_the_wall_clock_is_a_fault(
    fake: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = iter([0, 3_000_000_000])
    monkeypatch.setattr(cupti, "wall_offset", lambda: next(offsets))
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        pass
    assert "stepped by 3000.000 ms" in probe.fault


class NotSupportedError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
            "another profiler holds CUPTI",
        ),
        (
            RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"),
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        (NotSupportedError("x"), "another CUDA version"),
        (RuntimeError("CUPTI_ERROR_UNKNOWN"), "CUPTI: RuntimeError: CUPTI_ERROR_UNKNOWN"),
    ],
)
def test_an_error_of_cupti_becomes_a_reason(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    use(monkeypatch, FakeCupti(error))
    assert reason in refusal("cupti", "cuda:0", "kernel")
    assert not cupti.Cupti.active


def test_a_package_that_is_not_installed_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    assert "pip install cupti-python" in refusal("cupti", "cuda:0", "kernel")


DTYPES = {
    "API": "api",
    "ExternalCorrelation": "external_correlation",
    "Kernel": "kernel",
    "Memcpy": "memcpy",
}


def real_record(real: Any, record: str, **fields: int) -> Any:
    """Return a record of cupti-python's own class, of the newest version of its structure."""
    versions = []
    for name in dir(real):
        match = re.fullmatch(rf"Activity{record}(\d*)", name)
        if match:
            versions.append(match.group(1))
    version = max(versions, key=lambda text: int(text or 0))
    data = np.zeros(1, getattr(real, f"activity_{DTYPES[record]}{version}_dtype"))
    for name, value in fields.items():
        data[name] = value
    return getattr(real, f"Activity{record}{version}").from_data(data)


def test_the_probe_reads_the_records_of_the_real_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = pytest.importorskip(
        "cupti.cupti", reason="cupti-python isn't installed: pip install cupti-python"
    )
    fake = FakeCupti()
    for function in vars(FakeCupti):
        if function.startswith("activity_"):  # setattr raises where the package has none
            monkeypatch.setattr(real, function, getattr(fake, function))
    name = ctypes.create_string_buffer(b"sgemm")
    now = time.time_ns()
    times = {"correlation_id": 9, "start": now, "end": now + 500}
    records = [
        real_record(real, "API", kind=real.ActivityKind.RUNTIME, cbid=211, thread_id=5, **times),
        real_record(real, "Kernel", kind=10, name=ctypes.addressof(name), stream_id=7, **times),
        real_record(real, "Memcpy", kind=1, copy_kind=1, bytes=4096, stream_id=7, **times),
    ]
    monkeypatch.setattr(real, "activity_flush_all", lambda flag: fake.completed(records))
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.moment()
        number = fake.pushed[-1]
        external = {"kind": 39, "external_id": number, "correlation_id": 9}
        records.insert(0, real_record(real, "ExternalCorrelation", **external))
    found = [
        (span.level, span.name, span.stream, span.bytes, span.correlation, span.external)
        for span in probe.spans
    ]
    assert found == [
        ("library", found[0][1], None, -1, 9, number),
        ("kernel", "sgemm", "cuda:0 stream 7", -1, 9, number),
        ("kernel", "memcpy HtoD", "cuda:0 stream 7", 4096, 9, number),
    ]
    assert probe.fault == ""
