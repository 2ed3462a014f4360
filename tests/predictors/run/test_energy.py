"""Energy by counters: a tree of files like powercap's, and a stub of NVIDIA's driver."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from mlms_predictors._run import energy
from mlms_predictors._run.energy import EnergyMeter
from mlms_predictors._run.probes import rapl

from tests.support.driver import H200, SLICED, Driver

RANGE = 1_000_000  # microjoules at which a counter wraps
PACKAGE = "package-0 energy (intel-rapl:0)"
DRAM = "dram energy (intel-rapl:0:2)"


class Seconds:
    """A clock that sleeping advances."""

    def __init__(self, powercap: Powercap | None = None, watts: float = 0.0) -> None:
        self.now = 0.0
        self._powercap = powercap
        self._watts = watts

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self._powercap is not None:
            self._powercap.spend(self._watts * seconds)


class Powercap:
    """A hand-written tree of a package with its parts, and the platform."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._joules = 0.9
        self.add("intel-rapl:0", "package-0")
        self.add("intel-rapl:0:0", "core")
        self.add("intel-rapl:0:2", "dram")
        self.add("intel-rapl:1", "psys")

    def add(self, domain: str, name: str) -> None:
        folder = self._folder / domain
        folder.mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text(f"{RANGE}\n")
        self.spend(0.0)

    def spend(self, joules: float) -> None:
        """Let each counter go on; it wraps."""
        self._joules += joules
        for folder in self._folder.iterdir():
            (folder / "energy_uj").write_text(f"{round(self._joules * 1e6) % RANGE}\n")


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Powercap:
    monkeypatch.setattr(rapl, "POWERCAP", str(tmp_path))
    return Powercap(tmp_path)


@pytest.fixture
def seconds(powercap: Powercap, monkeypatch: pytest.MonkeyPatch) -> Seconds:
    clock = Seconds(powercap, watts=0.25)
    monkeypatch.setattr(energy, "time", clock)
    return clock


def test_energy_is_the_difference_of_two_readings(powercap: Powercap, seconds: Seconds) -> None:
    meter = EnergyMeter("cpu")
    powercap.spend(0.3)
    meter.begin()
    seconds.now += 1
    powercap.spend(0.6)
    assert meter.joules() == pytest.approx({PACKAGE: 0.6, DRAM: 0.6})
    assert meter.missing == ""


def test_a_counter_that_wraps_between_readings_goes_on(
    powercap: Powercap, seconds: Seconds
) -> None:
    meter = EnergyMeter("cpu")
    meter.begin()
    seconds.now += 1
    for _ in range(5):
        powercap.spend(0.4)
        meter.read()
    assert meter.joules()[PACKAGE] == pytest.approx(2.0)


def test_a_counter_that_goes_backwards_is_missing(powercap: Powercap, seconds: Seconds) -> None:
    meter = EnergyMeter("cpu")
    powercap.spend(0.4)
    meter.begin()
    seconds.now += 1
    powercap.spend(-0.2)
    assert meter.joules() == {}
    assert meter.missing == f"the counter {PACKAGE} went backwards"


def test_a_counter_that_ends_is_missing(
    tmp_path: Path, powercap: Powercap, seconds: Seconds
) -> None:
    meter = EnergyMeter("cpu")
    meter.begin()
    seconds.now += 1
    (tmp_path / "intel-rapl:0:2" / "energy_uj").unlink()
    assert meter.joules() == {}
    assert meter.missing == f"the counter {DRAM} ended"


def test_idle_power_is_measured_over_a_sleep(seconds: Seconds) -> None:
    assert EnergyMeter("cpu").idle_watts(2.0) == pytest.approx({PACKAGE: 0.25, DRAM: 0.25})
    assert EnergyMeter("cpu").idle_watts(0.0) == {}


def test_an_interval_that_is_too_short_is_missing(powercap: Powercap, seconds: Seconds) -> None:
    meter = EnergyMeter("cpu")
    meter.begin()
    seconds.now += 0.05
    assert meter.joules() == {}
    assert meter.missing == "timed for 0.050 s, and counters need 0.1 s"


def test_a_machine_without_counters_is_missing_and_never_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rapl, "POWERCAP", str(tmp_path))
    meter = EnergyMeter("cpu")
    meter.begin()
    assert meter.joules() == {}
    assert meter.idle_watts(9.0) == {}
    assert "no RAPL domains in" in meter.missing
    meter.close()


def test_counters_that_only_root_may_read_are_missing(
    powercap: Powercap, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> str:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(rapl, "read_text", refuse)
    assert "readable by root only" in EnergyMeter("cpu").missing


@pytest.fixture
def gpu(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    pytest.importorskip("pynvml")
    monkeypatch.setattr(EnergyMeter, "_periods", {})
    return driver


def test_a_gpu_has_its_own_counter(gpu: Driver) -> None:
    gpu.says(H200, "energy 0+200000@0.02")
    meter = EnergyMeter("cuda:0")
    assert meter.period == pytest.approx(0.02, rel=0.5)
    meter.begin()
    began = time.perf_counter()
    time.sleep(meter.shortest)
    (joules,) = meter.joules().values()
    assert joules / (time.perf_counter() - began) == pytest.approx(200, rel=0.2)
    meter.close()
    assert gpu.users == 0


def test_an_interval_of_a_few_steps_of_a_gpus_counter_is_missing(gpu: Driver) -> None:
    gpu.says(H200, "energy 0+200000@0.05")
    meter = EnergyMeter("cuda:0")
    meter.begin()
    time.sleep(0.15)  # enough for RAPL
    assert meter.joules() == {}
    assert re.match(r"timed for 0\.\d+ s, and counters need 0\.\d+ s", meter.missing)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("energy !3", "no counter of energy; NVML: Not Supported"),
        ("energy 5000", "the counter of energy stands still"),
    ],
)
def test_a_gpu_whose_counter_tells_nothing_is_missing(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, line: str, reason: str
) -> None:
    monkeypatch.setattr(energy, "_LONGEST_STEP", 0.01)
    gpu.says(H200, line)
    assert EnergyMeter("cuda:0").missing == reason


def test_a_gpu_needs_no_package_of_the_stack(gpu: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpu.says(H200, "energy 0+200000@0.02")
    meter = EnergyMeter("cuda:0")
    assert (meter.missing, list(meter.read())) == ("", ["gpu energy"])
    meter.close()


def test_a_counter_of_a_gpu_that_ends_in_a_run_is_missing(gpu: Driver) -> None:
    gpu.says(H200, "energy 0+200000@0.02")
    meter = EnergyMeter("cuda:0")
    meter.begin()
    gpu.says(H200, "energy !15")
    assert meter.joules() == {}
    assert meter.missing == "NVML: Another Error"
    meter.close()


def test_a_slice_of_a_gpu_has_no_energy_of_its_own(gpu: Driver) -> None:
    gpu.says(SLICED, "energy 0+200000@0.02")
    reason = "it is counted for the whole GPU, and this is a slice of it"
    assert EnergyMeter("cuda:1").missing == f"no counter of energy; {reason}"
