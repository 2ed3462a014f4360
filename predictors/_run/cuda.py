"""Memory and a stream of a GPU, by ctypes calls of the CUDA driver.

For predictors whose framework has no memory of its own. The driver's library is on every machine
that has a GPU to use, whatever toolkit is installed. Handles of its primary context can be given to
libraries that use the CUDA runtime. Tested above a stub of the driver.
"""

import ctypes
from typing import Any, Dict, NamedTuple

_Pointer = ctypes.c_void_p
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: the stream waits for no other one


class Device:
    """One GPU: its memory, a stream, and copies on that stream.

    Everything raises RuntimeError with CUDA's own message.
    """

    def __init__(self, ordinal: int):
        try:
            self._driver = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise RuntimeError("there is no CUDA driver here (libcuda.so.1)") from error
        self._call("cuInit", ctypes.c_uint(0))
        self._device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(ordinal))
        self._use_context()
        self.stream = self._make_stream()

    def allocate(self, size: int) -> int:
        """Return the address of ``size`` bytes on the GPU; one byte is allocated for none."""
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        return address.value

    def free(self, address: int) -> None:
        """Free memory that ``allocate`` gave."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def upload(self, address: int, array: Any) -> None:
        """Copy a contiguous array to the GPU, in the order of the stream."""
        target = ctypes.c_uint64(address)
        source = _Pointer(array.ctypes.data)
        self._call("cuMemcpyHtoDAsync_v2", target, source, _size(array), _Pointer(self.stream))

    def download(self, array: Any, address: int) -> None:
        """Copy from the GPU into a contiguous array, in the order of the stream."""
        target = _Pointer(array.ctypes.data)
        source = ctypes.c_uint64(address)
        self._call("cuMemcpyDtoHAsync_v2", target, source, _size(array), _Pointer(self.stream))

    def synchronize(self) -> None:
        """Wait until the stream has done everything."""
        self._call("cuStreamSynchronize", _Pointer(self.stream))

    def close(self) -> None:
        """Give stream and context back."""
        self._call("cuStreamDestroy_v2", _Pointer(self.stream))
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def _use_context(self):
        """Make the device's primary context this thread's."""
        context = _Pointer()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self._call("cuCtxSetCurrent", context)

    def _make_stream(self):
        stream = _Pointer()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        return stream.value

    def _call(self, name, *arguments):
        function = getattr(self._driver, name)
        status = function(*arguments)
        if status:
            raise RuntimeError("%s: %s" % (name, self._message(status)))

    def _message(self, status):
        text = ctypes.c_char_p()
        self._driver.cuGetErrorString(status, ctypes.byref(text))
        if not text.value:
            return "error %d" % status
        return text.value.decode()


class Buffers:
    """Memory of a GPU by name, which is kept and only replaced by more: to free waits for all."""

    def __init__(self, device: Device):
        self._device = device
        self._places: Dict[str, _Place] = {}

    def place(self, name: str, size: int) -> int:
        """Return the address of at least ``size`` bytes, the same one as long as they suffice."""
        held = self._places.get(name)
        if held is not None and held.size >= size:
            return held.address
        if held is not None:
            del self._places[name]
            self._device.free(held.address)
        self._places[name] = _Place(self._device.allocate(size), size)
        return self._places[name].address

    def close(self) -> None:
        """Free everything."""
        while self._places:
            self._device.free(self._places.popitem()[1].address)


class _Place(NamedTuple):
    """Some memory, in bytes."""

    address: int
    size: int


def _size(array):
    return ctypes.c_size_t(array.nbytes)
