"""The probe ``nvml``: utilization, clocks, power, energy, temperature and memory of an NVIDIA GPU.

It needs nvidia-ml-py in the stack's interpreter. Memory and utilization are those of the whole
device, whoever uses it. Of a slice (MIG), clocks, power and temperature are those of its GPU.
"""

from typing import Any

from ..gpus import import_pynvml, instant_power, open_gpu_handle, whole_gpu
from ..probe import Probe, ProbeUnavailable

STEPS = 10
"""Steps of the counter of energy in an interval whose ends are at random: 4 % of error in the mean
of squares, 10 % at most. Drivers advance it ten to fifty times a second."""
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
        "gpu power": "W",  # a mean over a second where the GPU is newer than Ampere's first
        "gpu instant power": "W",
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
        if whole_gpu(self._nvml, handle) is not handle:
            self._readers.pop(_ENERGY, None)
            self.missing[_ENERGY] = "it is counted for the whole GPU, and this is a slice of it"

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
        """Leave NVML; drop an energy of too few steps of its counter."""
        if self._nvml is None:
            return
        self._drop_uncertain_energy()
        self._nvml.nvmlShutdown()
        self._nvml = None

    def _drop_uncertain_energy(self):
        energy = self._readings.get(_ENERGY)
        if energy and len(set(energy.values)) <= STEPS:
            del self._readings[_ENERGY]
            reason = "the counter advanced %d times, and takes %d to be right"
            self.missing[_ENERGY] = reason % (len(set(energy.values)) - 1, STEPS)

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
        pynvml = import_pynvml()
    except ImportError:
        raise ProbeUnavailable(
            "the stack has no nvidia-ml-py from version 12 on; pip install 'nvidia-ml-py>=12' there"
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


def _readers(nvml, handle):
    """Return functions without arguments that read the counters, by name."""
    whole = whole_gpu(nvml, handle)

    def utilization():
        return nvml.nvmlDeviceGetUtilizationRates(handle)

    def clock(kind):
        return nvml.nvmlDeviceGetClockInfo(whole, kind)

    return {
        "gpu utilisation": lambda: utilization().gpu,
        "gpu memory utilisation": lambda: utilization().memory,
        "gpu sm clock": lambda: clock(nvml.NVML_CLOCK_SM),
        "gpu memory clock": lambda: clock(nvml.NVML_CLOCK_MEM),
        "gpu power": lambda: nvml.nvmlDeviceGetPowerUsage(whole) / 1000.0,
        "gpu instant power": lambda: instant_power(nvml, whole),
        _ENERGY: lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(whole) / 1000.0,
        "gpu temperature": lambda: nvml.nvmlDeviceGetTemperature(whole, nvml.NVML_TEMPERATURE_GPU),
        "gpu memory used": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "gpu throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(whole),
    }
