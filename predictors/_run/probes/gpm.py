"""The probe ``gpm``: how busy the units of an NVIDIA GPU were.

It reads NVML's GPU Performance Monitoring, which GPUs have from Hopper on. Its numbers are those
of the whole device, or slice of one (MIG), whoever uses it.
"""

import time
from typing import Any

from ..gpus import whole_gpu
from ..probe import Probe, ProbeUnavailable
from .nvml import open_nvml

_METRICS = (  # our name, NVML's name less NVML_GPM_METRIC_, unit
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
    """Averages over each 0.1 s; a reading is of the time since the last one."""

    name = "gpm"
    levels = ("hardware",)
    period = _SHORTEST
    units = {name: unit for name, _, unit in _METRICS}
    _nvml: Any = None

    def start(self):
        """Take the first sample.

        Raises ProbeUnavailable where the GPU or the driver has no such metrics.
        """
        self._nvml, self._handle = open_nvml(self.device)
        self._whole = whole_gpu(self._nvml, self._handle)
        self._samples = []  # the older one first
        try:
            support = self._nvml.nvmlGpmQueryDeviceSupport(self._whole)
            if not support.isSupportedDevice:
                raise ProbeUnavailable(
                    "this GPU has no performance monitoring by NVML, as those before Hopper"
                )
            for _ in range(2):
                self._samples.append(self._nvml.nvmlGpmSampleAlloc())
            self._take_sample()
        except self._nvml.NVMLError as error:
            raise ProbeUnavailable("NVML's performance monitoring: %s" % error) from None

    def read(self):
        """Return the averages since the last reading; nothing where that was too short ago."""
        if time.perf_counter() - self._sampled_at < _SHORTEST:
            return {}
        self._samples.reverse()
        self._take_sample()
        return dict(self._averages())

    def stop(self):
        """Free the samples and leave NVML."""
        if self._nvml is None:
            return
        if not self._readings:
            reason = "observed for less than 0.1 s, in which there is no reading"
            self.missing.update(dict.fromkeys(self.units, reason))
        for sample in self._samples:
            self._nvml.nvmlGpmSampleFree(sample)
        self._nvml.nvmlShutdown()
        self._nvml = None

    def _take_sample(self):
        nvml = self._nvml
        if self._whole is self._handle:
            nvml.nvmlGpmSampleGet(self._handle, self._samples[1])
        else:
            instance = nvml.nvmlDeviceGetGpuInstanceId(self._handle)
            nvml.nvmlGpmMigSampleGet(self._whole, instance, self._samples[1])
        self._sampled_at = time.perf_counter()

    def _averages(self):
        """Yield the name and value of each metric that the GPU has."""
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1 = self._samples[0]
        request.sample2 = self._samples[1]
        for place, (_, suffix, _) in enumerate(_METRICS):
            request.metrics[place].metricId = getattr(self._nvml, "NVML_GPM_METRIC_" + suffix)
        found = self._nvml.nvmlGpmMetricsGet(request).metrics
        for metric, (name, _, _) in zip(found, _METRICS):
            if metric.nvmlReturn == self._nvml.NVML_SUCCESS:
                yield name, metric.value
            else:
                self.missing[name] = str(self._nvml.NVMLError(metric.nvmlReturn))
