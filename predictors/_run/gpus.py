"""GPUs as NVIDIA's driver lists them, and as CUDA_VISIBLE_DEVICES selects them.

No framework and no package is needed. Both sides use this file: cuda:N must mean the same GPU to
the probes, to the device locks and to the framework. A slice of a GPU (MIG) is a device like a GPU.
CUDA gives a process one slice at most, so that of several only the first is cuda:0 there; pytest
numbers them all, and starts the agent of each with that one.
"""

import ctypes
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .probe import ProbeUnavailable

NVML = "libnvidia-ml.so.1"
_TEXT = 96  # characters: of a UUID, a name or a version
_L2_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE: of a list that has more
_UNTOLD = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_PROCESSES = (  # with the same answer; drivers before 510 have the second one
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
)
_INSTANT_POWER = 186  # NVML_FI_DEV_POWER_INSTANT
_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t


class Gpu(NamedTuple):
    """A GPU, or a slice of one: ``memory`` is in bytes, 0 where the driver doesn't tell it.

    ``slices`` are those of a GPU in MIG mode, which can only be used by them; None in another mode.
    ``place`` is an older name of a slice: by its GPU, and the ids of its GPU and compute instance.
    """

    uuid: str
    name: str = ""
    memory: int = 0
    driver: str = ""
    slices: Optional[Tuple[Any, ...]] = None
    place: str = ""

    @property
    def devices(self) -> List[Any]:
        """The devices that CUDA can use of it: itself, or its slices."""
        return [self] if self.slices is None else list(self.slices)


def count_gpus() -> int:
    """Return the number of GPUs that the CUDA driver lists.

    It is 0 where there is no driver: a framework's GPU build can be installed without one.
    """
    driver = _cuda()
    count = ctypes.c_int()
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def l2_bytes(device: str) -> int:
    """Return the size of the L2 cache of a device such as cuda:1, 0 where no driver tells it."""
    driver = _cuda() if device.startswith("cuda") else None
    number, size = ctypes.c_int(), ctypes.c_int()
    ordinal = int(device.partition(":")[2] or 0)
    if driver is None or driver.cuDeviceGet(ctypes.byref(number), ordinal) != 0:
        return 0
    refused = driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_SIZE, number) != 0
    return 0 if refused else size.value


def gpu_devices(count: int) -> List[str]:
    """Return the devices cuda:0, cuda:1, and so on of ``count`` GPUs."""
    return ["cuda:%d" % index for index in range(count)]


def take_as_needed(variable: str, value: str, others: Sequence[str] = ()) -> Dict[str, str]:
    """Have a framework take a GPU's memory as it needs it, by a variable that it reads later.

    By themselves some take most of it, and an upgrade has two agents on a GPU at once. Where the
    user set this variable or one of ``others``, that counts. Return those that are set.
    """
    names = (variable, *others)
    if not any(name in os.environ for name in names):
        os.environ[variable] = value
    return {name: os.environ[name] for name in names if name in os.environ}


def list_gpus() -> List[Gpu]:
    """Return the GPUs of this machine in NVML's order, by their place on the bus.

    The list is empty where NVML gives no answer.
    """
    try:
        nvml = ctypes.CDLL(NVML)
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        gpus = []
        driver = _text(nvml, "nvmlSystemGetDriverVersion")
        for index in range(_answer(nvml, "nvmlDeviceGetCount_v2", ctypes.c_uint).value):
            handle = _child(nvml, "nvmlDeviceGetHandleByIndex_v2", index)
            if handle:
                gpu = _gpu(nvml, handle, driver)
                gpus.append(gpu._replace(slices=_slices(nvml, handle, gpu)))
        return gpus
    finally:
        nvml.nvmlShutdown()


