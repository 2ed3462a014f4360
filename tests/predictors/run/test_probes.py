"""Probes watch what they can, name what they can't and why, and never cost a call."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import mlms_predictors._run.probes as probes
import numpy as np
import pytest
from mlms_predictors._run.probes import (
    Probe,
    ProbeUnavailable,
    bpftrace,
    cupti,
    nvml,
    open_probe,
    perf,
    power,
)

linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="Linux's /proc and perf_event_open"
)


def values(probe: Probe, name: str) -> list[float]:
    return next(list(series.values) for series in probe.series if series.name == name)


def work() -> None:
    sum(range(100_000))


def perf_or_skip() -> Probe:
    probe = open_probe("perf", "cpu", "hardware")
    try:
        with probe:
            pass
    except ProbeUnavailable as reason:
        pytest.skip(str(reason))
    return open_probe("perf", "cpu", "hardware")


@linux
def test_perf_counts_software_events_and_names_what_is_missing() -> None:
    probe = perf_or_skip()
    with probe:
        probe.between()
        work()
        probe.between()
    clock = values(probe, "task-clock")
    assert clock[1] > clock[0]
    found = {series.name for series in probe.series}
    assert found | set(probe.missing) == {event[0] for event in perf.EVENTS}
    assert all(reason for reason in probe.missing.values())


@linux
def test_perf_counts_the_threads_that_were_there_and_those_that_came() -> None:
    ready, go, spent = threading.Event(), threading.Event(), 0.02  # seconds of CPU time

    def spin() -> None:
        ready.set()
        go.wait()
        began = time.thread_time()
        while time.thread_time() < began + spent:
            pass

    probe = perf_or_skip()
    old = threading.Thread(target=spin)
    old.start()
    ready.wait()
    with probe:
        probe.between()
        new = threading.Thread(target=spin)
        new.start()
        go.set()
        old.join()
        new.join()
        probe.between()
    clock = values(probe, "task-clock")
    assert (clock[1] - clock[0]) / 1e9 > 1.9 * spent


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOENT, "no such counter"),
        (errno.EACCES, r"perf_event_paranoid is .*, it takes 2 or less"),
        (errno.ENOSYS, "no perf_event_open"),
    ],
)
def test_perf_says_why_nothing_can_be_counted(
    monkeypatch: pytest.MonkeyPatch, number: int, words: str
) -> None:
    def refuse(self: Any, *arguments: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(perf.Perf, "_call", refuse)
    monkeypatch.setattr(perf.platform, "system", lambda: "Linux")
    monkeypatch.setattr(perf.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(perf, "_threads", lambda: [1])
    with pytest.raises(ProbeUnavailable, match=words), open_probe("perf", "cpu", "hardware"):
        pass


@linux
def test_perf_counts_user_space_where_the_kernel_is_not_permitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    perf_or_skip()
    real = perf.Perf._call

    def paranoid(self: Any, kind: int, config: int, thread: int, flags: int) -> int:
        if not flags & perf._EXCLUDE_KERNEL:
            raise PermissionError(errno.EACCES, "Permission denied")
        return int(real(self, kind, config, thread, flags))

    monkeypatch.setattr(perf.Perf, "_call", paranoid)
    with open_probe("perf", "cpu", "hardware") as probe:
        probe.between()
    assert "task-clock" in {series.name for series in probe.series}
    assert re.search("not permitted: .* it takes 1 or less", probe.missing["context-switches"])


def test_a_count_is_scaled_by_the_time_that_it_ran() -> None:
    pack = perf.struct.pack
    assert perf._scaled(pack("=QQQ", 10, 100, 100)) == 10
    assert perf._scaled(pack("=QQQ", 10, 100, 50)) == 20
    assert perf._scaled(pack("=QQQ", 0, 100, 0)) is None


@linux
def test_io_counts_what_this_process_wrote(tmp_path: Path) -> None:
    with open_probe("io", "cpu", "hardware") as probe:
        probe.between()
        (tmp_path / "file").write_bytes(bytes(12_345))
        probe.between()
    written = values(probe, "wchar")
    assert written[1] - written[0] >= 12_345


@linux
def test_memory_is_sampled_while_a_call_runs() -> None:
    with open_probe("memory", "cpu", "hardware") as probe:
        probe.between()
        block = bytearray(os.urandom(1 << 20)) * 64
        probe.between()
        assert len(block) == 64 << 20
    resident = values(probe, "resident")
    assert resident[-1] - resident[0] > 32 << 20
    assert probe.fault == ""


def fake_rapl(folder: Path, energy: int) -> None:
    domain = folder / "intel-rapl:0"
    domain.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "name": "package-0",
        "max_energy_range_uj": "1000000",
        "energy_uj": str(energy),
    }.items():
        (domain / name).write_text(text + "\n")


def test_energy_goes_on_where_its_counter_wraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "POWERCAP", str(tmp_path))
    monkeypatch.setattr(power.Rapl, "period", None)
    fake_rapl(tmp_path, 900_000)
    with open_probe("rapl", "cpu", "hardware") as probe:
        probe.between()
        fake_rapl(tmp_path, 400_000)
        probe.between()
    (series,) = probe.series
    assert (series.name, series.unit) == ("package-0 energy (intel-rapl:0)", "J")
    assert list(series.values) == pytest.approx([0, 0.5])


def test_the_sensors_of_hwmon_are_read_in_watts_and_degrees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "HWMON", str(tmp_path))
    sensor = tmp_path / "hwmon3"
    sensor.mkdir()
    for name, text in {
        "name": "board",
        "power1_average": "42500000",
        "temp1_input": "61000",
        "temp2_input": "x",
    }.items():
        (sensor / name).write_text(text)
    with open_probe("hwmon", "cpu", "hardware") as probe:
        probe.between()
    found = {series.name: (series.values[0], series.unit) for series in probe.series}
    assert found["board power1_average (hwmon3)"] == (pytest.approx(42.5), "W")
    assert found["board temp1_input (hwmon3)"] == (pytest.approx(61), "degC")
    assert len(probe.missing) == 1


@pytest.mark.parametrize(("name", "words"), [("rapl", "no RAPL domains"), ("hwmon", "no sensors")])
def test_a_machine_without_sensors_has_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setattr(power, "POWERCAP", str(tmp_path))
    monkeypatch.setattr(power, "HWMON", str(tmp_path))
    with pytest.raises(ProbeUnavailable, match=words), open_probe(name, "cpu", "hardware"):
        pass


@pytest.mark.parametrize("name", ["cupti", "nvml", "gpm"])
def test_a_probe_of_gpus_says_that_the_device_is_none(name: str) -> None:
    with (
        pytest.raises(ProbeUnavailable, match="the device is cpu"),
        open_probe(name, "cpu", "kernel"),
    ):
        pass


@pytest.mark.parametrize(
    ("name", "module"), [("cupti", "cupti"), ("nvml", "pynvml"), ("gpm", "pynvml")]
)
def test_a_probe_whose_package_is_not_installed_says_which(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ProbeUnavailable, match="pip install"), open_probe(name, "cuda:0", "kernel"):
        pass


def test_there_is_no_probe_of_that_name() -> None:
    with pytest.raises(ProbeUnavailable, match="there are bpftrace, cupti"):
        open_probe("magic", "cpu", "hardware")


class Breaks(Probe):
    name = "breaks"

    def read(self) -> dict[str, int]:
        if len(self.series) and len(self.series[0].values) == 2:
            raise OSError("the sensor is gone")
        return {"value": 7}


def test_a_probe_that_dies_midway_keeps_what_it_read_and_tells_its_fault() -> None:
    with Breaks("cpu") as probe:
        for _ in range(5):
            probe.between()
    assert values(probe, "value") == [7, 7]
    assert probe.fault == "OSError: the sensor is gone"


def test_a_fault_of_stopping_is_told_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any) -> None:
        raise RuntimeError("no flush")

    monkeypatch.setattr(Breaks, "stop", fail)
    with Breaks("cpu") as probe:
        probe.between()
    assert probe.fault == "RuntimeError: no flush"


class FakeCupti:
    """The part of cupti-python that the probe uses, with the records of one launch.

    A GPU alone has the real one.
    """

    ActivityKind = types.SimpleNamespace(
        MEMCPY=1, MEMSET=2, CONCURRENT_KERNEL=10, DRIVER=4, RUNTIME=5, EXTERNAL_CORRELATION=39
    )
    ExternalCorrelationKind = types.SimpleNamespace(CUSTOM0=3)
    CallbackDomain = types.SimpleNamespace(DRIVER_API=1, RUNTIME_API=2)

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.log: list[Any] = []
        self.pushed: list[int] = []
        self.launched_in: list[int] = []

    def activity_push_external_correlation_id(self, kind: int, number: int) -> None:
        assert kind == 3
        self.pushed.append(number)

    def activity_pop_external_correlation_id(self, kind: int) -> int:
        assert kind == 3
        return self.pushed.pop()

    def launch(self) -> None:
        """What a framework does inside of a layer: CUPTI notes the number on top."""
        self.launched_in = self.pushed[-1:]

    def get_callback_name(self, domain: int, number: int) -> str:
        return f"cudaCall{number}"

    def activity_register_callbacks(self, requested: Any, completed: Any) -> None:
        self.log.append("register")
        assert requested()[0] > 0
        self.completed = completed

    def activity_enable(self, kind: int) -> None:
        if self.error:
            raise self.error
        self.log.append(("enable", kind))

    def activity_disable(self, kind: int) -> None:
        self.log.append(("disable", kind))

    def activity_flush_all(self, flag: int) -> None:
        self.log.append("flush")
        now = probes.time.time_ns()
        record = types.SimpleNamespace
        common = {"correlation_id": 9, "start": now, "end": now + 500}
        on_device = {"device_id": 0, "stream_id": 7, **common}
        thread = threading.get_ident() & 0xFFFFFFFF
        self.completed(
            [
                *(
                    record(kind=39, correlation_id=9, external_id=number)
                    for number in self.launched_in
                ),
                record(kind=5, cbid=211, thread_id=thread, **common),
                record(kind=10, name="sgemm", **on_device),
                record(kind=1, bytes=4096, copy_kind=1, **on_device),
                record(kind=2, bytes=64, **on_device),
                record(kind=10, name="never ran", **{**on_device, "start": 0, "end": 0}),
            ]
        )


def use_cupti(monkeypatch: pytest.MonkeyPatch, fake: FakeCupti) -> None:
    monkeypatch.setitem(sys.modules, "cupti", types.SimpleNamespace(cupti=fake))


def test_records_of_cupti_become_spans_on_the_monotonic_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCupti()
    use_cupti(monkeypatch, fake)
    before = int(probes.time.perf_counter() * 1e9)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.between()
    after = int(probes.time.perf_counter() * 1e9)
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
    slack = 10_000_000  # two clocks, read one after the other
    assert all(
        before - slack <= span.start <= after + slack and span.end - span.start == 500
        for span in probe.spans
    )
    kinds = [entry[1] for entry in fake.log if entry[0] == "enable"]
    assert fake.log[0] == "register"
    assert fake.log[-len(kinds) - 1 :] == ["flush", *(("disable", kind) for kind in kinds)]


def test_the_library_level_asks_for_calls_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCupti()
    use_cupti(monkeypatch, fake)
    with open_probe("cupti", "cuda:0", "library"):
        pass
    assert {entry[1] for entry in fake.log if entry[0] == "enable"} == {4, 5, 39}


def test_what_a_layer_calls_has_the_number_of_the_moment_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCupti()
    use_cupti(monkeypatch, fake)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.moment()
        probe.moment()
        fake.launch()
        probe.moment()
    numbers = [number for _, number in probe.moments]
    assert len(set(numbers)) == 3
    assert [span.external for span in probe.spans] == [numbers[1]] * 4
    assert [at for at, _ in probe.moments] == sorted(at for at, _ in probe.moments)
    assert fake.pushed == [], "the last number was taken back"
    with open_probe("cupti", "cuda:0", "kernel") as again:
        again.moment()
    assert again.moments[0][1] not in numbers, "a number is used once in a process"


def test_a_number_that_cupti_does_not_take_is_told_and_the_layer_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeCupti()
    use_cupti(monkeypatch, fake)

    def refuse(kind: int, number: int) -> None:
        raise RuntimeError("CUPTI_ERROR_INVALID_PARAMETER")

    monkeypatch.setattr(fake, "activity_push_external_correlation_id", refuse)
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.moment()
    assert (probe.moments, probe.fault) == ([], "RuntimeError: CUPTI_ERROR_INVALID_PARAMETER")
    assert {span.external for span in probe.spans} == {0}


RECORDS = {
    "API": "api",
    "ExternalCorrelation": "external_correlation",
    "Kernel": "kernel",
    "Memcpy": "memcpy",
}


def real_record(real: Any, record: str, **fields: int) -> Any:
    """Return a record of cupti-python's own class, of the newest version of its structure."""
    names = [name for name in dir(real) if re.fullmatch(rf"Activity{record}\d*", name)]
    version = max(
        (name.removeprefix(f"Activity{record}") for name in names), key=lambda text: int(text or 0)
    )
    data = np.zeros(1, getattr(real, f"activity_{RECORDS[record]}{version}_dtype"))
    for name, value in fields.items():
        data[name] = value
    return getattr(real, f"Activity{record}{version}").from_data(data)


