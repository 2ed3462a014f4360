"""The probe ``nvml``: utilization, clocks, power, energy, temperature and memory of an NVIDIA GPU.

It needs nvidia-ml-py in the stack's interpreter. Memory and utilization are those of the whole
device, whoever uses it. Tested with hand-written fakes; no GPU has run it.
"""

import functools
import time
from typing import Any, Optional

from ..gpus import open_gpu_handle
from ..probe import Probe, ProbeUnavailable

# Seconds. In less the energy counter and the integrated power disagree (ml-energy/zeus#181).
_SHORTEST = 0.1
_ENERGY = "gpu energy"


class Nvml(Probe):
    """Samples every 20 ms and between calls."""

    name = "nvml"
    levels = ("hardware",)
    period = 0.02
    units = {
        "gpu utilisation": "%",
        "gpu memory utilisation": "%",
        "gpu sm clock": "MHz",
        "gpu memory clock": "MHz",
        "gpu power": "W",
        _ENERGY: "J",
        "gpu temperature": "degC",
        "gpu memory used": "B",
        "gpu throttle reasons": "bits",
    }
    rising = (_ENERGY,)
    _nvml: Any = None

    def start(self):
        """Open the device; counters that it does not have are named in ``missing``."""
        self._nvml, handle = open_nvml(self.device)
        self._readers = self._working(_readers(self._nvml, handle))
        self._began = time.perf_counter()

    def read(self):
        """Return the value of each counter that the device has and tells now."""
        values = {}
        for name, read in self._readers.items():
            try:
                values[name] = read()
            except self._nvml.NVMLError as error:
                self.missing[name] = str(error)
        return values

    def stop(self):
        """Leave NVML; drop the energy of a time that was too short."""
        if self._nvml is None:
            return
        if self._readings and time.perf_counter() - self._began < _SHORTEST:
            self._drop_energy()
        self._nvml.nvmlShutdown()
        self._nvml = None

    def _drop_energy(self):
        if self._readings.pop(_ENERGY, None):
            self.missing[_ENERGY] = "observed for less than 0.1 s, in which the counter isn't right"

    def _working(self, readers):
        """Return the readers of the counters that the device has."""
        working = {}
        for name, read in readers.items():
            try:
                read()
                working[name] = read
            except self._nvml.NVMLError as error:
                self.missing[name] = str(error)
        return working


def open_nvml(device):
    """Return the module pynvml, which the caller shuts down, and NVML's handle of the device.

    Raises ProbeUnavailable where the device is no GPU or NVML cannot open it.
    """
    if not device.startswith("cuda"):
        raise ProbeUnavailable("the device is %s; NVML reads NVIDIA's GPUs" % device)
    try:
        import pynvml
    except ImportError:
        raise ProbeUnavailable(
            "nvidia-ml-py isn't installed in the stack; pip install nvidia-ml-py there"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise ProbeUnavailable("NVML: %s; is the NVIDIA driver there?" % error) from None
    ordinal = int(device.partition(":")[2] or 0)
    try:
        return pynvml, open_gpu_handle(pynvml, ordinal)
    except (LookupError, pynvml.NVMLError) as error:
        pynvml.nvmlShutdown()
        raise ProbeUnavailable("NVML has no %s: %s" % (device, error)) from None


_open_once = functools.lru_cache(maxsize=None)(open_nvml)


def device_memory(device: str) -> Optional[int]:
    """Return the bytes that are used on the whole device; None where NVML can't tell."""
    try:
        nvml, handle = _open_once(device)
    except ProbeUnavailable:
        return None
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)
    except nvml.NVMLError:
        return None


def _readers(nvml, handle):
    """Return functions without arguments that read the counters, by name."""

    def utilization():
        return nvml.nvmlDeviceGetUtilizationRates(handle)

    def clock(kind):
        return nvml.nvmlDeviceGetClockInfo(handle, kind)

    def temperature():
        return nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)

    return {
        "gpu utilisation": lambda: utilization().gpu,
        "gpu memory utilisation": lambda: utilization().memory,
        "gpu sm clock": lambda: clock(nvml.NVML_CLOCK_SM),
        "gpu memory clock": lambda: clock(nvml.NVML_CLOCK_MEM),
        "gpu power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
        _ENERGY: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0,
        "gpu temperature": temperature,
        "gpu memory used": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
