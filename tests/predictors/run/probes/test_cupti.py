"""The probe ``cupti``, by the real cupti-python above a stub of NVIDIA's library."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mlms_predictors._run.probe import Span
from mlms_predictors._run.probes import cupti, open_probe

from tests.support.cupti import Cupti, without_gpu
from tests.support.probes import refusal

SLACK = 10_000_000  # ns between readings of two clocks


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


@without_gpu
def test_records_become_spans_on_the_monotonic_clock(stub: Cupti) -> None:
    before = int(time.perf_counter() * 1e9)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        stub.launch("sgemm")
        stub.launch("_ZN2at6native3addIfEEvPT_", graph=3)
        stub.copy(4096)
    after = int(time.perf_counter() * 1e9)
    found = [
        (span.level, span.name, span.type, span.stream, span.bytes, span.correlation)
        for span in probe.spans
    ]
    assert found == [
        ("library", "cudaLaunchKernel", "", None, -1, 9),
        ("kernel", "sgemm", "kernel", "cuda:0 stream 7", -1, 9),
        ("library", "cudaLaunchKernel", "", None, -1, 9),
        ("kernel", "void at::native::add<float>(float*)", "graph kernel", "cuda:0 stream 7", -1, 9),
        ("kernel", "memcpy HtoD", "memcpy", "cuda:0 stream 7", 4096, 10),
    ]
    assert probe.spans[0].thread == threading.get_native_id()
    for span in probe.spans:
        assert before - SLACK <= span.start <= after + SLACK
        assert span.end - span.start == 500
    assert not probe.fault

    with open_probe("cupti", "cuda:0", "library") as probe:
        stub.launch("sgemm")
    assert [span.level for span in probe.spans] == ["library"]
    assert not probe.fault


@without_gpu
def test_calls_of_a_layer_carry_the_number_of_the_moment_before_it(stub: Cupti) -> None:
    numbers = []
    for _ in range(2):
        with open_probe("cupti", "cuda:0", "kernel") as probe:
            stub.package.activity_push_external_correlation_id(3, 77)  # as Kineto does
            probe.moment()
            probe.moment()
            stub.launch("sgemm")
            probe.moment()
            stub.package.activity_pop_external_correlation_id(3)
        numbers += [number for _, number in probe.moments]
        assert [span.external for span in probe.spans] == [numbers[-2]] * 2
        assert not probe.fault
    assert len(set(numbers)) == 6, "each is used once in a process"
    assert [stub.stub.stub_top(kind) for kind in (3, 4, 5)] == [0, 0, 0], "all were popped"


@without_gpu
def test_a_profiler_that_takes_cupti_over_is_a_fault(stub: Cupti) -> None:
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        stub.take_over()
        stub.launch("sgemm")
    assert not probe.spans
    assert "not one kernel or copy was seen on cuda:0: another profiler" in probe.fault
    with open_probe("cupti", "cuda:0", "library") as probe:
        pass
    assert "not one call of CUDA was seen on cuda:0" in probe.fault


@without_gpu
def test_dropped_records_are_a_fault(stub: Cupti) -> None:
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        for _ in range(300):
            stub.launch("sgemm")
    assert len(probe.spans) < 600
    assert (
        probe.fault == f"CUPTI dropped {600 - len(probe.spans)} records, so calls or kernels lack"
    )
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        stub.launch("sgemm")
    assert not probe.fault, "they are counted once"


@without_gpu
def test_what_cupti_refuses_later_is_a_fault_and_the_records_are_kept(stub: Cupti) -> None:
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        stub.launch("sgemm")
        stub.stub.stub_refuse(999)
        probe.moment()
    assert probe.moments == []
    assert [span.external for span in probe.spans] == [0, 0]
    assert probe.fault == "cuptiError: ERROR_UNKNOWN (999)"


@without_gpu
def test_a_refusal_of_cupti_becomes_a_reason(stub: Cupti) -> None:
    for status, reason in {
        39: "another profiler holds CUPTI",
        35: "NVreg_RestrictProfilingToAdminUsers=0",
        999: "CUPTI: cuptiError: ERROR_UNKNOWN (999)",
    }.items():
        stub.stub.stub_refuse(status)
        assert reason in refusal("cupti", "cuda:0", "kernel")
        assert not cupti.Cupti.active


REAL = """
from cupti import cupti as real
from mlms_predictors._run.probes import cupti
from tests.support.probes import refusal
kinds = real.ActivityKind
assert cupti._call_name(real, kinds.RUNTIME, 211) == "cudaLaunchKernel"
assert cupti._call_name(real, kinds.DRIVER, 307) == "cuLaunchKernel"
assert cupti._call_name(real, kinds.RUNTIME, 99999) == "runtime call 99999"
probe = cupti.Cupti("cuda:0")
probe._cupti = real
probe._ask_for_dropped()
assert not probe.fault
assert refusal("cupti", "cuda:0", "kernel") == "CUPTI: cuptiError: ERROR_UNKNOWN (999)"
"""


def test_the_real_library_names_calls_and_refuses_where_no_gpu_is(driver_libraries: Path) -> None:
    pytest.importorskip("cupti", reason="cupti-python isn't installed")
    env = {**os.environ, "LD_LIBRARY_PATH": str(driver_libraries)}
    subprocess.run([sys.executable, "-c", REAL], check=True, env=env)


def test_a_host_without_a_driver_is_the_reason() -> None:
    pytest.importorskip("cupti", reason="cupti-python isn't installed")
    code = (
        "from tests.support.probes import refusal\n"
        "assert 'another CUDA version' in refusal('cupti', 'cuda:0', 'kernel')\n"
    )
    env = {"PATH": "", "LD_LIBRARY_PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_a_step_of_the_wall_clock_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = iter([0, 3_000_000_000])
    monkeypatch.setattr(cupti, "wall_offset", lambda: next(offsets))
    probe: Any = cupti.CudaProbe("cuda:0", "kernel")
    probe.start()
    probe.spans.append(Span("kernel", "sgemm", "", "", 1, 2, 3))
    probe.check()
    assert "stepped by 3000.000 ms" in probe.fault


def test_a_package_that_is_not_installed_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupti", None)
    reason = refusal("cupti", "cuda:0", "kernel")
    assert "put it beside the stack" in reason
    assert "pip install" not in reason