def test_the_packages_own_functions_and_records_are_what_the_probe_takes_them_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = pytest.importorskip(
        "cupti.cupti", reason="cupti-python isn't installed: pip install cupti-python"
    )
    fake, name = FakeCupti(), ctypes.create_string_buffer(b"sgemm")
    for function in vars(FakeCupti):
        if function.startswith("activity_"):
            monkeypatch.setattr(
                real, function, getattr(fake, function)
            )  # raises where the package has none
    now = probes.time.time_ns()
    common = {"correlation_id": 9, "start": now, "end": now + 500}
    records = [
        real_record(real, "API", kind=real.ActivityKind.RUNTIME, cbid=211, thread_id=5, **common),
        real_record(real, "Kernel", kind=10, name=ctypes.addressof(name), stream_id=7, **common),
        real_record(real, "Memcpy", kind=1, copy_kind=1, bytes=4096, stream_id=7, **common),
    ]
    monkeypatch.setattr(real, "activity_flush_all", lambda flag: fake.completed(records))
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        probe.moment()
        number = fake.pushed[-1]
        records.insert(
            0,
            real_record(real, "ExternalCorrelation", kind=39, external_id=number, correlation_id=9),
        )
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


class NotSupportedError(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "words"),
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
    ],
)
def test_cupti_says_why_it_cannot_watch(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    use_cupti(monkeypatch, FakeCupti(error))
    with pytest.raises(ProbeUnavailable, match=words), open_probe("cupti", "cuda:0", "kernel"):
        pass


def test_what_cupti_recorded_is_kept_where_disabling_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCupti()
    use_cupti(monkeypatch, fake)
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


def test_a_probe_that_cannot_stop_either_says_why_it_could_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = open_probe("io", "cpu", "hardware")

    def refuse() -> None:
        raise ProbeUnavailable("the reason")

    def broken() -> None:
        raise RuntimeError("nothing to stop")

    monkeypatch.setattr(probe, "start", refuse)
    monkeypatch.setattr(probe, "stop", broken)
    with pytest.raises(ProbeUnavailable, match="the reason"), probe:
        pass


def test_a_wall_clock_that_steps_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    use_cupti(monkeypatch, FakeCupti())
    offsets = iter([0, 3_000_000_000])
    monkeypatch.setattr(cupti, "wall_offset", lambda: next(offsets))
    with open_probe("cupti", "cuda:0", "kernel") as probe:
        pass
    assert "stepped by 3000.000 ms" in probe.fault


def test_nvml_opens_the_device_that_cuda_means(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = types.SimpleNamespace(
        nvmlDeviceGetHandleByIndex=lambda index: ("index", index),
        nvmlDeviceGetHandleByUUID=lambda name: ("uuid", name),
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-4a")
    assert nvml._handle(fake, 0) == ("index", 3)
    assert nvml._handle(fake, 1) == ("uuid", "GPU-4a")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert nvml._handle(fake, 1) == ("index", 1)


def test_nvml_without_a_driver_says_so() -> None:
    pynvml = pytest.importorskip("pynvml")
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        with (
            pytest.raises(ProbeUnavailable, match="NVIDIA driver"),
            open_probe("nvml", "cuda:0", "hardware"),
        ):
            pass
    else:
        assert pynvml


def test_bpftrace_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with (
        pytest.raises(ProbeUnavailable, match="isn't installed"),
        open_probe("bpftrace", "cpu", "library"),
    ):
        pass


@linux
def test_bpftrace_names_the_library_that_is_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake = tmp_path / "bpftrace"
    fake.write_text(
        "#!/bin/sh\necho ERROR: bpftrace currently only supports running as the root user. >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    options = {"functions": ["libmagic-of-nobody*:spell"]}
    with (
        pytest.raises(ProbeUnavailable, match="no loaded library is libmagic-of-nobody"),
        open_probe("bpftrace", "cpu", "library", options),
    ):
        pass
    with (
        pytest.raises(ProbeUnavailable, match="only supports running as the root user"),
        open_probe("bpftrace", "cpu", "library", {"functions": ["libc[.-]*:getpid"]}),
    ):
        pass


def test_begins_and_ends_of_a_thread_become_spans() -> None:
    lines = [
        line.split()
        for line in (
            "c 0 1 0",
            "b 7 100 0",
            "b 7 110 1",
            "e 8 115 1",
            "e 7 120 1",
            "e 7 150 0",
            "torn",
        )
    ]
    found = [
        (span.name, span.thread, span.start, span.end)
        for span in bpftrace._spans(lines, ["outer", "inner"], 10)
    ]
    assert found == [("inner", 7, 100, 110), ("outer", 7, 90, 140)]


@linux
@pytest.mark.slow
def test_bpftrace_sees_the_calls_of_a_native_function() -> None:
    libc = ctypes.CDLL(None)
    try:
        with open_probe(
            "bpftrace", "cpu", "library", {"functions": ["libc[.-]*:getppid"]}
        ) as probe:
            before = int(time.perf_counter() * 1e9)
            for _ in range(5):
                libc.getppid()
            after = int(time.perf_counter() * 1e9)
    except ProbeUnavailable as reason:
        pytest.skip(str(reason))
    assert [span.name for span in probe.spans] == ["getppid"] * 5
    assert all(before <= span.start <= span.end <= after for span in probe.spans)
