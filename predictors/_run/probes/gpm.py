"""What the units of an NVIDIA GPU were busy with, by NVML's GPU Performance Monitoring, which
starts with Hopper.

Never run on a GPU yet: written against NVML's documentation. It is the whole device's, whoever uses
it.
"""

import time

from . import Probe, ProbeUnavailable
from .nvml import open_nvml

_METRICS = (  # our name, the end of NVML's, unit
    ("gpu sm busy", "SM_UTIL", "%"),
    ("gpu sm occupancy", "SM_OCCUPANCY", "%"),
    ("gpu tensor cores busy", "ANY_TENSOR_UTIL", "%"),
    ("gpu fp16 busy", "FP16_UTIL", "%"),
    ("gpu fp32 busy", "FP32_UTIL", "%"),
    ("gpu fp64 busy", "FP64_UTIL", "%"),
    ("gpu integer busy", "INTEGER_UTIL", "%"),
    ("gpu dram bandwidth", "DRAM_BW_UTIL", "%"),
    ("gpu pcie sent", "PCIE_TX_PER_SEC", "MiB/s"),
    ("gpu pcie received", "PCIE_RX_PER_SEC", "MiB/s"),
)
_SHORTEST = 0.1  # seconds between two samples: how often the driver refreshes them


class Gpm(Probe):
    """Averages over each 0.1 s; a reading is of the time since the last."""

    name = "gpm"
    levels = ("hardware",)
    period = _SHORTEST
    units = {name: unit for name, _, unit in _METRICS}
    _nvml = None

    def start(self):
        """Take the first sample; raises ProbeUnavailable where the GPU or the driver has none."""
        self._nvml, self._handle = open_nvml(self.device)
        self._samples = []
        try:
            if not self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
                raise ProbeUnavailable(
                    "this GPU has no performance monitoring by NVML, as those before Hopper"
                )
            for _ in range(2):
                self._samples.append(self._nvml.nvmlGpmSampleAlloc())
            self._refresh()
        except self._nvml.NVMLError as error:
            raise ProbeUnavailable("NVML's performance monitoring: %s" % error) from None

    def read(self):
        """Return the averages since the last reading; nothing where that was too short ago."""
        if time.perf_counter() - self._at < _SHORTEST:
            return {}
        self._samples.reverse()
        self._refresh()
        return dict(self._averages())

    def stop(self):
        """Free the samples and leave NVML."""
        if self._nvml is None:
            return
        if not self._readings:
            self.missing.update(
                dict.fromkeys(
                    self.units, "watched for less than 0.1 s, in which there is no reading"
                )
            )
        for sample in self._samples:
            self._nvml.nvmlGpmSampleFree(sample)
        self._nvml.nvmlShutdown()
        self._nvml = None

    def _refresh(self):
        self._nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        self._at = time.perf_counter()

    def _averages(self):
        """Yield the name and value of each metric that the GPU has."""
        asked = self._nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = self._nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = self._samples
        for place, (_, name, _) in enumerate(_METRICS):
            asked.metrics[place].metricId = getattr(self._nvml, "NVML_GPM_METRIC_" + name)
        found = self._nvml.nvmlGpmMetricsGet(asked).metrics
        for metric, (name, _, _) in zip(found, _METRICS):
            if metric.nvmlReturn == self._nvml.NVML_SUCCESS:
                yield name, metric.value
            else:
                self.missing[name] = str(self._nvml.NVMLError(metric.nvmlReturn))
