"""A GPU by NVML (nvidia-ml-py in the stack's interpreter): utilisation, clocks, power, energy,
temperature, memory.

Never run on a GPU yet. Memory and utilisation are the whole device's, whoever uses it.
"""

import os
import time

from . import Probe, ProbeUnavailable

# seconds; in less the energy counter and the integrated power disagree (ml-energy/zeus#181)
_SHORTEST = 0.1


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
        "gpu energy": "J",
        "gpu temperature": "degC",
        "gpu memory used": "B",
        "gpu throttle reasons": "bits",
    }
    rising = ("gpu energy",)
    _nvml = None

    def start(self):
        """Open the device; what it can't tell is named in ``missing``."""
        self._nvml, handle = open_nvml(self.device)
        self._readers = self._that_work(_readers(self._nvml, handle))
        self._began = time.perf_counter()

    def read(self):
        """Return what the device tells."""
        return {name: read() for name, read in self._readers.items()}

    def stop(self):
        """Leave NVML; energy over too short a time is left out."""
        if self._nvml is None:
            return
        if (
            self._readings
            and time.perf_counter() - self._began < _SHORTEST
            and self._readings.pop("gpu energy", None)
        ):
            self.missing["gpu energy"] = (
                "watched for less than 0.1 s, in which the counter isn't right"
            )
        self._nvml.nvmlShutdown()
        self._nvml = None

    def _that_work(self, readers):
        work = {}
        for name, read in readers.items():
            try:
                read()
                work[name] = read
            except self._nvml.NVMLError as error:
                self.missing[name] = str(error)
        return work


def open_nvml(device):
    """Return NVML, to be shut down, and the device's handle.

    Raises ProbeUnavailable where there is none.
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
    try:
        return pynvml, _handle(pynvml, int(device.partition(":")[2] or 0))
    except pynvml.NVMLError as error:
        pynvml.nvmlShutdown()
        raise ProbeUnavailable("NVML has no %s: %s" % (device, error)) from None


def _handle(nvml, index):
    """Return NVML's handle of CUDA's device ``index``, which CUDA_VISIBLE_DEVICES may have
    renumbered.
    """
    visible = [
        name.strip()
        for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if name.strip()
    ]
    name = visible[index] if index < len(visible) else str(index)
    return (
        nvml.nvmlDeviceGetHandleByIndex(int(name))
        if name.isdigit()
        else nvml.nvmlDeviceGetHandleByUUID(name)
    )


def _readers(nvml, handle):
    return {
        "gpu utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "gpu memory utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).memory,
        "gpu sm clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "gpu memory clock": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "gpu power": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
        "gpu energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0,
        "gpu temperature": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "gpu memory used": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
    }