def visible_gpus(gpus: Sequence[Gpu], visible_devices: Optional[str]) -> List[Gpu]:
    """Return the GPUs, and slices of GPUs, that are cuda:0, cuda:1, and so on.

    ``gpus`` are all of the machine; ``visible_devices`` is the value of CUDA_VISIBLE_DEVICES, None
    where it is not set. Its entries are indices or beginnings of UUIDs; CUDA ignores everything
    from the first entry on that names no GPU (CUDA C++ Programming Guide, environment variables).
    So an empty value and "-1" select none. A GPU in MIG mode stands for its slices.
    """
    if visible_devices is None:
        return [device for gpu in gpus for device in gpu.devices]
    found: List[Gpu] = []
    for entry in visible_devices.split(","):
        named = _named(gpus, entry.strip())
        if named is None:
            break
        found += named.devices
    return found


class Memory(NamedTuple):
    """Bytes of a device, whoever uses them."""

    free: int
    used: int


class NvmlDevice:
    """NVML's facts of a device such as cuda:1, without the package pynvml.

    Everything raises ProbeUnavailable with NVML's reason.
    """

    def __init__(self, device: str):
        if not device.startswith("cuda"):
            raise ProbeUnavailable("the device is %s; NVML reads NVIDIA's GPUs" % device)
        try:
            self._nvml = ctypes.CDLL(NVML)
        except OSError:
            raise ProbeUnavailable("there is no NVIDIA driver (%s)" % NVML) from None
        self._nvml.nvmlErrorString.restype = ctypes.c_char_p
        self._handle = ctypes.c_void_p()
        self._call("nvmlInit_v2")
        try:
            uuid = uuid_of(int(device.partition(":")[2] or 0)).encode()
            self._call("nvmlDeviceGetHandleByUUID", uuid, ctypes.byref(self._handle))
        except (LookupError, ProbeUnavailable) as error:
            self.close()
            raise ProbeUnavailable("NVML has no %s: %s" % (device, error)) from None

    def memory(self) -> Memory:
        """Return the memory of the whole device."""
        found = (ctypes.c_ulonglong * 3)()
        self._call("nvmlDeviceGetMemoryInfo", self._handle, found)
        return Memory(free=found[1], used=found[2])

    def memory_by_process(self) -> Dict[int, Optional[int]]:
        """Return the bytes that processes hold, by id; None where it isn't told.

        In a container the ids may be those outside.
        """
        name = next((name for name in _PROCESSES if hasattr(self._nvml, name)), _PROCESSES[0])
        count = ctypes.c_uint(0)
        self._call(name, self._handle, ctypes.byref(count), None)
        running = (_Process * (2 * count.value + 5))()  # more may start meanwhile
        count.value = len(running)
        self._call(name, self._handle, ctypes.byref(count), running)
        told = running[: count.value]
        return {each.pid: None if each.bytes == _UNTOLD else each.bytes for each in told}

    def joules(self) -> float:
        """Return the counter of energy."""
        if _answer(self._nvml, "nvmlDeviceIsMigDeviceHandle", ctypes.c_uint, self._handle).value:
            raise ProbeUnavailable("it is counted for the whole GPU, and this is a slice of it")
        found = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(found))
        return found.value / 1000.0

    def close(self) -> None:
        """Leave NVML."""
        self._nvml.nvmlShutdown()

    def _call(self, name, *arguments):
        function = getattr(self._nvml, name, None)
        if function is None:
            raise ProbeUnavailable("this driver has no %s" % name)
        status = function(*arguments)
        if status not in (0, _TOO_SMALL):
            raise ProbeUnavailable("NVML: %s" % self._nvml.nvmlErrorString(status).decode())


