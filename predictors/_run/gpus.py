"""GPUs as the CUDA driver lists them, and as CUDA_VISIBLE_DEVICES selects them.

No framework is needed. Both sides use this file: cuda:N must mean the same GPU to the probes, to
the device locks and to the framework.
"""

import ctypes
import os
from typing import Any, List, Optional, Sequence


def count_gpus() -> int:
    """Return the number of GPUs that the CUDA driver lists.

    It is 0 where there is no driver: a framework's GPU build can be installed without one.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    if driver.cuInit(0) != 0:
        return 0
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def gpu_devices(count: int) -> List[str]:
    """Return the devices cuda:0, cuda:1, and so on of ``count`` GPUs."""
    return ["cuda:%d" % index for index in range(count)]


def visible_gpus(uuids: Sequence[str], visible_devices: Optional[str]) -> List[int]:
    """Return the positions in ``uuids`` of the GPUs that CUDA numbers cuda:0, cuda:1, and so on.

    ``uuids`` are those of all GPUs of the machine, in the order of nvidia-smi; ``visible_devices``
    is the value of CUDA_VISIBLE_DEVICES, None where it is not set. Its entries are indices or
    beginnings of UUIDs; CUDA ignores everything from the first entry on that names no GPU (CUDA C++
    Programming Guide, environment variables). So an empty value and "-1" select none.
    """
    if visible_devices is None:
        return list(range(len(uuids)))
    positions = []
    for entry in visible_devices.split(","):
        position = _position(uuids, entry.strip())
        if position is None:
            break
        positions.append(position)
    return positions


def open_gpu_handle(nvml: Any, ordinal: int) -> Any:
    """Return NVML's handle of the GPU that CUDA calls cuda:``ordinal`` in this process.

    ``nvml`` is the module pynvml, initialized. NVML numbers all GPUs by their place on the bus,
    CUDA those of CUDA_VISIBLE_DEVICES; unlike GPUs in one machine also need
    CUDA_DEVICE_ORDER=PCI_BUS_ID. Raises LookupError where no GPU has that number, and NVMLError.
    """
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is not None:
        entries = visible_devices.split(",")
        if ordinal < len(entries) and entries[ordinal].strip().startswith("MIG-"):
            return nvml.nvmlDeviceGetHandleByUUID(entries[ordinal].strip())
    positions = visible_gpus(_nvml_uuids(nvml), visible_devices)
    if ordinal >= len(positions):
        shown = "not set" if visible_devices is None else repr(visible_devices)
        raise LookupError(
            "there is no cuda:%d among %d visible GPUs; CUDA_VISIBLE_DEVICES is %s"
            % (ordinal, len(positions), shown)
        )
    return nvml.nvmlDeviceGetHandleByIndex(positions[ordinal])


def _position(uuids, entry):
    """Return the position of the one GPU that an entry of CUDA_VISIBLE_DEVICES names, or None."""
    if entry.isdigit():
        index = int(entry)
        return index if index < len(uuids) else None
    if not entry.startswith("GPU-"):
        return None
    found = [position for position, uuid in enumerate(uuids) if uuid.startswith(entry)]
    return found[0] if len(found) == 1 else None


def _nvml_uuids(nvml):
    uuids = []
    for index in range(nvml.nvmlDeviceGetCount()):
        uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index))
        if isinstance(uuid, bytes):  # nvidia-ml-py before 12
            uuid = uuid.decode()
        uuids.append(uuid)
    return uuids