class _Process(ctypes.Structure):
    """A nvmlProcessInfo_t of its versions 2 and 3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def import_pynvml() -> Any:
    """Return the module pynvml.

    Raises ImportError also where it is that of another package, or older than nvidia-ml-py 12.
    """
    import pynvml
    from pynvml import nvmlGpmQueryDeviceSupport  # noqa: F401

    return pynvml


def open_gpu_handle(nvml: Any, ordinal: int) -> Any:
    """Return NVML's handle of the GPU that CUDA calls cuda:``ordinal`` in this process.

    ``nvml`` is the module pynvml, initialized. NVML numbers all GPUs by their place on the bus,
    CUDA those of CUDA_VISIBLE_DEVICES, in agents in the same order. Raises LookupError where no GPU
    has that number, and NVMLError.
    """
    return nvml.nvmlDeviceGetHandleByUUID(uuid_of(ordinal).encode())


def uuid_of(ordinal: int) -> str:
    """Return the UUID of cuda:``ordinal`` in this process, or raise LookupError."""
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible_gpus(list_gpus(), visible_devices)
    if ordinal >= len(gpus):
        shown = "not set" if visible_devices is None else repr(visible_devices)
        raise LookupError(
            "there is no cuda:%d among %d visible GPUs; CUDA_VISIBLE_DEVICES is %s"
            % (ordinal, len(gpus), shown)
        )
    return gpus[ordinal].uuid


def whole_gpu(nvml: Any, handle: Any) -> Any:
    """Return the handle of the GPU that a slice is part of; that of a GPU as it is.

    Clocks, power, temperature and what slows a GPU down are told of the whole GPU only.
    """
    try:
        is_slice = nvml.nvmlDeviceIsMigDeviceHandle(handle)
    except nvml.NVMLError:  # a driver that knows of none
        return handle
    return nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle) if is_slice else handle


def field_value(nvml: Any, handle: Any, field: int) -> Any:
    """Return a value of NVML by its NVML_FI_ number. Raises NVMLError."""
    (found,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if found.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(found.nvmlReturn)
    return getattr(found.value, _MEMBERS[found.valueType])


def instant_power(nvml: Any, handle: Any) -> float:
    """Return the watts of this moment, where nvmlDeviceGetPowerUsage has a mean over a second."""
    return field_value(nvml, handle, _INSTANT_POWER) / 1000.0


def _cuda():
    """Return CUDA's driver, None where there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return None if driver.cuInit(0) else driver


def _named(gpus, entry):
    """Return the one GPU or slice that an entry of CUDA_VISIBLE_DEVICES names, or None."""
    if entry.isdigit():
        return gpus[int(entry)] if int(entry) < len(gpus) else None
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    devices = list(gpus) + [part for gpu in gpus for part in gpu.slices or ()]
    found = [device for device in devices if device.uuid.startswith(entry) or device.place == entry]
    return found[0] if len(found) == 1 else None


def _gpu(nvml, handle, driver):
    return Gpu(
        uuid=_text(nvml, "nvmlDeviceGetUUID", handle),
        name=_text(nvml, "nvmlDeviceGetName", handle),
        memory=_answer(nvml, "nvmlDeviceGetMemoryInfo", ctypes.c_ulonglong * 3, handle)[0],
        driver=driver,
    )


def _slices(nvml, handle, gpu):
    """Return the slices of a GPU in MIG mode, None in another mode; places may be empty."""
    places = _answer(nvml, "nvmlDeviceGetMaxMigDeviceCount", ctypes.c_uint, handle).value
    if not places:
        return None
    slices = []
    for index in range(places):
        part = _child(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        if part:
            own = _answer(nvml, "nvmlDeviceGetGpuInstanceId", ctypes.c_uint, part).value
            compute = _answer(nvml, "nvmlDeviceGetComputeInstanceId", ctypes.c_uint, part).value
            place = "MIG-%s/%d/%d" % (gpu.uuid, own, compute)
            slices.append(_gpu(nvml, part, gpu.driver)._replace(place=place))
    return tuple(slices)


def _answer(nvml, name, kind, *arguments):
    """Return what a function of NVML writes to its last argument; zeros where it refuses."""
    answer = kind()
    function = getattr(nvml, name, None)  # old drivers don't have all
    refused = function is None or function(*arguments, ctypes.byref(answer)) != 0
    return kind() if refused else answer


def _child(nvml, name, *arguments):
    """Return a handle, None where there is none."""
    handle = _answer(nvml, name, ctypes.c_void_p, *arguments)
    return handle if handle.value else None


def _text(nvml, name, *arguments):
    text = ctypes.create_string_buffer(_TEXT)
    refused = getattr(nvml, name)(*arguments, text, _TEXT) != 0
    return "" if refused else text.value.decode(errors="replace")
